"""A server asks: a person answers in the inbox, the model answers under a budget, and nothing that was not allowed."""

import json

import pytest

from tests.mcp.client.conftest import call, raw, stdio
from tests.support import fail_after, until
from toolwright.mcp import Sampling
from toolwright.testing import FunctionModel


async def question(runtime):
    return (await until(runtime.questions))[0]


def start(runtime, name, **arguments):
    made = {"name": f"plain__{name}", "arguments": arguments, "id": "c1"}
    return runtime.session("s").start_batch([made])


@pytest.mark.promise("MCP-04")
async def test_a_question_of_a_server_waits_in_the_inbox(plain, opened):
    runtime = await opened(plain())
    batch = start(runtime, "ask", text="plane")
    asked = await question(runtime)
    assert asked.message == "The MCP server 'plain' asks: Which plane?"
    assert asked.schema["properties"]["name"]["type"] == "string"
    assert asked.call_id == "c1"
    await runtime.answer(asked.key, {"name": "LH1"}, by="ann")
    async with fail_after(20):
        [outcome] = await batch
    assert json.loads(outcome.value) == {"action": "accept", "content": {"name": "LH1", "seat": "window"}}


@pytest.mark.promise("MCP-04")
async def test_a_question_that_is_declined_is_declined_at_the_server(plain, opened):
    runtime = await opened(plain())
    batch = start(runtime, "ask", text="plane")
    await runtime.decline((await question(runtime)).key)
    async with fail_after(20):
        [outcome] = await batch
    assert json.loads(outcome.value)["action"] == "decline"


@pytest.mark.promise("MCP-04")
async def test_an_answer_with_fields_that_were_not_asked_for_is_refused(opened, folder):
    runtime = await opened(raw(folder, "asks"))
    batch = start(runtime, "effect")
    asked = await question(runtime)
    assert asked.message == "The MCP server 'plain' asks: Who[2J are you?"
    for wrong in ({"age": 3}, {"name": 3}, {"name": "a", "more": 1}):
        with pytest.raises(Exception, match="does not fit"):
            await runtime.answer(asked.key, wrong)
    await runtime.answer(asked.key, {"name": "a"})
    async with fail_after(20):
        [outcome] = await batch
    assert json.loads(outcome.value) == {"action": "accept", "content": {"name": "a"}}


@pytest.mark.promise("MCP-04")
async def test_a_question_that_is_no_form_is_refused(opened, folder):
    runtime = await opened(raw(folder, "asks_forged"))
    outcome = await call(runtime, "effect")
    assert "no text, number, switch or choice" in json.loads(outcome.value)["message"]
    assert await runtime.questions() == []


@pytest.mark.promise("MCP-04")
async def test_a_server_asks_no_more_than_a_person_can_answer(opened, folder):
    runtime = await opened(raw(folder, "asks_often"))
    batch = start(runtime, "effect")
    async with fail_after(20):
        [outcome] = await batch
    assert outcome.value == "done"


@pytest.mark.promise("MCP-04")
async def test_a_person_is_sent_to_web_pages_only(opened, folder):
    runtime = await opened(raw(folder, "asks_script"))
    outcome = await call(runtime, "effect")
    assert "http or https address only" in json.loads(outcome.value)["message"]
    assert await runtime.questions() == []


@pytest.mark.promise("MCP-04")
async def test_a_server_that_may_not_ask_is_refused(opened, folder):
    runtime = await opened(raw(folder, "asks", elicitation=False))
    outcome = await call(runtime, "effect")
    assert "not supported" in json.loads(outcome.value)["message"]


@pytest.mark.promise("MCP-04")
async def test_a_question_that_could_be_of_several_calls_is_refused(opened, folder, caplog):
    runtime = await opened(
        stdio(folder, protocol="2025-11-25", tools={"ask": {"parallel": True}, "wait": {"parallel": True}})
    )
    waiting = runtime.session("other").start_batch([{"name": "plain__wait", "arguments": {}}])
    await until(lambda: (folder / "started").exists())
    outcome = await call(runtime, "ask", text="plane")
    assert not outcome.ok or "accept" not in outcome.text
    assert "one_at_a_time=True" in caplog.text
    waiting.cancel("enough")
    await waiting


@pytest.mark.promise("MCP-04")
async def test_the_model_is_not_for_servers_unless_the_owner_says_so(opened, folder):
    runtime = await opened(raw(folder, "samples"), model=FunctionModel(lambda request: "hello"))
    outcome = await call(runtime, "effect")
    assert all("not supported" in said for said in json.loads(outcome.value))


@pytest.mark.promise("MCP-04")
async def test_the_model_answers_a_server_within_its_budget(opened, folder):
    asked = []

    def answer(request):
        asked.append(request.options)
        return f"hello {len(asked)}"

    runtime = await opened(
        raw(folder, "samples", sampling=Sampling(requests=2, max_tokens=50)), model=FunctionModel(answer)
    )
    outcome = await call(runtime, "effect")
    first, second, third = json.loads(outcome.value)
    assert (first, second) == ("hello 1", "hello 2")
    assert "all that it may" in third
    assert [options["max_tokens"] for options in asked] == [50, 50]


@pytest.mark.promise("MCP-04")
async def test_a_question_outlives_the_runtime_that_asked_it(opened, folder, file):
    first = await opened(stdio(folder), store=file)
    start(first, "ask", text="plane")
    asked = await question(first)
    await first.close()

    second = await opened(stdio(folder), store=file, recover=True)
    [again] = await second.questions()
    assert again.key == asked.key
    await second.answer(again.key, {"name": "LH1"})
    batch = start(second, "ask", text="plane")
    async with fail_after(20):
        [outcome] = await batch
    assert json.loads(outcome.value)["content"]["name"] == "LH1"
    # Asked for once and answered once: neither request was sent twice.
    assert (folder / "effects").read_text() == "asked plane\nanswered plane\n"
