"""Where a program is killed. Owns the named points of a call's life; does not own killing.

The runtime has places for them, `toolwright.crash_seams`. In a process that the crash kit started they are filled: each
store that is opened gets a `CrashingStore` around it, and the code of each tool is enclosed by two points.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import apsw

from toolwright.crash_seams import Mode, crash_seams
from toolwright.errors import ToolwrightError
from toolwright.stores.contracts.store import BackgroundStores, Store
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
    "before the call is released",
    "after the call is released",
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
simply run again, and with the intent where it is the turn of the call at once; a cancelled call is taken back or
released; effects and waits depend on the tool. The last two are points of a SQLite store, which writes for several
calls at once: everything is written except the commit, or committed and not yet reported."""


RUN_POINTS = (
    "before a run is registered",
    "after a run is registered",
    "before the leases are renewed",
    "after the leases are renewed",
    "before runs are claimed",
    "after runs are claimed",
    "before the reports of runs are written",
    "after the reports of runs are written",
    "before the end of a run is written",
    "after the end of a run is written",
    "before runs are handed back",
    "after runs are handed back",
    "before the worker leaves",
    "after the worker leaves",
)
"""The points of a program that starts runs, and of a worker, in the order in which it passes them; the last four
when it is drained. The call of a run has its own points as well."""


TURN_POINTS = (
    "before a turn is queued",
    "after a turn is queued",
    "before a turn is claimed",
    "after a turn is claimed",
    "before the state of a turn is written",
    "after the state of a turn is written",
)
"""The points of a program that runs turns: the state of a turn is written with each answer of the model that calls
tools, when the turn waits, and when it ends."""


JOURNAL_VERBS = {
    "begin": "the intents are written",
    "start": "the start is written",
    "start_all": "the start is written",
    "finish": "the outcome is written",
    "finish_all": "the outcome is written",
    "forget": "the intent is taken back",
    "release": "the call is released",
    "keep": "an effect is written",
    "keep_all": "an effect is written",
}
"""The verbs of a journal, in the words of the points around them."""
TOGETHER = ("start_all", "finish_all", "keep_all")
"""Those that write about several calls, of which each passes the points."""

WAIT_VERBS = {
    "open_wait": "a wait begins",
    "resolve": "a wait is resolved",
}
"""The same for the verbs of waits."""

RUN_VERBS = {
    "register": "a run is registered",
    "renew": "the leases are renewed",
    "claim": "runs are claimed",
    "report": "the reports of runs are written",
    "finish": "the end of a run is written",
    "hand_back": "runs are handed back",
    "leave": "the worker leaves",
}
"""The same for the verbs of background runs."""


TURN_VERBS = {
    "add": "a turn is queued",
    "claim": "a turn is claimed",
    "advance": "the state of a turn is written",
}
"""The same for the verbs of turns."""


class Crashing:
    """A part of a store, with a crash point before and after each verb that writes.

    Raises:
        ToolwrightError: the part lacks one of the verbs, so that its points could never be passed.
    """

    def __init__(self, inner: object, verbs: Mapping[str, str]) -> None:
        for verb, what in verbs.items():
            if not callable(getattr(inner, verb, None)):
                raise ToolwrightError(
                    f"The crash points around {what!r} have no place: {type(inner).__name__} has no verb {verb!r}; "
                    "name the verb that took its place in toolwright.testing.crash_points"
                )
        self.inner = inner
        self.verbs = verbs

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        what = self.verbs.get(name)
        if what is None:
            return found

        async def use(*given: Any, **options: object) -> object:
            times = len(given[0]) if name in TOGETHER else 1
            for _ in range(times):
                crash_point(f"before {what}")
            answer = await found(*given, **options)
            for _ in range(times):
                crash_point(f"after {what}")
            return answer

        return use


class CrashingServices:
    """The services of a store, of which background runs and turns have crash points."""

    def __init__(self, inner: BackgroundStores) -> None:
        self.inner = inner
        self.runs = Crashing(inner.runs, RUN_VERBS)
        self.turns = Crashing(inner.turns, TURN_VERBS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class CrashingStore:
    """A store whose journal, waits and runs have crash points."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.journal = Crashing(inner.journal, JOURNAL_VERBS)
        self.waits = Crashing(inner.waits, WAIT_VERBS)
        services: Any = getattr(inner, "services", None)
        if services is not None:  # a store may have only calls
            self.services = CrashingServices(services)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class CrashingCommits:
    """`CommitSeam` with a crash point between a commit and the coroutines that wait for it."""

    def around(self, commit: Callable[[list[Any]], None]) -> Callable[[list[Any]], None]:
        """Let the program be frozen elsewhere only while no transaction is open."""

        def commit_alone(jobs: list[Any]) -> None:
            with writing:
                commit(jobs)

        return commit_alone

    def committed(self) -> None:
        """The transaction is on the disk, and not yet reported."""
        crash_point("after a commit")


def install() -> None:
    """Put the points into the runtime of this process."""
    apsw.connection_hooks.append(lambda connection: connection.set_commit_hook(_before_a_commit))
    crash_seams.store = CrashingStore
    crash_seams.tool_code = _tool_code
    crash_seams.commits = CrashingCommits()


def _before_a_commit() -> bool:
    crash_point("before a commit")
    return False  # let it be committed


def _tool_code(invoke: Callable[..., Any], mode: Mode) -> Callable[..., Any]:
    return _enclosed(invoke) if mode == "async" else _enclosed_sync(invoke)


def _enclosed(invoke: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    async def run(*given: object, **options: object) -> object:
        crash_point("before the tool runs")
        try:
            return await invoke(*given, **options)
        finally:
            crash_point("after the tool ran")

    return run


def _enclosed_sync(invoke: Callable[..., Any]) -> Callable[..., Any]:
    def run(*given: object, **options: object) -> object:
        crash_point("before the tool runs")
        try:
            return invoke(*given, **options)
        finally:
            crash_point("after the tool ran")

    return run
