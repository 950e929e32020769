"""Random verbs on two files at once, of which one has bundles: whatever happens, nobody can tell them apart.

Unlike in the conformance suite, what is asked is not awaited before the next is, some of it fails, and the store may
be one that cannot write for a while.
"""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.stores.sqlite.older_schemas import rows
from tests.support import fail_after
from toolwright.errors import StoreError, ToolwrightError
from toolwright.stores.contracts.journal import CallKey, Ended, Entry, Intent, Kept
from toolwright.stores.contracts.waits import Resolution, Wait, WaitKey
from toolwright.stores.sqlite.admin.history import batches, calls
from toolwright.stores.sqlite.admin.maintenance import check, prune, stats
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing.sqlite_store import drop_locks, let_write, run_on_connection
from toolwright.tools.outcome import ToolOutcome

IDS = ["1", "1.0", "null", "q\"'\\", "😀\x01", "a\0b", "Köln"]
PLACES = [("s", ""), ("s", "x.$"), ("t'\"[0]", "")]
VERBS = {
    "begin": 12, "finish_all": 10, "finish": 4, "start": 3, "forget": 3, "release": 4, "keep": 3, "open_wait": 3,
    "reopen": 2, "bad": 2, "unfinished": 1, "effects": 1, "resolve": 1, "signal": 1, "signals": 1, "delete": 0.3,
}  # fmt: skip
CALLS = "SELECT * FROM every_call ORDER BY session, scope, call_id"
PARTS = [f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4, 5, 6, 7" for table in ("effects", "waits", "signals")]
Act = tuple[Any, ...]


class World:
    """A file and those who have it open; in one of the two, batches may simply run again and are bundled."""

    def __init__(self, folder: Path, bundled: bool) -> None:
        folder.mkdir()
        self.file = folder / "agent.db"
        self.bundled = bundled
        self.stores: list[SqliteStore] = []

    def open(self) -> None:
        self.stores.append(SqliteStore(self.file, sync="normal"))

    def plain(self, answer: Any) -> Any:
        """What both should say: owners by number, faults without their words."""
        names = {store.owner: str(number) for number, store in enumerate(self.stores)}
        if isinstance(answer, StoreError):
            return "StoreError"
        if isinstance(answer, list):
            return [self.plain(one) for one in answer]
        if isinstance(answer, tuple):
            return tuple(names.get(one, one) if isinstance(one, str) else one for one in answer)
        if isinstance(answer, Entry):
            # Which crashes count depends on whether a call may run again, as it may in the bundled world only.
            return replace(answer, owner=names.get(answer.owner, answer.owner), crashes=0)
        return repr(answer)

    def state(self) -> list[Any]:
        return [self.plain(rows(self.file, CALLS)), *(rows(self.file, query) for query in PARTS)]

    async def let_write(self, number: int, may: bool) -> None:
        await let_write(self.stores[number], may)

    def ask(self, number: int, verb: str, *given: Any) -> asyncio.Future[Any]:
        store = self.stores[number]
        if verb == "begin":
            given = ([replace(intent, rerun=self.bundled) for intent in given[0]],)
        if verb == "bad":
            return run_on_connection(store, _fail)
        if verb == "delete":
            return asyncio.ensure_future(store.services.archives.delete_session(*given))
        verbs = store.journal if hasattr(store.journal, verb) else store.waits
        return asyncio.ensure_future(getattr(verbs, verb)(*given))

    async def play(self, number: int, acts: list[Act], fault: bool) -> list[Any]:
        """Ask for all of them at once."""
        await self.let_write(number, not fault)
        asked = [self.ask(number, *act) for act in acts]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        await self.let_write(number, True)
        for answer in answers:
            assert not isinstance(answer, BaseException) or isinstance(answer, ToolwrightError), answer
        return self.plain(answers)

    async def look(self) -> list[Any]:
        """What an inspector sees, which changes nothing."""
        before = rows(self.file, "SELECT * FROM bundles")
        seen: list[Any] = [
            replace(await stats(self.file), file_bytes=0, free_bytes=0, log_bytes=0),
            await check(self.file),
        ]
        seen += [await batches(self.file), *[await calls(self.file, session=session) for session, _ in PLACES]]
        assert rows(self.file, "SELECT * FROM bundles") == before
        return seen


def _fail(_: Any) -> None:
    raise StoreError("This job fails, and those beside it are done again, each alone")


def act(chance: random.Random, at: float, own: list[CallKey]) -> Act:
    """Something to do, mostly with calls of who does it."""
    place = chance.choice(PLACES)

    def some() -> CallKey:
        return chance.choice(own) if own and chance.random() < 0.9 else CallKey(*place, chance.choice(IDS))

    def ended(key: CallKey) -> ToolOutcome:
        status = chance.choice(("success", "failure", "connection_required"))
        return ToolOutcome(call_id=key.call_id, tool="look", status=status, payload=b"%d" % chance.randrange(100))

    verb, key = chance.choices(list(VERBS), list(VERBS.values()))[0], some()
    wait = WaitKey(key, "event", chance.choice("ab"))
    arguments = chance.choice((b"{}", '{"a":"Köln \\"☀"}'.encode(), b'[1,2.5e300,null,"\\u0000"]', b'"\xff"'))
    ids = chance.sample(IDS, chance.randint(1, len(IDS)))
    intents = [
        Intent(CallKey(*place, id), f"b{at}", number, "look", "app.look", arguments, "model", "null", at)
        for number, id in enumerate(ids)
    ]
    keys = sorted({some() for _ in range(chance.randrange(5))})
    given: dict[str, tuple[Any, ...]] = {
        "begin": (intents,),
        "finish_all": ([Ended(one, ended(one), chance.choice((None, at)), at) for one in keys],),
        "finish": (key, ended(key), chance.choice((None, at)), at),
        "start": (key, at),
        "keep": (key, Kept("step:x", b"i", at, chance.random() < 0.5, b"p")),
        "open_wait": (Wait(wait, at),),
        "resolve": (wait, Resolution("ok", at)),
        "signal": (wait, b"1", at),
        "signals": (wait,),
        "unfinished": (),
        "bad": (),
        "delete": (key.session,),
    }
    return verb, *given.get(verb, (key,))


@pytest.mark.promise("EFF-09", "EFF-11", "EFF-12", "EFF-07", "EFF-13")
@pytest.mark.parametrize("first", range(0, 60, 10))
async def test_nobody_can_tell_whether_intents_are_in_bundles(first, tmp_path, monkeypatch):
    monkeypatch.setattr("toolwright.stores.sql.calls.intent_bundles.FEWEST", 2)
    for seed in range(first, first + 10):
        worlds = [World(tmp_path / f"{seed}-{bundled}", bundled) for bundled in (True, False)]
        said: list[Any] = [f"seed {seed}"]
        try:
            async with fail_after(60):
                await play(random.Random(seed), worlds, said)
        except BaseException as error:
            error.add_note("\n".join(map(repr, said)))
            raise
        finally:
            for world in worlds:
                await asyncio.gather(*(store.close() for store in world.stores))


async def play(chance: random.Random, worlds: list[World], said: list[Any]) -> None:
    alive = [0, 1]
    for world in worlds:
        world.open()
        world.open()
    for at in range(chance.randint(5, 30)):
        number, what, fault = chance.choice(alive), chance.random(), False
        if what < 0.03:
            said.append(("kill", number))
            alive[alive.index(number)] = len(worlds[0].stores)
            for world in worlds:
                drop_locks(world.stores[number])
                world.open()
            continue
        if what < 0.06:
            said.append(("prune", at - 1.0))
            both: list[Any] = [replace(await prune(world.file, at - 1.0), bytes=0) for world in worlds]
        elif what < 0.09:
            both = [await world.look() for world in worlds]
        else:
            unfinished = rows(worlds[1].file, "SELECT session, scope, call_id, owner FROM calls WHERE outcome IS NULL")
            own = [CallKey(*row[:3]) for row in unfinished if row[3] == worlds[1].stores[number].owner]
            acts, fault = [act(chance, float(at), own) for _ in range(chance.choice((1, 1, 3, 6)))], what > 0.85
            said.append((number, "which cannot write" if fault else "", acts))
            both = [await world.play(number, acts, fault) for world in worlds]
        assert fault or both[0] == both[1]  # what cannot be written fails sooner where more must be
        bundled, plain = [world.state() for world in worlds]
        assert bundled == plain
