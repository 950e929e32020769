"""The contract of background runs. Owns the verbs of their store and the values they take and give; has no queries."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from toolwright.stores.contracts.background_run import BackgroundRun, Progress, Registration, Status
from toolwright.stores.contracts.journal import Cursor
from toolwright.stores.contracts.run_events import RunEvent
from toolwright.stores.contracts.sessions import Mark, Quota, Quotas
from toolwright.tools.outcome import ToolOutcome

HEAD = 128 * 1024
TAIL = 128 * 1024
"""The number of characters of output that are stored from its beginning and from its end."""
LIVE = 2_048
"""Characters of the end of the output that a run shows while it is active."""


class Limits(Struct, frozen=True, gc=False):
    """How many runs may be active. `queue` lets further runs wait instead of refusing them.

    `resources` is the quota of their session for resources, where runs are shown.
    """

    per_session: int = 5
    per_worker: int = 64
    queue: bool = False
    resources: Quota = Quotas().resources
    tracked_per_session: int = 100
    """How many tracked runs of a session may be unfinished. They count for no other limit, and never wait."""


class Claimed(NamedTuple):
    """A run that a worker claimed. `before` is its last worker, which is gone or handed it back.

    `done` means that the outcome of its call is known already, or its completion has come: only its end is missing.
    """

    run: BackgroundRun
    before: str | None
    done: bool = False


class Piece(NamedTuple):
    """Some output of one stream."""

    stream: str
    text: str

    @property
    def cost(self) -> int:
        """The characters it counts for: its text, the name of its stream, and the separators."""
        return len(self.text) + len(self.stream) + 4


class Report(Struct, frozen=True, kw_only=True):
    """The events and output of a run since its last report; one transaction writes many reports."""

    id: str
    token: int
    at: float
    pieces: Sequence[Piece] = ()
    dropped: int = 0
    """Characters of output that came between the pieces and are not stored. The tail so far is dropped with them: the
    output has one gap, after its head."""
    progress: Progress | None = None
    opening_text: str | None = None
    """Its status text before the pieces."""
    status_text: str | None = None
    """Its latest status text, after the pieces."""
    waiting: Sequence[str] | None = None
    """The kind and the name of its wait; empty when it continues; None where nothing changed."""
    tail: str | None = None


class Ending(Struct, frozen=True, kw_only=True):
    """How a run ended. Files and the message are written with it: all of it once, or nothing.

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
    """Its report since the last one, written before its end and together with it; without output."""


class Telling(NamedTuple):
    """A message to the session of a run, with the sender "runtime": its content as JSON, and its quota."""

    content: bytes
    quota: Quota


class Renewal(NamedTuple):
    """The answer to a renewal of leases: which leases are lost, and which runs are to be cancelled, and why."""

    lost: list[str]
    cancelled: dict[str, str]


