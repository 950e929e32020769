"""What a verb of the store costs does not grow with what the store has. Counted in steps of SQLite, not in time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from toolwright.stores.contracts.journal import CallKey, Intent, Kept
from toolwright.stores.contracts.sessions import Quota
from toolwright.stores.contracts.turns import Advance, NewTurn
from toolwright.stores.contracts.waits import Resolution, Wait, WaitKey
from toolwright.stores.sql.calls.history import batch_query
from toolwright.stores.sql.sessions.turns import list_query
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing.sqlite_store import run_on_connection
from toolwright.tools.outcome import ToolOutcome

OK = Resolution("ok", 1.0)


def intent(key: CallKey) -> Intent:
    return Intent(key, "b", 0, "book", "app.book", b"{}", "model", None, 1.0)


async def filled(file, count: int) -> SqliteStore:
    """A store with as many calls, each with an effect and an open wait, and as many signals.

    A second session has one open wait, and as many that are over.
    """
    store = SqliteStore(file, sync="normal")
    keys = [CallKey("busy", "", f"c{number}") for number in range(count)]
    await store.journal.begin([intent(key) for key in keys])
    await store.journal.begin([intent(CallKey("quiet", "", "c1")), intent(CallKey("quiet", "", "c2"))])
    await asyncio.gather(
        *(store.journal.keep(key, Kept("step:a", b"1", 1.0)) for key in keys),
        *(store.waits.open_wait(Wait(WaitKey(key, "event", "e"), 1.0)) for key in keys),
        *(store.waits.resolve(WaitKey(key, "event", "early"), OK) for key in keys),
        *(store.waits.resolve(WaitKey(CallKey("quiet", "", "c1"), "event", key.call_id), OK) for key in keys),
        *(store.waits.signal(WaitKey(keys[0], "signal", "go"), b"1", 1.0) for _ in keys),
        store.waits.open_wait(Wait(WaitKey(CallKey("quiet", "", "c1"), "approval"), 1.0)),
    )
    return store


async def steps(store: SqliteStore, ask: Callable[[], Awaitable[object]]) -> int:
    taken = 0

    def count() -> bool:
        nonlocal taken
        taken += 1
        return False

    await run_on_connection(store, lambda connection: connection.set_progress_handler(count, 1))
    await ask()
    await run_on_connection(store, lambda connection: connection.set_progress_handler(None))
    return taken


async def costs(file, count: int) -> dict[str, int]:
    store = await filled(file, count)
    journal, waits = store.journal, store.waits
    first, second, third, quiet = (CallKey(*where) for where in WHERE)
    cursor = (await waits.arrivals(None)).cursor
    done = ToolOutcome(call_id="c3", tool="book", status="success")
    verbs: dict[str, Callable[[], Awaitable[object]]] = {
        "begin": lambda: journal.begin([intent(CallKey("busy", "", "new"))]),
        "start": lambda: journal.start(first, 2.0),
        "keep": lambda: journal.keep(first, Kept("step:b", b"1", 2.0)),
        "effects": lambda: journal.effects(first),
        "nothing arrived": lambda: waits.arrivals(cursor),
        "open_wait": lambda: waits.open_wait(Wait(WaitKey(first, "event", "f"), 2.0)),
        "resolve": lambda: waits.resolve(WaitKey(first, "event", "e"), OK),
        "resolve before": lambda: waits.resolve(WaitKey(first, "event", "g"), OK),
        "two arrived": lambda: waits.arrivals(cursor),
        "signal": lambda: waits.signal(WaitKey(first, "signal", "go"), b"1", 2.0),
        "last signal": lambda: waits.signals(WaitKey(first, "signal", "go"), count),
        "inbox": lambda: waits.waiting(kinds=["approval", "crash"]),
        "waiting": lambda: waits.waiting("quiet"),
        "cancel_waits": lambda: waits.cancel_waits("quiet", OK),
        "remembered": lambda: waits.remembered("busy"),
        "release": lambda: journal.release(second),
        "finish": lambda: journal.finish(third, done, 1.0, 2.0),
        "forget": lambda: journal.forget(quiet),
    }
    found = {name: await steps(store, ask) for name, ask in verbs.items()}
    await store.close()
    return found


WHERE = (("busy", "", "c0"), ("busy", "", "c1"), ("busy", "", "c2"), ("quiet", "", "c2"))


async def test_no_verb_costs_more_when_much_is_open(tmp_path):
    few, many = await costs(tmp_path / "few.db", 20), await costs(tmp_path / "many.db", 2_000)

    assert {name: many[name] for name in many if many[name] > few[name] * 1.2 + 5} == {}
    assert min(few.values()) > 5  # they were counted at all


async def test_a_list_of_turns_does_not_cost_more_when_there_are_many(tmp_path):
    found = []
    for count in (20, 400):
        store = SqliteStore(tmp_path / f"{count}.db", sync="normal")
        turns, wide = store.services.turns, Quota(10_000, 10**9)
        for number in range(count):
            id, session = f"turn_{number:04}", f"s{number}"
            new = await turns.add(NewTurn(id=id, session=session, message=b"1", options=b"{}", at=float(number)), wide)
            if number >= 5:
                await turns.advance(
                    Advance(id=id, token=new.token, number=1, state="answered", at=1.0, progress=b"{}"), wide
                )
        bounds = ("turn_0007", "turn_0008")
        asked = {
            "newest": (list_query(False, False, False), (None, 5)),
            "unfinished": (list_query(False, True, False), (None, 5)),
            "of a session": (list_query(True, False, False), ("s7", 5, 2**62)),
            "of a session from a place on": (list_query(True, False, False), ("s7", 5, 1)),
            "by prefix": (list_query(False, False, True), (None, 5, *bounds)),
            "of a session by prefix": (list_query(True, False, True), ("s7", 5, 2**62, *bounds)),
        }
        found.append({name: await steps(store, reading(store, *query)) for name, query in asked.items()})
        await store.close()
    few, many = found
    assert {name: many[name] for name in many if many[name] > few[name] * 1.2 + 5} == {}
    assert min(few.values()) > 20


async def test_the_calls_of_a_batch_do_not_cost_more_when_there_are_many(tmp_path):
    found = []
    for count in (20, 400):
        store = SqliteStore(tmp_path / f"{count}.db", sync="normal")
        for number in range(count):
            key = CallKey(f"s{number}", "", "c")
            hashed = f"batch_{number * 2_654_435_761 % 2**32:08x}"
            await store.journal.begin([replace(intent(key), batch=hashed)])
            await store.journal.finish(key, ToolOutcome(call_id="c", tool="book", status="success"), 1.0, 2.0)
        id = f"batch_{7 * 2_654_435_761 % 2**32:08x}"
        asked = {
            "of a batch": (batch_query(False), (id, id)),
            "of a batch in a session": (batch_query(True), (id, id, "s7")),
        }
        found.append({name: await steps(store, reading(store, *query)) for name, query in asked.items()})
        await store.close()
    few, many = found
    assert {name: many[name] for name in many if many[name] > few[name] * 1.2 + 5} == {}
    assert min(few.values()) > 20


def reading(store: SqliteStore, query: str, values: tuple[Any, ...]) -> Callable[[], Awaitable[object]]:
    """A query on the connection whose steps are counted: the store itself reads on another one."""
    return lambda: run_on_connection(store, lambda connection: connection.execute(query, values).fetchall())
