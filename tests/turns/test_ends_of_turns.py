"""The end of a turn: written once, whatever type its answer has, and shown to followers after that."""

import asyncio
from collections.abc import Awaitable
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from pydantic import AnyUrl, BaseModel, Field, SecretStr, field_serializer

from tests.support import fail_after
from toolwright import Runtime, StoreError, ToolCall, TurnError, TurnOutcome, tool
from toolwright.stores.contracts.sessions import Quota, Quotas
from toolwright.stores.contracts.turns import ENDED, Advance
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing import FunctionModel, ScriptedModel
from toolwright.tools.model import UserMessage


class Host(BaseModel):
    address: IPv4Address = Field(alias="Address")


class Stubborn(BaseModel):
    number: int

    @field_serializer("number")
    def refuse(self, number: int) -> str:
        raise RuntimeError("this model has no JSON form")


class Shown(BaseModel):
    number: int

    @field_serializer("number")
    def in_words(self, number: int) -> str:
        return f"number {number}"


async def ended(runtime: Runtime, **options: Any) -> tuple[TurnOutcome, list[Any]]:
    """A turn to its end, as its holder and a follower see it."""
    turn = await runtime.session("s").start_turn("Which?", id="t", **options)
    ends = [status for _, kind, status in await followed(turn) if kind == "turn.ended"]
    return await turn, ends


async def followed(turn: Any) -> list[tuple[int, str, Any]]:
    """The events of a turn, each as its number, its kind and the status that it tells."""
    return [(event.number, event.kind, event.data.get("status")) async for event in turn.follow()]


@pytest.mark.promise("TURN-05", "TURN-07")
@pytest.mark.parametrize(
    ("kind", "text", "value", "plain"),
    [
        (IPv4Address, '"10.0.0.1"', IPv4Address("10.0.0.1"), "10.0.0.1"),
        (dict[str, IPv4Address], '{"a": "10.0.0.1"}', {"a": IPv4Address("10.0.0.1")}, {"a": "10.0.0.1"}),
        (AnyUrl, '"https://a.example/"', AnyUrl("https://a.example/"), "https://a.example/"),
        (bytes, '"abc"', b"abc", "abc"),
        (Host, '{"Address": "10.0.0.1"}', Host(Address=IPv4Address("10.0.0.1")), {"Address": "10.0.0.1"}),
        (SecretStr, '"pin"', SecretStr("pin"), "**********"),
        (Stubborn, '{"number": 7}', Stubborn(number=7), {"number": 7}),
        (Shown, '{"number": 7}', Shown(number=7), {"number": "number 7"}),
    ],
)
async def test_an_answer_of_any_type_is_given_again_later(file, open_runtime, kind, text, value, plain):
    async with fail_after(20):
        first = await open_runtime(file, model=ScriptedModel([text]))
        outcome, ends = await ended(first, answer=kind)
        assert (outcome.status, outcome.value, outcome.code) == ("answered", value, None)
        assert ends == ["answered"]
        await first.close()
        later = await open_runtime(file, model=ScriptedModel([]))
        assert (await later.session("s").ask("Which?", id="t", answer=kind)).value == value
        turn = await later.turn("t")
        assert (await turn).value == plain
        assert [status for _, kind, status in await followed(turn) if kind == "turn.ended"] == ["answered"]


@pytest.mark.promise("TURN-05", "TURN-07")
async def test_an_answer_that_is_nested_too_deeply_to_be_stored_is_asked_for_again(place, open_runtime):
    runtime = await open_runtime(place, model=ScriptedModel(["[" * 128 + "]" * 128, "[1]"]))
    async with fail_after(10):
        outcome, ends = await ended(runtime, answer=Any)
    assert (outcome.status, outcome.value, outcome.model_calls) == ("answered", [1], 2)
    assert ends == ["answered"]


