"""The contract of background runs. Owns the verbs of their store and the values they take and give; has no queries."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from toolwright.stores.contracts.background_run import BackgroundRun, Progress, Registration, Status
from toolwright.stores.contracts.journal import Cursor
from toolwright.stores.contracts.run_events import RunEvent
from toolwright.stores.contracts.sessions import Mark, Quotas, Room
from toolwright.tools.outcome import ToolOutcome

HEAD = 128 * 1024
TAIL = 128 * 1024
"""Characters of output that are kept from its beginning and from its end."""
LIVE = 2_048
"""Characters of the end of the output that a process shows while it runs."""


class Limits(Struct, frozen=True, gc=False):
    """How many processes may be active. `queue` lets those that are too many wait instead of refusing them.

    `resources` is the room that their session has for showing them among its resources.
    """

    per_session: int = 5
    per_worker: int = 64
    queue: bool = False
    resources: Room = Quotas().resources
    tracked_per_session: int = 100
    """How many tracked processes of a session may be unfinished. They count for no other limit, and never wait."""


class Claimed(NamedTuple):
    """A process that is a worker's now. `before` is the one that had it last and is gone, or handed it back.

    `done` says that the outcome of its call is known already, or its completion has come: only its end is missing.
    """

    process: BackgroundRun
    before: str | None
    done: bool = False


class Piece(NamedTuple):
    """Some output of one stream."""

    stream: str
    text: str

    @property
    def cost(self) -> int:
        """The characters it counts for: its text, the name of its stream, and what sets that apart."""
        return len(self.text) + len(self.stream) + 4


class Report(Struct, frozen=True, kw_only=True):
    """What a process did since its last report: at most one transaction for many of these."""

    id: str
    token: int
    at: float
    pieces: Sequence[Piece] = ()
    dropped: int = 0
    """Characters of output that came between the pieces and are not kept. The tail so far goes with them: the output
    has one gap, after its head."""
    progress: Progress | None = None
    opening_text: str | None = None
    """What it said that it does, before the pieces."""
    status_text: str | None = None
    """What it said last that it does, after the pieces."""
    waiting: Sequence[str] | None = None
    """What it waits for and its name; empty when it goes on; None where nothing changed."""
    tail: str | None = None


class Ending(Struct, frozen=True, kw_only=True):
    """How a process ended. Files and the message are written with it: all of it once, or nothing.

    `tell` is the content of the message to the session, None for none. The runtime is its sender, and its metadata are
    the `run_id` and the `status`.
    """

    id: str
    token: int
    at: float
    status: Status
    outcome: ToolOutcome
    summary: str
    status_text: str
    files: Sequence[tuple[str, bytes]] = ()
    tell: bytes | None = None
    evidence: bytes = b""
    artifact_error: str | None = None
    message_error: str | None = None
    report: Report | None = None
    """What it did since its last report, written before its end and together with it; without output."""


class Telling(NamedTuple):
    """A message to the session of a process, of the sender "runtime": its content as JSON, and the room for it."""

    content: bytes
    room: Room


class Renewal(NamedTuple):
    """What a worker learns when it renews its leases: which it has lost, and which are to be cancelled, and why."""

    lost: list[str]
    cancelled: dict[str, str]


class RunStore(Protocol):
    """Background runs in a database. What a method has returned is durable.

    Implemented by `stores/sqlite/background/runs.py`.

    A worker holds a lease on what it runs: a number of seconds by the clock of the store, which nobody sets as the wall
    clock is set. What is called `at` is an instant for people. Only the holder of the newest token may report, end or
    hand back; a lease that has passed, or whose worker is known to be dead, may be taken by any other, which raises the
    token.

    Each process is shown among the resources of its session, of kind "background_run", with "active" or how it ended as
    its status. Where there is no room it is left out, and not refused.

    Its calls are in the journal of the same database, in the scope of the process. Only an owner whose worker has it
    begins them: for any other, `JournalStore.begin` raises a `StoreError`. Its call may be sent signals from when the
    process is registered until it is over, and they stay when the call is forgotten.
    """

    async def register(
        self, registrations: Sequence[Registration], limits: Limits, mark: Mark | None
    ) -> builtins.list[str]:
        """Enter processes, all or none, and return their ids; one that is there already with the same content is left.

        One that is tracked is running from now on, without a worker; nobody claims it.

        What has a parent is never held: the parent may wait for it, and both would wait for ever. How many workers may
        have is the sum of what living ones said they can, and `per_worker` where none did; it refuses nothing that may
        wait.

        Raises:
            RunError: a limit is reached ("session_limit", "worker_limit"), an id is another's ("conflict"), or the
                parent is over or to be cancelled ("over").
        """
        ...

    async def find(self, id: str) -> BackgroundRun | None:
        """The process of an id."""
        ...

    async def list(
        self, session: str | None, *, active: bool = False, limit: int = 1_000
    ) -> builtins.list[BackgroundRun]:
        """Processes, the newest first."""
        ...

    async def tree(self, id: str) -> builtins.list[BackgroundRun]:
        """A process and all below it, each after its parent."""
        ...

    async def claim(
        self, worker: str, tools: Sequence[str], at: float, lease: float, most: int
    ) -> builtins.list[Claimed]:
        """Take what waits for a worker that has these tools: what a dead worker left first, then the oldest.

        What another worker began of its calls is nobody's then, and may be gone on with; under "rerun" it is forgotten
        with its effects, unless the outcome is known. The deadline is set once, by whoever takes it first.
        """
        ...

    async def renew(
        self, worker: str, held: Sequence[tuple[str, int]], at: float, lease: float, capacity: int
    ) -> Renewal:
        """Hold on to processes, and say that the worker is alive, and this owner's. It does so before it first claims.

        What it claimed and does not hold, because it never heard that its claim was written, is handed back.
        """
        ...

    async def report(self, reports: Sequence[Report]) -> builtins.list[str]:
        """Write what processes did; return the ids of those that are no longer the reporter's.

        Of their output, as many characters as `HEAD` and `TAIL` are kept; of their progress, the newest event.
        """
        ...

    async def finish(self, ending: Ending, quotas: Quotas) -> bool:
        """End a process. False when it is over already, or another's, or when the completion of its call has come.

        A completion that was acknowledged decides how it ends: it is for a worker to claim, and to end with that.
        What waits is nobody's, and ends by the token that it has. Calls of the process that have no outcome get this
        one. The oldest process of the session that was held may begin.

        Raises:
            ServiceError: a file or the message can not be written; then nothing is.
        """
        ...

    async def hand_back(self, worker: str, held: Sequence[tuple[str, int]], at: float) -> None:
        """Let go of processes: any worker may take them at once. Their next holder has a higher token."""
        ...

    async def leave(self, worker: str) -> None:
        """The worker ends, and counts no longer."""
        ...

    async def cancel(self, id: str, reason: str, at: float) -> builtins.list[BackgroundRun]:
        """Ask a process and all below it to stop; return those that are not over. The first reason stays.

        What is over is asked nothing, and what it started goes on.
        """
        ...

    async def reopen(self, id: str, by: str | None, limits: Limits, at: float, authority: bytes | None = None) -> None:
        """Queue an abandoned process again, because a person decided that it continues.

        The steps and calls of it that are done stay done. Those that a crash cut off are forgotten, so that they run
        again; the outcome of its call is forgotten, too. Its deadline begins anew. Its authority stays, unless another
        is given.

        Raises:
            RunError: it is not abandoned ("conflict"), or its session has as many active as it may
                ("session_limit").
        """
        ...

    async def append(
        self,
        id: str,
        token: int | None,
        type: str,
        payload: bytes,
        key: str | None,
        at: float,
        telling: Telling | None = None,
    ) -> int | None:
        """Append an event and return its number; None when the process is over, or another's.

        Without a token it is the host who appends it, whoever runs the process, also before it begins. `telling` is a
        message to the session, written together with the event. An event of the same key is appended once.

        Raises:
            RunError: the key was used for something else, or the type is that of an end ("conflict").
            ServiceError: there is no room for the message; then nothing is written.
        """
        ...

    async def events(self, id: str, after: int, limit: int) -> builtins.list[RunEvent]:
        """The events beyond a number, in order."""
        ...

    async def grant(self, id: str, session: str) -> None:
        """Let a session await, cancel and signal a process of another."""
        ...

    async def granted(self, id: str, session: str) -> bool:
        """True when the process is the session's, or was granted to it."""
        ...

    async def changed(self, since: Cursor | None) -> tuple[Cursor, builtins.list[str]]:
        """The ids of what changed after `since`, and where to look from the next time.

        Without a cursor it gives no ids, and only where to look from.
        """
        ...

    async def cancelled(self, worker: str) -> dict[str, str]:
        """Those of a worker's processes that are to stop, and why."""
        ...

    async def work_waits(self, worker: str, tools: Sequence[str], lease: float) -> bool:
        """True when there may be something to claim. It only reads."""
        ...
