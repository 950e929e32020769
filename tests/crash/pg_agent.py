"""The programs of the kill matrix on PostgreSQL: one that stands at a point of its work, and one that looks on.

The first does every kind of work at once, and each stops at one point: before it begins, in its tool, in a step, in a
wait, before its outcome is committed, or at its end. The other has the same tools, and does the same work again when it
is told to: it gets what was recorded, or takes over what a dead process left. Each run of a tool's code, of a step and
of the model leaves a line in the ledger.
"""

import asyncio
import contextlib
import faulthandler
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from toolwright import App, Pending, Policy, Runtime, Tool, ToolCall, ToolContext, ToolwrightError, crash_seams, tool
from toolwright.clock import SystemClock, Timer
from toolwright.errors import ScheduleError
from toolwright.testing import FunctionModel, hear, note, say

POINTS = (
    "before it begins",
    "in a tool",
    "in a step",
    "in a wait",
    "in a commit",
    "after a commit",
    "at the end",
)
"""Where the work stands when the fault comes. In a commit, the server has the last message and has not carried it out;
after a commit, it has, and its answer does not arrive. At the end, the outcome of the call is stored, and whoever
waits for it does not know yet."""


class Work(NamedTuple):
    """A kind of work: where it runs, and the crash policy of its tool."""

    kind: str
    tool: str

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.tool}"


WORKS = {
    work.name: work
    for work in (
        *(Work("batch", name) for name in ("fail", "rerun", "probe", "ask", "steps", "approved")),
        *(Work("run", name) for name in ("fail", "rerun", "steps", "abandon")),
        Work("schedule", "fail"),
        Work("turn", "fail"),
        Work("background-turn", "steps"),
    )
}


