"""Claims between programs that share a store: real processes, and a ledger outside of the store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.conftest import Crashes
from toolwright.testing.programs import Running

PROGRAM = """
from toolwright import ToolContext

async def visit(name):
    note(f"{name} in")
    say(f"{name} in")
    await hear()
    note(f"{name} out")
    return name

@tool(writes="path")
async def write(ctx: ToolContext, path: str) -> str:
    return await visit(ctx.call_id)

@tool(reads="path")
async def read(ctx: ToolContext, path: str) -> str:
    return await visit(ctx.call_id)

@tool(key="account:{who}")
async def book(ctx: ToolContext, who: str) -> str:
    return await visit(ctx.call_id)

@tool
async def alone(ctx: ToolContext) -> str:
    return await visit(ctx.call_id)

@tool(readonly=True)
async def look(ctx: ToolContext) -> str:
    return await visit(ctx.call_id)

async def main():
    async with Runtime.open(place, tools=[write, read, book, alone, look]) as runtime:
        say("open")
        await hear()
        batch = runtime.session("s").start_batch([ToolCall(id=id, name=name, arguments=arguments)])
        await batch.launched()
        say("begun")
        (outcome,) = await batch
        (record,) = runtime.log.query(call_id=id)
        say([outcome.status, list(record.waited_for)])
"""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, crashes: Crashes) -> Iterator[str | Path]:
    if request.param == "sqlite":
        yield crashes.store
        return
    server = request.getfixturevalue("postgres")
    with server.schema() as schema:
        yield f"{server.url}?schema={schema}"


def start(crashes: Crashes, place: str | Path, id: str, name: str, **arguments: str) -> Running:
    """A program that has the store open, and begins its call when it is told so."""
    running = crashes.start(PROGRAM, place=str(place), id=id, name=name, arguments=arguments)
    assert running.hear() == "open"
    return running


def enter(running: Running, id: str) -> None:
    """Let a program begin its call, which runs at once."""
    running.tell("begin")
    assert {running.hear(), running.hear()} == {"begun", f"{id} in"}


def queue(running: Running) -> None:
    """Let a program begin its call, which waits."""
    running.tell("begin")
    assert running.hear() == "begun"


CONFLICTS = {
    "the same path": (("write", {"path": "x"}), ("write", {"path": "/workspace/x"})),
    "the same key": (("book", {"who": "ann"}), ("book", {"who": "ann"})),
    "an exclusive call beside a readonly one": (("look", {}), ("alone", {})),
}


@pytest.mark.promise("ENG-03", "SCHED-01", "SCHED-03")
@pytest.mark.parametrize("calls", CONFLICTS.values(), ids=CONFLICTS)
def test_conflicting_calls_of_two_programs_run_in_the_order_in_which_they_began(crashes, place, calls):
    (first, given), (second, other) = calls
    one, two = start(crashes, place, "a", first, **given), start(crashes, place, "b", second, **other)
    enter(one, "a")
    queue(two)
    one.tell("go")
    assert two.hear() == "b in"
    assert crashes.ledger == ["a in", "a out", "b in"]
    two.tell("go")
    assert one.wait().said[-1] == ["success", []]
    assert two.wait().said[-1] == ["success", ["a"]]


@pytest.mark.promise("ENG-03", "SCHED-01")
def test_calls_of_two_programs_that_read_one_path_overlap(crashes, place):
    one, two = start(crashes, place, "a", "read", path="x"), start(crashes, place, "b", "read", path="x")
    for running, name in ((one, "a"), (two, "b")):
        enter(running, name)  # while the other one is inside
    assert crashes.ledger == ["a in", "b in"]
    for running in (one, two):
        running.tell("go")
        assert running.wait().said[-1] == ["success", []]


@pytest.mark.promise("ENG-03", "EFF-12")
def test_the_claims_of_a_program_that_is_killed_are_free(crashes, place):
    one, two = start(crashes, place, "a", "alone"), start(crashes, place, "b", "alone")
    enter(one, "a")
    queue(two)
    one.kill()
    assert two.hear() == "b in"
    assert crashes.ledger == ["a in", "b in"]
    two.tell("go")
    assert two.wait().said[-1] == ["success", ["a"]]


@pytest.mark.promise("ENG-03", "EFF-12", "ENG-02")
def test_a_program_that_is_only_stopped_keeps_its_claims(crashes, place):
    one, two = start(crashes, place, "a", "alone"), start(crashes, place, "b", "alone")
    enter(one, "a")
    one.freeze()
    queue(two)
    two.listen(1.0)  # it looks some times
    assert crashes.ledger == ["a in"]
    one.thaw()
    one.tell("go")
    assert two.hear() == "b in"
    assert crashes.ledger == ["a in", "a out", "b in"]
    two.tell("go")
    assert one.wait().said[-1] == ["success", []]
    assert two.wait().said[-1] == ["success", ["a"]]


MANY = """
from toolwright import ToolContext

@tool(writes="path")
async def write(ctx: ToolContext, path: str) -> str:
    note(f"{path} {ctx.call_id} in")
    await asyncio.sleep(0)
    note(f"{path} {ctx.call_id} out")
    return path

@tool
async def alone(ctx: ToolContext) -> str:
    note(f"* {ctx.call_id} in")
    await asyncio.sleep(0)
    note(f"* {ctx.call_id} out")
    return "all"

async def main():
    async with Runtime.open(place, tools=[write, alone]) as runtime:
        say("open")
        await hear()
        for batch in range(batches):
            paths = [{"path": "xyz"[n % 3]} for n in range(5)]
            calls = [ToolCall(id=f"{name}.{batch}.{n}", name="write", arguments=path) for n, path in enumerate(paths)]
            calls.insert(2, ToolCall(id=f"{name}.{batch}.all", name="alone"))
            await runtime.session("s").run_batch(calls)
        say("done")
"""


@pytest.mark.promise("ENG-03", "SCHED-01", "SCHED-05")
def test_no_two_conflicting_calls_of_three_programs_overlap(crashes, place):
    programs = [crashes.start(MANY, place=str(place), name=name, batches=5) for name in "abc"]
    for running in programs:
        assert running.hear() == "open"
    for running in programs:
        running.tell("go")
    for running in programs:
        assert running.wait().said[-1] == "done"
    assert len(crashes.ledger) == 3 * 5 * 6 * 2
    inside: dict[str, str] = {}
    for line in crashes.ledger:
        path, call, way = line.split()
        if way == "out":
            del inside[path]
            continue
        assert not inside if path == "*" else {path, "*"}.isdisjoint(inside), f"{call} came in beside {inside}"
        inside[path] = call
