"""Turns on workers: several processes share the turns of many sessions, and one of them may be killed in the middle."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

SESSIONS = 1_000
APP = '''
import asyncio
from pathlib import Path

from toolwright import App, ToolCall, ToolContext, tool
from toolwright.testing import FunctionModel

folder = Path(__file__).parent


def note(line):
    with (folder / "notes").open("a") as file:
        file.write(line + "\\n")


@tool
async def pay(ctx: ToolContext, key: str) -> str:
    """Pay."""
    note(f"pay {ctx.session_id} {key}")
    return f"paid {key}"


@tool(readonly=True)
async def gate() -> str:
    """Wait until there is a file `open`."""
    note("gate")
    while not (folder / "open").exists():
        await asyncio.sleep(0.02)
    return "open"


async def model(request):
    note(f"model {request.session} {request.number}")
    if request.number == 0:
        return [ToolCall("pay", {"key": "a"}, "1")]
    if request.number == 1:
        return [ToolCall("gate", {}, "2"), ToolCall("pay", {"key": "b"}, "3")]
    return "Done."


app = App(tools=[pay, gate], model=FunctionModel(model))
'''
QUEUE = """
from toolwright import App
from toolwright.testing import FunctionModel

async def main():
    async with Runtime.open(store, model=FunctionModel(lambda request: ""), worker=False) as runtime:
        for number in range(count):
            await runtime.session(f"s{number}").start_turn("Go.", id=f"t{number}", background=True)
"""
ENDED = """
async def main():
    async with Runtime.open(store, worker=False) as runtime:
        outcome = await (await runtime.turn("t0"))
        assert (outcome.status, outcome.text) == ("answered", "Done."), outcome
"""
SHARE = """
from toolwright import App, Policy
from toolwright.testing import FunctionModel

running, most = 0, 0

async def model(request):
    global running, most
    running += 1
    most = max(most, running)
    note(f"model {request.session}")
    await asyncio.sleep(0.001)
    running -= 1
    return "Done."

async def main():
    app = App(model=FunctionModel(model), policy=Policy(background_per_worker=20))
    async with app.open(store, worker=True) as runtime:
        say("open")
        while await runtime.turns(active=True, limit=1):
            await asyncio.sleep(0.05)
        say(most)
"""
ASKED = """
from toolwright import App
from toolwright.testing import FunctionModel

async def main():
    async with Runtime.open(store, model=FunctionModel(lambda request: f"{name} {request.number}")) as runtime:
        turn = await runtime.session("s").start_turn(f"From {name}.", id=name)
        say((await turn.info()).state)
        outcome = await turn
        say([outcome.status, outcome.text])
"""
HELD = """
from toolwright import App
from toolwright.testing import FunctionModel

async def model(request):
    say("asked")
    assert await hear() == "answer"
    return "first 0"

async def main():
    async with Runtime.open(store, model=FunctionModel(model)) as runtime:
        outcome = await runtime.session("s").ask("From first.", id="first")
        say([outcome.status, outcome.text])
"""
RECOVER = """
from toolwright import App
from toolwright.testing import FunctionModel

async def main():
    async with Runtime.open(store, model=FunctionModel(lambda request: "Recovered.")) as runtime:
        await runtime.recover("b")
        await runtime.session("b").wait_for_idle()
        say({info.id: info.state for info in await runtime.turns()})
        say([info.text for info in await runtime.turns("b")])
"""
CUT_OFF = """
from toolwright import App
from toolwright.testing import FunctionModel

async def silent(request):
    say("asked")
    await asyncio.Event().wait()

async def main():
    async with Runtime.open(store, model=FunctionModel(silent)) as runtime:
        for name in ("a", "b"):
            await runtime.session(name).start_turn("Go.", id=name)
        await asyncio.Event().wait()
"""


def worker(store: Path) -> "subprocess.Popen[bytes]":
    words = ["-m", "toolwright.cli", "worker", "--app", "agent:app", "--db", store.name, "--grace", "0", "--quiet"]
    return subprocess.Popen([sys.executable, *words], cwd=store.parent, stderr=subprocess.PIPE)


def ended(working: "subprocess.Popen[bytes]", *, kill: bool) -> str:
    """End a worker, and return what it said."""
    working.kill() if kill else working.terminate()
    return working.communicate(timeout=30)[1].decode()


@pytest.mark.promise("TURN-03", "PROC-04")
def test_a_turn_of_a_killed_worker_is_continued_by_the_next(crashes):
    store: Path = crashes.store
    notes = store.with_name("notes")
    store.with_name("agent.py").write_text(APP)
    crashes.run(QUEUE, count=1)
    first = worker(store)
    try:
        wait_until(first, lambda: notes.exists() and "gate" in notes.read_text())
    finally:
        ended(first, kill=True)
    store.with_name("open").touch()
    second = worker(store)
    try:
        wait_until(second, lambda: "model s0 2" in notes.read_text())
        crashes.run(ENDED)
    finally:
        ended(second, kill=False)
    lines = Counter(notes.read_text().split("\n"))
    # No recorded model call and no payment is made twice; the readonly gate is.
    assert {line: lines[line] for line in ("model s0 0", "model s0 1", "model s0 2", "pay s0 a", "pay s0 b")} == {
        "model s0 0": 1,
        "model s0 1": 1,
        "model s0 2": 1,
        "pay s0 a": 1,
        "pay s0 b": 1,
    }


def wait_until(working: "subprocess.Popen[bytes]", true: Any) -> None:
    for _ in range(1_500):
        if true():
            return
        try:
            working.wait(0.03)
        except subprocess.TimeoutExpired:
            continue
        break
    pytest.fail(f"It did not come to that: {ended(working, kill=True)}")


@pytest.mark.promise("TURN-03", "PROC-06")
def test_two_workers_share_the_turns_of_a_thousand_sessions_within_their_capacity(crashes):
    crashes.run(QUEUE, count=SESSIONS)
    workers = [crashes.start(SHARE) for _ in range(2)]
    for each in workers:
        assert each.hear() == "open"
    most = [each.hear() for each in workers]
    for each in workers:
        each.wait()
    assert all(0 < number <= 20 for number in most)
    asked = Counter(crashes.ledger)
    assert (len(asked), set(asked.values())) == (SESSIONS, {1})


@pytest.mark.promise("TURN-03")
def test_a_turn_that_is_asked_while_another_process_works_on_an_earlier_one_waits_for_it(crashes):
    first = crashes.start(HELD)
    assert first.hear() == "asked"
    second = crashes.start(ASKED, name="second")
    assert second.hear() == "queued"
    first.tell("answer")
    assert first.hear() == ["answered", "first 0"]
    assert second.hear() == ["answered", "second 1"]
    first.wait()
    second.wait()


@pytest.mark.promise("TURN-03")
def test_a_turn_that_is_asked_behind_one_of_a_killed_process_continues_both(crashes):
    first = crashes.start(HELD)
    assert first.hear() == "asked"
    second = crashes.start(ASKED, name="second")
    assert second.hear() == "queued"
    first.kill()
    assert second.hear() == ["answered", "second 1"]
    second.wait()


@pytest.mark.promise("TURN-03")
def test_recovering_one_session_leaves_the_turns_of_the_others(crashes):
    program = crashes.start(CUT_OFF)
    assert [program.hear(), program.hear()] == ["asked", "asked"]
    program.kill()
    states, texts = crashes.run(RECOVER).said
    assert (states, texts) == ({"a": "running", "b": "answered"}, ["Recovered."])