class SettableClock:
    """The clock of the machine, which somebody sets: instants jump, durations do not."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead
        self._clock = SystemClock()

    def now(self) -> float:
        return self._clock.now() + self.ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> Timer:
        return self._clock.call_at(when, callback, *args)

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


class Gate:
    """Where work stops. `point` is None in a program in which it never does."""

    def __init__(self, point: str | None) -> None:
        self.point = point
        self.open = asyncio.Event()

    async def reach(self, point: str, work: str, more: object = None) -> None:
        if point == self.point and not self.open.is_set():
            say(["at", work, more])
            await self.open.wait()

    def tell(self, point: str, work: str, more: object) -> None:
        """Say that work stops by itself at a point."""
        if point == self.point:
            say(["at", work, more])


class GatedPart:
    """A part of a store, with some of its verbs replaced."""

    def __init__(self, inner: object, **parts: object) -> None:
        self._inner = inner
        self.__dict__.update(parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def gated(gate: Gate, inner: Any) -> Any:
    """A store in which work stops before it begins, and at its end."""

    def before(verb: Callable[..., Awaitable[Any]], point: str, work: Callable[..., str | None]) -> Any:
        async def use(*given: Any, **options: Any) -> Any:
            name = work(*given)
            if name is not None:
                await gate.reach(point, name)
            return await verb(*given, **options)

        return use

    def first_of(intents: Any, refused: Any = ()) -> str | None:
        return next((intent.key.call_id for intent in intents if intent.key.session == "batch"), None)

    def of_end(advance: Any, *_: Any) -> str | None:
        return advance.id if advance.outcome is not None else None

    services = inner.services
    start, end = POINTS[0], POINTS[-1]
    return GatedPart(
        inner,
        journal=GatedPart(
            inner.journal,
            begin=before(inner.journal.begin, start, first_of),
        ),
        services=GatedPart(
            services,
            runs=GatedPart(
                services.runs,
                register=before(services.runs.register, start, lambda registrations, *_: registrations[0].id),
                finish=before(services.runs.finish, end, lambda ending, *_: work_of_run(ending.id)),
            ),
            schedules=GatedPart(
                services.schedules,
                fire=before(services.schedules.fire, start, lambda *_: "schedule:fail"),
            ),
            turns=GatedPart(
                services.turns,
                add=before(services.turns.add, start, lambda new, *_: new.id),
                advance=before(services.turns.advance, end, of_end),
            ),
        ),
    )


def work_of_run(id: str) -> str:
    return id if id in WORKS else "schedule:fail"


def found(arguments: dict[str, Any]) -> str | None:
    """The value of a step, for a program that does not know whether it happened."""
    sign = ["step", arguments["point"], arguments["work"]]
    lines = [json.loads(line) for line in Path("ledger").read_text().splitlines()]
    return next((line[3] for line in lines if line[:3] == sign), None)


def make_tools(gate: Gate) -> list[Tool]:
    async def act(point: str, work: str) -> str:
        value = os.urandom(4).hex()
        write(["step", point, work, value])
        await gate.reach("in a step", work)
        return value

    async def body(ctx: ToolContext, point: str, work: str) -> str | Pending:
        write(["tool", point, work])
        await gate.reach("in a tool", work)
        value: str = await ctx.step("act", act, point, work)
        if point == "in a wait" and WORKS[work].tool != "approved":
            if WORKS[work].tool in ("steps", "rerun"):
                gate.tell(point, work, ["signal", ctx.signal_key("go")])
                return f"{value} {await ctx.receive('go')}"
            gate.tell(point, work, ["resolve", ctx.completion_key()])
            return Pending()
        if point in ("in a commit", "after a commit"):
            await gate.reach(point, work)
        return value

    def make(name: str, **options: Any) -> Tool:
        async def run(ctx: ToolContext, point: str, work: str) -> Any:
            return await body(ctx, point, work)

        return tool(name=name, description="Work.", parallel=True, supports_background=True, timeout=300, **options)(
            run
        )

    return [
        make("fail"),
        make("rerun", idempotent=True),
        make("probe", on_crash=found),
        make("ask", on_crash="ask"),
        make("steps", on_crash="rerun"),
        make("approved", approval="required"),
        make("abandon", on_crash="rerun"),
    ]


def write(line: list[str]) -> None:
    note(json.dumps(line))


def make_model(point: str) -> FunctionModel:
    def answer(request: Any) -> Any:
        work = request.session
        write(["model", point, work, str(request.number)])
        if request.number == 0:
            return [ToolCall(WORKS[work].tool, {"point": point, "work": work}, "1")]
        return "Done."

    return FunctionModel(answer)


async def do(runtime: Runtime, clock: SettableClock, point: str, work: str) -> list[Any]:
    """Do one work, or find what became of it: its status, value, and the code of its failure."""
    kind, name = WORKS[work]
    given = {"point": point, "work": work}
    if kind == "batch":
        (outcome,) = await runtime.session("batch").run_batch([ToolCall(id=work, name=name, arguments=given)])
    elif kind == "run":
        options: Any = {"disposition": "abandon"} if name == "abandon" else {}
        run = await runtime.session("run").spawn(name, given, id=work, **options)
        outcome = await run.wait()
    elif kind == "schedule":
        session = runtime.session("schedule")
        lead = 0.5
        while not await session.schedules():
            with contextlib.suppress(ScheduleError):  # on a busy machine it is past by now
                await session.schedule(name, given, at=soon(clock, lead))
            lead *= 2
        while not (runs := await session.runs()):  # noqa: ASYNC110 - another process may start it
            await asyncio.sleep(0.05)
        outcome = await runs[0].wait()
        assert len(runs) == 1
    else:
        session = runtime.session(work)
        turn = await session.start_turn("Go.", id=work, background=kind == "background-turn")
        ended = await turn.wait()
        assert ended is not None
        call = ended.calls[0] if ended.calls else None
        failure = None if call is None else call.failure
        return [ended.status, ended.text, None if failure is None else failure.code]
    failure = outcome.failure
    return [outcome.status, outcome.value, None if failure is None else failure.code]


def soon(clock: SettableClock, seconds: float) -> str:
    return datetime.fromtimestamp(clock.now() + seconds, UTC).isoformat()


async def decide(runtime: Runtime, gate: Gate | None = None) -> None:
    """A person who lets approved calls run, and those not again whose process died."""
    while True:
        for request in await runtime.approvals():
            if request.tool != "approved":
                await runtime.deny(request.key)
            elif gate is None or gate.point != "in a wait":
                await runtime.approve(request.key)
            elif not gate.open.is_set():
                gate.tell("in a wait", "batch:approved", ["approve", request.key])
                await gate.open.wait()
        await asyncio.sleep(0.1)


def options_of(gate: Gate, point: str, clock: SettableClock) -> Any:
    return {
        "tools": make_tools(gate),
        "model": make_model(point),
        "policy": Policy(background_per_session=20, grace=1),
        "clock": clock,
        "worker": True,
    }


async def holder(url: str, point: str, served: bool) -> None:
    """Do all work, stop at the point until it is told to go, and say how each ended.

    Where it is `served`, the process is a server, and what it works on are requests.
    """
    faulthandler.register(signal.SIGUSR1)
    gate, clock = Gate(point), SettableClock()
    # By its module: the object would be copied with this function.
    crash_seams.crash_seams.commits = None
    owners: list[str] = []

    def opened(store: Any) -> Any:
        owners.append(store.owner)
        return gated(gate, store)

    crash_seams.crash_seams.store = opened
    async with serving(url, gate, point, clock) if served else running(url, gate, point, clock) as (runtime, start):
        say(["owner", owners[0], None])

        async def one(work: str) -> None:
            try:
                ended = await start(work)
                if WORKS[work].kind == "batch":
                    await gate.reach("at the end", work)
                say(["ended", work, ended])
            except ToolwrightError as error:
                say(["refused", work, str(error)])

        tasks = [asyncio.ensure_future(one(work)) for work in WORKS]
        person = asyncio.ensure_future(decide(runtime, gate))
        while (word := await hear()) != "quit":
            if word == "go":
                gate.open.set()
            else:
                clock.ahead = float(word)
        for task in (*tasks, person):
            task.cancel()
        await asyncio.wait([*tasks, person])


Start = Callable[[str], Awaitable[Any]]
"""Starts a work, and returns how it ended."""


@contextlib.asynccontextmanager
async def running(url: str, gate: Gate, point: str, clock: SettableClock) -> AsyncIterator[tuple[Runtime, Start]]:
    async with Runtime.open(url, **options_of(gate, point, clock)) as runtime:
        yield runtime, lambda work: do(runtime, clock, point, work)


@contextlib.asynccontextmanager
async def serving(url: str, gate: Gate, point: str, clock: SettableClock) -> AsyncIterator[tuple[Runtime, Start]]:
    """The same as a server over HTTP, and a client of it."""
    import httpx
    import uvicorn

    from toolwright.http import create_app
    from toolwright.http.access.caller import Caller
    from toolwright.http.connections import server_config

    async def everyone(connection: Any) -> Caller:
        return Caller("root", frozenset({"admin"}))

    options = options_of(gate, point, clock)
    opening = {name: options.pop(name) for name in ("worker", "clock")}
    service = create_app(App(**options), url, authenticate=everyone, **opening)
    runtime = await service.open()
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(service, lifespan="off"))
    server_task = asyncio.ensure_future(server.serve(sockets=[listening]))
    client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}/v1", timeout=300)

    async def ask(work: str, lead: float = 0.5) -> Any:
        kind, name = WORKS[work]
        given, session = {"point": point, "work": work}, kind if "turn" not in kind else work
        disposition = "abandon" if name == "abandon" else "resume"
        place, body = {
            "batch": ("batches", {"calls": [{"id": work, "name": name, "arguments": given}], "scope": ""}),
            "run": ("runs", {"tool": name, "arguments": given, "id": work, "disposition": disposition}),
            "schedule": ("schedules", {"tool": name, "arguments": given, "at": soon(clock, lead)}),
        }.get(kind, ("turns", {"message": "Go.", "id": work}))
        answer = await client.post(
            f"/sessions/{session}/{place}",
            json=body,
            headers={"Idempotency-Key": f"{work} {lead}"}
            | ({"Prefer": "respond-async"} if kind == "background-turn" else {}),
        )
        if "is in the past" in answer.text:
            return await ask(work, 2 * lead)
        if answer.status_code >= 400:
            raise ToolwrightError(answer.text)
        return await do(runtime, clock, point, work)

    yield runtime, ask
    server.should_exit = True
    await server_task
    await client.aclose()
    await service.close()


async def onlooker(urls: dict[str, str], ahead: float) -> None:
    """Have the stores of all holders open; resolve what it is told to, and do all work again."""
    faulthandler.register(signal.SIGUSR1)
    crash_seams.crash_seams.commits = None  # one store that waits must not hold up the others
    gate, clock = Gate(None), SettableClock(ahead)
    async with contextlib.AsyncExitStack() as stack:

        async def open_one(point: str) -> tuple[str, Runtime]:
            return point, await Runtime.open(urls[point], **options_of(gate, point, clock))

        runtimes = dict(await asyncio.gather(*map(open_one, urls)))
        for runtime in runtimes.values():
            stack.push_async_callback(runtime.close)
        say(["ready", None, None])
        people: list[asyncio.Task[None]] = []
        again: list[asyncio.Task[None]] = []
        while (word := await hear()) != "quit":
            what, *given = json.loads(word)
            if what == "resolve":
                (keys,) = given
                for way, key in keys:
                    runtime = runtimes["in a wait"]
                    resolved: Any = await (
                        runtime.approve(key)
                        if way == "approve"
                        else runtime.signal(key, "went")
                        if way == "signal"
                        else runtime.resolve(key, "went")
                    )
                    del resolved
                say(["resolved", None, None])
            else:
                people += [asyncio.ensure_future(decide(runtime)) for runtime in runtimes.values()]

                async def one(point: str, work: str) -> None:
                    try:
                        say(["again", [point, work], await do(runtimes[point], clock, point, work)])
                    except ToolwrightError as error:
                        say(["again", [point, work], ["error", str(error), None]])

                again += [asyncio.ensure_future(one(point, work)) for point in urls for work in WORKS]
        for task in (*people, *again):
            task.cancel()
        if people:
            await asyncio.wait([*people, *again])
