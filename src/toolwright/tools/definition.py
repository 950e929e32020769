"""The definition of a tool. Owns `ToolDefinition` and the defaults that its parts imply; does not own running
anything."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from msgspec import Struct, convert, structs
from msgspec.structs import force_setattr, replace

from toolwright.argument_checks import is_number
from toolwright.errors import PolicyError, ToolDefinitionError
from toolwright.plain_data import plain_data
from toolwright.tools.claims import Concurrency, Resource
from toolwright.tools.names import is_mapped
from toolwright.tools.retry_policy import NEVER, RetryPolicy

Kind = Literal["function", "mcp", "shell", "custom", "client"]
Approval = Literal["auto", "suggest", "required"]
Isolation = Literal["none", "process"]
CrashPolicy = Literal["rerun", "fail", "ask"] | Callable[..., Any]
Deferral = Literal["auto", "never", "always"]

KINDS = ("function", "mcp", "shell", "custom", "client")
CAPABILITIES = frozenset({"read_only", "writes_files", "executes_code", "network", "sandboxable", "requires_approval"})
NO_TIMEOUT = math.inf
"""As the timeout of a tool: its calls have no time limit, whatever the policy's default."""
RESERVED_EVENTS = frozenset(
    {
        "abandoned",
        "cancel_asked",
        "cancelled",
        "completed",
        "failed",
        "handed_back",
        "output",
        "progress",
        "queued",
        "reopened",
        "resumed",
        "started",
        "status",
        "tracked",
        "waiting",
    }
)
"""The events that every run has, so that no tool declares one of these names."""
_EVENT = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


