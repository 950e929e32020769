"""A small store of a third party: calls by the name of a shelf, for the life of the process. Owns its scheme."""

from collections import Counter
from collections.abc import Collection

from toolwright.effects.memory import MemoryStore
from toolwright.effects.memory_rows import MemoryDatabase
from toolwright.errors import StoreError
from toolwright.stores import Named, PastBatch, PastCall, Pruned, Stats, StoreOptions
from toolwright.stores.contracts.journal import Entry


class ShelfScheme:
    """`StoreScheme` for `shelf://name`."""

    def __init__(self) -> None:
        self.shelves: dict[str, MemoryDatabase] = {}
        self.opened: list[StoreOptions] = []

    async def open(self, url: str, options: StoreOptions) -> MemoryStore:
        self.opened.append(options)
        return MemoryStore(self.shelves.setdefault(url, MemoryDatabase()))

    def inspect(self, url: str) -> "ShelfInspector":
        return ShelfInspector(self.shelves, url)


class ShelfInspector:
    """`StoreInspector` of a shelf."""

    def __init__(self, shelves: dict[str, MemoryDatabase], url: str) -> None:
        self._shelves, self._url = shelves, url

    def _entries(self) -> list[Entry]:
        if self._url not in self._shelves:
            raise StoreError(f"There is no shelf {self._url!r}; check the name")
        return [row.entry for row in self._shelves[self._url].calls.values() if row.entry is not None]

    async def exists(self) -> bool:
        return self._url in self._shelves

    async def check_access(self) -> None:
        pass  # whoever has the process has its shelves

    async def version(self) -> int:
        self._entries()
        return 1

    async def migrate(self) -> tuple[int, int]:
        return 1, 1

    async def stats(self) -> Stats:
        entries = self._entries()
        return Stats(
            calls=dict(Counter(_status(entry) for entry in entries)),
            sessions=len({entry.intent.key.session for entry in entries}),
            effects=0,
            waits=0,
            open_waits=0,
            signals=0,
            oldest=None,
            oldest_unfinished=None,
            file_bytes=0,
            free_bytes=0,
        )

    async def check(self) -> list[str]:
        self._entries()
        return []

    async def prune(
        self,
        before: float | None,
        *,
        sessions: Collection[str] | None = None,
        vacuum: bool = False,
        dry_run: bool = False,
    ) -> Pruned:
        old = [
            entry.intent.key
            for entry in self._entries()
            if before is not None and entry.finished_at is not None and entry.finished_at < before
        ]
        for key in () if dry_run else old:
            del self._shelves[self._url].calls[key]
        return Pruned(calls=len(old))

    async def batches(self, session: str | None = None, *, limit: int = 50) -> list[PastBatch]:
        of: dict[tuple[str, str, str], list[Entry]] = {}
        for entry in self._entries():
            key = entry.intent.key
            if session in (None, key.session):
                of.setdefault((key.session, key.scope, entry.intent.batch), []).append(entry)
        return [
            PastBatch(*name, len(entries), dict(Counter(map(_status, entries))), *_times(entries))
            for name, entries in of.items()
        ][:limit]

    async def calls(self, *, batch: str | None = None, session: str | None = None) -> list[PastCall]:
        return [
            PastCall(
                entry.intent.key,
                entry.intent.batch,
                entry.intent.position,
                entry.intent.tool,
                entry.intent.arguments,
                entry.intent.source,
                entry.intent.parent,
                entry.intent.queued_at,
                entry.started_at,
                entry.finished_at,
                entry.outcome,
                cut_off=False,
            )
            for entry in self._entries()
            if batch in (None, entry.intent.batch) and session in (None, entry.intent.key.session)
        ]

    async def find_runs(self, word: str, session: str | None = None, *, limit: int = 6) -> list[Named]:
        return []

    async def find_schedules(self, word: str, session: str | None = None, *, limit: int = 6) -> list[Named]:
        return []

    async def decided_key(self, call_id: str, session: str | None = None) -> str | None:
        return None

    async def workers(self) -> list[str]:
        return []


def _status(entry: Entry) -> str:
    return "unfinished" if entry.outcome is None else entry.outcome.status


def _times(entries: list[Entry]) -> tuple[float, float]:
    times = [entry.intent.queued_at for entry in entries]
    return min(times), max(times)
