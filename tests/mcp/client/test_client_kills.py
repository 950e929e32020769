"""Calls of MCP tools whose server, or whose own process, is killed in the middle: no effect twice, no answer lost."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.crash.conftest import Crashes
from tests.mcp.client.conftest import RAW, lines
from toolwright.testing import Zygote

CALLS = 4
PROGRAM = """
import sys

from toolwright import App, Policy, ToolCall
from toolwright.mcp import McpServer

async def main():
    server = McpServer.stdio(
        "plain",
        sys.executable,
        [raw, folder, behaviour],
        tools={"effect": {"idempotent": True}} if repeatable else {},
        connect_timeout=30.0,
    )
    async with App(tools=[server]).open(store) as runtime:
        for number in range(calls):
            call = ToolCall(id=f"c{number}", name="plain__effect", arguments={"text": f"c{number}"})
            (outcome,) = await runtime.session("s").run_batch([call])
            say([f"c{number}", outcome.status, outcome.value, outcome.failure and outcome.failure.code])
"""


def run(kit: Crashes, behaviour: str, *, repeatable: bool = False, kill_at: tuple[str, int] | None = None):
    folder = kit.folder / "server"
    folder.mkdir(exist_ok=True)
    given = {
        "raw": str(RAW),
        "folder": str(folder),
        "behaviour": behaviour,
        "repeatable": repeatable,
        "calls": CALLS,
    }
    if kill_at is None:
        return kit.run(PROGRAM, **given)
    point, nth = kill_at
    return kit.kill_at(point, PROGRAM, nth=nth, **given)


def effects(kit: Crashes) -> Counter[str]:
    return Counter(lines(kit.folder / "server" / "effects"))


@pytest.mark.promise("MCP-03")
@pytest.mark.parametrize("revision", ["modern", "legacy"])
@pytest.mark.parametrize("place", ["before", "after", "answered"])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
def test_a_server_that_is_killed_in_the_middle_repeats_no_effect(crashes, revision, place, number):
    said = run(crashes, f"{revision},kill:{place}:{number}").said
    done = effects(crashes)
    assert max(done.values()) == 1
    for call, status, value, code in said:
        assert (status, value, done[call]) == ("success", "done", 1) or (code, done[call]) in (
            ("interrupted", 0),
            ("interrupted", 1),
        )
    failed = [call for call, status, *_ in said if status != "success"]
    # A server that is killed after it answered costs at most the call that comes as it dies.
    assert len(failed) <= 1
    assert len(said) == CALLS
    # The next call starts it again; there is none after one that came last, as it died.
    another = number < CALLS and f"c{CALLS - 1}" not in failed
    assert not another or len(lines(crashes.folder / "server" / "pids")) == 2


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Callable[[str], list[tuple[str, int]]]:
    """The points that the program passes in the calls, as a run without a kill finds them."""
    found: dict[str, list[tuple[str, int]]] = {}

    def of(revision: str) -> list[tuple[str, int]]:
        if revision not in found:
            with Crashes(tmp_path_factory.mktemp(revision), zygote=zygote) as kit:
                folder = kit.folder / "server"
                folder.mkdir()
                given = {"raw": str(RAW), "folder": str(folder), "behaviour": revision, "repeatable": False}
                found[revision] = kit.points(PROGRAM, calls=CALLS, **given)
        return found[revision]

    return of


KILLS = 8


@pytest.mark.promise("MCP-03", "EFF-05")
@pytest.mark.parametrize("revision", ["modern", "legacy"])
@pytest.mark.parametrize("number", range(KILLS))
def test_our_process_is_killed_in_the_middle_and_repeats_no_effect(crashes, points, revision, number):
    of_calls = points(revision)[-3 * KILLS :]  # the first ones are those of the opening
    point = of_calls[number * len(of_calls) // KILLS]
    first = run(crashes, revision, kill_at=point)
    assert first.killed
    second = run(crashes, revision)
    done = effects(crashes)
    assert max(done.values(), default=0) <= 1
    again = {call: (status, value) for call, status, value, _ in second.said}
    for call, status, value, _ in first.said:
        assert again[call] == (status, value)  # an outcome that was acknowledged is not lost
    for call, status, value, code in second.said:
        assert (status, value, done[call]) == ("success", "done", 1) or code == "interrupted"
    assert sum(status == "success" for _, status, *_ in second.said) >= CALLS - 1


@pytest.mark.promise("MCP-03", "EFF-05")
def test_a_call_that_may_be_repeated_is_sent_again_after_a_kill(crashes):
    said = run(crashes, "legacy,kill:after:2", repeatable=True).said
    assert [status for _, status, *_ in said] == ["success"] * CALLS
    assert effects(crashes) == {"c0": 1, "c1": 2, "c2": 1, "c3": 1}
