"""Cases about models: answers, streams, conversations, failures and ended requests. Owns the duties of a `Model`;
does not own the protocol of any provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Protocol, TypeAlias, cast

from msgspec import Struct

from toolwright import jsonx
from toolwright.tools.call import ToolCall
from toolwright.tools.model import (
    CallDelta,
    Delta,
    Model,
    ModelAnswer,
    ModelError,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolResults,
    Usage,
    UserMessage,
)
from toolwright.tools.outcome import ToolOutcome

Scripted: TypeAlias = ModelAnswer | ModelError
"""An answer that a case wants, or a failure."""


class Models(Protocol):
    """Makes the model under test answer as a case needs it."""

    def open(self, script: Sequence[Scripted]) -> AbstractAsyncContextManager[Model]:
        """A model that gives these answers, one for each request, in order. It is closed at the end."""
        ...


class ModelCase(Struct, frozen=True):
    """One promise of a model."""

    name: str
    check: Callable[[Models], Coroutine[Any, Any, None]]

    async def run(self, models: Models) -> None:
        """Check the promise.

        Raises:
            AssertionError: the model breaks it.
        """
        await self.check(models)

    def __str__(self) -> str:
        return self.name


_CALLS = (ToolCall("get_weather", '{"city": "Rome"}', "call_1"), ToolCall("get_news", '{"of": "Rome"}', "call_2"))
_ANSWER = ModelAnswer(text="Let me look. One moment.", calls=_CALLS, stop="calls", usage=Usage(input=20, output=8))
_DONE = ModelAnswer(text="It is sunny.")


def _request(*items: object, number: int = 0) -> ModelRequest:
    return ModelRequest("s1", [UserMessage("What is the weather?"), *items], number=number)


def _results(answer: ModelAnswer) -> ToolResults:
    return ToolResults(
        tuple(
            ToolOutcome(call_id=call.id or "", tool=call.name, status="success", payload=b'"sunny"')
            for call in answer.calls
        )
    )


async def _streamed(model: Model, request: ModelRequest) -> tuple[list[Delta], ModelAnswer]:
    given = [piece async for piece in model.stream(request)]
    assert given, "a stream has at least the answer"
    assert isinstance(given[-1], ModelAnswer), "the last item of a stream is the answer"
    deltas = [piece for piece in given[:-1] if not isinstance(piece, ModelAnswer)]
    assert len(deltas) == len(given) - 1, "only the last item of a stream is an answer"
    return deltas, given[-1]


def _arguments(call: ToolCall) -> object:
    return jsonx.decode(call.arguments) if isinstance(call.arguments, str) else call.arguments


async def a_model_says_its_provider_and_its_name(models: Models) -> None:
    async with models.open([_DONE]) as model:
        assert isinstance(model, Model)
        assert isinstance(model.provider, str)
        assert model.provider
        assert isinstance(model.name, str)
        assert model.name


async def an_answer_is_whole(models: Models) -> None:
    async with models.open([_ANSWER]) as model:
        answer = await model.complete(_request())
    assert isinstance(answer, ModelAnswer)
    assert answer.text == "Let me look. One moment."
    assert answer.stop == "calls"
    assert [call.name for call in answer.calls] == ["get_weather", "get_news"]
    assert [_arguments(call) for call in answer.calls] == [{"city": "Rome"}, {"of": "Rome"}]


async def an_answer_names_the_model_that_gave_it(models: Models) -> None:
    async with models.open([_DONE]) as model:
        answer = await model.complete(_request())
    provider, _, name = answer.model.partition(":")
    assert provider
    assert name


async def a_stream_ends_with_the_whole_answer(models: Models) -> None:
    async with models.open([_ANSWER]) as model:
        _, answer = await _streamed(model, _request())
    assert answer.text == "Let me look. One moment."
    assert [_arguments(call) for call in answer.calls] == [{"city": "Rome"}, {"of": "Rome"}]
    assert answer.stop == "calls"


async def the_pieces_of_a_stream_make_up_its_text(models: Models) -> None:
    async with models.open([_ANSWER]) as model:
        deltas, answer = await _streamed(model, _request())
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == answer.text
    assert all(isinstance(delta, (TextDelta, ReasoningDelta, CallDelta)) for delta in deltas)
    written: dict[str, str] = {}
    for delta in deltas:
        if isinstance(delta, CallDelta):
            written[delta.call_id] = written.get(delta.call_id, "") + delta.arguments
    assert set(written) <= {call.id for call in answer.calls}
    for call in answer.calls:
        if written.get(call.id or ""):
            assert jsonx.decode(written[call.id or ""]) == _arguments(call)


async def every_call_has_an_id_of_its_own(models: Models) -> None:
    async with models.open([_ANSWER]) as model:
        answer = await model.complete(_request())
    ids = [call.id for call in answer.calls]
    assert all(isinstance(each, str) and each for each in ids)
    assert len(set(ids)) == len(ids)


async def a_stream_and_a_whole_answer_say_the_same(models: Models) -> None:
    async with models.open([_ANSWER, _ANSWER]) as model:
        whole = await model.complete(_request())
        _, streamed = await _streamed(model, _request(number=1))
    assert (whole.text, whole.stop, whole.usage) == (streamed.text, streamed.stop, streamed.usage)
    assert list(map(_arguments, whole.calls)) == list(map(_arguments, streamed.calls))


async def an_answer_has_a_json_form(models: Models) -> None:
    async with models.open([_ANSWER]) as model:
        answer = await model.complete(_request())
    assert jsonx.decode(jsonx.encode(answer.to_json()))["text"] == answer.text
    if answer.native is not None:
        assert isinstance(answer.native["format"], str)
        assert jsonx.decode(jsonx.encode(answer.native)) == answer.native, "what goes back must survive a store"


async def usage_is_counted_and_never_negative(models: Models) -> None:
    async with models.open([_ANSWER]) as model:
        usage = (await model.complete(_request())).usage
    assert min(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning) >= 0


async def an_empty_answer_is_an_answer(models: Models) -> None:
    async with models.open([ModelAnswer(), _DONE]) as model:
        deltas, answer = await _streamed(model, _request())
        assert deltas == []
        assert (answer.text, answer.calls) == ("", ())
        assert (await model.complete(_request(answer, UserMessage("Well?"), number=1))).text == "It is sunny."


async def a_conversation_with_its_own_answer_goes_on(models: Models) -> None:
    async with models.open([_ANSWER, _DONE]) as model:
        answer = await model.complete(_request())
        assert (await model.complete(_request(answer, _results(answer), number=1))).text == "It is sunny."


async def a_conversation_of_another_model_goes_on(models: Models) -> None:
    calls = (ToolCall("get_weather", {"city": "Rome"}, "functions.get_weather:0"), ToolCall("get_news", "", "call ü"))
    foreign = ModelAnswer(text="Hm.", calls=calls, stop="calls", native={"format": "of-another", "items": [{"x": 1}]})
    async with models.open([_DONE]) as model:
        given = await model.complete(_request(foreign, _results(foreign), UserMessage("And?"), number=0))
    assert given.text == "It is sunny."


async def messages_of_a_tool_are_answered(models: Models) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the weather?"}]
    async with models.open([_DONE]) as model:
        answer = await model.complete(ModelRequest("s1", messages, {"max_tokens": 50}, "call_9", "research"))
    assert answer.text == "It is sunny."


async def a_failure_is_a_model_error(models: Models) -> None:
    failure = ModelError("Too many requests", "rate_limited", retry=True, after=3.0)
    async with models.open([failure, failure, _DONE]) as model:
        for asking in (_streamed, _completed):
            raised = await _failure_of(asking(model, _request()))
            assert raised is not None, "a failure must be raised"
            assert (raised.code, raised.retry) == ("rate_limited", True)
        assert (await model.complete(_request())).text == "It is sunny."


async def _failure_of(asking: Coroutine[Any, Any, object]) -> ModelError | None:
    try:
        await asking
    except ModelError as error:
        return error
    return None


async def _completed(model: Model, request: ModelRequest) -> ModelAnswer:
    return await model.complete(request)


async def requests_at_the_same_time_are_answered(models: Models) -> None:
    async with models.open([_DONE] * 6) as model:
        whole = (model.complete(_request(number=number)) for number in range(3))
        streamed = (_streamed(model, _request(number=number)) for number in range(3, 6))
        answers = await asyncio.gather(*whole)
        pairs = await asyncio.gather(*streamed)
    assert {answer.text for answer in [*answers, *(answer for _, answer in pairs)]} == {"It is sunny."}


async def a_stream_that_is_closed_early_leaves_the_model_usable(models: Models) -> None:
    async with models.open([_ANSWER, _DONE]) as model:
        async with aclosing(cast("Any", model.stream(_request()))) as pieces:
            await anext(cast("AsyncIterator[Any]", pieces))
        assert (await model.complete(_request(number=1))).text == "It is sunny."


async def a_cancelled_request_leaves_the_model_usable(models: Models) -> None:
    async with models.open([_DONE, _DONE]) as model:
        task = asyncio.ensure_future(model.complete(_request()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await model.complete(_request(number=1))).text == "It is sunny."


async def a_request_is_not_changed(models: Models) -> None:
    async with models.open([_ANSWER, _DONE]) as model:
        answer = await model.complete(_request())
        request = _request(answer, _results(answer), number=1)
        before = jsonx.encode(request.to_json())
        await model.complete(request)
    assert jsonx.encode(request.to_json()) == before


MODEL_CASES: tuple[ModelCase, ...] = tuple(
    ModelCase(check.__name__, check)
    for check in (
        a_model_says_its_provider_and_its_name,
        an_answer_is_whole,
        an_answer_names_the_model_that_gave_it,
        a_stream_ends_with_the_whole_answer,
        the_pieces_of_a_stream_make_up_its_text,
        every_call_has_an_id_of_its_own,
        a_stream_and_a_whole_answer_say_the_same,
        an_answer_has_a_json_form,
        usage_is_counted_and_never_negative,
        an_empty_answer_is_an_answer,
        a_conversation_with_its_own_answer_goes_on,
        a_conversation_of_another_model_goes_on,
        messages_of_a_tool_are_answered,
        a_failure_is_a_model_error,
        requests_at_the_same_time_are_answered,
        a_stream_that_is_closed_early_leaves_the_model_usable,
        a_cancelled_request_leaves_the_model_usable,
        a_request_is_not_changed,
    )
)
"""All cases for models."""
