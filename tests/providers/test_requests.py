"""The request of each provider: tools, choices, schemas, images, caching, and the messages of a tool."""

from typing import Any

import pytest

from tests.providers.conftest import asked
from tests.providers.dialects import CHAT, MESSAGES, RESPONSES
from toolwright import Image, ToolDefinition
from toolwright.errors import ToolwrightError
from toolwright.tools.model import ModelAnswer, ModelRequest, UserMessage


def tool_named(name: str, kind: str = "function") -> ToolDefinition:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return ToolDefinition(name=name, id=name, description=f"Tells {name}.", input_schema=schema, kind=kind)


TOOLS = (tool_named("weather"), tool_named("news.of/today"), tool_named("alarm"))
PIXEL = Image("iVBORw0KGgo=", "image/png")
ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.fixture
async def body_of(open_model_of, server):
    """The body that is sent for a request; it is checked by the types of the provider's library."""

    async def body_of(dialect, request=None, /, options=None, **fields):
        model = await open_model_of(dialect, **(options or {}))
        server.will(dialect.reply(ModelAnswer(text="x")))
        await asked(model, request or ModelRequest("s1", [UserMessage("Hello")], **fields))
        dialect.check(server.asked[-1].body)
        return server.asked[-1].body

    return body_of


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize(
    ("dialect", "choice", "written"),
    [
        (CHAT, "auto", "auto"),
        (CHAT, "required", "required"),
        (CHAT, "none", "none"),
        (CHAT, "weather", {"type": "function", "function": {"name": "weather"}}),
        (RESPONSES, "auto", "auto"),
        (RESPONSES, "required", "required"),
        (RESPONSES, "none", "none"),
        (RESPONSES, "weather", {"type": "function", "name": "weather"}),
        (MESSAGES, "auto", {"type": "auto"}),
        (MESSAGES, "required", {"type": "any"}),
        (MESSAGES, "none", {"type": "none"}),
        (MESSAGES, "weather", {"type": "tool", "name": "weather"}),
    ],
)
async def test_the_choice_of_a_tool_is_written_as_each_provider_takes_it(dialect, choice, written, body_of):
    assert (await body_of(dialect, tools=TOOLS, tool_choice=choice))["tool_choice"] == written


@pytest.mark.promise("TURN-02")
async def test_parallel_calls_are_on_or_off_or_left_to_the_provider(body_of):
    for dialect in (CHAT, RESPONSES):
        assert (await body_of(dialect, tools=TOOLS, parallel=False))["parallel_tool_calls"] is False
        assert (await body_of(dialect, tools=TOOLS, parallel=True))["parallel_tool_calls"] is True
        assert "parallel_tool_calls" not in await body_of(dialect, tools=TOOLS)
        assert "parallel_tool_calls" not in await body_of(dialect, parallel=True)
    assert (await body_of(MESSAGES, tools=TOOLS, parallel=False))["tool_choice"] == {
        "type": "auto",
        "disable_parallel_tool_use": True,
    }
    assert "tool_choice" not in await body_of(MESSAGES, parallel=False)


@pytest.mark.promise("TURN-02")
async def test_tools_stand_in_one_order_however_they_are_given(body_of, dialect):
    one = await body_of(dialect, tools=TOOLS)
    other = await body_of(dialect, tools=TOOLS[::-1])
    assert one["tools"] == other["tools"]
    names = [tool.get("name") or tool["function"]["name"] for tool in one["tools"]]
    assert names == sorted(names)
    assert names[0] == "alarm"
    assert names[1].startswith("news_of_today__")


@pytest.mark.promise("TURN-02")
async def test_the_schema_of_an_answer_is_written_as_each_provider_takes_it(body_of):
    form = {"name": "answer", "schema": ANSWER, "strict": True}
    assert (await body_of(CHAT, answer_schema=ANSWER))["response_format"] == {
        "type": "json_schema",
        "json_schema": form,
    }
    settings = {"settings": {"text": {"verbosity": "low"}}}
    assert (await body_of(RESPONSES, options=settings, answer_schema=ANSWER))["text"] == {
        "verbosity": "low",
        "format": {"type": "json_schema", **form},
    }
    assert (await body_of(MESSAGES, answer_schema=ANSWER))["output_config"] == {
        "format": {"type": "json_schema", "schema": ANSWER}
    }
    loose = {**ANSWER, "properties": {**ANSWER["properties"], "note": {"type": "string"}}}
    assert (await body_of(CHAT, answer_schema=loose))["response_format"]["json_schema"]["strict"] is False


@pytest.mark.parametrize(
    ("options", "schema"), [({"structured": False}, ANSWER), ({}, {"type": "array", "items": {"type": "integer"}})]
)
async def test_a_schema_that_a_server_does_not_take_is_told_in_words(body_of, dialect, options, schema):
    body = await body_of(dialect, options=options, answer_schema=schema, instructions="Be brief.")
    assert not {"response_format", "text", "output_config"} & body.keys()
    assert "must be only JSON" in str(body)
    assert "Be brief." in str(body)


