"""What programs get of a call beside what the model reads: data, metadata, the scope, and plain JSON of every value."""

import asyncio
import json
from datetime import datetime
from typing import Any

import msgspec
import pytest

from tests.support import fail_after
from toolwright import (
    Failure,
    Hints,
    Image,
    Policy,
    RetryPolicy,
    Rule,
    Runtime,
    Success,
    Tool,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolDefinitionError,
    ToolError,
    ToolwrightError,
    tool,
    tree,
)
from toolwright.events import CallFinished
from toolwright.wire import anthropic, mcp, openai_chat, openai_responses, plain

SECRET = "correct horse battery staple"


@pytest.mark.promise("OUT-10")
@pytest.mark.parametrize("raises", [True, False])
async def test_a_failure_carries_data_that_the_model_does_not_read(tmp_path, raises):
    @tool
    async def pay(amount: int) -> Any:
        data = {"limit": 100, "asked": amount, "accounts": ("a", "b"), "key": SECRET}
        if raises:
            raise ToolError("Too much.", code="limit", data=data)
        return Failure(message="Too much.", code="limit", data=data)

    for again in (False, True):
        async with Runtime.open(tmp_path / "s.db", tools=[pay]) as runtime:
            session = runtime.session("s")
            await session.secrets.set("k", SECRET)
            calls = [ToolCall(id="c1", name="pay", arguments={"amount": 500})]
            (outcome,) = await session.run_batch(calls)
        assert outcome.replayed is again
        told = {"limit": 100, "asked": 500, "accounts": ["a", "b"], "key": "[secret:k]"}
        assert outcome.failure.data == told
        assert outcome.to_json()["failure"]["data"] == told
        assert plain.read_results(plain.write_results([outcome]))[0].failure.data == told
        for shape in (openai_chat, openai_responses, anthropic, mcp):
            assert "accounts" not in json.dumps(shape.write_results([outcome]))


@pytest.mark.promise("OUT-10")
async def test_metadata_of_a_success_is_kept_and_the_model_does_not_read_it(tmp_path):
    @tool
    async def query(ctx: ToolContext) -> Success:
        return Success([1, 2], metadata={"columns": ("n",), "key": SECRET})

    for again in (False, True):
        async with Runtime.open(tmp_path / "s.db", tools=[query]) as runtime:
            session = runtime.session("s")
            await session.secrets.set("k", SECRET)
            (outcome,) = await session.run_batch([ToolCall(id="c1", name="query")])
        assert (outcome.replayed, outcome.value) == (again, [1, 2])
        assert outcome.metadata == outcome.to_json()["metadata"] == {"columns": ["n"], "key": "[secret:k]"}
        assert plain.read_results(plain.write_results([outcome]))[0].metadata == outcome.metadata
        for shape in (openai_chat, openai_responses, anthropic, mcp):
            assert "columns" not in json.dumps(shape.write_results([outcome]))


@pytest.mark.promise("OUT-10", "RUN-08")
async def test_data_and_metadata_cross_from_a_process_of_its_own():
    @tool(isolation="process")
    def pay(amount: int) -> Success:
        if amount > 100:
            raise ToolError("Too much.", data={"limit": 100})
        return Success("paid", metadata={"amount": amount})

    async with Runtime.open(tools=[pay]) as runtime:
        session = runtime.session("s")
        assert (await session.call("pay", amount=5)).metadata == {"amount": 5}
        assert (await session.call("pay", amount=500)).failure.data == {"limit": 100}


@pytest.mark.promise("OUT-10")
async def test_data_is_bounded_and_has_a_json_form():
    @tool(readonly=True)
    async def give(what: str) -> Any:
        if what == "long":
            return Success(1, metadata={"text": "x" * 70_000})
        return Success(1, metadata={"text": object()} if what == "odd" else ["no", "dict"])  # type: ignore[arg-type]

    async with Runtime.open(tools=[give]) as runtime:
        session = runtime.session("s")
        assert (await session.call("give", what="long")).metadata == {"omitted_bytes": 70_011}
        for what in ("odd", "list"):
            outcome = await session.call("give", what=what)
            assert outcome.failure.code == "unserialisable_result"
    assert Failure(message="m", data="y" * 70_000).data == {"omitted_bytes": 70_002}
    with pytest.raises(ToolwrightError, match="has no JSON form"):
        Failure(message="m", data={"a": object()})


