"""What a prepare step sees of its session, before the policy decides about the call."""

from typing import Any

import pytest

from toolwright import Policy, PrepareCall, Rule, ToolCall, ToolContext, tool
from toolwright.errors import StoreError


@pytest.mark.promise("RUN-05")
async def test_a_prepare_step_reads_its_session(place, open_runtime):
    async def prepare(arguments: dict[str, Any], call: PrepareCall) -> dict[str, Any]:
        view = call.view
        return {
            "id": view.id,
            "tools": view.tools,
            "described": [definition.description for definition in view.definitions],
            "file": await view.files.read("/a.txt"),
            "bytes": (await view.files.read_bytes("/a.txt")).decode(),
            "files": [info.path for info in await view.files.list("/")],
            "found": [match.line for match in await view.files.grep("one")],
            "value": await view.kv.get("k"),
            "keys": [info.key for info in await view.kv.list()],
            "messages": [message.content for message in await view.messages.list()],
            "shown": sorted(call.to_json()),
        }

    @tool(prepare=prepare)
    async def look(ctx: ToolContext) -> Any:
        """Look."""
        return ctx.prepared

    session = (await open_runtime(place, look)).session("s")
    await session.files.write("/a.txt", "one")
    await session.kv.set("k", [1])
    await session.messages.append("hi", sender="user")
    assert (await session.call("look")).value == {
        "id": "s",
        "tools": ["look"],
        "described": ["Look."],
        "file": "one",
        "bytes": "one",
        "files": ["/a.txt"],
        "found": [1],
        "value": [1],
        "keys": ["k"],
        "messages": ["hi"],
        "shown": ["arguments", "batch", "call_id", "parent", "session", "source", "tool"],
    }


@pytest.mark.promise("RUN-05")
async def test_a_prepare_step_has_no_verb_that_changes_its_session_and_no_secrets(place, open_runtime):
    found: dict[str, set[str]] = {}

    def names(thing: object) -> set[str]:
        return {name for name in dir(thing) if not name.startswith("_")}

    def prepare(arguments: dict[str, Any], call: PrepareCall) -> None:
        view = call.view
        found.update(view=names(view), files=names(view.files), kv=names(view.kv), messages=names(view.messages))

    @tool(prepare=prepare)
    async def work() -> int:
        """Work."""
        return 1

    session = (await open_runtime(place, work, policy=Policy(rules=[Rule("deny", "work")]))).session("s")
    await session.secrets.set("token", "correct horse")
    assert (await session.call("work")).status == "failure"
    assert found == {
        "view": {"id", "tools", "definitions", "details", "files", "kv", "messages"},
        "files": {"read", "read_bytes", "stream", "list", "stat", "grep"},
        "kv": {"get", "list"},
        "messages": {"list"},
    }


@pytest.mark.promise("EFF-07")
async def test_a_store_that_fails_in_a_prepare_step_is_no_failure_of_the_tool(place, open_runtime):
    broken = True

    async def prepare(arguments: dict[str, Any], call: PrepareCall) -> None:
        if broken:
            raise StoreError("the disk is gone")

    @tool(prepare=prepare)
    async def work() -> int:
        """Work."""
        return 1

    session = (await open_runtime(place, work)).session("s")
    calls = [ToolCall(id="c1", name="work")]
    with pytest.raises(StoreError, match="the disk is gone"):
        await session.run_batch(calls)
    broken = False
    (outcome,) = await session.run_batch(calls)
    assert outcome.value == 1
