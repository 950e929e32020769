"""A model that starts a run, when its process is killed around that."""

from pathlib import Path

import pytest

from tests.crash.conftest import Crashes

AGENT = """
@tool(supports_background=True)
async def ship(number: int) -> int:
    return number

async def main():
    async with Runtime.open(store, tools=[ship], worker=False) as runtime:
        session = runtime.session("s")
        arguments = {"tool": "ship", "args": {"number": 1}}
        (outcome,) = await session.run_batch([ToolCall(id="c1", name="spawn_background", arguments=arguments)])
        say([outcome.status, [run.id for run in await session.runs()] == [outcome.value["run_id"]]])
"""


@pytest.mark.promise("PROC-05", "EFF-01")
async def test_a_run_that_was_started_before_a_kill_is_not_started_again(zygote, tmp_path: Path):
    def kit(name: str) -> Crashes:
        folder = tmp_path / name
        folder.mkdir()
        return Crashes(folder, zygote=zygote)

    with kit("whole") as whole:
        points = whole.points(AGENT)
    assert {name for name, _ in points} >= {"before a commit", "after a commit"}
    for index, (point, nth) in enumerate(points):
        with kit(str(index)) as crashes:
            crashes.kill_at(point, AGENT, nth=nth)
            assert crashes.run(AGENT).said == [["success", True]], (point, nth)
