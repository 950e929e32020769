"""Runs and the journal in the same database: the leases and the calls of a dead worker."""

from __future__ import annotations

from toolwright.errors import StoreError
from toolwright.stores.contracts.background_run import BackgroundRun, Disposition, Options, scope_of
from toolwright.stores.contracts.journal import CallKey, Ended, Kept
from toolwright.stores.contracts.run_store import Claimed, Limits
from toolwright.stores.contracts.store import Store
from toolwright.stores.contracts.waits import Refused, WaitKey
from toolwright.testing.conformance.background import PLENTY, QUOTAS, claim, ending, refusal, registration, services_of
from toolwright.testing.conformance.cases import Database, call, cases, intent, success, wait
from toolwright.testing.conformance.controllers import raised

DISPOSITIONS: tuple[Disposition, ...] = ("resume", "rerun", "abandon")


async def what_a_dead_worker_has_is_taken_at_once(database: Database) -> None:
    dead, living, heir = [await database.open() for _ in range(3)]
    for store, worker, id in ((dead, "w1", "left"), (living, "w2", "kept")):
        services = services_of(store)
        await services.processes.renew(worker, [], 100.0, 130.0, 5)
        await services.processes.register([registration(id)], PLENTY, None)
        assert [process.id for process in await claim(services, worker)] == [id]
    stores = services_of(heir)
    assert not await stores.processes.work_waits("w3", ["work"], 101.0)
    await database.kill(dead)
    assert await stores.processes.work_waits("w3", ["work"], 101.0)
    (claimed,) = await stores.processes.claim("w3", ["work"], 101.0, 131.0, 9)
    assert (claimed.process.id, claimed.before) == ("left", "w1")
    assert (claimed.process.token, claimed.process.crashes) == (2, 1)


async def a_dead_worker_counts_no_longer_once_somebody_looked_for_work(database: Database) -> None:
    dead, heir = await database.open(), await database.open()
    stores, limits = services_of(heir), Limits(per_session=1_000, per_worker=1)
    await services_of(dead).processes.renew("w1", [], 100.0, 130.0, 9)
    await stores.processes.register([registration("p1")], limits, None)
    await database.kill(dead)
    assert len(await claim(stores, "w2")) == 1
    assert await refusal(stores.processes.register([registration("p2")], limits, None)) == "worker_limit"


