"""Two sessions do anything at all, and neither sees the other."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwright import Runtime, ToolContext, tool
from toolwright.testing import FakeClock

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from([1, "x", None, {"y": [2]}])
OPERATIONS = st.one_of(
    st.tuples(st.just("set"), NAMES, VALUES),
    st.tuples(st.just("unset"), NAMES),
    st.tuples(st.just("say"), VALUES),
    st.tuples(st.just("put"), NAMES),
    st.tuples(st.just("drop"), NAMES),
    st.tuples(st.just("upsert"), NAMES, NAMES),
    st.tuples(st.just("forget"), NAMES),
    st.tuples(st.just("connect"), NAMES, VALUES),
    st.tuples(st.just("disconnect"), NAMES),
    st.tuples(st.just("delete")),
)
STEPS = st.lists(st.tuples(st.sampled_from(["s", "t"]), st.booleans(), OPERATIONS), max_size=25)


async def do(clients: Any, verb: str, *given: Any) -> Any:
    """One operation, by the host on its session or by a tool on its context."""
    if verb == "set":
        return await clients.kv.set(*given)
    if verb == "unset":
        return await clients.kv.delete(*given)
    if verb == "say":
        return (await clients.messages.append(given[0], sender="tool")).number
    if verb == "put":
        return (await clients.attachments.put(given[0].encode(), name=given[0], media_type="a/b")).name
    if verb == "drop":
        found = [info for info in await clients.attachments.list() if info.name == given[0]]
        return await clients.attachments.delete(found[0].hash) if found else False
    if verb == "upsert":
        return (await clients.resources.upsert(given[0], kind="k", name="n", status=given[1])).status
    return await clients.resources.delete(*given)


class Model:
    """What a session must have, by the simplest means."""

    def __init__(self) -> None:
        self.kv: dict[str, Any] = {}
        self.said: list[Any] = []
        self.attached: set[str] = set()
        self.resources: dict[str, str] = {}
        self.connections: dict[str, Any] = {}

    def do(self, verb: str, *given: Any) -> Any:
        if verb == "set":
            self.kv[given[0]] = given[1]
        elif verb == "unset":
            return self.kv.pop(given[0], self) is not self
        elif verb == "say":
            self.said.append(given[0])
            return len(self.said)
        elif verb == "put":
            self.attached.add(given[0])
            return given[0]
        elif verb == "drop":
            there = given[0] in self.attached
            self.attached.discard(given[0])
            return there
        elif verb == "upsert":
            self.resources[given[0]] = given[1]
            return given[1]
        elif verb == "forget":
            return self.resources.pop(given[0], None) is not None
        elif verb == "connect":
            self.connections[given[0]] = given[1]
        elif verb == "disconnect":
            return self.connections.pop(given[0], self) is not self
        return None

    def shown(self) -> list[Any]:
        return [self.kv, self.said, self.attached, self.resources, self.connections]


async def shown(session: Any) -> list[Any]:
    contents = {info.name: await session.attachments.get(info.hash) for info in await session.attachments.list()}
    assert all(content == name.encode() for name, content in contents.items())
    return [
        {info.key: await session.kv.get(info.key) for info in await session.kv.list()},
        [message.content for message in await session.messages.list()],
        set(contents),
        {resource.id: resource.status for resource in await session.resources.list()},
        {connection.provider: connection.detail for connection in await session.connections()},
    ]


async def check(store: str | Path, steps: list[Any]) -> None:
    @tool
    async def use(ctx: ToolContext, operation: list[Any]) -> Any:
        return await do(ctx, *operation)

    models = {"s": Model(), "t": Model()}
    async with Runtime.open(store, tools=[use], clock=FakeClock(), sync="normal") as runtime:
        for name, by_tool, operation in steps:
            session, model = runtime.session(name), models[name]
            if operation[0] == "delete":
                await runtime.delete_session(name)
                models[name] = Model()
                continue
            expected = model.do(*operation)
            if operation[0] == "connect":
                await session.connect(operation[1], detail=operation[2])
            elif operation[0] == "disconnect":
                assert await session.disconnect(operation[1]) == expected
            elif by_tool:
                outcome = await session.call("use", operation=list(operation))
                assert (outcome.ok, outcome.value) == (True, expected)
            else:
                assert await do(session, *operation) == expected
        for name, model in models.items():
            assert await shown(runtime.session(name)) == model.shown()


@pytest.mark.promise("SES-06")
@pytest.mark.parametrize("store", ["memory", "file"])
@settings(max_examples=40)
@given(steps=STEPS)
def test_whatever_two_sessions_do_neither_sees_or_changes_the_others_things(store: str, steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(":memory:" if store == "memory" else Path(folder) / "agent.db", steps))