@pytest.mark.promise("TURN-02")
async def test_images_go_in_beside_the_text(body_of):
    svg = Image("PHN2Zz4=", "image/svg+xml")
    request = ModelRequest("s1", [UserMessage("What is this?", (PIXEL, svg))])
    url = "data:image/png;base64,iVBORw0KGgo="
    instead = "[an image of type image/svg+xml is not shown: models see PNG, JPEG, GIF and WebP]"
    assert (await body_of(CHAT, request))["messages"][-1]["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": instead},
    ]
    assert (await body_of(RESPONSES, request))["input"][-1]["content"] == [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_text", "text": instead},
    ]
    assert (await body_of(MESSAGES, request, options={"cache": None}))["messages"][-1]["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
        {"type": "text", "text": instead},
    ]


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize(("cache", "mark"), [("5m", {"type": "ephemeral"}), ("1h", {"type": "ephemeral", "ttl": "1h"})])
async def test_anthropic_is_told_what_stays_the_same(body_of, cache, mark):
    said = [UserMessage("a"), ModelAnswer(text="b"), UserMessage("c"), ModelAnswer(text="d"), UserMessage("e")]
    request = ModelRequest("s1", said, instructions="Be brief.", tools=TOOLS)
    body = await body_of(MESSAGES, request, options={"cache": cache})
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, None, mark]
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    marked = [message["content"][-1].get("cache_control") for message in body["messages"]]
    assert marked == [None, None, mark, None, mark]
    assert "cache_control" not in str(await body_of(MESSAGES, request, options={"cache": None}))


async def test_the_most_tokens_of_an_answer(body_of):
    assert (await body_of(CHAT, max_tokens=99))["max_tokens"] == 99
    assert (await body_of(RESPONSES, max_tokens=99))["max_output_tokens"] == 99
    assert (await body_of(MESSAGES, max_tokens=99))["max_tokens"] == 99
    assert (await body_of(MESSAGES))["max_tokens"] == 16_384
    assert (await body_of(CHAT, options={"max_tokens": 7}))["max_tokens"] == 7
    assert "max_tokens" not in await body_of(CHAT)


async def test_nothing_is_kept_at_the_provider_and_reasoning_is_asked_for(body_of, open_model_of, server):
    body = await body_of(RESPONSES)
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert "include" not in await body_of(RESPONSES, options={"reasoning": False})


async def test_a_session_keeps_to_one_cache_and_its_id_is_not_told(body_of):
    one = (await body_of(RESPONSES, ModelRequest("user@example.com", [UserMessage("a")])))["prompt_cache_key"]
    again = (await body_of(RESPONSES, ModelRequest("user@example.com", [UserMessage("b")])))["prompt_cache_key"]
    other = (await body_of(RESPONSES, ModelRequest("somebody", [UserMessage("a")])))["prompt_cache_key"]
    assert one == again != other
    assert "user" not in one


async def test_settings_of_a_model_and_options_of_a_tool_are_fields_of_its_requests(body_of, dialect):
    settings = {"settings": {"temperature": 0.5, "top_p": 0.9}}
    body = await body_of(dialect, ModelRequest("s1", ["Hello"], {"temperature": 0.1}), options=settings)
    assert (body["temperature"], body["top_p"]) == (0.1, 0.9)


@pytest.mark.promise("TURN-02")
async def test_the_messages_of_a_tool_are_understood_by_every_provider(body_of, dialect):
    given = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What"}, {"type": "input_text", "text": "is it?"}]},
        {"role": "assistant", "content": "A cat."},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}],
        },
        "And now?",
    ]
    body = await body_of(dialect, ModelRequest("s1", given, {"instructions": "In English.", "max_tokens": 12}))
    text = str(body)
    assert all(each in text for each in ("Be brief.", "In English.", "What\\nis it?", "A cat.", "iVBORw0KGgo=", "And"))
    said = body.get("messages") or body["input"]
    assert [each["role"] for each in said if each["role"] != "system"][:3] == ["user", "assistant", "user"]
    assert 12 in body.values()


@pytest.mark.parametrize(
    "messages", ["Hello", {"role": "user", "content": "Hello"}, [{"role": "user", "content": "Hello"}]]
)
async def test_a_tool_may_give_a_text_or_one_message(body_of, dialect, messages):
    body = await body_of(dialect, ModelRequest("s1", messages))
    assert "Hello" in str((body.get("messages") or body["input"])[-1])


async def test_messages_that_only_one_provider_knows_go_to_it_as_they_are(body_of):
    file = {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}
    assert (await body_of(CHAT, ModelRequest("s1", [file])))["messages"] == [file]
    document = {"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": "https://a.test/b"}}]}
    body = await body_of(MESSAGES, ModelRequest("s1", [document]), options={"cache": None})
    assert body["messages"] == [document]


async def test_an_unknown_cache_time_is_refused():
    from toolwright.providers import Anthropic

    with pytest.raises(ToolwrightError, match="has cache '2h'; use '5m', '1h' or None"):
        Anthropic("m", cache="2h")


async def test_a_model_that_must_call_a_tool_does_not_think_before(body_of):
    thinking = {"settings": {"thinking": {"type": "enabled", "budget_tokens": 2_000}}}
    assert "thinking" in await body_of(MESSAGES, options=thinking, tools=TOOLS)
    assert "thinking" not in await body_of(MESSAGES, options=thinking, tools=TOOLS, tool_choice="required")