@pytest.mark.promise("OUT-10")
async def test_failures_of_the_runtime_say_in_data_what_they_say_in_words():
    @tool(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    @tool(readonly=True)
    async def add(a: int, b: int) -> int:
        return a + b

    @tool(readonly=True, output_schema={"type": "integer"})
    async def wrong() -> str:
        return "text"

    async with Runtime.open(tools=[slow, add, wrong]) as runtime, fail_after(5):
        calls = [
            ToolCall(name="slow"),
            ToolCall(name="add", arguments={"a": "x"}),
            ToolCall(name="add", arguments={}, kind="mcp"),
            ToolCall(name="ad"),
            ToolCall(name="add", arguments={"a": "x" * 2_000_000}),
            ToolCall(name="wrong"),
            ToolCall(name="add", cut_off="length"),
        ]
        outcomes = await runtime.session("s").run_batch(calls, max_argument_bytes=1_000_000)
    timeout, misfit, kind, unknown, long, output, cut = [outcome.failure.data for outcome in outcomes]
    assert timeout == {"seconds": 0.01}
    assert [(one["path"], one["given"]) for one in misfit["problems"]] == [("$.a", '"x"'), ("$.b", "nothing")]
    assert misfit["count"] == 2
    assert kind == {"expected": "function", "got": "mcp"}
    assert unknown == {"name": "ad", "nearest": ["add"]}
    assert long["limit"] == 1_000_000  # too long to be encoded, so its length is not known
    assert output["problems"][0]["expected"] == "an integer"
    assert cut == {"reason": "length"}


@pytest.mark.promise("RUN-10", "OUT-10")
async def test_the_end_of_a_call_tells_its_arguments_and_its_outcome():
    @tool(secret="token")
    async def send(to: str, token: str) -> Success:
        return Success({"sent": to}, images=[Image.from_bytes(b"pixels")], metadata={"id": 7})

    async with Runtime.open(tools=[send]) as runtime, fail_after(5):
        session = runtime.session("s")
        with runtime.subscribe() as events:
            calls = [ToolCall(id="c1", name="send", arguments={"to": "Ada", "token": "hunter22"}, source="user")]
            (outcome,) = await session.run_batch(calls, scope="message 5")
            ended = [event async for event in _until_finished(events)][-1]
        (record,) = runtime.log.query(scope="message 5")
        assert runtime.log.query(scope="other") == []
    assert isinstance(ended, CallFinished)
    assert ended.outcome == outcome
    assert ended.arguments == {"to": "Ada", "token": "[secret]"}
    told = json.loads(json.dumps(ended.to_json()))
    assert (told["scope"], told["source"], told["status"]) == ("message 5", "user", "success")
    assert told["arguments"] == {"to": "Ada", "token": "[secret]"}
    assert told["outcome"]["value"] == {"sent": "Ada"}
    assert told["outcome"]["metadata"] == {"id": 7}
    assert told["outcome"]["images"] == [{"media_type": "image/png", "base64_characters": 8}]
    assert record.to_json()["outcome"]["value"] == {"sent": "Ada"}
    assert datetime.fromisoformat(record.to_json()["finished_at"]).timestamp() == pytest.approx(record.finished_at)


async def _until_finished(events: Any) -> Any:
    async for event in events:
        yield event
        if event.kind == "call.finished":
            return


@pytest.mark.promise("RUN-10")
async def test_the_end_of_a_call_is_told_within_a_bound():
    @tool(readonly=True)
    async def echo(text: str) -> Success:
        return Success(text * 2, raw_output=text)

    async with Runtime.open(tools=[echo]) as runtime, fail_after(5):
        with runtime.subscribe() as events:
            await runtime.session("s").call("echo", text="x" * 100_000)
            ended = [event async for event in _until_finished(events)][-1]
    told = ended.to_json()
    assert len(json.dumps(told)) < 70_000
    assert told["arguments"] == {"omitted_bytes": 100_011}
    assert told["outcome"]["value"] == {"omitted_bytes": 200_002}
    assert "omitted" in told["outcome"]["text"]


@pytest.mark.promise("RUN-09", "RUN-10")
async def test_every_record_and_event_of_a_batch_names_its_scope():
    @tool
    async def outer(ctx: ToolContext) -> int:
        await ctx.progress(1)
        await ctx.output("stdout", "text")
        return (await ctx.call("inner")).value

    @tool
    async def inner() -> int:
        return 1

    async with Runtime.open(tools=[outer, inner]) as runtime, fail_after(5):
        with runtime.subscribe() as events:
            await runtime.session("s").run_batch([ToolCall(name="outer")], scope="message 5")
            seen = []
            while (event := events.take()) is not None:
                seen.append(event)
        assert [record.scope for record in runtime.log] == ["message 5"] * 2
    assert {"batch.started", "batch.finished", "call.progress", "call.output"} <= {event.kind for event in seen}
    assert {event.scope for event in seen} == {event.to_json()["scope"] for event in seen} == {"message 5"}


@pytest.mark.promise("SES-01")
async def test_a_model_is_told_which_call_asks():
    asked = []

    class Model:
        async def complete(self, request: Any) -> str:
            asked.append(request)
            return "yes"

    @tool
    async def think(ctx: ToolContext) -> Any:
        return await ctx.complete("thought", [{"role": "user", "content": "Well?"}])

    async with Runtime.open(tools=[think], model=Model()) as runtime:
        await runtime.session("s").run_batch([ToolCall(id="c1", name="think")], scope="message 5")
    assert [(one.call_id, one.tool, one.scope) for one in asked] == [("c1", "think", "message 5")]


async def test_what_a_user_gets_goes_to_json_with_instants_as_text(tmp_path):
    @tool(approval="required")
    async def wipe(path: str) -> str:
        return "wiped"

    @tool(readonly=True)
    async def look() -> str:
        return "seen"

    def is_plain(told: Any) -> bool:
        return json.loads(json.dumps(told)) == told

    async with Runtime.open(tmp_path / "s.db", tools=[wipe, look]) as runtime, fail_after(10):
        session = runtime.session("s")
        batch = session.start_batch([ToolCall(id="c1", name="wipe", arguments={"path": "/a"})])
        await batch.quiet()
        (approval,) = await runtime.approvals()
        told = approval.to_json()
        assert (told["tool"], told["arguments"]) == ("wipe", {"path": "/a"})
        assert datetime.fromisoformat(told["requested_at"]).timestamp() == pytest.approx(approval.requested_at)
        resolved = await runtime.approve(approval.key)
        assert datetime.fromisoformat(resolved.to_json()["at"]).timestamp() == pytest.approx(resolved.at)
        await batch
        message = await session.messages.append({"at": 5}, sender="user")
        assert message.to_json()["content"] == {"at": 5}  # what others wrote stays as it is
        await session.files.write("/a.txt", "text")
        await session.kv.set("k", 1)
        info = await session.attachments.put(b"x", name="x", media_type="text/plain")
        resource = await session.resources.upsert("r", kind="k", name="n", status="up")
        values = [told, resolved.to_json(), message.to_json(), info.to_json(), resource.to_json()]
        values += [one.to_json() for one in await session.files.list("/")]
        values += [one.to_json() for one in await session.kv.list()]
        values += [one.to_json() for one in await runtime.sessions()]
        values += [one.to_json() for one in runtime.log]
        values.append(runtime.log.statistics().to_json())
        assert [value for value in values if not is_plain(value)] == []
        for value in values:
            for name in value.keys() & {"at", "created_at", "updated_at", "requested_at", "queued_at"}:
                assert value[name].endswith("Z")


@pytest.mark.promise("TOOL-05")
def test_a_definition_comes_back_from_its_json_form():
    made = Tool.from_schema(
        name="files.write",
        description="Write.",
        input_schema={"type": "object", "properties": {"path": {"type": "string"}}},
        handler=lambda args: None,
        idempotent=True,
        destructive=True,
        capabilities={"writes_files", "network"},
        timeout=5,
        retry=RetryPolicy(attempts=3),
        writes=tree("path"),
    ).definition
    told = json.loads(json.dumps(made.to_json()))
    assert ToolDefinition.from_json(told) == made
    assert isinstance(made.hints, Hints)


def test_code_does_not_come_back_and_what_is_no_definition_is_refused():
    @tool(idempotent=True, on_crash=lambda *given: None, retry=RetryPolicy(attempts=2, on=(OSError,)))
    async def ask() -> None: ...

    told = ask.definition.to_json()
    assert (told["on_crash"], told["retry"]["on"]) == ("probe", ["OSError"])
    back = ToolDefinition.from_json(json.loads(json.dumps(told)))
    assert (back.on_crash, back.retry.on, back.retry.attempts) == ("fail", (), 2)
    for wrong in ({}, {**told, "capabilites": []}, {**told, "hints": {"readonly": "yes"}}, {**told, "retry": {"n": 1}}):
        with pytest.raises(ToolDefinitionError, match=r"is not the JSON form|unknown|needs"):
            ToolDefinition.from_json(wrong)


async def test_a_call_goes_to_json_and_back_into_a_batch():
    @tool(readonly=True)
    async def look(at: str) -> str:
        return at

    call = ToolCall(id="c1", name="look", arguments={"at": "x"}, meta={"openai-chat": {"signature": "s"}})
    async with Runtime.open(tools=[look], policy=Policy(rules=[Rule("allow", "look")])) as runtime:
        (outcome,) = await runtime.session("s").run_batch([msgspec.json.decode(msgspec.json.encode(call.to_json()))])
    assert outcome.value == "x"