class Hints(Struct, frozen=True, kw_only=True):
    """The author's statements about a tool. A missing statement about effects is taken as the more dangerous one.

    Hints that are not about effects: `long_running` gives a tool without a timeout the policy's `long_timeout` in place
    of its `timeout`; of all `cpu_bound` tools together, as many calls run at once as there are processors, unless a
    tool has a limit of its own; a call of a tool with `requires_secrets` does not run while the session lacks them;
    with `persist_output`, the whole output of each call goes to a file of the session, also when it is short.
    """

    readonly: bool = False
    """It changes nothing."""
    destructive: bool | None = None
    """It can delete or overwrite; None if not stated."""
    idempotent: bool = False
    """Running it twice with the same arguments has the effect of running it once."""
    open_world: bool | None = None
    """It reaches things outside of the program; None if not stated."""
    long_running: bool = False
    """Without a timeout of its own it has `Policy.long_timeout`."""
    polling: bool = False
    """It is meant to be called again and again."""
    cpu_bound: bool = False
    """It keeps a processor busy."""
    requires_secrets: bool = False
    """Its calls are refused while the session lacks its secrets."""
    supports_background: bool = False
    """It can run in the background."""
    persist_output: bool = False
    """The whole output of each call is stored in a file of the session."""

    @property
    def mutating(self) -> bool:
        """True unless the tool is declared readonly."""
        return not self.readonly

    @property
    def repeatable(self) -> bool:
        """True when running a call twice does no harm."""
        return self.readonly or self.idempotent

    def to_json(self) -> dict[str, Any]:
        """The hints as plain data."""
        return plain_data(self)


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """Everything about a tool but its code. `id` stays when a view renames the tool.

    Defaults for approval, concurrency and crash policy follow from the hints and capabilities.
    """

    name: str
    """The name by which a model calls it."""
    id: str
    """A name that stays when a view renames the tool."""
    description: str = ""
    """The description for the model."""
    display_name: str | None = None
    """A name for people."""
    input_schema: dict[str, Any]
    """The JSON Schema of the arguments."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema that the value must fit."""
    kind: Kind = "function"
    """Where it comes from."""
    category: str | None = None
    """A word by which a program groups its tools."""
    hints: Hints = Hints()
    """The author's statements about its effects."""
    capabilities: frozenset[str] = frozenset()
    """Its abilities, for rules."""
    approval: Approval = None  # type: ignore[assignment]
    """Whether a person must approve each call: "auto", "suggest" or "required"."""
    timeout: float | None = None
    """Seconds for each attempt; None for the policy's, `NO_TIMEOUT` for none."""
    retry: RetryPolicy = NEVER
    """How often a failed call is tried again."""
    concurrency: Concurrency = None  # type: ignore[assignment]
    """Which calls may run beside it."""
    isolation: Isolation = "none"
    """Where it runs: "process" for a child process."""
    on_crash: CrashPolicy = None  # type: ignore[assignment]
    """The crash policy: the handling of a call that a crash interrupted."""
    deferral: Deferral = "auto"
    """Whether a model sees only a stub of it at first."""
    events: dict[str, dict[str, Any]] = {}
    """The events it may publish with `ctx.emit`: their names, and the schema of each payload."""
    script: str | None = None
    """The parameter that holds the script, in tools of the kind "shell"; by default "command"."""
    directory: str | None = None
    """The directory in which each script of a tool of the kind "shell" starts; None when that is not known.

    Rules on the paths that a script writes need it to judge a path that does not begin with a slash.
    """
    mount: str | None = None
    """Where the scripts of a tool of the kind "shell" see the session's files: `/workspace/a` is the file `/a`."""
    secret: str | None = None
    """A parameter whose value only the tool gets: it is neither shown nor recorded."""
    required_secrets: tuple[str, ...] = ()
    """The secrets that the session must have; with the hint `requires_secrets` and no names, it must have any."""

    def __post_init__(self) -> None:
        self._check_types()
        if self.approval is None:
            force_setattr(self, "approval", implied_approval(self.capabilities))
        if self.concurrency is None:
            force_setattr(self, "concurrency", Concurrency(parallel=self.hints.readonly))
        if self.on_crash is None:
            force_setattr(self, "on_crash", "rerun" if self.hints.repeatable else "fail")
        if self.required_secrets and not self.hints.requires_secrets:
            force_setattr(self, "hints", replace(self.hints, requires_secrets=True))
        if (self.script is None) is (self.kind == "shell"):
            force_setattr(self, "script", "command" if self.kind == "shell" else None)
        if self.kind != "shell":
            force_setattr(self, "directory", None)
            force_setattr(self, "mount", None)
        self._check()

    def to_json(self) -> dict[str, Any]:
        """The definition as plain data. Code is only mentioned: `on_crash` is "probe" for a function, and exceptions to
        retry on are named.
        """
        told = {name: getattr(self, name) for name in self.__struct_fields__}
        told["hints"] = structs.asdict(self.hints)
        told["capabilities"] = sorted(self.capabilities)
        told["required_secrets"] = list(self.required_secrets)
        told["retry"] = {
            **{field.name: getattr(self.retry, field.name) for field in dataclasses.fields(self.retry)},
            "on": [kind.__qualname__ for kind in self.retry.on],
        }
        resources = {name: [item._asdict() for item in getattr(self.concurrency, name)] for name in ("reads", "writes")}
        told["concurrency"] = {**self.concurrency._asdict(), **resources}
        if self.timeout == NO_TIMEOUT:
            told["timeout"] = "none"  # JSON has no infinity
        told["on_crash"] = "probe" if callable(self.on_crash) else self.on_crash
        return told

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> ToolDefinition:
        """The definition that `to_json` told. Code does not come back: a probe reads as "fail", and the exceptions to
        retry on are left out.

        Raises:
            ToolDefinitionError: it is not the JSON form of a definition.
        """
        given = dict(told)
        try:
            unknown = given.keys() - set(cls.__struct_fields__)
            if unknown:
                raise ValueError(f"it has unknown fields {sorted(map(str, unknown))}")
            given["hints"] = convert(given.get("hints", {}), Hints)
            given["capabilities"] = frozenset(given.get("capabilities", ()))
            given["required_secrets"] = tuple(given.get("required_secrets", ()))
            given["retry"] = RetryPolicy(**{**given.get("retry", {}), "on": ()})
            if given.get("concurrency") is not None:
                given["concurrency"] = _read_concurrency(given["concurrency"])
            if given.get("timeout") == "none":
                given["timeout"] = NO_TIMEOUT
            if given.get("on_crash") == "probe":
                given["on_crash"] = "fail"
            return cls(**given)
        except (TypeError, ValueError, LookupError, AttributeError, PolicyError) as error:
            raise ToolDefinitionError(
                f"{told!r:.200} is not the JSON form of a tool's definition ({error}); give the result of to_json"
            ) from error

    def _check_types(self) -> None:
        """Refuse a part of another type: the defaults are read from them."""
        for part, kind, remedy in _PARTS:
            given = getattr(self, part)
            if not isinstance(given, kind) and not (given is None and part == "concurrency"):
                raise ToolDefinitionError(f"Tool {self.name!r} has {part} {given!r:.200}; use {remedy}")

    def _check(self) -> None:
        name = self.name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ToolDefinitionError(
                f"Tool name {name!r} is not usable; use 1 to 128 letters, digits, or any of _ . : / -"
            )
        if is_mapped(name):
            raise ToolDefinitionError(
                f"Tool name {name!r} ends like a name that is made for a provider; leave out '__' and the 16 digits"
            )
        if self.kind not in KINDS:
            raise ToolDefinitionError(f"Tool {name!r} has kind {self.kind!r}; use one of {', '.join(KINDS)}")
        unknown = self.capabilities - CAPABILITIES
        if unknown:
            raise ToolDefinitionError(
                f"Tool {name!r} has unknown capabilities {sorted(unknown)}; use {', '.join(sorted(CAPABILITIES))}"
            )
        if self.approval not in ("auto", "suggest", "required"):
            raise ToolDefinitionError(f"Tool {name!r} has approval {self.approval!r}; use auto, suggest or required")
        if self.isolation not in ("none", "process"):
            raise ToolDefinitionError(f"Tool {name!r} has isolation {self.isolation!r}; use none or process")
        if self.deferral not in ("auto", "never", "always"):
            raise ToolDefinitionError(f"Tool {name!r} has deferral {self.deferral!r}; use auto, never or always")
        if not callable(self.on_crash) and self.on_crash not in ("rerun", "fail", "ask"):
            raise ToolDefinitionError(
                f"Tool {name!r} has on_crash {self.on_crash!r}; use rerun, fail, ask or a probe function"
            )
        for event in self.events:
            if not isinstance(event, str) or not _EVENT.fullmatch(event) or event in RESERVED_EVENTS:
                raise ToolDefinitionError(
                    f"Tool {name!r} has an event {event!r:.200}; use a lower-case name, and none of "
                    f"{', '.join(sorted(RESERVED_EVENTS))}"
                )
        timeout = self.timeout
        if timeout is not None and not (is_number(timeout) and timeout > 0):
            raise ToolDefinitionError(
                f"Tool {name!r} has timeout {timeout!r}; use a number of seconds above 0, or NO_TIMEOUT"
            )
        limit = self.concurrency.limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise ToolDefinitionError(f"Tool {name!r} has max_concurrency {limit!r}; use a whole number of at least 1")
        if self.retry.attempts > 1 and not self.hints.repeatable:
            raise ToolDefinitionError(
                f"Tool {name!r} has a retry policy but may not be run twice; "
                "mark it idempotent=True or readonly=True, or drop the retry"
            )


