"""An app: the tools of an agent and everything they run with, as one frozen value. Owns the options that a program,
a worker and a command must share; does not own opening a store nor running anything.

An opened app is a `Runtime`; `toolwright.cli` loads an app by `--app module:name`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from dataclasses import replace as replaced
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from toolwright.app_options import AppOptions, Lifespan, OpenOptions, check_options, require_known
from toolwright.calls.hooks import AfterHook, BeforeHook, Hooks, Projector
from toolwright.calls.policy import Policy
from toolwright.runtime.opening import Opening
from toolwright.session.secrets.master_keys import KeyProvider
from toolwright.stores.contracts.sessions import Quotas
from toolwright.stores.contracts.store import Store
from toolwright.tools.capability import Beneath, Capability, activate, add_tools, require_capability
from toolwright.tools.registry import Catalogue, Snapshot, ToolRegistry, ToolSource
from toolwright.tools.scopes import RegistryView
from toolwright.tools.session_protocols import ModelClient

if TYPE_CHECKING:
    from toolwright.blocking import BlockingRuntime
    from toolwright.runtime.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class App:
    """The parts of an agent in one value: every program, worker and command opens the same app.

    It is checked when it is made, and holds no connection and no file: it may be a global of a module, from where
    `toolwright worker --app module:app` takes it.

    Args:
        tools: the tools of every session. A registry, a scope or a view is used as it is, and followed.
        capabilities: bundles of tools, prompt and hooks, by name or as a `Capability`.
        policy: the owner's rules; the defaults are those of `Policy()`.
        before: hooks that see each call before it is authorised.
        after: hooks that see each outcome before it is final.
        projector: turns an outcome into the text that the model reads; it is given the call, too, if it takes two
            arguments, and may be async.
        model: the model that tools ask with `ctx.complete`.
        quotas: how much each session may store.
        lifespan: a function without parameters under `@contextlib.asynccontextmanager`. It is entered in each process
            that opens the app, before anything else, and closed last. Tools get its value as `ctx.deps`.
        automatic: capabilities that come by themselves when one of the tools calls for them; by default those of
            `toolwright.builtin`.
        master_key: seals secrets. By default the keys in TOOLWRIGHT_MASTER_KEY if it is set, else those in a file
            beside the store, named after it and `.key`; in memory, a key of the process.
    """

    tools: Iterable[Any] | ToolSource = ()
    capabilities: Iterable[str | Capability] = ()
    policy: Policy | None = None
    before: Iterable[BeforeHook] = ()
    after: Iterable[AfterHook] = ()
    projector: Projector | None = None
    model: ModelClient | None = None
    quotas: Quotas | None = None
    lifespan: Lifespan | None = None
    automatic: Iterable[Capability] | None = None
    master_key: KeyProvider | None = None

    def __post_init__(self) -> None:
        check_options(**{field.name: getattr(self, field.name) for field in fields(self)})
        keep: Any = object.__setattr__
        if not hasattr(self.tools, "snapshot"):
            keep(self, "tools", tuple(ToolRegistry(self.tools).snapshot().values()))
        if isinstance(self.capabilities, Iterable) and not isinstance(self.capabilities, str):
            keep(self, "capabilities", tuple(self.capabilities))
        if self.automatic is not None:
            keep(self, "automatic", tuple(map(require_capability, self.automatic)))
        hooks = self.hooks
        keep(self, "before", hooks.before)
        keep(self, "after", hooks.after)
        if self.capabilities:
            from toolwright.builtin import capabilities

            activate(self.capabilities, capabilities.capability)  # refuses unknown names and circles

    def catalogue(self) -> Catalogue:
        """The tools of the app and of its capabilities, as a session has them when the app is opened now."""
        return RegistryView(arrange(self).tools, lambda tool: tool)

    @property
    def hooks(self) -> Hooks:
        """The hooks and the projector."""
        return Hooks(tuple(self.before), tuple(self.after), self.projector)

    def but(self, **changes: Unpack[AppOptions]) -> App:
        """The same app with some options changed, as a test or one process needs it."""
        require_known("App", changes, APP_OPTIONS)
        return replaced(self, **changes)

    def open(self, store: str | Path | Store = ":memory:", **options: Unpack[OpenOptions]) -> Opening[Runtime]:
        """Open the app over a store: `async with` the result, or await it and close the runtime later.

        Args:
            store: where the runtime stores its records: the path of a file, or ":memory:" for the life of the
                runtime. A store that is open already is used as it is, and closed with the runtime.
            sync: "full" survives a power cut; "normal" survives a killed process, and is faster.
            recover: first finish the calls that a crash cut off, as `Runtime.recover` does.
            events_file: a file that gets every event as a line of JSON.
            clock: the source of time.
            call_log: takes the records; by default the last 100,000 are kept in memory.
            worker: run background runs and schedules of the store here. By default that begins when this runtime first
                starts one itself; False leaves them to other workers.
            master_key: seals secrets, in place of the app's.
        """
        from toolwright.runtime.runtime import Runtime

        require_known("App.open()", options, OPEN_OPTIONS)
        check_options(**options)
        runtime = Runtime(self, options)
        runtime._require_met(runtime._shared.tools.snapshot())
        return Opening(lambda: runtime._open(store), runtime.close)

    def open_blocking(self, store: str | Path | Store = ":memory:", **options: Unpack[OpenOptions]) -> BlockingRuntime:
        """Open the app for code that is not async: the same methods, each waiting for its result."""
        from toolwright.blocking import BlockingRuntime

        return BlockingRuntime(lambda: self.open(store, **options))

    def __repr__(self) -> str:
        source: Any = self.tools
        tools = source.snapshot() if hasattr(source, "snapshot") else source
        said = [f"{len(tools)} tools"]
        said += [field.name for field in fields(self) if field.name != "tools" and getattr(self, field.name)]
        return f"<App: {', '.join(said)}>"


class Arranged(NamedTuple):
    """The tools and capabilities of an app for one runtime."""

    own: Any
    """The tools that the app was given: a registry for this runtime, or the source that is followed."""
    tools: Any
    """The same with the tools of the active capabilities."""
    active: tuple[Capability, ...]


def arrange(app: App) -> Arranged:
    """Choose the active capabilities, and add their tools to those of the app.

    Raises:
        CapabilityError: a capability cannot be used, or brings a tool whose name another tool has.
    """
    tools = app.tools
    own: Any = tools if hasattr(tools, "snapshot") else ToolRegistry(tools)
    active = activated(app, own.snapshot(), app.capabilities)
    # A registry that is followed belongs to its owner and is not changed: the tools of capabilities lie beneath it.
    return Arranged(own, add_tools(active, to=Beneath(own) if active and own is tools else own), active)


def activated(app: App, tools: Snapshot, asked: Iterable[str | Capability]) -> tuple[Capability, ...]:
    """The capabilities that were asked for, and those that one of the tools brings automatically."""
    from toolwright.builtin import capabilities

    return activate(
        asked,
        capabilities.capability,
        automatic=capabilities.automatic() if app.automatic is None else app.automatic,
        tools=lambda: [tool.definition for tool in tools.values()],
    )


APP_OPTIONS = frozenset(AppOptions.__annotations__)
OPEN_OPTIONS = frozenset(OpenOptions.__annotations__)
