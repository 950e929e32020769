"""The options of a tool definition. Owns the options of `@tool` and how they imply each other."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypedDict, cast

from toolwright.errors import ToolDefinitionError
from toolwright.tools.claims import Concurrency, Resource, Resources, read_resources
from toolwright.tools.definition import (
    Approval,
    CrashPolicy,
    Deferral,
    Hints,
    Isolation,
    Kind,
    ToolDefinition,
)
from toolwright.tools.retry_policy import NEVER, RetryPolicy


class ToolOptions(TypedDict, total=False):
    """The options of `@tool` and `Tool.from_schema`. All of them can be left out."""

    id: str
    """A name that stays when the tool is renamed; by default the name of the function."""
    display_name: str
    """A name for people."""
    output_schema: Mapping[str, Any] | type | None
    """The type or JSON Schema that the value must fit, or the call fails; by default the return annotation of the
    function. None leaves the value open."""
    kind: Kind
    """Where the tool comes from; "shell" for a tool that runs scripts, which rules look into."""
    script: str
    """For kind "shell": the parameter that holds the script; "command" by default."""
    directory: str
    """For kind "shell": the directory in which every script starts, so that rules can judge relative paths."""
    mount: str
    """For kind "shell": where scripts see the files of the session, such as "/workspace"."""
    secret: str
    """A parameter whose value is redacted everywhere, and never recorded."""
    category: str
    """A word by which a program groups its tools."""
    readonly: bool
    """It changes nothing: calls may overlap, and may run again after a crash."""
    destructive: bool
    """It can delete or overwrite. A hint for programs that show the tool."""
    idempotent: bool
    """Running it twice with the same arguments has the effect of running it once: it may be retried and rerun."""
    open_world: bool
    """It reaches things outside of the program. A hint for programs that show the tool."""
    long_running: bool
    """Without a `timeout` of its own it has `Policy.long_timeout`."""
    polling: bool
    """It is meant to be called again and again, so that repeated calls are not taken for a loop."""
    cpu_bound: bool
    """Of all such tools together, as many calls run at once as there are processors."""
    requires_secrets: bool | str | Iterable[str]
    """The secrets that the session must have, or True for any; without them its calls are refused."""
    supports_background: bool
    """It can be started as a background run, by a schedule, or by a trigger."""
    persist_output: bool
    """The whole output of each call is stored in a file of the session, also when it is short."""
    capabilities: Iterable[str]
    """Its abilities, for rules: "read_only", "writes_files", "executes_code", "network", "sandboxable",
    "requires_approval"."""
    approval: Approval
    """Whether a person must approve each call: "auto", "suggest" or "required". By default it follows from the
    capabilities."""
    exclusive: bool
    """No other call of the session runs beside it. This is the default of tools without concurrency options."""
    parallel: bool
    """It runs beside every call that is not exclusive. This is the default of readonly tools."""
    key: str
    """Calls with the same key run one after the other; "account:{account}" is filled from the arguments."""
    reads: Resources
    """The parameters that hold paths which it reads: names, or `path()`, `tree()`, `resource()`."""
    writes: Resources
    """The parameters that hold paths which it writes."""
    max_concurrency: int
    """How many calls of it run at once, in the whole runtime."""
    timeout: float
    """Seconds for each attempt; by default `Policy.timeout`."""
    retry: RetryPolicy
    """How often a failed call is tried again; for readonly and idempotent tools."""
    isolation: Isolation
    """"process" runs it in a child process, which is killed when its time is up."""
    on_crash: CrashPolicy
    """The crash policy, for a call that a crash interrupted: "rerun", "fail", "ask", or a function that finds out."""
    deferral: Deferral
    """Whether a model sees only a stub of it until it is searched for: "auto" by the policy, "never", "always"."""
    needs: Iterable[str]
    """The requirements that the app must provide: "model", "deps", or the name of an extra of toolwright such as
    "files"."""
    events: Mapping[str, Mapping[str, Any] | type]
    """The events that it reports with `ctx.emit`: each a name, and the type or JSON Schema of the payload."""
    background: Callable[..., Any]
    """A function with the same parameters that runs in place of the tool when the call is a background run."""
    prepare: Callable[[dict[str, Any], Any], Any]
    """A function of the arguments and the call that runs before the policy decides. The tool finds its result as
    `ctx.prepared`; an `Answer` or `Failure` takes the place of the tool."""
    screen: Callable[[bytes], Any]
    """A function that sees the JSON of the arguments before anything is recorded, and can refuse arguments that must
    not be written down."""
    subject: Callable[[dict[str, Any], Any], Any]
    """A function of the arguments and a read-only session that describes the call to a person who is asked for
    approval."""


NEEDS = frozenset({"model", "deps", "bash", "files", "search", "secrets", "web"})
"""A requirement of a tool: a model, dependencies, or an extra of toolwright."""
_KNOWN = frozenset(ToolOptions.__annotations__)
_HINTS = frozenset(Hints.__struct_fields__)
_SWITCHES = _HINTS | {"exclusive", "parallel"}


def define(
    options: ToolOptions, *, name: str, id: str, description: str, input_schema: dict[str, Any]
) -> ToolDefinition:
    """Make the definition of a tool from its options, filling in the implied ones.

    Raises:
        ToolDefinitionError: an option is unknown, unusable, or contradicts another.
    """
    _require_known(options, name)
    _require_texts(options, name, description)
    _require_shell_kind(options, name)
    _require_functions(options, name)
    if options.get("background") is not None and options.get("supports_background") is False:
        raise ToolDefinitionError(
            f"Tool {name!r} has background=... and supports_background=False; drop one of the two"
        )
    required = _required_secrets(options.get("requires_secrets"), name)
    if required:
        options = {**options, "requires_secrets": True}
    capabilities = _capabilities(options.get("capabilities", ()), name)
    hints = _hints(options, capabilities, name)
    retry = options.get("retry", NEVER)
    if not isinstance(retry, RetryPolicy):
        raise ToolDefinitionError(f"Tool {name!r} has retry={retry!r}; use RetryPolicy(attempts=...)")
    timeout = options.get("timeout")
    if timeout is not None and not isinstance(timeout, (int, float)):
        raise ToolDefinitionError(f"Tool {name!r} has timeout {timeout!r}; use a number of seconds above 0")
    # Without these, the hints and capabilities decide.
    stated: dict[str, Any] = {option: options[option] for option in ("approval", "on_crash") if option in options}
    return ToolDefinition(
        name=name,
        id=options.get("id") or id,
        description=description,
        display_name=options.get("display_name"),
        input_schema=input_schema,
        output_schema=_output_schema(options.get("output_schema"), name),
        kind=options.get("kind", "function"),
        script=options.get("script"),
        directory=options.get("directory"),
        mount=options.get("mount"),
        secret=options.get("secret"),
        required_secrets=required,
        category=options.get("category"),
        hints=hints,
        capabilities=capabilities,
        timeout=timeout,
        retry=retry,
        concurrency=_concurrency(options, hints, name),
        isolation=options.get("isolation", "none"),
        deferral=options.get("deferral", "auto"),
        events=_events(options.get("events"), name),
        **stated,
    )


def _require_known(options: ToolOptions, name: str) -> None:
    for option in options:
        if option not in _KNOWN:
            near = difflib.get_close_matches(option, _KNOWN, 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"the options are: {', '.join(sorted(_KNOWN))}"
            raise ToolDefinitionError(f"Tool {name!r} has an unknown option {option!r}; {remedy}")


def _require_texts(options: ToolOptions, name: str, description: str) -> None:
    for option in ("id", "display_name", "category", "script", "secret"):
        text: Any = options.get(option)
        if text is not None and (not isinstance(text, str) or not text):
            raise ToolDefinitionError(f"Tool {name!r} has {option}={text!r:.200}; use a text, or leave it out")
    if not isinstance(description, str):
        raise ToolDefinitionError(f"Tool {name!r} has description={description!r:.200}; use a text")


def _require_shell_kind(options: ToolOptions, name: str) -> None:
    """Check the options that only a tool of the kind "shell" may have."""
    for option in ("script", "directory", "mount"):
        given: Any = options.get(option)
        if given is None:
            continue
        if options.get("kind") != "shell":
            raise ToolDefinitionError(f"Tool {name!r} has {option}={given!r}, which is for kind='shell'; say that too")
        if option == "script":
            continue
        if not isinstance(given, str) or not given.startswith("/") or posixpath.normpath(given) != given:
            raise ToolDefinitionError(
                f"Tool {name!r} has {option}={given!r:.200}; use a whole path, such as '/srv/project', or leave it out"
            )


_FUNCTIONS = {"prepare": "arguments and call", "screen": "the arguments' JSON", "subject": "arguments and view"}
"""The options that are functions, each with its parameters."""


def _require_functions(options: ToolOptions, name: str) -> None:
    for option, parameters in _FUNCTIONS.items():
        given: Any = options.get(option)
        if given is not None and not callable(given):
            raise ToolDefinitionError(f"Tool {name!r} has {option}={given!r:.200}; use a function of {parameters}")


def read_needs(options: ToolOptions, name: str) -> frozenset[str]:
    """The requirements in the options of a tool.

    Raises:
        ToolDefinitionError: one is not known.
    """
    given: Any = options.get("needs", ())
    needs = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (None,)
    if not all(isinstance(need, str) and need in NEEDS for need in needs):
        raise ToolDefinitionError(
            f"Tool {name!r} has needs={given!r:.200}; use a list of any of {', '.join(sorted(NEEDS))}"
        )
    return frozenset(needs)


def _required_secrets(given: object, name: str) -> tuple[str, ...]:
    """The names of the secrets that a tool requires; none if it declares only that it requires some."""
    if given is None or isinstance(given, bool):
        return ()
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ()
    if not names or not all(isinstance(item, str) and item for item in names):
        raise ToolDefinitionError(
            f"Tool {name!r} has requires_secrets={given!r:.200}; use True, the name of a secret, or a list of names"
        )
    return names


def _capabilities(given: object, name: str) -> frozenset[str]:
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (None,)
    if not all(isinstance(item, str) for item in names):
        raise ToolDefinitionError(f"Tool {name!r} has capabilities={given!r:.200}; use a list of names")
    return frozenset(names)


def _hints(options: ToolOptions, capabilities: frozenset[str], name: str) -> Hints:
    for option, value in options.items():
        if option in _SWITCHES and not isinstance(value, bool):
            raise ToolDefinitionError(f"Tool {name!r} has {option}={value!r}; use True or False")
    given = {option: value for option, value in options.items() if option in _HINTS}
    if "read_only" in capabilities:
        given.setdefault("readonly", True)
    if given.get("readonly"):
        if given.get("destructive"):
            raise ToolDefinitionError(f"Tool {name!r} is both readonly and destructive; drop one of the two")
        if options.get("writes"):
            raise ToolDefinitionError(f"Tool {name!r} is readonly and claims to write; drop readonly or writes")
        if "writes_files" in capabilities:
            raise ToolDefinitionError(f"Tool {name!r} is readonly and can write files; drop readonly or writes_files")
    return Hints(**cast("dict[str, bool]", given))


def _concurrency(options: ToolOptions, hints: Hints, name: str) -> Concurrency:
    reads, writes = _resources(options, "reads", name), _resources(options, "writes", name)
    parallel, exclusive = options.get("parallel"), options.get("exclusive")
    key: Any = options.get("key")
    if key is not None and (not isinstance(key, str) or not key):
        raise ToolDefinitionError(f"Tool {name!r} has key={key!r}; use a name such as 'browser' or '{{account}}'")
    claims = key is not None or bool(reads) or bool(writes)
    if (exclusive and (parallel or claims)) or (parallel and claims):
        raise ToolDefinitionError(
            f"Tool {name!r} has more than one of exclusive, parallel, and key/reads/writes; keep one of them"
        )
    if parallel is None:
        parallel = hints.readonly and not exclusive and not claims
    return Concurrency(
        parallel=bool(parallel), key=key, reads=reads, writes=writes, limit=options.get("max_concurrency")
    )


def _resources(options: ToolOptions, option: Literal["reads", "writes"], name: str) -> tuple[Resource, ...]:
    given: Any = options.get(option)
    if given is None or isinstance(given, Iterable):
        found: tuple[Any, ...] = read_resources(given)
        if all(isinstance(item, Resource) and isinstance(item.source, str) and item.source for item in found):
            return found
    raise ToolDefinitionError(
        f"Tool {name!r} has {option}={given!r:.200}; use names of parameters, or path(), tree() and resource()"
    )


def _events(given: object, name: str) -> dict[str, dict[str, Any]]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ToolDefinitionError(f"Tool {name!r} has events={given!r:.200}; use a dict of names and types or schemas")
    return {event: _output_schema(schema, name) or {} for event, schema in given.items()}


def _output_schema(given: Mapping[str, Any] | type | None, name: str) -> dict[str, Any] | None:
    if given is None or isinstance(given, Mapping):
        return None if given is None else dict(given)
    from toolwright.tools.function_schema import type_schema

    return type_schema(given, owner=name)
