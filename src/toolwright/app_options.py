"""The options of an app, of opening it, and of a session. Owns their names, their types, the frozen value that holds
those of an app, and refusing a wrong value where it is given."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from toolwright.calls.around import Around
from toolwright.calls.hooks import AfterHook, BeforeHook, Hooks, Projector, is_projector
from toolwright.calls.policy import Policy
from toolwright.calls.record import CallLog
from toolwright.clock import Clock
from toolwright.errors import ToolwrightError
from toolwright.session.secrets.master_keys import KeyProvider
from toolwright.stores.contracts.sessions import Quotas
from toolwright.tools.capability import Capability, activate, require_capability
from toolwright.tools.model import ModelClient
from toolwright.tools.registry import ToolRegistry, ToolSource
from toolwright.tools.remote_tools import RemoteTools
from toolwright.tools.tracing import Tracing
from toolwright.tools.turn_protocols import Budget, ContextWindow

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]
"""Makes the async context manager that a process is inside of while it has the app open; its value is `ctx.deps`."""


class AppOptions(TypedDict, total=False):
    """The options of `App`, which explains each of them."""

    tools: Iterable[Any] | ToolSource
    capabilities: Iterable[str | Capability]
    policy: Policy | None
    before: Iterable[BeforeHook]
    after: Iterable[AfterHook]
    projector: Projector | None
    around: Iterable[Around]
    telemetry: Tracing | None
    model: str | ModelClient | None
    instructions: str
    budget: Budget | None
    context: ContextWindow | None
    quotas: Quotas | None
    lifespan: Lifespan | None
    automatic: Iterable[Capability] | None
    master_key: KeyProvider | None


class OpeningOptions(TypedDict, total=False):
    """The options that differ from one process that opens an app to the next; `App.open` explains each of them."""

    sync: Literal["full", "normal"]
    recover: bool
    events_file: str | Path | None
    clock: Clock | None
    call_log: CallLog | None
    worker: bool | None
    driver: str | None


class OpenOptions(OpeningOptions, total=False):
    """The options of `App.open`."""

    master_key: KeyProvider | None


class RuntimeOptions(AppOptions, OpeningOptions, total=False):
    """The options of `Runtime.open`: the options of an `App`, and the options of opening it."""


APP_OPTIONS = frozenset(AppOptions.__annotations__)
OPEN_OPTIONS = frozenset(OpenOptions.__annotations__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AppSettings:
    """The options of an app as one frozen, checked value, which a runtime opens. `App` explains each of them."""

    tools: Iterable[Any] | ToolSource = ()
    capabilities: Iterable[str | Capability] = ()
    policy: Policy | None = None
    before: Iterable[BeforeHook] = ()
    after: Iterable[AfterHook] = ()
    projector: Projector | None = None
    around: Iterable[Around] = ()
    telemetry: Tracing | None = None
    model: str | ModelClient | None = None
    instructions: str = ""
    budget: Budget | None = None
    context: ContextWindow | None = None
    quotas: Quotas | None = None
    lifespan: Lifespan | None = None
    automatic: Iterable[Capability] | None = None
    master_key: KeyProvider | None = None

    def __post_init__(self) -> None:
        check_options(**{field.name: getattr(self, field.name) for field in fields(self)})
        assign: Any = object.__setattr__
        if not hasattr(self.tools, "snapshot"):
            given = tuple(self.tools)
            remote = tuple(item for item in given if isinstance(item, RemoteTools))
            _require_own_names(remote)
            local = (item for item in given if not isinstance(item, RemoteTools))
            assign(self, "tools", (*ToolRegistry(local).snapshot().values(), *remote))
        if isinstance(self.capabilities, Iterable) and not isinstance(self.capabilities, str):
            assign(self, "capabilities", tuple(self.capabilities))
        if self.automatic is not None:
            assign(self, "automatic", tuple(map(require_capability, self.automatic)))
        hooks = self.hooks
        assign(self, "before", hooks.before)
        assign(self, "after", hooks.after)
        assign(self, "around", hooks.around)
        if self.capabilities:
            from toolwright.builtin import capabilities

            activate(self.capabilities, capabilities.capability)  # refuses unknown names and circles

    @property
    def local_tools(self) -> ToolSource | tuple[Any, ...]:
        """The tools that are part of this program: all but those of remote ones."""
        if hasattr(self.tools, "snapshot"):
            return cast("ToolSource", self.tools)
        return tuple(item for item in self.tools if not isinstance(item, RemoteTools))

    @property
    def remote_tools(self) -> tuple[RemoteTools, ...]:
        """Those among the tools that bring theirs while a runtime is open, such as MCP servers."""
        if hasattr(self.tools, "snapshot"):
            return ()
        return tuple(item for item in self.tools if isinstance(item, RemoteTools))

    @property
    def hooks(self) -> Hooks:
        """The hooks and the projector."""
        return Hooks(tuple(self.before), tuple(self.after), self.projector, around=tuple(self.around))

    def __repr__(self) -> str:
        source: Any = self.tools
        tools = source.snapshot() if hasattr(source, "snapshot") else source
        said = [f"{len(tools)} tools"]
        said += [field.name for field in fields(self) if field.name != "tools" and getattr(self, field.name)]
        return f"<App: {', '.join(said)}>"


def _require_own_names(remote: Iterable[RemoteTools]) -> None:
    seen: set[str] = set()
    for item in remote:
        if item.name in seen:
            raise ToolwrightError(f"Two servers among the tools have the name {item.name!r}; give one of them another")
        seen.add(item.name)


Fits = Callable[[Any], bool]


def _is(*kinds: type) -> Fits:
    return lambda given: isinstance(given, kinds)


def _has(*names: str) -> Fits:
    return lambda given: all(callable(getattr(given, name, None)) for name in names)


def _or_none(fits: Fits) -> Fits:
    return lambda given: given is None or fits(given)


_OPTIONS: dict[str, tuple[Fits, str]] = {
    "tools": (lambda given: _is(Iterable)(given) or _has("snapshot")(given), "a list of tools, or a registry"),
    "policy": (_or_none(_is(Policy)), "Policy(...)"),
    "before": (_is(Iterable), "a list of functions"),
    "after": (_is(Iterable), "a list of functions"),
    "projector": (_or_none(is_projector), "a function of an outcome, or of an outcome and its call, sync or async"),
    "around": (_is(Iterable), "a list of functions under @contextlib.contextmanager"),
    "telemetry": (_or_none(_has("calls", "turn", "model_call", "current", "inside", "opened")), "Telemetry(...)"),
    "call_log": (_or_none(_has("open", "close")), "an object with open(record) and close(record)"),
    "events_file": (_or_none(_is(str, Path)), "the path of a file"),
    "clock": (_or_none(_has("now", "monotonic", "call_at", "sleep")), "a Clock, such as SystemClock()"),
    "sync": (lambda given: isinstance(given, str) and given in ("full", "normal"), "'full' or 'normal'"),
    "recover": (_is(bool), "True or False"),
    "quotas": (_or_none(_is(Quotas)), "Quotas(...)"),
    "master_key": (_or_none(_has("current", "key")), "an object with current() and key(id)"),
    "capabilities": (_is(Iterable, Capability), "a list of names or Capability(...)"),
    "automatic": (_or_none(_is(Iterable)), "a list of Capability(...)"),
    "model": (
        lambda given: given is None or _is_model_name(given) or _has("complete")(given),
        "a name such as 'openai:gpt-5', or an object with an async complete(request)",
    ),
    "instructions": (_is(str), "text"),
    "budget": (_or_none(_is(Budget)), "Budget(...)"),
    "context": (_or_none(_is(ContextWindow)), "ContextWindow(...)"),
    "worker": (_or_none(_is(bool)), "True, False or None"),
    "driver": (_or_none(_is(str)), "'store', or a URL such as 'temporal://127.0.0.1:7233/default?queue=agent'"),
    "lifespan": (
        _or_none(lambda given: _is_lifespan(given)),
        "a function without parameters under @contextlib.asynccontextmanager",
    ),
}
"""For each option: a test of its value, and the advice for a value that fails it."""


def _is_model_name(given: object) -> bool:
    return isinstance(given, str) and all(given.partition(":"))


def _is_lifespan(given: object) -> bool:
    if not callable(given) or inspect.isasyncgenfunction(given) or inspect.iscoroutinefunction(given):
        return False
    try:
        inspect.signature(given).bind()
    except TypeError:
        return False
    except ValueError:  # a callable written in C has no signature to read
        return True
    return True


def check_options(**given: object) -> None:
    """Refuse an option that could never work.

    Raises:
        ToolwrightError: one is of the wrong kind.
    """
    for name, value in given.items():
        fits, use = _OPTIONS[name]
        if not fits(value):
            raise ToolwrightError(f"{name}={value!r:.200} is not usable; use {use}")


def require_known(owner: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse an option that does not exist.

    Raises:
        TypeError: there is no option of that name.
    """
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known))}"
            raise TypeError(f"{owner} has no option {name!r}; {remedy}")
