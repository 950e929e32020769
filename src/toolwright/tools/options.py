"""What may be said when a tool is defined. Owns the options of `@tool` and what they imply for each other."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, cast

from toolwright.errors import ToolDefinitionError
from toolwright.tools.claims import Concurrency, Resources, read_resources
from toolwright.tools.definition import (
    Approval,
    CrashPolicy,
    Deferral,
    Hints,
    Isolation,
    Kind,
    ToolDefinition,
    implied_approval,
)
from toolwright.tools.retry import NEVER, RetryPolicy


class ToolOptions(TypedDict, total=False):
    """The options of `@tool` and `Tool.from_schema`."""

    id: str
    display_name: str
    output_schema: Mapping[str, Any] | type
    kind: Kind
    category: str
    # hints
    readonly: bool
    destructive: bool
    idempotent: bool
    open_world: bool
    long_running: bool
    polling: bool
    cpu_bound: bool
    requires_secrets: bool
    supports_background: bool
    persist_output: bool
    # permission
    capabilities: Iterable[str]
    approval: Approval
    # what may overlap: exclusive unless one of the others is said
    exclusive: bool
    parallel: bool
    key: str
    reads: Resources
    writes: Resources
    max_concurrency: int
    # time and failure
    timeout: float
    retry: RetryPolicy
    isolation: Isolation
    on_crash: CrashPolicy
    deferral: Deferral
    # runs before the policy decides; its result is in the context as `prepared`, or answers in the tool's place
    prepare: Callable[[dict[str, Any], Any], Any]


_KNOWN = frozenset(ToolOptions.__annotations__)
_HINTS = frozenset(Hints.__struct_fields__)


def define(
    options: ToolOptions, *, name: str, id: str, description: str, input_schema: dict[str, Any]
) -> ToolDefinition:
    """Make the definition of a tool from its options, filling in what they imply.

    Raises:
        ToolDefinitionError: an option is unknown, unusable, or contradicts another.
    """
    for option in options:
        if option not in _KNOWN:
            near = difflib.get_close_matches(option, _KNOWN, 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"the options are: {', '.join(sorted(_KNOWN))}"
            raise ToolDefinitionError(f"Tool {name!r} has an unknown option {option!r}; {remedy}")
    capabilities = _capabilities(options.get("capabilities", ()), name)
    hints = _hints(options, capabilities, name)
    retry = options.get("retry", NEVER)
    if not isinstance(retry, RetryPolicy):
        raise ToolDefinitionError(f"Tool {name!r} has retry={retry!r}; use RetryPolicy(attempts=...)")
    timeout = options.get("timeout")
    if timeout is not None and not isinstance(timeout, (int, float)):
        raise ToolDefinitionError(f"Tool {name!r} has timeout {timeout!r}; use a number of seconds above 0")
    return ToolDefinition(
        name=name,
        id=options.get("id", id),
        description=description,
        display_name=options.get("display_name"),
        input_schema=input_schema,
        output_schema=_output_schema(options.get("output_schema"), name),
        kind=options.get("kind", "function"),
        category=options.get("category"),
        hints=hints,
        capabilities=capabilities,
        approval=options.get("approval", implied_approval(capabilities)),
        timeout=timeout,
        retry=retry,
        concurrency=_concurrency(options, hints, name),
        isolation=options.get("isolation", "none"),
        on_crash=options.get("on_crash", "rerun" if hints.repeatable else "fail"),
        deferral=options.get("deferral", "auto"),
    )


def _capabilities(given: Iterable[str], name: str) -> frozenset[str]:
    if isinstance(given, str):
        raise ToolDefinitionError(f"Tool {name!r} has capabilities={given!r}; use a list of names")
    return frozenset(given)


def _hints(options: ToolOptions, capabilities: frozenset[str], name: str) -> Hints:
    given = {option: value for option, value in options.items() if option in _HINTS}
    for option, value in given.items():
        if not isinstance(value, bool):
            raise ToolDefinitionError(f"Tool {name!r} has {option}={value!r}; use True or False")
    if "read_only" in capabilities:
        given.setdefault("readonly", True)
    if given.get("readonly"):
        if given.get("destructive"):
            raise ToolDefinitionError(f"Tool {name!r} is both readonly and destructive; drop one of the two")
        if options.get("writes"):
            raise ToolDefinitionError(f"Tool {name!r} is readonly and claims to write; drop readonly or writes")
    return Hints(**cast("dict[str, bool]", given))


def _concurrency(options: ToolOptions, hints: Hints, name: str) -> Concurrency:
    reads, writes = read_resources(options.get("reads")), read_resources(options.get("writes"))
    key, parallel, exclusive = options.get("key"), options.get("parallel"), options.get("exclusive")
    if key is not None and (not isinstance(key, str) or not key):
        raise ToolDefinitionError(f"Tool {name!r} has key={key!r}; use a name such as 'browser' or '{{account}}'")
    claims = key is not None or bool(reads) or bool(writes)
    if (exclusive and (parallel or claims)) or (parallel and claims):
        raise ToolDefinitionError(
            f"Tool {name!r} says more than one of exclusive, parallel, and key/reads/writes; keep the one that holds"
        )
    if parallel is None:
        parallel = hints.readonly and not exclusive and not claims
    return Concurrency(
        parallel=bool(parallel), key=key, reads=reads, writes=writes, limit=options.get("max_concurrency")
    )


def _output_schema(given: Mapping[str, Any] | type | None, name: str) -> dict[str, Any] | None:
    if given is None or isinstance(given, Mapping):
        return None if given is None else dict(given)
    from toolwright.tools.signature import type_schema

    return type_schema(given, owner=name)
