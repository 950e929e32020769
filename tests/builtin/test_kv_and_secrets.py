"""What a model may keep in the session under names."""

import base64
import hashlib
from typing import Annotated

import pytest
from pydantic import Field

from tests.session.leaks import files_beside
from toolwright import ReplayMismatch, Tool, ToolCall, ToolContext, ToolDefinitionError, jsonx, tool
from toolwright.builtin.kv_and_secrets import kv_store, secret_store
from toolwright.builtin.todos import TODOS, write_todos
from toolwright.testing import FakeClock


async def test_values_are_set_read_listed_and_deleted(place, open_runtime):
    session = (await open_runtime(place, kv_store, clock=FakeClock(1774740600.0))).session("s")
    value = {"deep": [1, None]}
    assert (await session.call("kv_store", action="set", key="a", value=value)).value == {"action": "set", "key": "a"}
    assert (await session.call("kv_store", action="get", key="a")).value == {
        "action": "get",
        "key": "a",
        "found": True,
        "value": value,
    }
    assert await session.kv.get("a") == value
    await session.call("kv_store", action="set", key="null", value=None)
    assert (await session.call("kv_store", action="get", key="null")).value["found"] is True
    listed = (await session.call("kv_store", action="list", prefix="a")).value
    instant = "2026-03-28T23:30:00Z"
    assert listed == {
        "action": "list",
        "keys": [{"key": "a", "created_at": instant, "updated_at": instant}],
        "total": 1,
    }
    assert (await session.call("kv_store", action="list", limit=1)).value["total"] == 2
    assert [
        (await session.call("kv_store", action="delete", key="a")).value["deleted"],
        (await session.call("kv_store", action="delete", key="a")).value["deleted"],
        (await session.call("kv_store", action="get", key="a")).value["found"],
    ] == [True, False, False]


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "get"},
        {"action": "set", "key": "a"},
        {"action": "delete"},
        {"action": "burn", "key": "a"},
        {"action": "set", "key": "a\0", "value": 1},
        {"action": "set", "key": "x" * 256, "value": 1},
        {"action": "list", "limit": 0},
    ],
    ids=str,
)
async def test_a_request_that_is_not_complete_or_not_usable_is_refused(run, arguments):
    assert (await run(kv_store, **arguments)).failure.category == "invalid_arguments"


async def test_what_the_runtime_keeps_for_itself_is_neither_shown_nor_changed(place, open_runtime):
    session = (await open_runtime(place, kv_store, write_todos)).session("s")
    await session.call("write_todos", todos=[{"content": "x"}])
    for action in ("get", "set", "delete"):
        outcome = await session.call("kv_store", action=action, key=TODOS, value=1)
        assert (outcome.failure.category, outcome.failure.code) == ("permission_denied", "reserved_key")
    assert (await session.call("kv_store", action="list")).value["keys"] == []
    assert len(await session.kv.get(TODOS)) == 1


@pytest.mark.promise("SES-03")
async def test_a_secret_is_kept_and_its_value_is_never_given_back(place, open_runtime):
    runtime = await open_runtime(place, secret_store)
    session = runtime.session("s")
    seen = [
        await session.call("secret_store", action="set", name="token", value="hunter2-hunter2"),
        await session.call("secret_store", action="list"),
        await session.call("secret_store", action="get", name="token"),
        await session.call("secret_store", action="delete", name="token"),
        await session.call("secret_store", action="delete", name="token"),
    ]
    assert seen[0].value == {"action": "set", "handle": "secret:token"}
    assert [secret["handle"] for secret in seen[1].value["secrets"]] == ["secret:token"]
    assert seen[2].failure.category == "invalid_arguments"
    assert [outcome.value["deleted"] for outcome in seen[3:]] == [True, False]
    assert not any("hunter2" in str(outcome.to_json()) for outcome in seen)


@pytest.mark.parametrize(
    "arguments", [{"action": "set", "name": "a"}, {"action": "set", "value": "x"}, {"action": "delete"}], ids=str
)
async def test_a_secret_needs_a_name_and_a_value(run, arguments):
    outcome = await run(secret_store, **arguments)
    assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", "missing_argument")


@pytest.mark.parametrize("value", ["hunter2" * 10_000, ["hunter2"], {"hunter2": 1}], ids=["long", "list", "object"])
async def test_a_value_that_is_refused_is_not_told_again(run, session, value):
    """Some of it would be the secret."""
    outcome = await run(secret_store, action="set", name="a", value=value)
    code = "secret_too_long" if isinstance(value, str) else "bad_value"
    assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", code)
    assert await session.secrets.list() == []
    assert "hunter2" not in outcome.text


def set_call(value: object, **more: object) -> ToolCall:
    return ToolCall(id="c1", name="secret_store", arguments={"action": "set", "name": "k", "value": value, **more})


@pytest.mark.promise("SES-03")
async def test_a_value_that_a_model_gives_is_neither_shown_nor_written_down(file, open_runtime):
    value = 'hunter2/hunter2+"é'
    events_file = file.parent / "events.jsonl"
    runtime = await open_runtime(file, secret_store, events_file=events_file)
    session = runtime.session("s")
    events = session.subscribe()
    (outcome,) = await session.run_batch([set_call(value)])
    assert outcome.ok
    assert await session.secrets.get("k") == value
    (again,) = await session.run_batch([set_call(value)])
    assert again.replayed
    # It is told from another value all the same.
    with pytest.raises(ReplayMismatch, match=r"\$\.value") as refused:
        await session.run_batch([set_call("another value")])
    shown = str(refused.value) + repr(outcome) + "".join(repr((record, record.arguments)) for record in runtime.log)
    while (event := events.take()) is not None:
        shown += repr(event) + repr(event.to_json())
    await runtime.close()
    assert "[secret]" in shown
    for name, data in [("shown", shown.encode()), *files_beside(file)]:
        for form in (b"hunter2", b"another value", base64.b64encode(value.encode())):
            assert form not in data, name
    assert events_file.exists()


