"""Every route, with every scope, in one's own and in a foreign session: nobody gets what is not theirs.

The operations of the service are the rows, so that a new route is covered by itself. What its path names is taken from
two sessions that have something of everything; a parameter that is not known there fails the test.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

from tests.effects.watching import waiting
from tests.support import fail_after
from toolwright import App, Pending, Runtime, ToolCall, ToolContext, tool
from toolwright.http import Service, create_app
from toolwright.http.access.caller import SCOPES, Scope
from toolwright.http.operations import SESSION, Operation
from toolwright.http.routes import OPERATIONS
from toolwright.testing import ScriptedModel

pytestmark = pytest.mark.promise("HTTP-03")
OWN, FOREIGN = "own-session", "foreign-session"
PUBLIC = {
    ("GET", "/v1/health"),
    ("GET", "/v1/ready"),
    ("GET", "/v1/openapi.json"),
    ("GET", "/v1/login"),
    ("POST", "/v1/login"),
    ("DELETE", "/v1/login"),
    ("GET", "/login"),
    ("POST", "/v1/waits/{key}"),
}
"""The routes that need no token: they tell nothing of the store, or what the request has is an authority of its own."""
BODIES: dict[str, Any] = {"POST /v1/sessions": {"id": "own-new"}}
"""Bodies of requests that need more than the smallest one."""
OF_NO_SESSION = {"tools", "tokens", "logins", "metrics"}
"""First parts of paths of things that belong to no session."""


# --- two sessions that have something of everything


@tool(readonly=True)
async def echo(text: str) -> str:
    return text


@tool(approval="required")
async def launch(where: str = "moon") -> str:
    return where


@tool
async def order(ctx: ToolContext) -> str:
    return str(await ctx.ask("size", "Which size?"))


@tool
async def pay(ctx: ToolContext) -> Any:
    return Pending()


@tool(supports_background=True)
async def render() -> str:
    return "rendered"


@dataclass
class Things:
    """The values for the parameters of paths, by what is before them in the path and their names."""

    session: str
    values: dict[str, str] = field(default_factory=dict)


async def fill(runtime: Runtime, id: str) -> Things:
    """Give a session something of everything."""
    session, things = runtime.session(id), Things(id)
    await session.details.set(title=f"title of {id}")
    await session.messages.append(f"said in {id}")
    await session.files.write("/f.txt", f"written in {id}")
    await session.kv.set("k", f"kept in {id}")
    await session.secrets.set("n", f"secret-of-{id}")
    done = session.start_batch([ToolCall(id="c1", name="echo", arguments={"text": f"told in {id}"})])
    await done
    turn = await session.ask(f"asked in {id}")
    run = await session.spawn("render")
    schedule = await session.schedule("render", at="2999-01-01T00:00:00Z")
    events = session.subscribe()
    session.start_batch([ToolCall(id="a1", name="launch", arguments={"where": id})], scope="open")
    await waiting(events)
    session.start_batch([ToolCall(id="q1", name="order")], scope="asked")
    await waiting(events)
    events.close()
    (approval,), (question,) = await session.approvals(), await session.questions()
    things.values = {
        "sessions/session": id,
        "messages/message": "1",
        "turns/turn": turn.turn_id,
        "batches/batch": done.id,
        "calls/id": "c1",
        "approvals/key": approval.key,
        "questions/key": question.key,
        "waits/key": approval.key,
        "files/path": "f.txt",
        "kv/key": "k",
        "secrets/name": "n",
        "runs/run": run.id,
        "runs/id": run.id,
        "signals/name": "go",
        "schedules/schedule": schedule.id,
        "schedules/id": schedule.id,
        "tools/name": "echo",
        "tools/tool": "echo",
        "tokens/token": "0000000000000000",
        "logins/login": "0000000000000000",
    }
    return things


def path_of(operation: Operation, things: Things) -> str:
    """The path of an operation with the things of a session in it."""
    parts, last = [], ""
    for part in operation.full_path.split("/"):
        if part.startswith("{"):
            name = f"{last}/{part.strip('{}').partition(':')[0]}"
            assert name in things.values, f"What is {part} in {operation.full_path}? Add {name!r} to fill()"
            parts.append(quote(things.values[name], safe=""))
        else:
            parts.append(part)
            last = part
    return "/".join(parts)


def example(schema: dict[str, Any], root: dict[str, Any]) -> Any:
    """The smallest value that fits a schema of ours."""
    if "$ref" in schema:
        return example(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    if "anyOf" in schema:
        return example(schema["anyOf"][0], root)
    kind = schema.get("type")
    if kind == "object":
        return {name: example(schema["properties"][name], root) for name in schema.get("required", ())}
    if kind == "array":
        return [example(schema["items"], root)] if schema.get("minItems") else []
    return {"string": "echo", "integer": 1, "number": 1.0, "boolean": True, "null": None}.get(kind, "echo")


def body_of(operation: Operation) -> dict[str, Any]:
    """The options of a request that has a body, where the operation takes one."""
    if operation.upload is not None:
        return {"content": b"bytes"}
    if operation.body is None:
        return {}
    if named(operation) in BODIES:
        return {"json": BODIES[named(operation)]}
    schema = msgspec.json.schema(operation.body)
    return {"json": example(schema, schema)}


# --- the service, and a token for each kind of caller


class World:
    """A service with both sessions, and a client for each caller."""

    def __init__(self, service: Service, http: httpx.AsyncClient, own: Things, foreign: Things) -> None:
        self.service = service
        self.http = http
        self.own = own
        self.foreign = foreign

    async def token(self, *scopes: Scope, sessions: tuple[str, ...] = ("own-*",)) -> dict[str, str]:
        tokens = await self.service.sign_in.tokens()
        return {"Authorization": f"Bearer {(await tokens.create('ann', scopes, sessions)).value}"}

    async def ask(
        self, operation: Operation, things: Things, headers: dict[str, str], query: dict[str, str] | None = None
    ) -> httpx.Response:
        async with fail_after(20):
            return await self.http.request(
                operation.method, path_of(operation, things), headers=headers, params=query, **body_of(operation)
            )


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    app = App(tools=[echo, launch, order, pay, render], model=ScriptedModel(["Done."]))
    service = create_app(app, folder / "agent.db")
    async with service.lifespan() as runtime:
        async with fail_after(60):
            own, foreign = await fill(runtime, OWN), await fill(runtime, FOREIGN)
        transport = httpx.ASGITransport(service)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as http:
            yield World(service, http, own, foreign)


def guarded() -> Iterator[Operation]:
    return (one for one in OPERATIONS if one.scope is not None)


def is_stream(operation: Operation) -> bool:
    """True for an operation that answers without an end."""
    return operation.media_type == "text/event-stream"


def names_one(operation: Operation) -> bool:
    """True for an operation whose path names something that belongs to a session."""
    return "{" in operation.path and operation.path.split("/")[1] not in OF_NO_SESSION


def named(operation: Operation) -> str:
    return f"{operation.method} {operation.full_path}"


# --- the matrix


def test_the_routes_that_need_no_token_are_these() -> None:
    assert {(one.method, one.full_path) for one in OPERATIONS if one.scope is None} == {
        each for each in PUBLIC if each in {(one.method, one.full_path) for one in OPERATIONS}
    }


async def test_nobody_gets_anything_without_a_token_or_with_another_scope(tmp_path: Path) -> None:
    wrong: list[str] = []
    async with world(tmp_path) as found:
        callers = {scope: await found.token(scope, sessions=("*",)) for scope in SCOPES if scope != "admin"}
        for operation in guarded():
            answer = await found.ask(operation, found.own, {})
            if answer.status_code != 401:
                wrong.append(f"{named(operation)} without a token: {answer.status_code}")
            for scope, headers in callers.items():
                if scope == operation.scope:
                    continue
                answer = await found.ask(operation, found.own, headers)
                if answer.status_code != 403 or answer.json()["code"] != "forbidden":
                    wrong.append(f"{named(operation)} with {scope}: {answer.status_code} {answer.text[:200]}")
    assert wrong == []


async def test_nobody_gets_anything_of_a_foreign_session(tmp_path: Path) -> None:
    wrong: list[str] = []
    async with world(tmp_path) as found:
        before = await state_of(found)
        for operation in guarded():
            assert operation.scope is not None
            for scopes in ((operation.scope,), ("admin",)):
                headers = await found.token(*scopes)
                if operation.everywhere:
                    answer = await found.ask(operation, found.foreign, headers)
                    if answer.status_code != 403:
                        wrong.append(f"{named(operation)}, which concerns all sessions: {answer.status_code}")
                elif names_one(operation):
                    answer = await found.ask(operation, found.foreign, headers)
                    if answer.status_code not in (403, 404):
                        wrong.append(
                            f"{named(operation)} of a foreign session: {answer.status_code} {answer.text[:200]}"
                        )
                    elif f" {FOREIGN}" in answer.text:
                        wrong.append(f"{named(operation)} tells of a foreign session: {answer.text[:200]}")
                if "session" in getattr(operation.query, "__struct_fields__", ()):
                    answer = await found.ask(operation, found.own, headers, {"session": FOREIGN})
                    tells = answer.status_code == 200 and answer.json().get("items") != []
                    if tells or answer.status_code not in (200, 403, 404):
                        wrong.append(f"{named(operation)}?session=: {answer.status_code} {answer.text[:200]}")
        assert await state_of(found) == before
    assert wrong == []


async def test_lists_have_the_sessions_of_the_caller_only(tmp_path: Path) -> None:
    wrong: list[str] = []
    async with world(tmp_path) as found:
        some, every = await found.token(*SCOPES), await found.token(*SCOPES, sessions=("*",))
        for operation in guarded():
            if operation.method != "GET" or "{" in operation.path or is_stream(operation) or operation.everywhere:
                continue
            answer = await found.ask(operation, found.own, some)
            if answer.status_code != 200 or FOREIGN in answer.text:
                wrong.append(f"{named(operation)}: {answer.status_code} {answer.text[:300]}")
            whole = await found.ask(operation, found.own, every)
            if OWN in answer.text and FOREIGN not in whole.text:
                wrong.append(f"{named(operation)} hides something from a caller who sees all: {whole.text[:300]}")
    assert wrong == []


async def test_everybody_gets_what_is_theirs(tmp_path: Path) -> None:
    wrong: list[str] = []
    async with world(tmp_path) as found:
        # What changes something comes last, and what removes the most at the very end.
        order = sorted(
            guarded(), key=lambda one: (["GET", "PUT", "POST", "PATCH", "DELETE"].index(one.method), -len(one.path))
        )
        for operation in order:
            assert operation.scope is not None
            if is_stream(operation):
                continue
            headers = await found.token(operation.scope, sessions=("*",) if operation.everywhere else ("own-*",))
            answer = await found.ask(operation, found.own, headers)
            refused = answer.status_code in (401, 403) or answer.status_code >= 500
            missing = operation.method == "GET" and answer.status_code not in (200, 303)
            if refused or missing:
                wrong.append(f"{named(operation)}: {answer.status_code} {answer.text[:300]}")
    assert wrong == []


async def state_of(found: World) -> dict[str, str]:
    """All that an administrator reads of the foreign session."""
    headers, told = await found.token("admin", sessions=("*",)), {}
    for operation in guarded():
        if operation.method == "GET" and names_one(operation) and not is_stream(operation):
            answer = await found.ask(operation, found.foreign, headers)
            told[named(operation)] = re.sub(r'"(age|now)":[^,}]*', "", answer.text)
    return told


def test_a_path_with_a_session_names_it_as_the_service_looks_for_it() -> None:
    for operation in OPERATIONS:
        for name in re.findall(r"/sessions/\{(\w+)", operation.path):
            assert name == SESSION, named(operation)
