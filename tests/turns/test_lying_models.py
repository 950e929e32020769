"""Models that lie: each is a clear outcome within its time, and the session can be asked again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Runtime, ToolCall, ToolwrightError, TurnOutcome, tool
from toolwright.testing import FakeClock, ScriptedModel
from toolwright.tools.model import CallDelta, ModelAnswer, ModelRequest, ReasoningDelta, TextDelta, Usage
from toolwright.turns import model_call, turn_run


@tool(readonly=True)
async def echo(value: Any) -> str:
    """Give the type of a value."""
    return type(value).__name__


class Liar:
    """A model that gives anything."""

    provider, name = "lying", "model"

    def __init__(self, give: Callable[[ModelRequest], Any]) -> None:
        self._give = give
        self.asked = 0

    async def complete(self, request: ModelRequest) -> Any:
        self.asked += 1
        return self._give(request)


class Streamer(Liar):
    """A model whose stream is anything."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.asked += 1
        async for piece in self._give(request):
            yield piece


async def asked_again(runtime: Runtime, session: str = "s") -> None:
    """The session can be asked on, and its history is whole."""
    model = ScriptedModel(["Fine."] * 20)
    outcome = await runtime.session(session).ask("And now?", model=model)
    assert (outcome.status, outcome.text) == ("answered", "Fine.")
    assert await runtime.session(session).wait_for_idle()


# --- streams without an end


async def silence(request: ModelRequest) -> AsyncIterator[Any]:
    yield TextDelta("I think")
    await asyncio.Event().wait()


def drops(piece: Any) -> Callable[[ModelRequest], AsyncIterator[Any]]:
    """A stream that always has one more piece, and never waits."""

    async def stream(request: ModelRequest) -> AsyncIterator[Any]:
        while True:
            yield piece

    return stream


ENDLESS = {
    "silence": silence,
    "empty text": drops(TextDelta("")),
    "parts of a call": drops(CallDelta("c", "echo", "{")),
    "no piece of an answer": drops("neither"),
}


@pytest.mark.promise("TURN-02")
async def test_a_stream_that_falls_silent_ends_with_the_time_of_a_model_call(place, open_runtime):
    clock = FakeClock()
    runtime = await open_runtime(place, model=Streamer(silence), clock=clock)
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("Go.")
        events = turn.follow()
        while (await anext(events)).kind != "text":
            pass
        await clock.advance(turn_run.MODEL_SECONDS + 2)
        outcome = await turn
        assert (outcome.status, outcome.code) == ("failed", "timeout")
        assert [event.kind async for event in events][-1] == "turn.ended"
        await asked_again(runtime)


@pytest.mark.promise("TURN-02", "TURN-05")
@pytest.mark.parametrize("kind", ENDLESS)
async def test_a_stream_without_an_end_is_cancelled(place, open_runtime, monkeypatch, kind):
    monkeypatch.setattr(model_call, "MOST_PIECES", 10**12)
    runtime = await open_runtime(place, model=Streamer(ENDLESS[kind]))
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("Go.")
        for _ in range(20):
            await asyncio.sleep(0)
        assert await turn.cancel("enough")
        outcome = await turn
        assert (outcome.status, outcome.reason) == ("cancelled", "enough")
        await asked_again(runtime)


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize("piece", [TextDelta(""), ReasoningDelta(""), CallDelta("c", "echo", ""), None], ids=repr)
async def test_a_stream_with_too_many_pieces_is_no_answer(open_runtime, monkeypatch, piece):
    monkeypatch.setattr(model_call, "MOST_PIECES", 2_000)
    runtime = await open_runtime(model=Streamer(drops(piece)))
    async with fail_after(20):
        outcome = await runtime.session("s").ask("Go.")
        assert (outcome.status, outcome.code) == ("failed", "bad_answer")
        assert "2000 pieces" in outcome.reason
        await asked_again(runtime)


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize("kind", [TextDelta, ReasoningDelta])
async def test_deltas_of_absurd_size_are_no_answer(place, open_runtime, kind):
    async def stream(request: ModelRequest) -> AsyncIterator[Any]:
        yield kind("x" * 10_000_000)
        yield ModelAnswer(text="short")

    runtime = await open_runtime(place, model=Streamer(stream))
    async with fail_after(20):
        outcome = await runtime.session("s").ask("Go.")
        assert (outcome.status, outcome.code) == ("failed", "bad_answer")
        await asked_again(runtime)


