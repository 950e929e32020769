"""The refusals of providers, told apart, and without keys."""

import email.utils
import time
import traceback

import httpx2
import pytest
from openai import AsyncOpenAI

from tests.providers.conftest import asked
from tests.providers.dialects import CHAT, MESSAGES, RESPONSES
from tests.providers.loopback import Reply, whole
from toolwright.providers.provider_errors import seconds_to_wait
from toolwright.tools.model import ModelAnswer, ModelError, ModelRequest, UserMessage

HELLO = ModelRequest("s1", [UserMessage("Hello")])
KEY = "sk-proj-very-secret-0123456789"


def openai_error(message, code=None, type="invalid_request_error"):
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


def anthropic_error(type, message):
    return {"type": "error", "error": {"type": type, "message": message}, "request_id": "req_1"}


REFUSALS = [
    (CHAT, 429, openai_error("Rate limit reached", "rate_limit_exceeded", "tokens"), "rate_limited", True),
    (
        CHAT,
        429,
        openai_error("You exceeded your current quota", "insufficient_quota", "insufficient_quota"),
        "rate_limited",
        False,
    ),
    (
        CHAT,
        400,
        openai_error("This model's maximum context length is 8192 tokens", "context_length_exceeded"),
        "context_overflow",
        False,
    ),
    (
        CHAT,
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size",
                "type": "exceed_context_size_error",
            }
        },
        "context_overflow",
        False,
    ),
    (
        CHAT,
        400,
        {"object": "error", "message": "This model's maximum context length is 4096 tokens.", "code": 400},
        "context_overflow",
        False,
    ),
    (CHAT, 400, openai_error("The response was filtered", "content_filter", None), "content_refused", False),
    (CHAT, 401, openai_error(f"Incorrect API key provided: {KEY}", "invalid_api_key"), "unauthorised", False),
    (CHAT, 403, openai_error("Country not supported"), "unauthorised", False),
    (CHAT, 404, openai_error("The model `a-model` does not exist", "model_not_found"), "bad_request", False),
    (CHAT, 400, openai_error("Unknown parameter"), "bad_request", False),
    (CHAT, 422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "bad_request", False),
    (CHAT, 500, "Internal Server Error", "unavailable", True),
    (CHAT, 502, "<html>Bad gateway</html>", "unavailable", True),
    (CHAT, 503, {"error": "The model is loading"}, "overloaded", True),
    (CHAT, 504, "", "timeout", True),
    (CHAT, 408, "", "timeout", True),
    (CHAT, 409, "", "unavailable", True),
    (
        RESPONSES,
        400,
        openai_error("Your input exceeds the context window of this model", "context_length_exceeded"),
        "context_overflow",
        False,
    ),
    (
        RESPONSES,
        400,
        openai_error("Invalid prompt: your prompt was flagged as violating our usage policy", "invalid_prompt"),
        "content_refused",
        False,
    ),
    (RESPONSES, 429, openai_error("slower", "rate_limit_exceeded"), "rate_limited", True),
    (MESSAGES, 529, anthropic_error("overloaded_error", "Overloaded"), "overloaded", True),
    (MESSAGES, 429, anthropic_error("rate_limit_error", "Number of request tokens"), "rate_limited", True),
    (
        MESSAGES,
        400,
        anthropic_error("invalid_request_error", "prompt is too long: 213000 tokens > 200000 maximum"),
        "context_overflow",
        False,
    ),
    (
        MESSAGES,
        413,
        anthropic_error("request_too_large", "Request exceeds the maximum size"),
        "context_overflow",
        False,
    ),
    (
        MESSAGES,
        400,
        anthropic_error("invalid_request_error", "Output blocked by content filtering policy"),
        "content_refused",
        False,
    ),
    (MESSAGES, 400, anthropic_error("invalid_request_error", "Your credit balance is too low"), "rate_limited", False),
    (MESSAGES, 401, anthropic_error("authentication_error", "invalid x-api-key"), "unauthorised", False),
    (MESSAGES, 500, anthropic_error("api_error", "Internal server error"), "unavailable", True),
]


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize(("dialect", "status", "body", "code", "retry"), REFUSALS, ids=lambda part: str(part)[:40])
async def test_refusals_are_told_apart(dialect, status, body, code, retry, open_model_of, server):
    reply = whole(body, status) if not isinstance(body, str) else Reply([body.encode()], status, kind="text/html")
    server.will(reply)
    model = await open_model_of(dialect, api_key=KEY)
    for asking in (asked(model, HELLO), model.complete(HELLO)):
        with pytest.raises(ModelError) as told:
            await asking
        assert (told.value.code, told.value.retry) == (code, retry), told.value
        assert f"HTTP {status}" in str(told.value)
        assert KEY not in str(told.value)
    assert len(server.asked) == 2  # nothing was retried here