class RunStore(Protocol):
    """The contract of background runs in a database. A write is durable once its method has returned.

    Implemented by `stores/sql/background/runs.py`.

    A worker holds a lease on the runs it executes: a number of seconds by the clock of the store, which is never set
    like a wall clock. The parameter `at` is an instant for people. Only the holder of the newest token may report, end
    or hand back; a lease that has expired, or whose worker is known to be dead, may be taken by any other, which raises
    the token.

    Each run is shown among the resources of its session, of kind "background_run", with "active" or its end as its
    status. If that exceeds the quota it is left out, and not refused.

    Its calls are in the journal of the same database, in the scope of the run. Only an owner whose worker holds the run
    begins them: for any other, `JournalStore.begin` raises a `StoreError`. Its call may be sent signals from when the
    run is registered until it is finished, and they stay when the call is forgotten.
    """

    async def register(
        self, registrations: Sequence[Registration], limits: Limits, mark: Mark | None
    ) -> builtins.list[str]:
        """Register runs, all or none, and return their ids; a run that exists already with the same content is not
        changed.

        A tracked run is running from now on, without a worker; it is never claimed.

        A run with a parent is never held: the parent may wait for it, and both would wait for ever. The capacity is the
        sum of the capacities of living workers, and `per_worker` if there are none; it refuses no run that may wait.

        Raises:
            RunError: a limit is reached ("session_limit", "worker_limit"), an id is another's ("conflict"), or the
                parent is finished or to be cancelled ("over").
        """
        ...

    async def find(self, id: str) -> BackgroundRun | None:
        """The run of an id."""
        ...

    async def list(
        self, session: str | None, *, active: bool = False, limit: int = 1_000
    ) -> builtins.list[BackgroundRun]:
        """Runs, the newest first."""
        ...

    async def tree(self, id: str) -> builtins.list[BackgroundRun]:
        """A run and all below it, each after its parent."""
        ...

    async def claim(
        self,
        worker: str,
        tools: Sequence[str],
        at: float,
        lease: float,
        most: int,
        only: Sequence[str] | None = None,
        *,
        fair: bool = False,
    ) -> builtins.list[Claimed]:
        """Claim queued runs for a worker that has these tools: first the runs of dead workers, then the oldest.

        With `only`, runs of these ids and no others.

        Where more are queued than it may claim, sessions have fair shares: the run of a session that has fewer running
        goes first, so that a session with very many queued runs delays another by one of them, and not by all.

        With `fair` it leaves other living workers that have room their share: of all runs that are queued or run, each
        worker gets as many as fit its capacity. If no other took them by its next look, it claims them without `fair`.

        Unfinished calls of the previous worker are released, and the new one may continue them. With disposition
        "rerun" they are deleted with their effects, unless the call has an outcome. The deadline is set once, at the
        first claim.

        A worker that others took for dead since its last renewal holds what it claims; its capacity counts
        again when it renews.
        """
        ...

    async def renew(
        self, worker: str, held: Sequence[tuple[str, int]], at: float, lease: float, capacity: int
    ) -> Renewal:
        """Renew the leases of runs, and report that the worker is alive and belongs to this owner. It does so before it
        first claims.

        Runs that it claimed and does not hold, because it never got the answer to its claim, are handed back.
        """
        ...

    async def report(self, reports: Sequence[Report]) -> builtins.list[str]:
        """Write reports of runs; return the ids of the runs that the reporter no longer holds.

        Of their output, `HEAD` and `TAIL` characters are stored; of their progress, the newest event.
        """
        ...

    async def finish(self, ending: Ending, quotas: Quotas) -> bool:
        """End a run. False when it is finished already, or held by another, or when the completion of its call has
        come.

        An acknowledged completion decides how it ends: a worker claims the run, and ends it with that. A waiting run
        has no worker, and ends by its present token. Calls of the run without an outcome get this one. The oldest held
        run of the session may begin.

        Raises:
            ServiceError: a file or the message cannot be written; then nothing is.
        """
        ...

    async def hand_back(self, worker: str, held: Sequence[tuple[str, int]], at: float) -> None:
        """Release runs: any worker may claim them at once. Their next holder has a higher token."""
        ...

    async def leave(self, worker: str) -> None:
        """The worker ends, and counts no longer."""
        ...

    async def cancel(self, id: str, reason: str, at: float) -> builtins.list[BackgroundRun]:
        """Ask a run and all runs below it to stop; return the unfinished ones. The first reason stays.

        A finished run is not asked, and the runs that it started continue.
        """
        ...

    async def reopen(self, id: str, by: str | None, limits: Limits, at: float, authority: bytes | None = None) -> None:
        """Queue an abandoned run again, because a person decided that it continues.

        Its finished steps and calls stay finished. The ones that a crash cut off are forgotten, so that they run again;
        the outcome of its call is forgotten, too. Its deadline starts again. Its authority stays, unless another is
        given.

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
        """Append an event and return its number; None when the run is finished, or held by another.

        Without a token the host appends it, whichever worker has the run, also before it begins. `telling` is a message
        to the session, written together with the event. An event of the same key is appended once.

        Raises:
            RunError: the key was used for something else, or the type is that of an end ("conflict").
            ServiceError: the message exceeds the quota; then nothing is written.
        """
        ...

    async def events(self, id: str, after: int, limit: int) -> builtins.list[RunEvent]:
        """The events beyond a number, in order."""
        ...

    async def grant(self, id: str, session: str) -> None:
        """Let a session await, cancel and signal a run of another."""
        ...

    async def granted(self, id: str, session: str) -> bool:
        """True when the run is the session's, or was granted to it."""
        ...

    async def changed(self, since: Cursor | None) -> tuple[Cursor, builtins.list[str]]:
        """The ids of the runs that changed after `since`, and the cursor to continue from the next time.

        Without a cursor it gives no ids, and only where to look from.
        """
        ...

    async def cancelled(self, worker: str) -> dict[str, str]:
        """The runs of a worker that are to stop, and why."""
        ...

    async def unclaimed(self, tools: Sequence[str], lease: float, limit: int) -> builtins.list[BackgroundRun]:
        """Runs of these tools that a worker could claim now: those of dead workers, then the queued ones, the oldest
        first. It only reads."""
        ...

    async def work_waits(self, worker: str, tools: Sequence[str], lease: float) -> bool:
        """True when there may be something to claim. It only reads."""
        ...
