"""A chain of models as one: the next is asked when one cannot answer, and never in the middle of an answer."""

from typing import Any, cast

import pytest

from tests.providers.conftest import asked
from tests.providers.dialects import CHAT, MESSAGES
from tests.providers.loopback import whole
from toolwright import ToolCall
from toolwright.errors import ToolwrightError
from toolwright.providers import FallbackModel
from toolwright.testing import FunctionModel, ScriptedModel
from toolwright.tools.model import ModelAnswer, ModelError, ModelRequest, TextDelta, ToolResults, UserMessage
from toolwright.tools.outcome import ToolOutcome

HELLO = ModelRequest("s1", [UserMessage("Hello")])


def failing(code: str, retry: bool = False, after: float | None = None) -> FunctionModel:
    def fail(request: ModelRequest) -> str:
        raise ModelError(f"It is {code}", code, retry=retry, after=after)

    return FunctionModel(fail, name=code)


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize("code", ["rate_limited", "overloaded", "unavailable", "timeout", "unauthorised", "bad_answer"])
async def test_the_next_model_answers_when_one_cannot(code):
    model = FallbackModel([failing(code), ScriptedModel(["Hi", "Hi"])])
    assert (await model.complete(HELLO)).text == "Hi"
    _, answer = await asked(model, HELLO)
    assert (answer.text, answer.model) == ("Hi", "scripted:script")


@pytest.mark.parametrize("code", ["context_overflow", "content_refused", "bad_request"])
async def test_an_error_that_another_model_would_have_too_ends_the_chain(code):
    unused = ScriptedModel(["Hi"])
    model = FallbackModel([failing(code), unused])
    for asking in (model.complete(HELLO), asked(model, HELLO)):
        with pytest.raises(ModelError, match=f"It is {code}"):
            await asking
    assert unused.requests == []
    chosen = FallbackModel([failing(code), ScriptedModel(["Hi"])], on=[code])
    assert (await chosen.complete(HELLO)).text == "Hi"


async def test_a_chain_may_be_retried_if_one_of_its_models_may():
    model = FallbackModel([failing("rate_limited", True, 30), failing("overloaded", True, 2), failing("unauthorised")])
    for asking in (model.complete(HELLO), asked(model, HELLO)):
        with pytest.raises(
            ModelError, match="None of 3 models answered: It is rate_limited; It is overloaded; It"
        ) as told:
            await asking
        assert (told.value.code, told.value.retry, told.value.after) == ("overloaded", True, 2)
    with pytest.raises(ModelError) as told:
        await FallbackModel([failing("unauthorised"), failing("bad_answer")]).complete(HELLO)
    assert (told.value.code, told.value.retry) == ("bad_answer", False)


async def test_no_other_model_is_asked_in_the_middle_of_an_answer():
    class Breaking(FunctionModel):
        async def stream(self, request):
            yield TextDelta("He")
            raise ModelError("It broke off", "unavailable", retry=True)

    unused = ScriptedModel(["Hi"])
    model = FallbackModel([Breaking(lambda request: "never"), unused])
    pieces = aiter(model.stream(HELLO))
    assert await anext(pieces) == TextDelta("He")
    with pytest.raises(ModelError, match="It broke off"):
        await anext(pieces)
    assert unused.requests == []


@pytest.mark.promise("TURN-09")
async def test_a_conversation_moves_between_providers_and_back(open_model_of, server):
    first, second = await open_model_of(CHAT), await open_model_of(MESSAGES)
    model = FallbackModel([first, second])
    call = ToolCall("w", '{"a": 1}', "call_1")
    server.will(
        whole({"error": {"message": "down"}}, 503),
        MESSAGES.reply(ModelAnswer(calls=(call,), stop="calls", reasoning="Hm")),
        CHAT.reply(ModelAnswer(text="Done")),
    )
    answer = await model.complete(HELLO)
    assert answer.model == "anthropic:a-model"
    results = ToolResults((ToolOutcome(call_id="call_1", tool="w", status="success", payload=b"2"),))
    _, last = await asked(model, ModelRequest("s1", [UserMessage("Hello"), answer, results]))
    assert (last.text, last.model) == ("Done", "openai-chat:a-model")
    CHAT.check(server.asked[-1].body)
    assert "Hm" not in str(server.asked[-1].body)


async def test_entering_a_chain_enters_its_models(server):
    inner = CHAT.model(server)
    server.will(CHAT.reply(ModelAnswer(text="Hi")))
    async with FallbackModel([inner]) as model:
        await model.complete(HELLO)
        await model.complete(HELLO)
    assert server.connections == 1


def test_a_chain_needs_models():
    with pytest.raises(ToolwrightError, match="FallbackModel has no models; give at least one"):
        FallbackModel([])
    with pytest.raises(ToolwrightError, match="FallbackModel has 3, which is no Model; give models or their names"):
        FallbackModel([cast(Any, 3)])
    with pytest.raises(ToolwrightError, match="'nobody:x' is not known"):
        FallbackModel(["nobody:x"])


def test_a_chain_is_named_after_its_models():
    model = FallbackModel([ScriptedModel([]), FunctionModel(str)])
    assert (model.provider, model.name) == ("fallback", "scripted:script,function:function")
    assert repr(model) == "<FallbackModel scripted:script,function:function>"


async def test_a_model_that_cannot_be_released_keeps_no_other_of_its_chain_open():
    released: list[str] = []

    class Held(ScriptedModel):
        def hold(self) -> None: ...

        async def release(self) -> None:
            released.append(self.name)
            if self.name == "second":
                raise OSError("it cannot be closed")

    model = FallbackModel([Held([], name=name) for name in ("first", "second", "third")])
    with pytest.raises(OSError, match="cannot be closed"):
        async with model:
            pass
    assert sorted(released) == ["first", "second", "third"]