@pytest.mark.promise("TURN-02")
async def test_the_time_that_a_provider_asks_for_is_told(model, server):
    for headers, seconds in (({"retry_after": "12"}, 12), ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5)):
        server.will(whole({"error": {"message": "slower"}}, 429, **headers))
        with pytest.raises(ModelError) as told:
            await model.complete(HELLO)
        assert told.value.after == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e300"}, 86_400),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after-ms": "x", "retry-after": "3"}, 3),
    ],
)
def test_a_time_is_a_number_or_a_date_within_a_day(headers, seconds):
    assert seconds_to_wait(headers) == seconds


def test_a_date_is_a_time_from_now():
    found = seconds_to_wait({"retry-after": email.utils.formatdate(time.time() + 60, usegmt=True)})
    assert found is not None
    assert 50 < found <= 60


@pytest.mark.promise("TURN-02")
async def test_a_key_is_in_no_error_no_repr_and_no_traceback(dialect, open_model_of, server):
    model = await open_model_of(dialect, api_key=KEY)
    server.will(whole({"error": {"message": f"The key {KEY}, or Bearer {KEY}, is not valid" + "x" * 3_000}}, 401))
    with pytest.raises(ModelError) as told:
        await model.complete(HELLO)
    shown = "".join(traceback.format_exception(told.value)) + repr(told.value) + repr(model) + repr(vars(model))
    assert KEY not in shown
    assert told.value.__context__ is None
    assert len(str(told.value)) < 1_000
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


async def test_the_key_of_the_environment_is_not_sent_to_another_server(dialect, server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    server.will(dialect.reply(ModelAnswer(text="x")))
    await dialect.model(server, api_key=None).complete(HELLO)
    assert KEY not in str(server.asked[0].headers)


async def test_the_address_and_the_key_of_the_environment_belong_together(dialect, server, monkeypatch):
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
        monkeypatch.setenv(f"{name}_BASE_URL", server.address + dialect.base)
    server.will(dialect.reply(ModelAnswer(text="x")))
    await dialect.kind("m").complete(HELLO)
    assert KEY in str(server.asked[0].headers)


async def test_an_endless_error_is_bounded(model, server):
    server.will(Reply((b"x" * 65_536 for _ in range(100_000)), 500, kind="text/html"))
    with pytest.raises(ModelError) as told:
        await model.complete(HELLO)
    assert told.value.code in ("unavailable", "bad_answer")


@pytest.mark.promise("TURN-02")
async def test_a_server_to_which_no_connection_is_made_is_told_apart_from_a_silent_one():
    class Unreachable(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            raise httpx2.ConnectTimeout("no answer", request=request)

    http = httpx2.AsyncClient(transport=Unreachable())
    async with AsyncOpenAI(api_key=KEY, max_retries=0, http_client=http) as client:
        with pytest.raises(ModelError, match="no connection in time") as told:
            await CHAT.kind("a-model", client=client).complete(HELLO)
    assert (told.value.code, told.value.retry) == ("unavailable", True)