class HeldEnd:
    """A store in a file whose write of the end of a turn waits until it may go on, and then may fail."""

    def __init__(self, file: Path) -> None:
        self.store = SqliteStore(file, sync="normal")
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self.fault: StoreError | None = None
        turns = self.store.services.turns
        write = turns.advance

        async def held(given: Advance, quota: Quota) -> bool:
            self.asked.set()
            await self.go.wait()
            if self.fault is not None:
                raise self.fault
            return await write(given, quota)

        def advance(given: Advance, quota: Quota) -> Awaitable[bool]:
            return held(given, quota) if given.state in ENDED else write(given, quota)

        turns.advance = advance  # type: ignore[assignment,method-assign]


@pytest.mark.promise("TURN-07")
async def test_followers_are_shown_the_end_of_a_turn_once_it_is_written(file, open_runtime):
    held = HeldEnd(file)
    runtime = await open_runtime(held.store, model=ScriptedModel(["Done."]))
    turn = await runtime.session("s").start_turn("Go.", id="t")
    seen: list[str] = []

    async def follow() -> None:
        async for event in turn.follow():
            seen.append(event.kind)

    async with fail_after(10):
        following = asyncio.ensure_future(follow())
        await held.asked.wait()
        late = turn.follow()  # one that comes while the end is being written
        shown = [(await anext(late)).kind]
        while shown[-1] != "model.answered":
            shown.append((await anext(late)).kind)
        last = asyncio.ensure_future(anext(late))
        for _ in range(50):
            await asyncio.sleep(0)
        assert seen[-1] == shown[-1] == "model.answered"
        assert not last.done()
        held.go.set()
        await following
        assert (await last).kind == seen[-1] == "turn.ended"
        with pytest.raises(StopAsyncIteration):
            await anext(late)
        assert (await turn).status == "answered"


@pytest.mark.promise("TURN-07")
async def test_followers_are_not_shown_an_end_that_was_not_written(file, open_runtime):
    held = HeldEnd(file)
    held.fault = StoreError("the disk is away")
    held.go.set()
    runtime = await open_runtime(held.store, model=ScriptedModel(["Done."]))
    turn = await runtime.session("s").start_turn("Go.", id="t")
    async with fail_after(10):
        kinds = [event.kind async for event in turn.follow()]
        with pytest.raises(StoreError, match="the disk is away"):
            await turn
    assert kinds[-1] == "model.answered"
    assert "turn.ended" not in kinds
    await runtime.close()
    # The turn is unfinished, and ends in the next process.
    later = await open_runtime(file, model=ScriptedModel(["Done."]))
    async with fail_after(10):
        (again,) = await later.recover_turns()
        kinds = [event.kind async for event in again.follow()]
        assert (await again).status == "answered"
    assert kinds.count("turn.ended") == 1
    assert kinds[-1] == "turn.ended"


@pytest.mark.promise("TURN-03", "EFF-04")
async def test_no_call_of_an_answer_runs_that_could_not_be_recorded(file, open_runtime):
    store = SqliteStore(file, sync="normal")
    turns = store.services.turns
    write = turns.advance
    paid: list[str] = []

    async def refused() -> bool:
        raise StoreError("the disk is away")

    def advance(given: Advance, quota: Quota) -> Awaitable[bool]:
        return write(given, quota) if given.answer is None else refused()

    @tool
    async def pay(what: str) -> str:
        paid.append(what)
        return what

    turns.advance = advance  # type: ignore[assignment,method-assign]
    asked = [ToolCall(id="1", name="pay", arguments={"what": "rent"})]
    runtime = await open_runtime(store, pay, model=ScriptedModel([asked]))
    async with fail_after(10):
        with pytest.raises(StoreError, match="the disk is away"):
            await runtime.session("s").ask("Pay.")
        # It would have to wait for the call of the answer.
        await runtime.session("s").run_batch([ToolCall(id="2", name="pay", arguments={"what": "food"})])
        await runtime.close()
        assert paid == ["food"]
        # The next process asks the model again.
        later = await open_runtime(file, pay, model=ScriptedModel([asked, "Done."]))
        (again,) = await later.recover_turns()
        assert (await again).status == "answered"
    assert paid == ["food", "rent"]


