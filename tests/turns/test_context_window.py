"""The context window: what happens before a conversation is too long for its model, and when a provider says so."""

import itertools
from typing import Any

import pytest

from toolwright import App, Budget, ContextWindow, Runtime, ToolCall, ToolContext, ToolwrightError, tool
from toolwright.stores.contracts.sessions import Quotas
from toolwright.testing import CrashKit, FunctionModel
from toolwright.tools.model import ModelAnswer, ModelError, ToolResults, Usage, UserMessage

LONG = "0123456789" * 400
"""4,000 characters, or 1,000 tokens."""


@tool(readonly=True)
async def page(n: int) -> str:
    """Read a page."""
    return f"{n} {LONG}"


def call(id: str, name: str, **arguments: object) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def reading(pages: int, *, told: bool = True) -> Any:
    """A model that reads pages one after the other, and tells the size of each request as a provider does."""

    def answer(request: Any) -> ModelAnswer:
        texts = [each.text for item in request.messages if isinstance(item, ToolResults) for each in item.outcomes]
        texts += [item.text for item in request.messages if isinstance(item, UserMessage)]
        usage = Usage(sum(map(len, texts)) // 4 + 10, 5) if told else Usage()
        if request.number < pages:
            return ModelAnswer(calls=(call(f"p{request.number}", "page", n=request.number),), stop="calls", usage=usage)
        return ModelAnswer(text="I read them all.", usage=usage)

    return answer


def asked(model: Any) -> tuple[FunctionModel, list[Any]]:
    requests: list[Any] = []

    def answer(request: Any) -> Any:
        requests.append(request)
        return model(request)

    return FunctionModel(answer), requests


def results(request: Any) -> list[str]:
    return [each.text for item in request.messages if isinstance(item, ToolResults) for each in item.outcomes]


@pytest.mark.promise("TURN-10")
@pytest.mark.parametrize("told", [True, False])
async def test_near_the_window_the_oldest_results_become_notes_with_their_files(place, open_runtime, told):
    model, requests = asked(reading(9, told=told))
    context = ContextWindow(tokens=6_000, near=0.8)
    runtime = await open_runtime(place, page, model=model, context=context, budget=Budget(model_calls=20))
    session = runtime.session("s")
    outcome = await session.ask("Read.")
    assert outcome.text == "I read them all."
    last = results(requests[-1])
    notes = [text for text in last if "left out to save room" in text]
    assert 4 <= len(notes) < 9
    assert last[: len(notes)] == notes
    assert [request.number for request in requests] == list(range(10))
    assert all(sum(map(len, results(request))) / 4 <= context.tokens for request in requests)
    # The results stay readable: in their files, and in the history.
    first = notes[0].split("file ")[1].rstrip("]")
    assert await session.files.read(first) == f"0 {LONG}"
    stored = [
        each["text"] for one in await session.messages.list() if one.sender == "tool" for each in one.content["results"]
    ]
    assert stored == [f"{n} {LONG}" for n in range(9)]
    assert [each.value for each in outcome.calls] == stored
    kinds = [event.kind async for event in (await session.turn(outcome.turn_id)).follow()]
    assert "context.shortened" in kinds


@pytest.mark.promise("TURN-10")
async def test_the_beginning_of_a_request_stays_the_same_for_as_long_as_possible(open_runtime):
    model, requests = asked(reading(30))
    runtime = await open_runtime(page, model=model, context=ContextWindow(tokens=10_000), budget=Budget(model_calls=40))
    await runtime.session("s").ask("Read.")
    changed = [
        number
        for number, (before, after) in enumerate(itertools.pairwise(requests))
        if after.messages[: len(before.messages)] != before.messages
    ]
    assert 1 <= len(changed) <= 30 / 3


@pytest.mark.promise("TURN-10")
async def test_results_that_were_left_out_stay_so_in_the_next_turn_and_the_next_process(file):
    seen = []
    context = ContextWindow(tokens=6_000)
    for number in range(2):
        model, requests = asked(reading(9))
        runtime = await Runtime.open(file, tools=[page], model=model, context=context, budget=Budget(model_calls=20))
        await runtime.session("s").ask(f"Read {number}.")
        seen.append([item for item in requests[-1].messages if isinstance(item, ToolResults)])
        await runtime.close()
    first, second = [[each.text for item in items for each in item.outcomes] for items in seen]
    assert second == first


@pytest.mark.promise("TURN-10")
async def test_the_newest_results_are_never_left_out(open_runtime):
    model, requests = asked(reading(1))
    runtime = await open_runtime(page, model=model, context=ContextWindow(tokens=100))
    assert (await runtime.session("s").ask("Read.")).ok
    assert results(requests[-1]) == [f"0 {LONG}"]


@pytest.mark.promise("TURN-10")
async def test_without_room_for_files_the_note_names_none(open_runtime, caplog):
    model, requests = asked(reading(9))
    runtime = await open_runtime(
        page,
        model=model,
        context=ContextWindow(tokens=6_000),
        budget=Budget(model_calls=20),
        quotas=Quotas(file_bytes=10),
    )
    assert (await runtime.session("s").ask("Read.")).ok
    assert "no longer available" in results(requests[-1])[0]


@pytest.mark.promise("TURN-10")
async def test_near_the_window_the_turn_fails_where_its_owner_wants_that(place, open_runtime):
    model, requests = asked(reading(9))
    context = ContextWindow(tokens=6_000, when_near="fail")
    runtime = await open_runtime(place, page, model=model, context=context, budget=Budget(model_calls=20))
    session = runtime.session("s")
    outcome = await session.ask("Read.")
    assert (outcome.status, outcome.code) == ("failed", "context_overflow")
    assert "4800 are possible" in outcome.reason
    assert len(requests) == 5
    assert (await session.turns())[0].state == "failed"


@pytest.mark.promise("TURN-10")
async def test_near_the_window_the_model_summarises_the_older_part_once(place, open_runtime):
    read = reading(9)

    def answer(request: Any) -> Any:
        if isinstance(request.messages[-1], UserMessage) and "Summarise it" in request.messages[-1].text:
            return ModelAnswer(text="The user wants all pages read. Some are read.", usage=Usage(5_000, 20))
        return read(request)

    model, requests = asked(answer)
    context = ContextWindow(tokens=6_000, when_near="summarise")
    runtime = await open_runtime(place, page, model=model, context=context, budget=Budget(model_calls=20))
    session = runtime.session("s")
    outcome = await session.ask("Read.")
    assert outcome.text == "I read them all."
    (summary_at, *more) = [n for n, request in enumerate(requests) if request.tool_choice == "none"]
    assert len(more) <= 1
    assert outcome.model_calls == len(requests)
    assert [request.number for request in requests] == list(range(len(requests)))
    after = requests[summary_at + 1]
    assert "The user wants all pages read." in after.messages[0].text
    assert isinstance(after.messages[1], ModelAnswer)
    assert len(after.messages) < len(requests[summary_at - 1].messages)
    kinds = [one.metadata.get("kind") for one in await session.messages.list()]
    assert kinds.count("summary") == 1 + len(more)
    count = len(requests)
    await session.ask("And?")
    assert len(requests) == count + 1
    assert "Summary of the conversation" in requests[-1].messages[0].text


def summarising(model: Any) -> Any:
    def answer(request: Any) -> Any:
        if request.tool_choice == "none":
            return ModelAnswer(text="Some pages are read.", usage=Usage(5_000, 20))
        return model(request)

    return answer


def shape(request: Any) -> list[Any]:
    """The conversation of a request: the ids of calls and of results, and the texts of the rest."""
    return [
        [each.call_id for each in item.outcomes]
        if isinstance(item, ToolResults)
        else [each.id for each in item.calls]
        if isinstance(item, ModelAnswer) and item.calls
        else item.text.removeprefix("[Summary of the conversation before, which is left out to save room]\n")
        for item in request.messages
    ]


@pytest.mark.promise("TURN-06", "TURN-10")
@pytest.mark.parametrize("notes", [1, 2, 3])
async def test_a_summary_stands_for_the_same_messages_later_though_a_tool_appended_some(place, open_runtime, notes):
    @tool(name="page")
    async def noted(n: int, ctx: ToolContext) -> str:
        """Read a page."""
        if n < notes:
            await ctx.messages.append(f"noted {n}")
        return f"{n} {LONG}"

    model, requests = asked(summarising(reading(7)))
    context = ContextWindow(tokens=6_000, when_near="summarise")
    runtime = await open_runtime(place, noted, model=model, context=context, budget=Budget(model_calls=20))
    session = runtime.session("s")
    await session.ask("Read.")
    assert shape(requests[-1]) == ["Some pages are read.", ["p4"], ["p4"], ["p6"], ["p6"]]
    await session.ask("And?")
    assert shape(requests[-1]) == [*shape(requests[-2]), "I read them all.", "And?"]


@pytest.mark.promise("TURN-06", "TURN-10")
async def test_a_summary_that_ends_between_an_answer_and_its_results_leaves_both(place, open_runtime):
    model, requests = asked(reading(1))
    session = (await open_runtime(place, page, model=model)).session("s")
    await session.ask("Read.")
    await session.messages.append("All was read.", sender="runtime", metadata={"kind": "summary", "items": 2})
    await session.ask("And?")
    assert shape(requests[-1]) == ["All was read.", ["p0"], ["p0"], "I read them all.", "And?"]


@pytest.mark.promise("TURN-06")
@pytest.mark.parametrize("about", [{}, {"items": None}, {"items": "two"}, {"items": -7}, {"items": True}])
async def test_a_message_that_does_not_say_what_it_is_a_summary_of_is_told_as_a_note(open_runtime, about):
    model, requests = asked(lambda request: "Fine.")
    session = (await open_runtime(model=model)).session("s")
    await session.messages.append("Hello.", sender="user")
    await session.messages.append("All was read.", sender="runtime", metadata={"kind": "summary", **about})
    outcome = await session.ask("And?")
    assert (outcome.status, outcome.reason) == ("answered", None)
    assert shape(requests[-1]) == ["Hello.", "[runtime] All was read.", "And?"]


@pytest.mark.promise("TURN-06", "TURN-10")
async def test_a_number_of_tokens_that_cannot_be_does_not_end_a_conversation(place, open_runtime):
    absurd = ModelAnswer(text="Hi.", usage=Usage(10**400, 1))
    model, requests = asked(lambda request: "Hello again." if request.number else absurd)
    session = (await open_runtime(place, model=model)).session("s")
    await session.ask("Hello.")
    outcome = await session.ask("And?")
    assert (outcome.status, outcome.text, outcome.reason) == ("answered", "Hello again.", None)
    assert shape(requests[-1]) == ["Hello.", "Hi.", "And?"]


@pytest.mark.promise("TURN-10")
async def test_without_a_usable_summary_old_results_are_left_out(open_runtime):
    read = reading(9)

    def answer(request: Any) -> Any:
        return "" if request.tool_choice == "none" else read(request)

    model, requests = asked(answer)
    context = ContextWindow(tokens=6_000, when_near="summarise")
    runtime = await open_runtime(page, model=model, context=context, budget=Budget(model_calls=20))
    assert (await runtime.session("s").ask("Read.")).ok
    assert "left out to save room" in results(requests[-1])[0]


@pytest.mark.promise("TURN-10")
@pytest.mark.parametrize("how", ["error", "stop"])
@pytest.mark.parametrize("helps", [True, False])
async def test_a_provider_that_finds_the_conversation_too_long_is_asked_once_more_with_less(
    place, open_runtime, how, helps
):
    read = reading(4)

    def answer(request: Any) -> Any:
        if request.number == 4 and (not helps or not any("left out" in text for text in results(request))):
            if how == "stop":
                return ModelAnswer(stop="context")
            raise ModelError("The conversation is too long.", "context_overflow")
        return read(request)

    model, requests = asked(answer)
    runtime = await open_runtime(place, page, model=model)
    outcome = await runtime.session("s").ask("Read.")
    if helps:
        assert outcome.text == "I read them all."
    else:
        assert (outcome.status, outcome.code) == ("failed", "context_overflow")
    assert len(requests) == 6
    assert ["left out" in text for text in results(requests[-1])] == [True, True, True, False]


@pytest.mark.promise("TURN-10")
async def test_an_owner_who_wants_to_fail_is_told_of_the_providers_overflow_at_once(open_runtime):
    read = reading(4)

    def answer(request: Any) -> Any:
        if request.number == 4:
            raise ModelError("The conversation is too long.", "context_overflow")
        return read(request)

    model, requests = asked(answer)
    runtime = await open_runtime(page, model=model, context=ContextWindow(when_near="fail"))
    outcome = await runtime.session("s").ask("Read.")
    assert (outcome.code, len(requests)) == ("context_overflow", 5)


@pytest.mark.promise("TURN-10")
@pytest.mark.parametrize(
    ("options", "told"), [({"tokens": 0}, "tokens"), ({"near": 1.5}, "near"), ({"when_near": "forget"}, "when_near")]
)
def test_a_context_window_that_cannot_be_is_refused(options, told):
    with pytest.raises(ToolwrightError, match=told):
        ContextWindow(**options)
    with pytest.raises(ToolwrightError, match=r"use ContextWindow"):
        App(context=5)  # type: ignore[arg-type]


STORY = """
from toolwright import Budget, ContextWindow
from toolwright.testing import FunctionModel
from toolwright.tools.model import ModelAnswer, ToolResults, Usage

@tool(readonly=True)
async def page(n: int) -> str:
    return f"{n} " + "0123456789" * 400

def answer(request):
    asked = "summary" if request.tool_choice == "none" else "answer"
    note(f"{asked} {request.number}")
    crash_point("the model answers")
    if asked == "summary":
        return ModelAnswer(text="The user wants all pages read.", usage=Usage(5_000, 20))
    texts = [each.text for item in request.messages if isinstance(item, ToolResults) for each in item.outcomes]
    usage = Usage(sum(map(len, texts)) // 4 + 10, 5)
    assert usage.input < 6_000, [len(text) for text in texts]
    done = request.number - (1 if when_near == "summarise" and request.number > 5 else 0)
    if done < 8:
        page = ToolCall(id=f"p{done}", name="page", arguments={"n": done})
        return ModelAnswer(calls=(page,), stop="calls", usage=usage)
    return ModelAnswer(text="I read them all.", usage=usage)

async def main():
    context = ContextWindow(tokens=6_000, when_near=when_near)
    async with Runtime.open(store, tools=[page], model=FunctionModel(answer), context=context,
                            budget=Budget(model_calls=30), recover=True) as runtime:
        session = runtime.session("s")
        outcome = await session.ask("Read.", id="t")
        kinds = [one.metadata.get("kind") for one in await session.messages.list()]
        say([outcome.text, kinds.count("summary")])
"""


@pytest.mark.promise("TURN-03", "TURN-10")
@pytest.mark.parametrize("when_near", ["shorten", "summarise"])
def test_killed_at_any_model_call_a_turn_continues_within_its_window_and_summarises_once(tmp_path, zygote, when_near):
    for nth in range(3, 10):
        with CrashKit(tmp_path / str(nth), zygote=zygote) as kit:
            kit.folder.mkdir()
            kit.kill_at("the model answers", STORY, nth=nth, when_near=when_near)
            (told,) = kit.run(STORY, when_near=when_near).said
            assert told[0] == "I read them all."
            summaries = [line for line in kit.ledger if line.startswith("summary")]
            killed_there = kit.ledger[nth - 1].startswith("summary")
            assert len(summaries) == told[1] + killed_there
            assert len(kit.ledger) == len(set(kit.ledger)) + 1  # the one that the kill cut off
