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


async def the_run_of_a_dead_worker_can_be_claimed_at_once(database: Database) -> None:
    dead, living, heir = [await database.open() for _ in range(3)]
    for store, worker, id in ((dead, "w1", "left"), (living, "w2", "kept")):
        services = services_of(store)
        await services.runs.renew(worker, [], 100.0, 130.0, 5)
        await services.runs.register([registration(id)], PLENTY, None)
        assert [run.id for run in await claim(services, worker)] == [id]
    stores = services_of(heir)
    assert not await stores.runs.work_waits("w3", ["work"], 101.0)
    await database.kill(dead)
    assert await stores.runs.work_waits("w3", ["work"], 101.0)
    assert [run.id for run in await stores.runs.unclaimed(["work"], 101.0, 9)] == ["left"]
    (claimed,) = await stores.runs.claim("w3", ["work"], 101.0, 131.0, 9)
    assert (claimed.run.id, claimed.before) == ("left", "w1")
    assert (claimed.run.token, claimed.run.crashes) == (2, 1)


async def a_dead_worker_does_not_count_after_somebody_looked_for_work(database: Database) -> None:
    dead, heir = await database.open(), await database.open()
    stores, limits = services_of(heir), Limits(per_session=1_000, per_worker=1)
    await services_of(dead).runs.renew("w1", [], 100.0, 130.0, 9)
    await stores.runs.register([registration("p1")], limits, None)
    await database.kill(dead)
    assert len(await claim(stores, "w2")) == 1
    assert await refusal(stores.runs.register([registration("p2")], limits, None)) == "worker_limit"


