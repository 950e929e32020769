"""A text for the model beside the value: the model reads the one, programs have the other, now and after a replay."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.calls.running import run_one
from toolwright import Policy, Runtime, Success, Tool, ToolCall, ToolContext, ToolOutcome, ToolRegistry, tool
from toolwright.wire import anthropic, mcp, openai_chat, openai_responses, plain

pytestmark = pytest.mark.promise("OUT-13")

ROWS = [{"n": number} for number in range(3)]


@tool
async def rows() -> Success:
    """Give rows."""
    return Success(ROWS, text="three rows")


def giving(result: Any, **options: Any) -> Tool:
    return Tool.from_schema(name="give", handler=lambda args: result, **options)


async def test_the_model_reads_the_text_and_programs_have_the_value(open_session):
    outcome = await run_one(await open_session(rows), "rows")
    assert (outcome.status, outcome.value, outcome.text, outcome.given_text) == (
        "success",
        ROWS,
        "three rows",
        "three rows",
    )
    assert (outcome.to_json()["value"], outcome.to_json()["text"]) == (ROWS, "three rows")


async def test_both_are_the_same_after_a_replay_in_another_process(file):
    for replayed in (False, True):
        async with Runtime.open(file, tools=[rows]) as runtime:
            (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="rows")])
            assert (outcome.value, outcome.text, outcome.replayed) == (ROWS, "three rows", replayed)


@tool(isolation="process")
def rows_elsewhere() -> Success:
    """Give rows from a child process."""
    return Success([1], text="one \ud800 row")


async def test_the_text_comes_from_a_child_process(open_session):
    outcome = await run_one(await open_session(rows_elsewhere), "rows_elsewhere")
    assert (outcome.value, outcome.text) == ([1], "one \\ud800 row")


async def test_a_long_text_is_cut_and_the_whole_is_in_a_file(open_session):
    text = "\n".join(f"line {number}" for number in range(500))
    session = await open_session(giving(Success({"n": 1}, text=text)), policy=Policy(max_lines=10))
    outcome = await run_one(session, "give")
    assert outcome.value == {"n": 1}
    assert outcome.text.startswith("line 0\n")
    assert len(outcome.text.splitlines()) <= 10
    assert f"the whole is in {outcome.spilled_to}" in outcome.text
    assert await session.files.read(outcome.spilled_to) == text


async def test_a_long_value_with_a_short_text_needs_no_cut(open_session):
    session = await open_session(giving(Success(list(range(500)), text="500 numbers")), policy=Policy(max_bytes=256))
    outcome = await run_one(session, "give")
    assert (len(outcome.value), outcome.text, outcome.spilled_to) == (500, "500 numbers", None)


async def test_a_text_beyond_the_limit_of_outputs_fails_the_call(open_session):
    session = await open_session(giving(Success(1, text="x" * 2000)), policy=Policy(max_output_bytes=1000))
    outcome = await run_one(session, "give")
    assert outcome.failure.code == "output_too_long"


async def test_secrets_are_taken_out_of_the_text(open_runtime, place):
    runtime = await open_runtime(place, giving(Success({"n": 1}, text="the key is hunter2hunter2")))
    session = runtime.session("s")
    await session.secrets.set("key", "hunter2hunter2")
    outcome = await run_one(session, "give")
    assert outcome.text == "the key is [secret:key]"
    assert "hunter2hunter2" not in repr(outcome)


async def test_the_value_is_held_against_the_output_schema_and_the_text_is_not(open_session):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    session = await open_session(giving(Success({"n": 1}, text="one"), output_schema=schema))
    assert (await run_one(session, "give")).text == "one"
    session = await open_session(giving(Success({"n": "x"}, text="one"), output_schema=schema))
    outcome = await run_one(session, "give")
    assert outcome.failure.code == "invalid_output"
    assert "one" not in json.loads(outcome.text)["error"].split()


async def test_a_text_that_is_none_is_refused(open_session):
    outcome = await run_one(await open_session(giving(Success(1, text=2))), "give")  # type: ignore[arg-type]
    assert outcome.failure.code == "unserialisable_result"
    assert "has a int as its text; use a string" in outcome.failure.detail


async def test_a_person_who_changed_the_arguments_is_noted_beside_the_text(open_runtime):
    @tool(approval="required")
    async def act(n: int) -> Success:
        """Act."""
        return Success({"n": n}, text=f"did {n}")

    runtime = await open_runtime(act)
    batch = runtime.session("s").start_batch([ToolCall(name="act", arguments={"n": 1})])
    await batch.quiet()
    (asked,) = await runtime.approvals()
    await runtime.approve(asked.key, arguments={"n": 2})
    (outcome,) = await batch
    assert json.loads(outcome.text)["result"] == "did 2"
    assert outcome.value == {"n": 2}


async def test_a_tool_that_gives_on_the_outcome_of_another_call_gives_on_its_text(open_session):
    @tool
    async def outer(ctx: ToolContext) -> ToolOutcome:
        """Call another tool."""
        return await ctx.call("rows")

    outcome = await run_one(await open_session(rows, outer), "outer")
    assert (outcome.tool, outcome.value, outcome.text) == ("outer", ROWS, "three rows")


async def test_a_projector_is_given_the_text(open_session):
    session = await open_session(rows, projector=lambda outcome: f"<{outcome.full_text()}>")
    assert (await run_one(session, "rows")).text == "<three rows>"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda outcome: None, "three rows"),
        (lambda outcome: replace(outcome, metadata={"a": 1}), "three rows"),
        (lambda outcome: replace(outcome, payload=b'"withheld"'), "withheld"),
        (lambda outcome: replace(outcome, given_text="other"), "other"),
        (lambda outcome: replace(outcome, payload=b"1", given_text="one"), "one"),
    ],
    ids=["nothing", "something else", "the value", "the text", "both"],
)
async def test_an_after_hook_that_changes_the_value_takes_the_text_away(open_session, change, text):
    session = await open_session(rows, after=[lambda call, outcome: change(outcome)])
    assert (await run_one(session, "rows")).text == text


async def test_an_after_hook_gives_a_text_to_a_plain_one(open_session):
    session = await open_session(
        giving("plain"),
        after=[lambda call, outcome: replace(outcome, given_text="x" * 1000)],
        policy=Policy(max_bytes=256),
    )
    outcome = await run_one(session, "give")
    assert (outcome.value, outcome.text[:1], len(outcome.text) <= 256) == ("plain", "x", True)


async def test_providers_get_the_text_and_mcp_gets_both(open_session):
    outcome = await run_one(await open_session(rows), "rows")
    assert openai_chat.write_results([outcome])[0]["content"] == "three rows"
    assert openai_responses.write_results([outcome])[0]["output"] == "three rows"
    assert "three rows" in json.dumps(anthropic.write_results([outcome]))
    result = mcp.write_result(outcome, version="2026-07-28")
    assert result == {
        "content": [{"type": "text", "text": "three rows"}],
        "structuredContent": ROWS,
        "isError": False,
    }
    read = mcp.read_result(result, call_id="c1", tool="rows")
    assert (read.value, read.text) == (ROWS, "three rows")
    (read,) = plain.read_results(plain.write_results([outcome]))
    assert (read.value, read.text, read.given_text) == (ROWS, "three rows", "three rows")


async def test_a_tool_that_gives_on_the_result_of_an_mcp_server_gives_on_its_text(open_session):
    result = {"content": [{"type": "text", "text": "It is sunny."}], "structuredContent": {"sky": "clear"}}
    registry = ToolRegistry([giving(mcp.read_result(result, call_id="x", tool="y"))])
    outcome = await run_one(await open_session(*registry.snapshot().values()), "give")
    assert (outcome.value, outcome.text) == ({"sky": "clear"}, "It is sunny.")
