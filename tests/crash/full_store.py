"""A program that fills every table of a store and is killed in the middle of its work. Owns its app.

Half of what it leaves is finished, and half of it waits for somebody who goes on: with this store, or with a copy.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable, Sized
from datetime import UTC, datetime, timedelta

from opentelemetry.sdk.trace import TracerProvider

from tests.support import until
from toolwright import App, Pending, Session, ToolCall, ToolContext, tool
from toolwright.session.secrets.master_keys import KeyFile
from toolwright.stores import SqliteStore, prune
from toolwright.stores.contracts.requests import KeptAnswer
from toolwright.stores.contracts.tokens import StoredToken
from toolwright.telemetry import Telemetry
from toolwright.testing import ScriptedModel, die, note, say

ODD = "odd \0\x01 é 𝄞"
"""Text that not every database can hold as it is."""
LARGE = os.urandom(64) * 50_000
"""More than one piece of a file, and more than one page of rows."""


@tool(readonly=True)
async def look(key: str) -> str:
    note(f"look {key}")
    if key.endswith("hangs") and not _goes_on():
        await asyncio.Event().wait()
    return f"seen {key}"


@tool(parallel=True)
async def charge(key: str) -> str:
    note(f"charge {key}")
    if key.endswith("hangs") and not _goes_on():
        await asyncio.Event().wait()
    return f"charged {key}"


@tool(parallel=True, approval="required")
async def guarded(key: str) -> str:
    note(f"guarded {key}")
    return f"let through {key}"


@tool(parallel=True)
async def pay(ctx: ToolContext, key: str) -> Pending:
    say(["key", key, ctx.completion_key()])
    return Pending()


@tool(supports_background=True, on_crash="rerun")
async def work(ctx: ToolContext, key: str = "") -> str:
    await ctx.step("first", lambda: note(f"first {key}"))
    if key == "hangs" and not _goes_on():
        say(["working"])
        await asyncio.Event().wait()
    if key == "told":
        await ctx.receive("go")
    await ctx.step("second", lambda: note(f"second {key}"))
    return f"worked {key}"


@tool(parallel=True, secret="pin")
async def unlock(pin: str) -> str:
    return "open"


_going_on: list[bool] = []


def _goes_on() -> bool:
    """True in a program that continues with what the others left."""
    return bool(_going_on)


def app() -> App:
    return App(
        tools=[look, charge, guarded, pay, work, unlock],
        model=ScriptedModel([[ToolCall(id="m1", name="look", arguments={"key": "turn"})], "Done."]),
        telemetry=Telemetry(tracer_provider=TracerProvider()),
    )


def calls(name: str, *keys: str) -> list[ToolCall]:
    return [ToolCall(id=f"{name} {key}", name=name, arguments={"key": key}) for key in keys]


async def fill(store: str) -> None:
    """Fill a new store, and be killed."""
    opened = await SqliteStore.open(store)
    async with app().open(opened, worker=True) as runtime:
        session = runtime.session("s1")
        await turns(session, store)
        await session.run_batch([*calls("look", "1", ODD), *calls("charge", "1")], scope=ODD)
        await keep(session)
        await session.run_batch([ToolCall(id="u1", name="unlock", arguments={"pin": "12345678"})])
        asked = session.start_batch(calls("guarded", "once", "open"))
        await until(lambda: _count(session.approvals, 2))
        first = next(each for each in await session.approvals() if each.arguments["key"] == "once")
        await session.approve(first.key, always={"key": "again"}, by="Ada")
        await runtime.session("revoked").revoke()
        told = await session.spawn("work", {"key": "told"})
        await told.grant("s2")
        await told.signal("go", {"odd": ODD})
        await told.wait()
        schedule = await session.schedule("work", {"key": "cron"}, cron="0 0 1 1 *")
        await schedule.run_now()
        await session.on("push", "work", {"key": "trigger"})
        for run in await runtime.occur("push", {"a": 1}, key="once"):
            await run.wait()
        token = {"hash": b"hash", "name": "CI", "scopes": ("read",), "sessions": ("*",), "created_at": time.time()}
        await opened.services.tokens.add_token(StoredToken(id="tok_1", kind="token", **token), 10)
        await opened.services.requests.begin("request", "content", time.time(), 0)
        await opened.services.requests.finish("request", KeptAnswer(201, {"a": "b"}, b"body"))
        # What a kill leaves open.
        await session.spawn("work", {"key": "hangs"})
        open_batches = [
            asked,
            session.start_batch(calls("pay", "open"), scope="pay"),
            session.start_batch(calls("charge", "hangs"), scope="charge"),
            session.start_batch(calls("look", "twice hangs"), scope="twice"),
            session.start_batch(calls("look", *(f"{n}" for n in range(9)), "hangs"), scope="looks"),
        ]
        assert open_batches
        await until(lambda: _count(session.waits, 2))
        await until(lambda: _hangs(4))
        die()


async def _count(found: Callable[[], Awaitable[Sized]], number: int) -> bool:
    return len(await found()) >= number


def _hangs(number: int) -> bool:
    return len([line for line in _noted() if line.endswith("hangs")]) >= number


def _noted() -> list[str]:
    with open("ledger") as file:
        return file.read().splitlines()


async def keep(session: Session) -> None:
    await session.files.write("/notes/a.txt", "hello")
    await session.files.write("/large.bin", LARGE)
    await session.attachments.put(b"\0\1", name="a.bin", media_type="application/octet-stream")
    await session.kv.set("k", {"odd": ODD})
    await session.secrets.set("token", "opensesame-123")
    await session.messages.append(ODD, sender="user")
    await session.resources.upsert("r1", kind="vm", name="one", status="up")
    await session.connect("github", detail={"login": "ada"})


async def turns(session: Session, store: str) -> None:
    await session.ask("Once.")
    await prune(store, time.time() + 1, sessions=[session.id])
    await session.ask("And again.")
    turn = await session.start_turn("Later.", background=False)
    await turn.steer("Shorter.")
    await turn.wait()


async def hang_again(store: str) -> None:
    """Take over one of its calls, and be killed in it once more."""
    async with app().open(store, worker=False) as runtime:
        again = asyncio.ensure_future(runtime.recover("s1", scope="twice"))
        await until(lambda: _hangs(5))
        assert not again.done()
        die()


async def add_schedule(store: str) -> None:
    """Leave a schedule that is due at once, in a process that has no worker."""
    async with app().open(store, worker=False) as runtime:
        due = datetime.now(UTC) + timedelta(seconds=0.2)
        await runtime.session("s1").schedule("work", {"key": "due"}, at=due, id="sch_due")


async def go_on(store: str, key_file: str, pay_key: str) -> None:
    """Continue with everything that the first program left, in the store or in a copy of it."""
    _going_on.append(True)
    async with app().open(store, worker=True, master_key=KeyFile(key_file)) as runtime:
        session = runtime.session("s1")
        (known,) = await session.run_batch(calls("charge", "1"), scope=ODD)
        say(["replayed", known.replayed, known.value])
        (again,) = await session.run_batch([ToolCall(id="u1", name="unlock", arguments={"pin": "12345678"})])
        say(["fingerprint", again.replayed, again.value])
        (waiting,) = await session.approvals()
        await session.approve(waiting.key, always={"key": "later"})
        await runtime.resolve(pay_key, "paid")
        (allowed,) = await session.run_batch(calls("guarded", "again"))
        say(["remembered", allowed.replayed, allowed.value])
        for one in sorted(await runtime.recover(), key=lambda one: one.call_id):
            outcome = one.outcome
            say(["recovered", one.call_id, outcome.value if outcome.ok else outcome.failure.code])
        for run in reversed(await session.runs()):
            outcome = await run.wait()
            if outcome.value != "worked due":  # which may have been fired meanwhile
                say(["run", outcome.value])
        due = await session.scheduled("sch_due")
        await until(lambda: _count(due.history, 1))
        (fired,) = await due.history()
        say(["fired", (await (await runtime.run(fired.run)).wait()).value])
        say(["secret", await session.secrets.get("token")])
        say(["large", hashlib.sha256(await session.files.read_bytes("/large.bin")).hexdigest()])
        say(["odd", (await session.kv.get("k"))["odd"] == ODD])
        before = (await runtime.event_log()).last
        turn = await session.ask("One more.")
        page = await runtime.event_log(before)
        say(["turn", turn.status, len(page.events) > 0 and all(event.number > before for event in page.events)])