async def only_the_owner_whose_worker_has_a_run_begins_its_calls(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    new = registration("resume")
    await services_of(former).runs.register([new], PLENTY, None)
    (waiting,) = await services_of(former).runs.list(None)
    for store in (former, heir):
        await raised(StoreError, store.journal.begin([intent(waiting.call)]))
    run = await _taken(former, "resume")
    await raised(StoreError, heir.journal.begin([intent(run.call)]))
    await _succeeded(heir, run)
    await raised(StoreError, former.journal.begin([intent(run.call)]))
    assert await heir.journal.begin([intent(run.call)]) == [None]


async def a_call_of_a_former_worker_belongs_to_the_next_worker(database: Database) -> None:
    """The former one is alive, and was only asleep."""
    former, heir = await database.open(), await database.open()
    for disposition in ("resume", "abandon"):
        run = await _begun(former, disposition)
        await _succeeded(heir, run)
        (entry,) = await heir.journal.begin([intent(run.call)])
        assert entry is not None
        assert (entry.owner, entry.cut_off) == (heir.journal.owner, True)
        assert [kept.label for kept in await heir.journal.effects(run.call)] == ["step:a"]
        assert not await former.journal.finish(run.call, success(run.call), None, 132.0)
        assert await heir.journal.finish(run.call, success(run.call), None, 132.0)


async def a_refused_call_of_a_run_is_written_by_the_worker_that_has_the_run(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    run = await _begun(former, "resume")
    told, late = (CallKey("s1", run.call.scope, name) for name in ("told", "late"))
    assert await former.journal.begin([], [told, late]) == [None, None]
    await former.journal.finish_all([Ended(told, success(told), None, 102.0, intent=intent(told))])
    await _succeeded(heir, run)
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


async def a_call_of_a_handed_back_run_belongs_to_the_next_worker(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    run = await _begun(former, "resume")
    assert run.worker is not None
    await services_of(former).runs.hand_back(run.worker, [(run.id, run.token)], 110.0)
    await _succeeded(heir, run, 111.0)
    (entry,) = await heir.journal.begin([intent(run.call)])
    assert entry is not None
    assert (entry.owner, entry.cut_off) == (heir.journal.owner, True)


async def a_run_with_the_disposition_rerun_starts_from_nothing(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    run = await _begun(former, "rerun")
    await former.waits.open_wait(wait(run.call, "event", "paid"))
    await heir.journal.begin([intent(call())])
    await heir.journal.keep(call(), Kept("step:a", b"null", 101.0, True))
    await _succeeded(heir, run)
    assert await heir.journal.begin([intent(run.call)]) == [None]
    assert await heir.journal.effects(run.call) == []
    assert await heir.waits.waiting() == []
    assert len(await heir.journal.effects(call())) == 1


async def a_claimed_run_whose_outcome_is_known_is_done(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    for disposition in DISPOSITIONS:
        run = await _begun(former, disposition)
        await former.journal.finish(run.call, success(run.call), None, 110.0)
        assert (await _succeeded(heir, run)).done
        (entry,) = await heir.journal.begin([intent(run.call)])
        assert entry is not None
        assert entry.outcome == success(run.call)


async def a_claimed_run_whose_outcome_is_not_known_is_not_done(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    for disposition in DISPOSITIONS:
        run = await _begun(former, disposition)
        assert not (await _succeeded(heir, run)).done


async def unfinished_calls_and_waits_of_a_run_end_with_it(database: Database) -> None:
    former, heir = await database.open(), await database.open()
    run = await _begun(former, "resume")
    await former.waits.open_wait(wait(run.call, "event", "paid"))
    taken = (await _succeeded(heir, run)).run
    given = ending(taken, "abandoned", at=140.0)
    assert await services_of(heir).runs.finish(given, QUOTAS)
    assert await heir.waits.waiting() == []
    assert not await former.journal.finish(run.call, success(run.call), None, 141.0)
    assert await heir.waits.signal(WaitKey(run.call, "signal", "go"), b"1", 142.0) == Refused("over")


async def a_run_accepts_signals_from_its_registration_to_its_end(database: Database) -> None:
    store, other = await database.open(), await database.open()
    stores, go = services_of(store), WaitKey(CallKey("s1", scope_of("rerun"), "rerun"), "signal", "go")
    assert await other.waits.signal(go, b"0", 100.0) == Refused("unknown")
    await stores.runs.register([registration("rerun", options=Options(disposition="rerun"))], PLENTY, None)
    assert await other.waits.signal(go, b"1", 100.0) == 1
    run = await _taken(store, "rerun")
    await store.journal.begin([intent(run.call)])
    assert await other.waits.signal(go, b"2", 101.0) == 2
    taken = (await _succeeded(other, run)).run
    assert await other.waits.signals(go) == [b"1", b"2"]
    await other.journal.begin([intent(run.call)])
    assert await other.journal.forget(run.call)
    assert await other.waits.signals(go) == [b"1", b"2"]
    assert await services_of(other).runs.finish(ending(taken), QUOTAS)
    assert await store.waits.signal(go, b"3", 201.0) == Refused("over")
    assert await store.waits.signals(go) == [b"1", b"2"]


async def a_worker_that_others_took_for_dead_holds_what_it_claims_next(database: Database) -> None:
    store, other = await database.open(), await database.open()
    stores = services_of(store)
    await stores.runs.renew("w1", [], 100.0, 130.0, 5)
    await services_of(other).runs.leave("w1")  # as others remove it, when they see no sign of life
    await stores.runs.register([registration()], PLENTY, None)
    (run,) = await claim(stores)
    await store.journal.begin([intent(run.call)])
    assert await store.journal.finish(run.call, success(run.call), None, 101.0)
    assert await stores.runs.finish(ending(run), QUOTAS)


async def _begun(store: Store, disposition: Disposition) -> BackgroundRun:
    """A run of a worker, with a call that began, and an effect of it."""
    new = registration(disposition, options=Options(disposition=disposition))
    await services_of(store).runs.register([new], PLENTY, None)
    run = await _taken(store, disposition)
    await store.journal.begin([intent(run.call)])
    await store.journal.start(run.call, 101.0)
    await store.journal.keep(run.call, Kept("step:a", b"null", 101.0, True))
    return run


async def _taken(store: Store, id: str) -> BackgroundRun:
    """A run that a worker of its own claims at 100."""
    stores = services_of(store)
    await stores.runs.renew(f"worker of {id}", [], 100.0, 130.0, 5)
    (run,) = await claim(stores, f"worker of {id}")
    assert run.id == id
    return run


async def _succeeded(store: Store, run: BackgroundRun, now: float = 131.0) -> Claimed:
    """A run that another worker takes over from its own."""
    stores, heir = services_of(store), f"heir of {run.id}"
    await stores.runs.renew(heir, [], now, now + 999.0, 5)
    (claimed,) = await stores.runs.claim(heir, ["work"], now, now + 999.0, 9)
    assert claimed.run.id == run.id
    return claimed


TAKEOVERS = cases(
    the_run_of_a_dead_worker_can_be_claimed_at_once,
    a_dead_worker_does_not_count_after_somebody_looked_for_work,
    only_the_owner_whose_worker_has_a_run_begins_its_calls,
    a_call_of_a_former_worker_belongs_to_the_next_worker,
    a_refused_call_of_a_run_is_written_by_the_worker_that_has_the_run,
    a_call_of_a_handed_back_run_belongs_to_the_next_worker,
    a_run_with_the_disposition_rerun_starts_from_nothing,
    a_claimed_run_whose_outcome_is_known_is_done,
    a_claimed_run_whose_outcome_is_not_known_is_not_done,
    unfinished_calls_and_waits_of_a_run_end_with_it,
    a_run_accepts_signals_from_its_registration_to_its_end,
    a_worker_that_others_took_for_dead_holds_what_it_claims_next,
)
