"""The loopback server says what the providers' libraries expect, or the tests over it would prove nothing."""

import json

import anthropic
import openai
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.providers.conftest import asked
from tests.providers.dialects import CHAT, MESSAGES, RESPONSES
from toolwright import ToolCall
from toolwright.providers.event_stream import EventReader
from toolwright.tools.model import ModelAnswer, ModelRequest, Usage, UserMessage

HELLO = ModelRequest("s1", [UserMessage("Hello")])
SAID = [
    ModelAnswer(text="Grüße ☂", usage=Usage(input=12, output=3, cache_read=4, reasoning=1)),
    ModelAnswer(
        text="I look.", calls=(ToolCall("w", '{"a": 1}', "call_1"), ToolCall("w", "{}", "call_2")), stop="calls"
    ),
    ModelAnswer(text="42", reasoning="First.\n\nThen."),
    ModelAnswer(text="Cut", stop="length"),
]


@pytest.mark.parametrize("said", SAID, ids=lambda said: said.text)
@pytest.mark.parametrize(
    ("dialect", "event", "response"),
    [
        (CHAT, ChatCompletionChunk, ChatCompletion),
        (RESPONSES, ResponseStreamEvent, Response),
        (MESSAGES, RawMessageStreamEvent, Message),
    ],
    ids=["chat", "responses", "messages"],
)
def test_every_event_and_response_is_one_of_the_library(dialect, event, response, said):
    events = list(EventReader().feed(dialect.stream(said)))
    assert events
    for each in events:
        if each.data != b"[DONE]" and each.name != "ping":
            TypeAdapter(event).validate_python(json.loads(each.data))
    TypeAdapter(response).validate_python(dialect.response(said))


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize("said", SAID[:2], ids=lambda said: said.text)
async def test_the_library_reads_the_same_answer_as_we_do(said, dialect, open_model_of, server):
    server.will(dialect.reply(said, size=13))
    _, ours = await asked(await open_model_of(dialect), HELLO)
    messages = [{"role": "user", "content": "Hello"}]
    if dialect is MESSAGES:
        async with (
            anthropic.AsyncAnthropic(api_key="k", base_url=server.address, max_retries=0) as claude,
            claude.messages.stream(model="m", max_tokens=9, messages=messages) as stream,  # type: ignore[arg-type]
        ):
            message = await stream.get_final_message()
        text = "".join(block.text for block in message.content if block.type == "text")
        calls = [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
    else:
        async with openai.AsyncOpenAI(api_key="k", base_url=server.address + "/v1", max_retries=0) as client:
            if dialect is CHAT:
                async with client.chat.completions.stream(model="m", messages=messages) as stream:  # type: ignore[arg-type]
                    found = (await stream.get_final_completion()).choices[0].message
                text = found.content or ""
                calls = [(c.id, c.function.name, json.loads(c.function.arguments)) for c in found.tool_calls or ()]
            else:
                async with client.responses.stream(model="m", input="Hello") as stream:
                    response = await stream.get_final_response()
                text = response.output_text
                made = [item for item in response.output if item.type == "function_call"]
                calls = [(item.call_id, item.name, json.loads(item.arguments)) for item in made]
    assert ours.text == text == said.text
    given = [json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments for call in ours.calls]
    assert [(call.id, call.name, each) for call, each in zip(ours.calls, given, strict=True)] == calls
