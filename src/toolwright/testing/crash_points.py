"""Where a program is killed. Owns the named points of a call's life; does not own killing.

The runtime knows nothing of them. In a process that the crash kit started, its seams are replaced: whatever store is
opened gets a `CrashingStore` around it, and whatever tool is planned gets its code enclosed by two points.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import apsw

from toolwright.calls import context as setting
from toolwright.calls import tool_plan as plan
from toolwright.calls.execute.process_pool import ProcessPool
from toolwright.runtime import stores as keeping
from toolwright.runtime import wiring
from toolwright.stores import opening
from toolwright.stores.contracts.store import Store
from toolwright.stores.sqlite import store
from toolwright.stores.sqlite.core.writer import Writer
from toolwright.testing.inside_program import crash_point, writing

POINTS = (
    "before the intents are written",
    "after the intents are written",
    "before the start is written",
    "after the start is written",
    "before the tool runs",
    "after the tool ran",
    "before the outcome is written",
    "after the outcome is written",
    "before the intent is taken back",
    "after the intent is taken back",
    "before the call is let go",
    "after the call is let go",
    "before an effect is written",
    "after an effect is written",
    "before a wait begins",
    "after a wait begins",
    "before a wait is resolved",
    "after a wait is resolved",
    "before a commit",
    "after a commit",
)
"""The points of the runtime, in the order in which a call passes them. A start is written only for a tool that may not
simply run again; a cancelled call is taken back or released; effects and waits depend on the tool. The last two are
points of a SQLite store, which writes for several calls at once: everything is written except the commit, or committed
and not yet reported."""


RUN_POINTS = (
    "before a process is registered",
    "after a process is registered",
    "before the leases are renewed",
    "after the leases are renewed",
    "before processes are claimed",
    "after processes are claimed",
    "before what processes did is written",
    "after what processes did is written",
    "before the end of a process is written",
    "after the end of a process is written",
    "before processes are handed back",
    "after processes are handed back",
    "before the worker leaves",
    "after the worker leaves",
)
"""The points of a program that starts runs, and of a worker, in the order in which it passes them; the last four
when it is drained. The call of a run has its own points as well."""


VERBS = {
    "begin": "the intents are written",
    "start": "the start is written",
    "finish": "the outcome is written",
    "finish_all": "the outcome is written",
    "forget": "the intent is taken back",
    "release": "the call is let go",
    "keep": "an effect is written",
    "open_wait": "a wait begins",
    "resolve": "a wait is resolved",
}
"""The verbs of a store, in the words of the points around them."""

RUN_VERBS = {
    "register": "a process is registered",
    "renew": "the leases are renewed",
    "claim": "processes are claimed",
    "report": "what processes did is written",
    "finish": "the end of a process is written",
    "hand_back": "processes are handed back",
    "leave": "the worker leaves",
}
"""The same for the verbs of runs."""


class Crashing:
    """A part of a store, with a crash point before and after each verb that writes."""

    def __init__(self, inner: object, verbs: Mapping[str, str] = VERBS) -> None:
        self.inner = inner
        self.verbs = verbs

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        what = self.verbs.get(name)
        if what is None:
            return found

        async def use(*given: Any, **options: object) -> object:
            times = len(given[0]) if name == "finish_all" else 1  # each of its calls passes the points
            for _ in range(times):
                crash_point(f"before {what}")
            answer = await found(*given, **options)
            for _ in range(times):
                crash_point(f"after {what}")
            return answer

        return use


class CrashingServices:
    """The services of a store, of which processes have crash points."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.processes = Crashing(inner.processes, RUN_VERBS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class CrashingStore:
    """A store whose journal, waits and runs have crash points."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.journal = Crashing(inner.journal)
        self.waits = Crashing(inner.waits)
        services: Any = getattr(inner, "services", None)
        if services is not None:  # a store may have only calls
            self.services = CrashingServices(services)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class CrashingWriter(Writer):
    """The writer of a SQLite store, with a crash point between a commit and its report."""

    def _commit(self, jobs: list[Any]) -> None:
        with writing:
            super()._commit(jobs)

    def _deliver(self, jobs: list[Any], results: list[Any]) -> None:
        if not isinstance(results[0], Exception):
            crash_point("after a commit")
        super()._deliver(jobs, results)


class CrashingPlan(plan.ToolPlan):
    """A plan whose tool has a crash point before and after its code."""

    __slots__ = ()

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.direct = None
        if self.mode == "async":
            self.invoke = _enclosed(self.invoke)
        elif self.mode == "thread":
            self.invoke = _enclosed_sync(self.invoke)


class CrashingProcessPool(ProcessPool):
    """The process pool of tools, with the same two points: in this process, because this one is killed."""

    async def run(self, *given: Any, **options: Any) -> object:
        return await _enclosed(functools.partial(super().run, **options))(*given)


def install() -> None:
    """Put the points into the runtime of this process."""

    async def open_store(*given: Any) -> object:
        return CrashingStore(await opening.open_store(*given))

    apsw.connection_hooks.append(lambda connection: connection.set_commit_hook(_before_a_commit))
    seams: list[tuple[Any, str, Any]] = [
        (store, "Writer", CrashingWriter),
        (keeping, "open_store", open_store),
        (wiring, "ProcessPool", CrashingProcessPool),
        (setting, "ToolPlan", CrashingPlan),
    ]
    for module, name, with_points in seams:
        setattr(module, name, with_points)


def _before_a_commit() -> bool:
    crash_point("before a commit")
    return False  # continue


def _enclosed(invoke: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    async def run(*given: object) -> object:
        crash_point("before the tool runs")
        try:
            return await invoke(*given)
        finally:
            crash_point("after the tool ran")

    return run


def _enclosed_sync(invoke: Callable[..., Any]) -> Callable[..., Any]:
    def run(*given: object) -> object:
        crash_point("before the tool runs")
        try:
            return invoke(*given)
        finally:
            crash_point("after the tool ran")

    return run
