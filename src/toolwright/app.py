"""An app: the tools of an agent and everything they run with, as one frozen value. Owns opening it, changing it and
showing its tools; its options are in `app_options`.

An opened app is a `Runtime`; `toolwright.cli` loads an app by `--app module:name`.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Unpack

from toolwright.app_options import APP_OPTIONS, OPEN_OPTIONS, AppOptions, AppSettings, OpenOptions, require_known
from toolwright.blocking import open_blocking
from toolwright.blocking_types import BlockingRuntime
from toolwright.runtime.agents import agent_tool
from toolwright.runtime.capabilities import arrange
from toolwright.runtime.opening import Opening
from toolwright.runtime.runtime import Runtime, open_app
from toolwright.stores.contracts.store import Store
from toolwright.tools.options import ToolOptions
from toolwright.tools.registry import Catalogue
from toolwright.tools.registry_views import RegistryView
from toolwright.tools.tool import Tool
from toolwright.tools.turn_protocols import Budget


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class App(AppSettings):
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
        around: functions that take an `Attempt` and return a context manager, such as those under
            `@contextlib.contextmanager`. Each attempt of a call runs inside of theirs, the first one outermost, in its
            task, thread or child process. One that raises is logged, and the call runs without it.
        telemetry: makes spans and metrics of calls, turns and requests to models: `toolwright.telemetry.Telemetry()`.
        model: the model that answers in turns (`session.ask`), and that tools ask with `ctx.complete`: a name such as
            "anthropic:claude-sonnet-4-5", or a `Model`.
        instructions: what the model is told before every conversation, beside the prompts of the capabilities.
        budget: how much each turn may use; `Budget()` by default.
        context: how long a conversation may become, and what happens before it is too long; by default
            `ContextWindow()`, which leaves the oldest results of tools out.
        quotas: how much each session may store.
        lifespan: a function without parameters under `@contextlib.asynccontextmanager`. It is entered in each process
            that opens the app, before anything else, and closed last. Tools get its value as `ctx.deps`.
        automatic: capabilities that come by themselves when one of the tools calls for them; by default those of
            `toolwright.builtin`.
        master_key: seals secrets. By default the keys in TOOLWRIGHT_MASTER_KEY if it is set, else those in a file
            beside the store, named after it and `.key`; in memory, a key of the process.
    """

    def catalogue(self) -> Catalogue:
        """The tools of the app and of its capabilities, as a session has them when the app is opened now."""
        return RegistryView(arrange(self).tools, lambda tool: tool)

    def but(self, **changes: Unpack[AppOptions]) -> App:
        """The same app with some options changed, as a test or one process needs it."""
        require_known("App", changes, APP_OPTIONS)
        return replaced(self, **changes)

    def as_tool(
        self, name: str, *, description: str = "", budget: Budget | None = None, **options: Unpack[ToolOptions]
    ) -> Tool:
        """The app as a tool of another app: a sub-agent that takes a message, works on it, and returns its answer.

        Each call runs a turn of this app in a child session of the call, with the tools, the instructions and the model
        of this app. It never has more permissions than the call, and what it uses counts for the turn above, too. A
        call that is run again after a crash continues its turn; a call whose sub-agent waits for something outside
        waits as well. A sub-agent that does not answer fails the call, with the reason for the model.

        Args:
            name: the name of the tool.
            description: what the sub-agent is for, as the model of the other app reads it.
            budget: how much each call may use, in place of the budget of this app.
            options: options of `@tool`, such as `approval="required"`. Calls of the tool run side by side, have no
                timeout, and are run again after a crash, unless the options say otherwise.
        """
        return agent_tool(self, name, description, budget, options)

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
            driver: who brings runs, turns and schedules to workers: "store", where they look for them, or a URL such as
                "temporal://127.0.0.1:7233/default?queue=agent". All processes on a store use the same.
            master_key: seals secrets, in place of the app's.
        """
        require_known("App.open()", options, OPEN_OPTIONS)
        return open_app(self, store, options)

    def open_blocking(self, store: str | Path | Store = ":memory:", **options: Unpack[OpenOptions]) -> BlockingRuntime:
        """Open the app for code that is not async: the same methods, each waiting for its result."""
        return open_blocking(lambda: self.open(store, **options))
