"""Random scripts of answers against a small model of the loop: how a turn ends, what it used, and its history."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support import fail_after
from toolwright import Budget, Runtime, ToolCall, tool
from toolwright.tools.model import ModelAnswer, ModelError, ModelRequest, ToolResults, Usage
from toolwright.tools.outcome import ToolOutcome

GARBAGE: tuple[Any, ...] = (None, 5, {"text": "hi"}, [1, 2], b"bytes", object(), [ToolCall("add"), "text"], ModelAnswer)


class Scripted:
    """Gives whatever the script has, in order, and a text after its end."""

    provider, name = "random", "script"

    def __init__(self, script: Sequence[Any]) -> None:
        self._rest = list(script)
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        given = self._rest.pop(0) if self._rest else "The end."
        if isinstance(given, Exception):
            raise given
        return given


# --- answers

ids = st.sampled_from(["x", "y", "x_2", "", None])
calls = st.one_of(
    st.builds(lambda id, a: ToolCall("add", {"a": a, "b": 1}, id), ids, st.integers(-3, 3)),
    st.builds(lambda id: ToolCall("add", '{"a": 1, "b": 2}', id), ids),
    st.builds(lambda id: ToolCall("add", {"a": "many"}, id), ids),
    st.builds(lambda id: ToolCall("add", "{not json", id), ids),
    st.builds(lambda id: ToolCall("fail", {}, id), ids),
    st.builds(lambda id: ToolCall("nothing of the kind", {}, id), ids),
    st.builds(lambda id: ToolCall("add", {"a": 1, "b": 1}, id, cut_off="length"), ids),
)
usage = st.builds(Usage, st.integers(0, 9), st.integers(0, 9))
texts = st.sampled_from(["", " \n", "Fine.", "\ud800 \x00 é", "x" * 3_000])
answers = st.one_of(
    texts,
    st.lists(calls, max_size=4),
    st.builds(
        lambda text, calls, stop, usage: ModelAnswer(text=text, calls=tuple(calls), stop=stop, usage=usage),
        texts,
        st.lists(calls, max_size=3),
        st.sampled_from(["end", "calls", "length", "refusal", "pause", "context"]),
        usage,
    ),
    st.just(ModelAnswer(calls=tuple(ToolCall("add", {"a": 1, "b": 1}) for _ in range(129)))),
    st.sampled_from(GARBAGE),
    st.just(ModelError("The provider says no.", "content_refused")),
    st.just(RuntimeError("a bug in the model")),
)
# Calls most of the time: other answers end a turn, and a turn of one answer shows little.
scripts = st.lists(st.one_of(st.lists(calls, min_size=1, max_size=3), answers), max_size=8)
few = st.one_of(st.none(), st.integers(0, 6))
budgets = st.builds(lambda a, b, c: Budget(model_calls=a, tool_calls=b, tokens=c), few, few, st.one_of(st.none(), few))


# --- the loop, once more


@dataclass
class Expected:
    """The end of a turn by the rules of the loop."""

    status: str = "answered"
    limit: str | None = None
    code: str | None = None
    asked: int = 0
    model_calls: int = 0
    results: int = 0
    ran: int = 0
    history: list[str] = field(default_factory=lambda: ["user"])


def expect(script: Sequence[Any], budget: Budget) -> Expected:
    found, tokens, calls_made = Expected(), 0, 0
    rest = list(script)
    while True:
        for name, used in (("model_calls", found.model_calls), ("tokens", tokens)):
            most = getattr(budget, name)
            if most is not None and used >= most:
                found.status, found.limit = "out_of_budget", name
                return found
        found.asked += 1
        given = rest.pop(0) if rest else "The end."
        answer = as_answer(given)
        if isinstance(answer, str):
            found.status, found.code = "failed", answer
            return found
        found.model_calls += 1
        tokens += answer.usage.tokens
        if answer.calls:
            found.results += len(answer.calls)
            found.history += ["assistant", "tool"]
            if budget.tool_calls is not None and calls_made + len(answer.calls) > budget.tool_calls:
                found.status, found.limit = "out_of_budget", "tool_calls"
                return found
            calls_made += len(answer.calls)
            found.ran += sum(runs(call) for call in answer.calls)
            continue
        if answer.text:
            found.history.append("assistant")
        ends = {"refusal": "refused", "context": "context_overflow", "length": "truncated"}
        if answer.stop in ends:
            found.status, found.code = "failed", ends[answer.stop]
            return found
        if answer.stop == "pause":
            continue
        if not answer.text.strip():
            found.status, found.code = "failed", "empty_answer"
        return found


def as_answer(given: Any) -> ModelAnswer | str:
    """The answer, or the code with which its turn fails."""
    if isinstance(given, ModelError):
        return given.code
    if isinstance(given, Exception):
        return "model_failed"
    if isinstance(given, str):
        return ModelAnswer(text=given)
    if isinstance(given, list) and all(isinstance(each, ToolCall) for each in given):
        return ModelAnswer(calls=tuple(given))
    if isinstance(given, ModelAnswer):
        return given if len(given.calls) <= 128 else "bad_answer"
    return "bad_answer"


def runs(call: ToolCall) -> bool:
    """Whether the body of `add` runs for a call."""
    return call.name == "add" and call.cut_off is None and call.arguments not in ({"a": "many"}, "{not json")


async def play(script: Sequence[Any], budget: Budget, place: str | Path) -> None:
    expected, ran = expect(script, budget), 0

    @tool(readonly=True)
    async def add(a: int, b: int) -> int:
        """Add."""
        nonlocal ran
        ran += 1
        return a + b

    @tool
    async def fail() -> None:
        """Fail."""
        raise ValueError("no")

    model = Scripted(script)
    async with Runtime.open(place, tools=[add, fail], model=model, sync="normal") as runtime:
        session = runtime.session("s")
        outcome = await session.ask("Go.", budget=budget)
        assert (outcome.status, outcome.limit, outcome.code) == (expected.status, expected.limit, expected.code)
        assert outcome.status == "answered" or outcome.reason
        assert (len(model.requests), outcome.model_calls) == (expected.asked, expected.model_calls)
        assert (len(outcome.calls), ran) == (expected.results, expected.ran)
        info = await (await session.turn(outcome.turn_id)).info()
        assert (info.state, info.model_calls) == (outcome.status, outcome.model_calls)
        messages = await session.messages.list()
        assert [message.sender for message in messages] == expected.history
        for request in model.requests:
            require_valid(request.messages)
        # The session is asked on, whatever the model gave.
        last = Scripted(["And on."])
        assert (await session.ask("And now?", model=last)).text == "And on."
        require_valid(last.requests[0].messages)
        assert last.requests[0].messages[-1].text == "And now?"


def require_valid(messages: Sequence[Any]) -> None:
    """Each answer with calls is followed by exactly their results, and no id is there twice."""
    seen: set[str] = set()
    for place, item in enumerate(messages):
        if isinstance(item, ModelAnswer) and item.calls:
            ids = [call.id for call in item.calls]
            assert len(set(ids)) == len(ids)
            assert not seen & set(ids)
            seen |= set(ids)
            results = messages[place + 1]
            assert isinstance(results, ToolResults)
            assert [each.call_id for each in results.outcomes] == ids
            assert all(isinstance(each, ToolOutcome) and each.status != "pending" for each in results.outcomes)
        elif isinstance(item, ToolResults):
            before = messages[place - 1]
            assert isinstance(before, ModelAnswer)
            assert before.calls


@pytest.mark.promise("TURN-01", "TURN-06")
@settings(max_examples=150)
@given(scripts, budgets)
@example([[ToolCall("add", {"a": 1, "b": 1})]] * 2 + ["Done."], Budget(model_calls=3, tool_calls=2))
@example([[ToolCall("add", {"a": 1, "b": 1})]] * 2 + ["Done."], Budget(model_calls=2, tool_calls=1))
@example([ModelAnswer(text="a", stop="pause", usage=Usage(3, 3)), "b"], Budget(tokens=6))
def test_a_turn_over_any_script_ends_as_its_model_says(script, budget):
    async def main() -> None:
        async with fail_after(20):
            await play(script, budget, ":memory:")

    asyncio.run(main())


@pytest.mark.promise("TURN-01", "TURN-06")
@settings(max_examples=50)
@given(scripts, budgets)
def test_a_durable_turn_over_any_script_ends_as_its_model_says(script, budget):
    async def main() -> None:
        with TemporaryDirectory() as folder:
            async with fail_after(20):
                await play(script, budget, Path(folder) / "agent.db")

    asyncio.run(main())