@pytest.mark.promise("TURN-02")
async def test_a_stream_that_ends_without_an_answer_is_asked_again_and_then_fails(open_runtime):
    async def stream(request: ModelRequest) -> AsyncIterator[Any]:
        yield TextDelta("Well, ")

    clock, model = FakeClock(), Streamer(stream)
    runtime = await open_runtime(model=model, clock=clock)
    async with fail_after(20):
        turn = await runtime.session("s").start_turn("Go.")
        while (await turn.info()).ended_at is None:
            await clock.advance(1)
        outcome = await turn
        assert (outcome.status, outcome.code, model.asked) == ("failed", "bad_answer", model_call.ATTEMPTS)
        await asked_again(runtime)


@pytest.mark.promise("TURN-02")
async def test_pieces_after_the_answer_are_not_waited_for(open_runtime):
    async def stream(request: ModelRequest) -> AsyncIterator[Any]:
        yield ModelAnswer(text="Done.")
        await asyncio.Event().wait()

    runtime = await open_runtime(model=Streamer(stream))
    async with fail_after(20):
        assert (await runtime.session("s").ask("Go.")).text == "Done."


# --- absurd answers


def deep(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


def calling(arguments: Any, **given: Any) -> list[ToolCall]:
    return [ToolCall("echo", arguments, "1", **given)]


ABSURD: dict[str, tuple[Any, str]] = {
    "nested too deep": ({"value": deep(200)}, "failed"),
    "nested beyond every stack": ({"value": deep(5_000)}, "failed"),
    "a number beyond every integer of a machine": ({"value": 10**40}, "answered"),
    "no JSON": ({"value": object()}, "failed"),
    "keys that are numbers": ({"value": {1: {2: 3}}}, "answered"),
    "nested deep": ({"value": deep(100)}, "answered"),
    "ten megabytes": ({"value": "x" * 10_000_000}, "answered"),
    "lone surrogates": ({"value": "\ud800 \x00"}, "answered"),
    "a lone surrogate as a name": ({"\ud800": "\ud800"}, "answered"),
    "NaN": ({"value": float("nan")}, "answered"),
    "infinity": ({"value": float("inf")}, "answered"),
    "text with NaN": ('{"value": NaN}', "answered"),
    "text nested deep": ("[" * 100_000, "answered"),
    "text cut in a surrogate": ('"\\ud800', "answered"),
    "bytes": (b'{"value": 1}', "answered"),
    "bytes that are no text": (b"\xff\xfe", "answered"),
    "nothing": (None, "answered"),
    "a number": (5, "answered"),
}


@pytest.mark.promise("TURN-01", "TURN-06")
@pytest.mark.parametrize("absurd", ABSURD)
async def test_absurd_arguments_are_a_result_or_a_clear_failure(place, open_runtime, absurd):
    arguments, status = ABSURD[absurd]
    given = iter([calling(arguments), "Done."])
    runtime = await open_runtime(place, echo, model=Liar(lambda request: next(given)))
    async with fail_after(30):
        outcome = await runtime.session("s").ask("Go.")
        assert outcome.status == status
        if status == "failed":
            assert outcome.code == "bad_answer"
        else:
            assert [each.call_id for each in outcome.calls] == ["1"]
        await asked_again(runtime)


class Unreadable(ModelAnswer, frozen=True, kw_only=True):
    """An answer that raises when it is read."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("text", "calls"):
            raise RuntimeError("the key is sk-123")
        return super().__getattribute__(name)


NO_ANSWERS: dict[str, Any] = {
    "raises when it is read": Unreadable(),
    "text that is a number": ModelAnswer(text=5),  # type: ignore[arg-type]
    "text that is nothing": ModelAnswer(text=None),  # type: ignore[arg-type]
    "calls that are nothing": ModelAnswer(calls=None),  # type: ignore[arg-type]
    "calls that are a number": ModelAnswer(calls=5),  # type: ignore[arg-type]
    "calls that are text": ModelAnswer(calls=("echo",)),  # type: ignore[arg-type]
    "a name that is a number": ModelAnswer(calls=(ToolCall(5, {}),)),  # type: ignore[arg-type]
    "an unknown stop with calls": ModelAnswer(calls=(ToolCall("echo", {}),), stop="odd"),  # type: ignore[arg-type]
    "an unknown stop": ModelAnswer(text="x", stop="odd"),  # type: ignore[arg-type]
    "no usage": ModelAnswer(text="x", usage=None),  # type: ignore[arg-type]
    "usage in words": ModelAnswer(text="x", usage=Usage("many")),  # type: ignore[arg-type]
    "a native form without JSON": ModelAnswer(text="x", native={"items": object()}),
    "images that are numbers": ModelAnswer(text="x", images=(5,)),  # type: ignore[arg-type]
    "a model that is a number": ModelAnswer(text="x", model=5),  # type: ignore[arg-type]
    "reasoning that is a number": ModelAnswer(text="x", reasoning=5),  # type: ignore[arg-type]
}


@pytest.mark.promise("TURN-01")
@pytest.mark.parametrize("kind", NO_ANSWERS)
async def test_an_answer_that_is_not_one_fails_the_turn_and_tells_no_secret(place, open_runtime, caplog, kind):
    runtime = await open_runtime(place, echo, model=Liar(lambda request: NO_ANSWERS[kind]))
    async with fail_after(20):
        outcome = await runtime.session("s").ask("Go.")
        assert outcome.status == "failed"
        assert outcome.code in ("bad_answer", "model_failed")
        assert outcome.reason
        assert "sk-123" not in str(outcome.to_json())
        await asked_again(runtime)


@pytest.mark.promise("TURN-01")
async def test_a_model_that_cancels_itself_fails_the_turn(place, open_runtime):
    def give(request: ModelRequest) -> Any:
        raise asyncio.CancelledError

    runtime = await open_runtime(place, model=Liar(give))
    async with fail_after(20):
        outcome = await runtime.session("s").ask("Go.")
        assert (outcome.status, outcome.code) == ("failed", "model_failed")
        await asked_again(runtime)


@pytest.mark.promise("TURN-01", "TURN-06")
async def test_the_answer_of_another_turn_gets_ids_of_its_own(place, open_runtime):
    given: dict[int, Any] = {}

    def give(request: ModelRequest) -> Any:
        if request.number in (0, 2):
            return given.setdefault(0, ModelAnswer(calls=(ToolCall("echo", {"value": 1}, "same"),), id="resp_1"))
        return "Done."

    runtime = await open_runtime(place, echo, model=Liar(give))
    async with fail_after(20):
        outcomes: list[TurnOutcome] = [await runtime.session("s").ask("Go.") for _ in range(2)]
        outcomes.append(await runtime.session("t").ask("Go."))
        assert [[each.call_id for each in outcome.calls] for outcome in outcomes] == [["same"], ["same_2"], ["same"]]
        assert all(each.value == "int" for outcome in outcomes for each in outcome.calls)
        await asked_again(runtime)


@pytest.mark.promise("TURN-03")
async def test_a_stored_turn_whose_model_is_not_here_stays_for_a_process_that_has_it(file, open_runtime):
    begun = asyncio.Event()

    class Silent(Liar):
        async def complete(self, request: ModelRequest) -> Any:
            begun.set()
            await asyncio.Event().wait()

    first = await Runtime.open(file)
    async with fail_after(20):
        turn = await first.session("s").start_turn("Go.", model=Silent(lambda request: ""))
        await begun.wait()
        await first.close()
        second = await open_runtime(file)
        await second.recover("s")
        await second.session("s").wait_for_idle()
        with pytest.raises(ToolwrightError, match="its model 'lying:model' was given as an object, and is not here"):
            await second.session("s").start_turn("Go on.", model=Liar(lambda request: ""), id="next")
        assert (await (await second.turn("next")).info()).state == "cancelled"
        third = await open_runtime(file, model=Liar(lambda request: "Here."))
        await third.recover("s")
        assert (await (await third.turn(turn.id))).text == "Here."
        await third.session("s").wait_for_idle()
        await asked_again(third)