@pytest.mark.promise("SES-03")
async def test_a_refusal_of_other_arguments_shows_no_secret_of_the_earlier_ones(place, open_runtime):
    @tool
    async def send(text: str) -> str:
        return "sent"

    session = (await open_runtime(place, secret_store, send)).session("s")
    await session.run_batch([set_call("hunter2/hunter2")])
    with pytest.raises(ReplayMismatch) as refused:
        await session.run_batch([set_call("another value")])
    await session.run_batch([ToolCall(id="c2", name="send", arguments={"text": "hunter2/hunter2"})])
    with pytest.raises(ReplayMismatch) as refused_too:
        await session.run_batch([ToolCall(id="c2", name="send", arguments={"text": "hello"})])
    for shown in (str(refused.value), str(refused_too.value)):
        assert "hunter2" not in shown
        assert "another value" not in shown


@pytest.mark.promise("SES-03")
async def test_no_value_can_be_guessed_from_the_id_of_a_batch(open_runtime):
    ids = []
    for value in ("1234", "4321"):
        session = (await open_runtime(":memory:", secret_store)).session("s")
        with session.subscribe() as events:
            await session.run_batch([set_call(value)])
            started = events.take()
        ids.append(started.batch)
        plain = jsonx.canonical(set_call(value).arguments)
        named = jsonx.encode([("c1", "secret_store")])
        assert started.batch != "batch_" + hashlib.sha256(named + plain).hexdigest()[:40]
    assert ids[0] != ids[1]


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize("arguments", ['{"action": "set", "value": "hunter2', '["hunter2"]', '"hunter2"'])
async def test_arguments_that_are_no_object_are_not_recorded_where_one_would_be_secret(open_runtime, arguments):
    runtime = await open_runtime(":memory:", secret_store)
    await runtime.session("s").run_batch([ToolCall(id="c1", name="secret_store", arguments=arguments)])
    (record,) = runtime.log
    assert record.arguments == "[secret]"


@pytest.mark.promise("SES-03")
async def test_any_tool_may_have_a_secret_parameter(place, open_runtime):
    @tool(secret="pin", approval="required")
    async def unlock(door: str, pin: str) -> str:
        return f"{door} is open" if pin == "1234" else "wrong"

    runtime = await open_runtime(place, unlock)
    session = runtime.session("s")
    events = session.subscribe()
    batch = session.start_batch([ToolCall(id="c1", name="unlock", arguments={"door": "front", "pin": "1234"})])
    async for event in events:
        if event.kind == "call.waiting":
            break
    (asked,) = await runtime.approvals()
    assert asked.arguments == {"door": "front", "pin": "[secret]"}
    await runtime.approve(asked.key, arguments={**asked.arguments, "door": "back"})
    assert [outcome.value for outcome in await batch] == ["back is open"]
    assert [record.arguments for record in runtime.log] == [{"door": "back", "pin": "[secret]"}]


def test_the_secret_parameter_has_a_name():
    with pytest.raises(ToolDefinitionError, match="secret"):
        Tool.from_schema(name="act", handler=lambda args: None, secret="")


@pytest.mark.promise("SES-03")
def test_a_secret_that_is_no_parameter_is_refused_when_the_tool_is_defined():
    async def unlock(door: str, pin: Annotated[str, Field(alias="PIN")]) -> None: ...

    async def wait() -> None: ...

    def unlock_raw(arguments):
        return None

    schema = {"type": "object", "properties": {"door": {"type": "string"}, "PIN": {"type": "string"}}}
    refused = r"secret='pin', which is not one of its parameters; its parameters are: PIN, door"
    with pytest.raises(ToolDefinitionError, match=refused):
        tool(secret="pin")(unlock)
    with pytest.raises(ToolDefinitionError, match=refused):
        Tool.from_schema(name="unlock", input_schema=schema, handler=unlock_raw, secret="pin")
    with pytest.raises(ToolDefinitionError, match=refused):
        tool(secret="PIN")(unlock).with_definition(secret="pin")
    with pytest.raises(ToolDefinitionError, match="its parameters are: none"):
        tool(secret="pin")(wait)
    assert Tool.from_schema(name="unlock", handler=unlock_raw, secret="pin").definition.secret == "pin"


@pytest.mark.parametrize("value", ["[secret]", "[secret #0123456789abcdef]"])
async def test_what_stands_in_the_place_of_a_secret_is_not_taken_for_one(run, session, value):
    outcome = await run(secret_store, action="set", name="k", value=value)
    assert (outcome.failure.category, outcome.failure.code) == ("interrupted", "value_not_kept")
    assert await session.secrets.list() == []


@pytest.mark.promise("SES-03")
async def test_a_secret_that_a_call_set_is_shown_by_its_own_name(place, open_runtime):
    @tool
    async def echo(ctx: ToolContext, name: str) -> str:
        return f"<{await ctx.secrets.get(name)}>"

    session = (await open_runtime(place, secret_store, echo)).session("s")
    for name, value in (("tok", "hunter2-hunter2"), ("tok", "hunter3-hunter3"), ("other", "swordfish-99")):
        await session.call("secret_store", action="set", name=name, value=value)
        assert (await session.call("echo", name=name)).value == f"<[secret:{name}]>"
        # Given once more, it is the same secret.
        await session.call("secret_store", action="set", name=name, value=value)
        assert (await session.call("echo", name=name)).value == f"<[secret:{name}]>"
    assert (await session.call("echo", name="tok")).value == "<[secret:tok]>"
