"""Duties of a controller about effects: once, by name, in doubt after a crash, and for the owner only."""

from __future__ import annotations

import asyncio

from toolwright.effects.controller import CallEffects, EffectFailed, StepPolicy
from toolwright.effects.effect import Effect
from toolwright.errors import ReplayMismatch, StoreError, ToolwrightError
from toolwright.stores.contracts.journal import CallKey
from toolwright.testing.conformance.cases import call
from toolwright.testing.conformance.controllers import Bench, Died, Doing, controller_cases, raised, step, unheard
from toolwright.tools.outcome import Failure

NEVER = Doing(error=AssertionError("it ran again"))
POLICIES: tuple[StepPolicy, ...] = ("rerun", "fail", NEVER)
REFUSED = Failure(message="No ✗", code="declined", detail="card 4")


async def _failed(effects: CallEffects, effect: Effect, doing: Doing, on_crash: StepPolicy = "rerun") -> Failure:
    return (await raised(EffectFailed, effects.run(effect, doing, on_crash))).failure


async def _cut_off(effects: CallEffects, effect: Effect, on_crash: StepPolicy) -> None:
    """Begin an effect that its process does not live to end."""
    await raised(Died, effects.run(effect, Doing(error=Died()), on_crash))


# --- addressed by key


async def effects_are_replayed_in_any_order(bench: Bench) -> None:
    first, effects = await bench.begin(call())
    for name in "abc":
        assert await effects.run(step(call(), name), Doing(b'"%s"' % name.encode()), "fail") == b'"%s"' % name.encode()
    _, effects = await bench.succeed(first, call())
    for name in "cab":
        assert await effects.run(step(call(), name), NEVER, "fail") == b'"%s"' % name.encode()


async def effects_of_one_call_run_side_by_side(bench: Bench) -> None:
    _, effects = await bench.begin(call())
    met = asyncio.Event()

    async def waits() -> bytes:
        await met.wait()
        return b"1"

    async def comes() -> bytes:
        met.set()
        return b"2"

    both = asyncio.gather(effects.run(step(call(), "a"), waits, "fail"), effects.run(step(call(), "b"), comes, "fail"))
    assert list(await bench.soon(both)) == [b"1", b"2"]


async def one_name_in_two_calls_or_of_two_kinds_is_two_effects(bench: Bench) -> None:
    controller = await bench.open()
    keys: list[CallKey] = [call("c1"), call("c2"), call("c1", "s2"), call("c1", "s1", "other")]
    for number, key in enumerate(keys):
        effects = await bench.controllers.begin(controller, key)
        assert await effects.run(step(key, "pay"), Doing(b"%d" % number), "fail") == b"%d" % number
        await bench.soon(effects.sleep(Effect(key, "sleep", "pay", b"0"), 0, unheard))


# --- once


async def a_done_effect_is_not_repeated_by_a_later_attempt(bench: Bench) -> None:
    _, effects = await bench.begin(call())
    doing = Doing(b'{"id":1}')
    for attempt in (1, 2, 3):
        effects.begin_attempt(attempt)
        assert await effects.run(step(call(), "pay"), doing, "fail") == b'{"id":1}'
    assert doing.ran == 1


async def a_done_effect_is_not_repeated_by_a_later_process(bench: Bench) -> None:
    for number, policy in enumerate(POLICIES):
        key = call(f"c{number}")
        controller, effects = await bench.begin(key)
        assert await effects.run(step(key, "pay", b"5"), Doing(b'{"id":1}'), policy) == b'{"id":1}'
        for _ in range(2):
            controller, effects = await bench.succeed(controller, key)
            assert await effects.run(step(key, "pay", b"5"), NEVER, policy) == b'{"id":1}'


async def an_error_is_raised_again_as_it_was(bench: Bench) -> None:
    controller, effects = await bench.begin(call())
    doing = Doing(error=EffectFailed(REFUSED))
    assert await _failed(effects, step(call(), "pay"), doing) == REFUSED
    effects.begin_attempt(2)
    assert await _failed(effects, step(call(), "pay"), doing) == REFUSED
    _, effects = await bench.succeed(controller, call())
    assert await _failed(effects, step(call(), "pay"), doing) == REFUSED
    assert doing.ran == 1