async def only_a_worker_of_this_owner_that_has_a_process_begins_its_calls(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    new = registration("resume")
    await services_of(former).processes.register([new], PLENTY, None)
    (waiting,) = await services_of(former).processes.list(None)
    for store in (former, heir):
        await raised(StoreError, store.journal.begin([intent(waiting.call)]))
    process = await _taken(former, "resume")
    await raised(StoreError, heir.journal.begin([intent(process.call)]))
    await _succeeded(heir, process)
    await raised(StoreError, former.journal.begin([intent(process.call)]))
    assert await heir.journal.begin([intent(process.call)]) == [None]


async def a_call_that_a_former_worker_began_is_its_heirs(database: Database) -> None:
    """The former one is alive, and was only asleep."""
    former, heir = await database.open(), await database.open()
    for disposition in ("resume", "abandon"):
        process = await _begun(former, disposition)
        await _succeeded(heir, process)
        (entry,) = await heir.journal.begin([intent(process.call)])
        assert entry is not None
        assert (entry.owner, entry.cut_off) == (heir.journal.owner, True)
        assert [kept.label for kept in await heir.journal.effects(process.call)] == ["step:a"]
        assert not await former.journal.finish(process.call, success(process.call), None, 132.0)
        assert await heir.journal.finish(process.call, success(process.call), None, 132.0)


async def a_refused_call_of_a_process_is_written_by_the_worker_that_has_it(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    process = await _begun(former, "resume")
    told, late = (CallKey("s1", process.call.scope, name) for name in ("told", "late"))
    assert await former.journal.begin([], [told, late]) == [None, None]
    await former.journal.finish_all([Ended(told, success(told), None, 102.0, intent=intent(told))])
    await _succeeded(heir, process)
    ended = Ended(late, success(late), None, 132.0, intent=intent(late))
    await raised(StoreError, former.journal.finish_all([ended]))
    await raised(StoreError, former.journal.begin([], [late]))
    known, unknown = await heir.journal.begin([], [told, late])
    assert known is not None
    assert (known.outcome, unknown) == (success(told), None)
    await heir.journal.finish_all([ended])
    (known,) = await heir.journal.begin([], [late])
    assert known is not None
    assert known.outcome == success(late)


async def a_call_of_what_was_handed_back_is_the_next_workers(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    process = await _begun(former, "resume")
    assert process.worker is not None
    await services_of(former).processes.hand_back(process.worker, [(process.id, process.token)], 110.0)
    await _succeeded(heir, process, 111.0)
    (entry,) = await heir.journal.begin([intent(process.call)])
    assert entry is not None
    assert (entry.owner, entry.cut_off) == (heir.journal.owner, True)


async def what_is_to_be_rerun_begins_from_nothing(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    process = await _begun(former, "rerun")
    await former.waits.open_wait(wait(process.call, "event", "paid"))
    await heir.journal.begin([intent(call())])
    await heir.journal.keep(call(), Kept("step:a", b"null", 101.0, True))
    await _succeeded(heir, process)
    assert await heir.journal.begin([intent(process.call)]) == [None]
    assert await heir.journal.effects(process.call) == []
    assert await heir.waits.waiting() == []
    assert len(await heir.journal.effects(call())) == 1


async def an_outcome_that_is_known_stays_and_only_the_end_is_missing(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    for disposition in DISPOSITIONS:
        process = await _begun(former, disposition)
        await former.journal.finish(process.call, success(process.call), None, 110.0)
        assert (await _succeeded(heir, process)).done
        (entry,) = await heir.journal.begin([intent(process.call)])
        assert entry is not None
        assert entry.outcome == success(process.call)


async def a_call_whose_outcome_is_not_known_is_not_done(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    for disposition in DISPOSITIONS:
        process = await _begun(former, disposition)
        assert not (await _succeeded(heir, process)).done


async def what_was_begun_of_a_process_ends_with_it(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    process = await _begun(former, "resume")
    await former.waits.open_wait(wait(process.call, "event", "paid"))
    taken = (await _succeeded(heir, process)).process
    given = ending(taken, "abandoned", at=140.0)
    assert await services_of(heir).processes.finish(given, QUOTAS)
    assert await heir.waits.waiting() == []
    assert not await former.journal.finish(process.call, success(process.call), None, 141.0)
    assert await heir.waits.signal(WaitKey(process.call, "signal", "go"), b"1", 142.0) == Refused("over")


async def a_process_takes_signals_from_when_it_is_registered_until_it_is_over(database: Database) -> None:
    store, other = await database.open(), await database.open()
    stores, go = services_of(store), WaitKey(CallKey("s1", scope_of("rerun"), "rerun"), "signal", "go")
    assert await other.waits.signal(go, b"0", 100.0) == Refused("unknown")
    await stores.processes.register([registration("rerun", options=Options(disposition="rerun"))], PLENTY, None)
    assert await other.waits.signal(go, b"1", 100.0) == 1
    process = await _taken(store, "rerun")
    await store.journal.begin([intent(process.call)])
    assert await other.waits.signal(go, b"2", 101.0) == 2
    taken = (await _succeeded(other, process)).process
    assert await other.waits.signals(go) == [b"1", b"2"]
    await other.journal.begin([intent(process.call)])
    assert await other.journal.forget(process.call)
    assert await other.waits.signals(go) == [b"1", b"2"]
    assert await services_of(other).processes.finish(ending(taken), QUOTAS)
    assert await store.waits.signal(go, b"3", 201.0) == Refused("over")
    assert await store.waits.signals(go) == [b"1", b"2"]


async def _begun(store: Store, disposition: Disposition) -> BackgroundRun:
    """A run of a worker, with a call that began, and an effect of it."""
    new = registration(disposition, options=Options(disposition=disposition))
    await services_of(store).processes.register([new], PLENTY, None)
    process = await _taken(store, disposition)
    await store.journal.begin([intent(process.call)])
    await store.journal.start(process.call, 101.0)
    await store.journal.keep(process.call, Kept("step:a", b"null", 101.0, True))
    return process


async def _taken(store: Store, id: str) -> BackgroundRun:
    """A run that a worker of its own claims at 100."""
    stores = services_of(store)
    await stores.processes.renew(f"worker of {id}", [], 100.0, 130.0, 5)
    (process,) = await claim(stores, f"worker of {id}")
    assert process.id == id
    return process


async def _succeeded(store: Store, process: BackgroundRun, now: float = 131.0) -> Claimed:
    """A run that another worker takes over from its own."""
    stores, heir = services_of(store), f"heir of {process.id}"
    await stores.processes.renew(heir, [], now, now + 999.0, 5)
    (claimed,) = await stores.processes.claim(heir, ["work"], now, now + 999.0, 9)
    assert claimed.process.id == process.id
    return claimed


TAKEOVERS = cases(
    what_a_dead_worker_has_is_taken_at_once,
    a_dead_worker_counts_no_longer_once_somebody_looked_for_work,
    only_a_worker_of_this_owner_that_has_a_process_begins_its_calls,
    a_call_that_a_former_worker_began_is_its_heirs,
    a_refused_call_of_a_process_is_written_by_the_worker_that_has_it,
    a_call_of_what_was_handed_back_is_the_next_workers,
    what_is_to_be_rerun_begins_from_nothing,
    an_outcome_that_is_known_stays_and_only_the_end_is_missing,
    a_call_whose_outcome_is_not_known_is_not_done,
    what_was_begun_of_a_process_ends_with_it,
    a_process_takes_signals_from_when_it_is_registered_until_it_is_over,
)