@pytest.mark.promise("TURN-11")
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_message_that_comes_while_the_answer_is_written_reaches_the_model(file, open_runtime, elsewhere):
    held = HeldEnd(file)
    model = ScriptedModel(["Done.", "Fait."])
    runtime = await open_runtime(held.store, model=model)
    other = await open_runtime(file, model=model) if elsewhere else runtime
    turn = await runtime.session("s").start_turn("Go.", id="t")
    async with fail_after(10):
        await held.asked.wait()
        await (await other.turn("t")).steer("In French.")
        held.go.set()
        told = await followed(turn)
        outcome = await turn
    assert (outcome.status, outcome.text, outcome.model_calls) == ("answered", "Fait.", 2)
    assert model.requests[1].messages[-1] == UserMessage("In French.")
    kinds = [kind for _, kind, _ in told if kind.startswith("turn.")]
    assert kinds == ["turn.started", "turn.steered", "turn.ended"]
    contents = [message.content for message in await runtime.session("s").messages.list()]
    assert [each if isinstance(each, str) else each["text"] for each in contents] == [
        "Go.",
        "Done.",
        "In French.",
        "Fait.",
    ]
    with pytest.raises(TurnError, match="has ended"):
        await turn.steer("Too late.")


@pytest.mark.promise("TURN-11")
@pytest.mark.parametrize("ticks", range(12))
async def test_a_message_is_refused_or_reaches_the_model_whenever_it_comes(place, open_runtime, ticks):
    answering = asyncio.Event()
    seen: list[str] = []

    async def model(request: Any) -> str:
        seen.append(request.messages[-1].text)
        answering.set()
        return "Done."

    runtime = await open_runtime(place, model=FunctionModel(model))
    turn = await runtime.session("s").start_turn("Go.")
    async with fail_after(10):
        await answering.wait()
        for _ in range(ticks):
            await asyncio.sleep(0)
        try:
            await turn.steer("Stop.")
            taken = True
        except TurnError:  # it has ended
            taken = False
        assert (await turn).status == "answered"
    assert seen == (["Go.", "Stop."] if taken else ["Go."])


@pytest.mark.promise("TURN-11", "TURN-05")
@pytest.mark.parametrize("steered", [False, True])
async def test_cancelling_while_the_answer_is_written_says_how_the_turn_ends(file, open_runtime, steered):
    held = HeldEnd(file)
    runtime = await open_runtime(held.store, model=ScriptedModel(["Done.", "Fait."]))
    turn = await runtime.session("s").start_turn("Go.", id="t")
    async with fail_after(10):
        await held.asked.wait()
        if steered:
            await turn.steer("In French.")
        cancelling = asyncio.ensure_future(turn.cancel("enough"))
        for _ in range(50):
            await asyncio.sleep(0)
        held.go.set()
        taken, outcome = await cancelling, await turn
    assert (taken, outcome.status) == ((True, "cancelled") if steered else (False, "answered"))


@pytest.mark.promise("TURN-07")
async def test_an_answer_without_room_in_the_history_ends_its_turn_once_and_loses_no_event(place, open_runtime):
    runtime = await open_runtime(place, model=ScriptedModel(["Done."]), quotas=Quotas(messages=Quota(1, 10_000)))
    async with fail_after(10):
        turn = await runtime.session("s").start_turn("Go.", id="t")
        told = await followed(turn)
        outcome = await turn
        stored = await followed(await runtime.turn("t"))
    assert (outcome.status, outcome.code) == ("failed", "quota")
    assert [(kind, status) for _, kind, status in told if kind == "turn.ended"] == [("turn.ended", "failed")]
    assert stored == told