async def an_error_that_says_retry_is_tried_again(bench: Bench) -> None:
    again = Failure(message="busy", code="busy", retry=True)
    for number, policy in enumerate(POLICIES):
        key = call(f"c{number}")
        controller, effects = await bench.begin(key)
        assert await _failed(effects, step(key, "pay"), Doing(error=EffectFailed(again)), policy) == again
        effects.begin_attempt(2)
        assert await _failed(effects, step(key, "pay"), Doing(error=EffectFailed(again)), policy) == again
        _, effects = await bench.succeed(controller, key)
        assert await effects.run(step(key, "pay"), Doing(b"7"), policy) == b"7"


async def another_input_under_the_same_name_is_a_mismatch(bench: Bench) -> None:
    controller, effects = await bench.begin(call())
    await effects.run(step(call(), "pay", b'[{"sum":5}]'), Doing(), "rerun")
    for _ in range(2):
        effects.begin_attempt(2)
        mismatch = await raised(ReplayMismatch, effects.run(step(call(), "pay", b'[{"sum":6}]'), NEVER, "rerun"))
        assert mismatch.differences == ["$[0].sum: 5 before, 6 now"]
        controller, effects = await bench.succeed(controller, call())


async def a_name_is_used_once_in_an_attempt(bench: Bench) -> None:
    _, effects = await bench.begin(call())
    await effects.run(step(call(), "pay"), Doing(), "rerun")
    await raised(ToolwrightError, effects.run(step(call(), "pay"), NEVER, "rerun"))


# --- doubt


async def an_effect_that_was_cut_off_runs_again_under_rerun(bench: Bench) -> None:
    controller, effects = await bench.begin(call())
    await _cut_off(effects, step(call(), "pay"), "rerun")
    _, effects = await bench.succeed(controller, call())
    doing = Doing(b"2")
    assert await effects.run(step(call(), "pay"), doing, "rerun") == b"2"
    assert doing.ran == 1


async def an_effect_that_was_cut_off_fails_for_good_under_fail(bench: Bench) -> None:
    controller, effects = await bench.begin(call())
    await _cut_off(effects, step(call(), "pay"), "fail")
    for _ in range(2):
        controller, effects = await bench.succeed(controller, call())
        for attempt in (1, 2):
            effects.begin_attempt(attempt)
            failure = await _failed(effects, step(call(), "pay"), NEVER, "fail")
            assert (failure.category, failure.code) == ("interrupted", "interrupted")


async def an_effect_that_was_cut_off_is_looked_up_by_its_probe(bench: Bench) -> None:
    controller, effects = await bench.begin(call())
    probe = Doing(b'"found"')
    await _cut_off(effects, step(call(), "pay"), probe)
    for _ in range(2):
        controller, effects = await bench.succeed(controller, call())
        assert await effects.run(step(call(), "pay"), NEVER, probe) == b'"found"'
    assert probe.ran == 1


async def an_effect_that_had_not_begun_runs(bench: Bench) -> None:
    controller, effects = await bench.begin(call())
    await effects.run(step(call(), "a"), Doing(), "fail")
    _, effects = await bench.succeed(controller, call())
    assert await effects.run(step(call(), "b"), Doing(b"2"), "fail") == b"2"


# --- only the owner writes


async def a_stale_process_records_nothing(bench: Bench) -> None:
    stale, effects = await bench.begin(call())
    _, heirs = await bench.succeed(stale, call())
    doing = Doing(b'"stale"')
    await raised(StoreError, effects.run(step(call(), "a"), doing, "rerun"))
    await raised(StoreError, effects.run(step(call(), "b"), doing, "fail"))
    assert doing.ran <= 1, "what may not run twice ran, and nobody will know"
    for name in "ab":
        assert await heirs.run(step(call(), name), Doing(b'"heir"'), "fail") == b'"heir"'


REPLAY = controller_cases(
    effects_are_replayed_in_any_order,
    effects_of_one_call_run_side_by_side,
    one_name_in_two_calls_or_of_two_kinds_is_two_effects,
    a_done_effect_is_not_repeated_by_a_later_attempt,
    a_done_effect_is_not_repeated_by_a_later_process,
    an_error_is_raised_again_as_it_was,
    an_error_that_says_retry_is_tried_again,
    another_input_under_the_same_name_is_a_mismatch,
    a_name_is_used_once_in_an_attempt,
    an_effect_that_was_cut_off_runs_again_under_rerun,
    an_effect_that_was_cut_off_fails_for_good_under_fail,
    an_effect_that_was_cut_off_is_looked_up_by_its_probe,
    an_effect_that_had_not_begun_runs,
    a_stale_process_records_nothing,
)
