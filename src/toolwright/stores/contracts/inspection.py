"""The contract of inspection: a store as its keeper sees it. Owns counts, lists and the verbs of `StoreInspector`.

An inspector reads a store from outside: it owns no calls, runs nothing, and creates no store that is missing. The
commands of `toolwright` use nothing else of a store beside a runtime.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from toolwright.plain_data import plain_data
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.waits import APPROVALS, WaitKind
from toolwright.tools.outcome import ToolOutcome


class Stats(Struct, frozen=True):
    """The number of records in a store. `calls` counts them by status.

    Those without one are "cut off" where the program that had them is gone, and "unfinished" where it lives: they run,
    wait, or have not begun.
    """

    calls: dict[str, int]
    sessions: int
    effects: int
    waits: int
    open_waits: int
    signals: int
    oldest: float | None
    """When the oldest call was queued."""
    oldest_unfinished: float | None
    file_bytes: int
    """All that the store takes, with the log of a file."""
    free_bytes: int
    """The part of that which `prune(..., vacuum=True)` could free."""
    runs: dict[str, int] = {}
    """How many background runs there are, by status."""
    turns: dict[str, int] = {}
    """How many turns there are, by state; "cut off" where the program that worked on them is gone."""
    log_bytes: int = 0
    """The part of `file_bytes` that is the log beside the file. It grows while a program reads an old state of it."""

    def to_json(self) -> dict[str, Any]:
        """The counts as plain data."""
        return plain_data(self)


class Pruned(Struct, frozen=True):
    """The number of removed records. `spared` counts the calls that were old enough, but belong to unfinished work."""

    calls: int = 0
    effects: int = 0
    waits: int = 0
    signals: int = 0
    spared: int = 0
    occurrences: int = 0
    """Their keys are no longer known: said again, they occur again."""
    firings: int = 0
    """Firings and skipped instants of schedules."""
    bytes: int = 0
    """How much smaller the store is."""
    runs: int = 0
    """Background runs."""
    turns: int = 0
    """Turns, with their events. The messages of a session stay."""

    def to_json(self) -> dict[str, Any]:
        """The counts as plain data."""
        return plain_data(self)


class Retention(Struct, frozen=True):
    """How long finished calls, turns and background runs are stored: `seconds` after they finished, and for ever
    without it."""

    seconds: float | None = None

    def before(self, now: float) -> float | None:
        """The instant before which finished calls may go; None when none may."""
        return None if self.seconds is None else now - self.seconds


class PastBatch(Struct, frozen=True):
    """One batch. `statuses` counts its calls by status; those without one are "unfinished"."""

    session: str
    scope: str
    batch: str
    calls: int
    statuses: dict[str, int]
    first_at: float
    """When its first call was queued."""
    last_at: float
    """When something was last written about one of its calls."""

    def to_json(self) -> dict[str, Any]:
        """The batch as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class PastCall(Struct, frozen=True):
    """One call. Without an outcome it is unfinished, and `cut_off` if its owner is dead.

    `waits_for` names its open waits, as "approval" or "event:paid". It is `resolved` when its completion has come, and
    its owner, or the process that takes it over, has only to write its outcome.
    """

    key: CallKey
    batch: str
    position: int
    tool: str
    arguments: bytes
    source: str
    parent: str | None
    queued_at: float
    started_at: float | None
    finished_at: float | None
    outcome: ToolOutcome | None
    cut_off: bool
    waits_for: tuple[str, ...] = ()
    resolved: bool = False

    @property
    def status(self) -> str:
        """The status of its outcome, or its state: "waiting", "running" or "cut off"."""
        if self.outcome is not None:
            return self.outcome.status
        return "waiting" if self.waits_for or self.resolved else "cut off" if self.cut_off else "running"

    @property
    def attempts(self) -> int:
        """How often its tool was tried, as far as is known: an unfinished call has begun once, or not at all."""
        return int(self.started_at is not None) if self.outcome is None else self.outcome.attempts


class Named(NamedTuple):
    """A background run or a schedule, as far as it takes to name it."""

    id: str
    session: str
    title: str


class StoreInspector(Protocol):
    """A store that is looked after. Implemented by `stores/sqlite/admin/inspector.py`.

    Each verb connects for itself and leaves nothing open, so that an inspector needs no closing. Every verb raises
    `StoreError` when there is no store, when it is another program's or of a version that is not known here, or when it
    cannot be read; `StoreDamaged` when its content cannot be trusted.
    """

    async def exists(self) -> bool:
        """True when there is a store, or something else in its place. Raises nothing for a missing one."""
        ...

    async def check_access(self) -> None:
        """Refuse a store that this user could not open, or could not make where there is none, with the error that
        opening it would raise. Nothing is changed, and a store of an older version is not brought up to date."""
        ...

    async def version(self) -> int:
        """The version of its schema; an older one than this program's is no error."""
        ...

    async def migrate(self) -> tuple[int, int]:
        """Bring it up to date, as opening it does; return the version it had and the version it has now."""
        ...

    async def stats(self) -> Stats:
        """Count its records."""
        ...

    async def check(self) -> list[str]:
        """The problems of the store, one sentence each; empty when there are none."""
        ...

    async def prune(
        self,
        before: float | None,
        *,
        sessions: Collection[str] | None = None,
        vacuum: bool = False,
        dry_run: bool = False,
    ) -> Pruned:
        """Remove calls, turns and background runs that finished before an instant, of all or some sessions, with their
        parts.

        Unfinished work stays, and so do the records that it needs to continue: every call of its batch, every call that
        it made or was made by, with their effects; every call of a run or a turn, and the runs above one. A call that
        is removed is not known any more: when it is submitted again, it runs again. The artifacts of runs stay among
        the files of their sessions, and the messages of turns in the histories of theirs. Revoked sessions and
        remembered decisions stay. Without an instant nothing is removed. Older firings of schedules are removed too,
        with schedules that are finished since; so are the keys of occurrences, unless only some sessions are pruned.
        Events of that time leave the event log.

        Args:
            before: seconds since 1970, as `Retention.before` gives.
            sessions: only calls of these.
            vacuum: return the free space to the system, which may take as long as copying the store. Otherwise new
                records use that space.
            dry_run: remove nothing, and count the records that would be removed.
        """
        ...

    async def batches(self, session: str | None = None, *, limit: int = 50) -> list[PastBatch]:
        """Its batches, or the batches of one session, the newest first."""
        ...

    async def calls(self, *, batch: str | None = None, session: str | None = None) -> list[PastCall]:
        """The calls of a batch, of a session, or of a batch in a session, in the order they were queued."""
        ...

    async def find_runs(self, word: str, session: str | None = None, *, limit: int = 6) -> list[Named]:
        """The background runs with this id, or else those whose id begins so, with or without the part that most ids
        share."""
        ...

    async def find_schedules(self, word: str, session: str | None = None, *, limit: int = 6) -> list[Named]:
        """The schedules with this id, or else those whose id begins so, as with `find_runs`."""
        ...

    async def decided_key(
        self, call_id: str, session: str | None = None, kinds: Sequence[WaitKind] = APPROVALS
    ) -> str | None:
        """The key of the newest request to a person of a call that has been decided; None when there is none.

        `kinds` are among those of `INBOX`.
        """
        ...

    async def workers(self) -> list[str]:
        """The names of its workers that are alive."""
        ...
