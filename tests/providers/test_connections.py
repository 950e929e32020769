"""Connections: kept while a model is entered, closed afterwards, and of one event loop each."""

import asyncio
import threading

import openai
import pytest

from tests.providers.conftest import asked
from tests.providers.dialects import CHAT
from tests.providers.loopback import loopback
from tests.support import fail_after
from toolwright.errors import MissingRequirement, ToolwrightError
from toolwright.providers import Price
from toolwright.tools.model import ModelAnswer, ModelRequest, Usage, UserMessage

HELLO = ModelRequest("s1", [UserMessage("Hello")])


async def test_a_model_that_is_entered_keeps_its_connection(dialect, server):
    server.will(dialect.reply(ModelAnswer(text="Hi")))
    async with dialect.model(server) as model:
        for _ in range(3):
            await asked(model, HELLO)
            await model.complete(HELLO)
    assert len(server.asked) == 6
    assert server.connections == 1


async def test_a_model_that_is_not_entered_closes_its_connection_after_each_request(dialect, server):
    server.will(dialect.reply(ModelAnswer(text="Hi")))
    model = dialect.model(server)
    await model.complete(HELLO)
    await asked(model, HELLO)
    assert server.connections == 2


async def test_a_model_may_be_entered_more_than_once(server):
    server.will(CHAT.reply(ModelAnswer(text="Hi")))
    model = CHAT.model(server)
    async with model:
        async with model:
            await model.complete(HELLO)
        await model.complete(HELLO)
    assert server.connections == 1


def test_each_event_loop_has_connections_of_its_own():
    model = CHAT.kind("a-model", base_url="http://127.0.0.1:1/v1")
    texts = []

    async def ask():
        async with loopback() as server, fail_after(10):
            server.will(CHAT.reply(ModelAnswer(text="Hi")))
            model._base_url = server.address + "/v1"
            async with model:
                texts.append((await model.complete(HELLO)).text)

    for _ in range(2):
        asyncio.run(ask())
    thread = threading.Thread(target=lambda: asyncio.run(ask()))
    thread.start()
    thread.join()
    assert texts == ["Hi"] * 3


async def test_the_loop_turns_while_a_library_is_imported_and_a_client_made(loop_watch, dialect, server):
    server.will(dialect.reply(ModelAnswer(text="Hi")))
    assert (await dialect.model(server).complete(HELLO)).text == "Hi"


async def test_a_client_of_the_library_may_be_given(server):
    server.will(CHAT.reply(ModelAnswer(text="Hi")))
    async with openai.AsyncOpenAI(
        api_key="their-own-key", base_url=server.address + "/v1", max_retries=0, default_headers={"x-team": "blue"}
    ) as client:
        model = CHAT.kind("a-model", client=client)
        assert (await model.complete(HELLO)).text == "Hi"
        assert (await model.complete(HELLO)).text == "Hi"
    assert server.asked[0].headers["x-team"] == "blue"
    assert server.asked[0].headers["authorization"] == "Bearer their-own-key"
    assert server.connections == 1


async def test_a_library_that_is_missing_is_told_at_the_first_request_at_the_latest(dialect, server, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, dialect.kind.extra, None)
    with pytest.raises(MissingRequirement, match=rf"pip install 'toolwright\[{dialect.kind.extra}\]'"):
        await dialect.model(server).complete(HELLO)


def test_a_price_counts_cached_tokens_apart():
    usage = Usage(input=1_000_000, output=100_000, cache_read=600_000, cache_write=200_000)
    assert Price(input=3, output=15).applied(usage).cost == pytest.approx(4.5)
    assert Price(input=3, output=15, cached=0.3, cache_write=3.75).applied(usage).cost == pytest.approx(
        0.6 + 0.18 + 0.75 + 1.5
    )


@pytest.mark.parametrize("given", [-1, float("nan"), float("inf"), "3", True, None])
def test_a_price_that_is_no_number_is_refused(given):
    with pytest.raises(ToolwrightError, match=r"Price input=.* is not usable; give a number of at least 0"):
        Price(input=given, output=1)