_PARTS: tuple[tuple[str, type | tuple[type, ...], str], ...] = (
    ("hints", Hints, "Hints(...)"),
    ("capabilities", (set, frozenset), "a set of names"),
    ("retry", RetryPolicy, "RetryPolicy(attempts=...)"),
    ("concurrency", Concurrency, "Concurrency(...)"),
    ("events", dict, "a dict of names and schemas"),
)


class DefinitionChanges(TypedDict, total=False):
    """The fields of a `ToolDefinition` that `Tool.with_definition` can change: all but its id."""

    name: str
    description: str
    display_name: str | None
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    kind: Kind
    category: str | None
    hints: Hints
    capabilities: frozenset[str]
    approval: Approval
    timeout: float | None
    retry: RetryPolicy
    concurrency: Concurrency
    isolation: Isolation
    on_crash: CrashPolicy
    deferral: Deferral
    events: dict[str, dict[str, Any]]
    script: str | None
    directory: str | None
    mount: str | None
    secret: str | None
    required_secrets: tuple[str, ...]


def _read_concurrency(told: Mapping[str, Any]) -> Concurrency:
    resources = {
        name: tuple(Resource(item["kind"], item["source"]) for item in told.get(name, ()))
        for name in ("reads", "writes")
    }
    return Concurrency(**{**told, **resources})


def implied_approval(capabilities: frozenset[str]) -> Approval:
    """The approval that the capabilities require, unless the tool sets its own."""
    if capabilities & {"executes_code", "requires_approval"}:
        return "required"
    return "suggest" if "writes_files" in capabilities else "auto"
