"""Duties of a controller about time and the outside world: absolute instants, first wins, signals in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from toolwright.effects.controller import EffectController
from toolwright.effects.effect import Effect
from toolwright.errors import KeyRefused, ReplayMismatch, StoreError, ToolwrightError
from toolwright.stores.contracts.waits import Resolution, Wait, WaitKey
from toolwright.testing.conformance.cases import call, resolved
from toolwright.testing.conformance.controllers import Bench, controller_cases, raised, unheard

DOOR = WaitKey(call(), "event", "door")
NEWS = WaitKey(call(), "signal", "news")


class _Heard:
    """The deadlines of the waits that began, and whether any did."""

    def __init__(self) -> None:
        self.deadlines: list[float | None] = []
        self.began = asyncio.Event()

    def __call__(self, deadline: float | None) -> None:
        self.deadlines.append(deadline)
        self.began.set()


async def _left(task: asyncio.Future[Any]) -> None:
    """End the unfinished work of a dead process."""
    task.cancel()
    await asyncio.wait((task,))


async def _refused(work: Awaitable[object]) -> str:
    return (await raised(KeyRefused, work)).why


async def _read(controller: EffectController, text: str) -> WaitKey:
    return controller.read_key(text)


# --- instants are absolute


async def a_sleep_keeps_its_instant(bench: Bench) -> None:
    nap = Effect(call(), "sleep", "nap", b"100")
    controller, effects = await bench.begin(call())
    heard = _Heard()
    sleeping = asyncio.ensure_future(effects.sleep(nap, 100, heard))
    await bench.soon(heard.began.wait())
    await bench.clock.advance(60)
    assert not sleeping.done()
    await _left(sleeping)
    controller, effects = await bench.succeed(controller, call())
    again = _Heard()
    sleeping = asyncio.ensure_future(effects.sleep(nap, 100, again))
    await bench.soon(again.began.wait())
    assert again.deadlines == heard.deadlines
    await bench.clock.advance(45)
    await bench.soon(sleeping)
    _, effects = await bench.succeed(controller, call())
    await bench.soon(effects.sleep(nap, 100, unheard))


async def a_wait_keeps_its_deadline(bench: Bench) -> None:
    controller, effects = await bench.begin(call())
    heard = _Heard()
    for _ in range(2):
        now = bench.clock.now()
        waiting = asyncio.ensure_future(effects.wait(Wait(DOOR, now, now + 1000), heard))
        await bench.soon(heard.began.wait())
        await bench.clock.advance(400)
        await _left(waiting)
        heard.began.clear()
        controller, effects = await bench.succeed(controller, call())
    assert len(set(heard.deadlines)) == 1
    await bench.clock.advance(300)
    found = await bench.soon(effects.wait(Wait(DOOR, bench.clock.now(), bench.clock.now() + 1000), heard))
    assert found.status == "expired"


async def a_wait_for_a_signal_keeps_its_deadline_and_ends_for_good(bench: Bench) -> None:
    controller, effects = await bench.begin(call())
    heard = _Heard()
    waiting = asyncio.ensure_future(effects.receive("news", 1000, heard))
    await bench.soon(heard.began.wait())
    await bench.clock.advance(600)
    await _left(waiting)
    controller, effects = await bench.succeed(controller, call())
    waiting = asyncio.ensure_future(effects.receive("news", 1000, heard))
    await bench.clock.advance(500)
    assert await bench.soon(waiting) is None
    await controller.signal(NEWS, b"1")
    _, effects = await bench.succeed(controller, call())
    assert await bench.soon(effects.receive("news", 1000, heard)) is None
    assert await bench.soon(effects.receive("news", 1000, heard)) == b"1"


# --- first wins


async def the_first_of_many_resolutions_counts_and_all_are_told_it(bench: Bench) -> None:
    controller, effects = await bench.begin(call())
    other = await bench.open()
    heard = _Heard()
    waiting = asyncio.ensure_future(effects.wait(Wait(DOOR, 100.0), heard))
    await bench.soon(heard.began.wait())
    answers = await asyncio.gather(*((controller, other)[n % 2].resolve(DOOR, resolved(b"%d" % n)) for n in range(10)))
    assert [answer.first for answer in answers].count(True) == 1
    (stands,) = {answer.resolution.payload for answer in answers}
    assert (await bench.soon(waiting)).payload == stands
    assert (await other.resolve(DOOR, resolved(b"99"))).resolution.payload == stands


async def a_wait_may_be_resolved_before_it_begins(bench: Bench) -> None:
    _, effects = await bench.begin(call())
    other = await bench.open()
    assert (await other.resolve(DOOR, resolved(b'"early"'))).first
    heard = _Heard()
    assert (await bench.soon(effects.wait(Wait(DOOR, 100.0, 100.5), heard))).payload == b'"early"'
    assert heard.deadlines == [], "there was nothing to wait for"


async def a_resolution_of_another_process_arrives(bench: Bench) -> None:
    _, effects = await bench.begin(call())
    other = await bench.open()
    heard = _Heard()
    waiting = asyncio.ensure_future(effects.wait(Wait(DOOR, 100.0), heard))
    await bench.soon(heard.began.wait())
    await other.resolve(DOOR, resolved(b"7"))
    assert (await bench.soon(waiting)).payload == b"7"


async def a_resolution_between_two_owners_arrives_at_the_next(bench: Bench) -> None:
    controller, effects = await bench.begin(call())
    heard = _Heard()
    waiting = asyncio.ensure_future(effects.wait(Wait(DOOR, 100.0), heard))
    await bench.soon(heard.began.wait())
    await _left(waiting)
    await bench.controllers.kill(controller)
    other = await bench.open()
    given = Resolution("error", 200.0, reason="no", by="ann")
    await other.resolve(DOOR, given)
    for _ in range(2):
        controller, effects = await bench.begin(call())
        assert await bench.soon(effects.wait(Wait(DOOR, 300.0), heard)) == given
        await bench.controllers.kill(controller)


async def a_watcher_is_told_once_unless_it_was_stopped(bench: Bench) -> None:
    controller, _ = await bench.begin(call())
    told: list[list[Any]] = [[], []]
    heard, came = [_Heard(), _Heard()], asyncio.Event()

    def hear(place: int, news: Resolution | Exception) -> None:
        told[place].append(news)
        came.set()

    watches = [controller.watch(Wait(DOOR, 100.0), place, hear, heard[place]) for place in (0, 1)]
    for one in heard:
        await bench.soon(one.began.wait())
    watches[0].leave()
    assert (await controller.resolve(DOOR, resolved(b"7"))).first
    await bench.soon(came.wait())
    await bench.clock.advance(10)
    assert told == [[], [resolved(b"7")]]


async def a_finished_unknown_or_foreign_call_accepts_nothing(bench: Bench) -> None:
    controller, _ = await bench.begin(call())
    assert await _refused(controller.resolve(WaitKey(call("nobody's"), "event", "x"), resolved())) == "unknown"
    assert await _refused(controller.signal(WaitKey(call("nobody's"), "signal", "x"), b"1")) == "unknown"
    await bench.controllers.finish(controller, call())
    assert await _refused(controller.resolve(DOOR, resolved())) == "over"
    assert await _refused(controller.signal(NEWS, b"1")) == "over"


async def wait_keys_are_the_same_in_every_process_and_cannot_be_forged(bench: Bench) -> None:
    first, second = await bench.open(), await bench.open()
    text = first.write_key(DOOR)
    assert text == second.write_key(DOOR) != first.write_key(NEWS)
    assert second.read_key(text) == DOOR
    altered = text[:-2] + ("A" if text[-2] != "A" else "B") + text[-1]
    for forged in ("", "door", text[:-1], text + "x", text.swapcase(), altered):
        assert await _refused(_read(second, forged)) == "forged", forged


async def signals_come_in_order_and_none_is_lost(bench: Bench) -> None:
    controller, effects = await bench.begin(call())
    other = await bench.open()
    assert [await controller.signal(NEWS, b"%d" % n) for n in range(3)] == [1, 2, 3]
    assert [await bench.soon(effects.receive("news", None, unheard)) for _ in range(3)] == [b"0", b"1", b"2"]
    heard = _Heard()
    waiting = asyncio.ensure_future(effects.receive("news", None, heard))
    await bench.soon(heard.began.wait())
    assert await asyncio.gather(*(other.signal(NEWS, b"%d" % n) for n in range(3, 6))) == [4, 5, 6]
    assert await bench.soon(waiting) == b"3"
    _, effects = await bench.succeed(controller, call())
    every = [await bench.soon(effects.receive("news", None, unheard)) for _ in range(6)]
    assert every == [b"%d" % n for n in range(6)]


# --- questions


async def a_question_is_asked_once_and_its_answer_is_given_again(bench: Bench) -> None:
    question = Effect(call(), "question", "size", b'"Which size?"')
    wait = Wait(WaitKey(call(), "question", "size"), 100.0, None, b'{"message":"Which size?"}')
    controller, effects = await bench.begin(call())
    heard = _Heard()
    waiting = asyncio.ensure_future(effects.ask(question, wait, heard))
    await bench.soon(heard.began.wait())
    await raised(ToolwrightError, bench.soon(effects.ask(question, wait, unheard)))
    await _left(waiting)
    await bench.controllers.kill(controller)

    other = await bench.open()
    assert (await bench.soon(other.resolve(wait.key, resolved(b'"M"')))).first
    controller, effects = await bench.begin(call())
    silent = _Heard()
    found = await bench.soon(effects.ask(question, wait, silent))
    assert (found.status, found.payload, silent.deadlines) == ("ok", b'"M"', [])


async def another_question_under_the_same_name_is_not_asked(bench: Bench) -> None:
    wait = Wait(WaitKey(call(), "question", "sure"), 100.0)
    controller, effects = await bench.begin(call())
    heard = _Heard()
    waiting = asyncio.ensure_future(effects.ask(Effect(call(), "question", "sure", b'"Delete 1 file?"'), wait, heard))
    await bench.soon(heard.began.wait())
    await _left(waiting)
    assert (await bench.soon(controller.resolve(wait.key, resolved(b"true")))).first
    _, effects = await bench.succeed(controller, call())
    other = Effect(call(), "question", "sure", b'"Delete 900 files?"')
    await raised(ReplayMismatch, bench.soon(effects.ask(other, wait, unheard)))


# --- only the owner waits


async def a_stale_process_begins_no_wait_and_no_sleep(bench: Bench) -> None:
    stale, effects = await bench.begin(call())
    await bench.succeed(stale, call())
    for work in (
        effects.wait(Wait(DOOR, 100.0), unheard),
        effects.sleep(Effect(call(), "sleep", "nap", b"1"), 1, unheard),
        effects.receive("news", 5, unheard),
        effects.ask(Effect(call(), "question", "q", b"1"), Wait(WaitKey(call(), "question", "q"), 100.0), unheard),
    ):
        await raised(StoreError, bench.soon(work))


TIME_AND_WAITS = controller_cases(
    a_sleep_keeps_its_instant,
    a_wait_keeps_its_deadline,
    a_wait_for_a_signal_keeps_its_deadline_and_ends_for_good,
    the_first_of_many_resolutions_counts_and_all_are_told_it,
    a_wait_may_be_resolved_before_it_begins,
    a_resolution_of_another_process_arrives,
    a_resolution_between_two_owners_arrives_at_the_next,
    a_watcher_is_told_once_unless_it_was_stopped,
    a_finished_unknown_or_foreign_call_accepts_nothing,
    wait_keys_are_the_same_in_every_process_and_cannot_be_forged,
    signals_come_in_order_and_none_is_lost,
    a_question_is_asked_once_and_its_answer_is_given_again,
    another_question_under_the_same_name_is_not_asked,
    a_stale_process_begins_no_wait_and_no_sleep,
)
