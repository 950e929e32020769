"""Runs that a trigger starts, when the program that tells of an occurrence is killed meanwhile."""

from collections import Counter
from pathlib import Path

import pytest

from tests.crash.conftest import Crashes
from tests.support import fail_after
from toolwright import Runtime, tool

WEBHOOK = """
@tool(supports_background=True)
async def ship(order: dict) -> int:
    return order["number"]

async def main():
    async with Runtime.open(store, tools=[ship], worker=False) as runtime:
        for name in ("a", "b"):
            await runtime.session(name).on("order.created", "ship", id="ships", payload_as="order")
        for number in (1, 2):
            runs = await runtime.occur("order.created", {"number": number}, key=f"order-{number}")
            say(sorted(run.record.session for run in runs))
"""


@tool(supports_background=True)
async def ship(order: dict) -> int:
    """The same in the test's own process."""
    number: int = order["number"]
    return number


@pytest.mark.promise("PROC-10")
async def test_what_occurs_starts_each_run_once_wherever_it_is_interrupted(zygote, tmp_path: Path):
    def kit(name: str) -> Crashes:
        folder = tmp_path / name
        folder.mkdir()
        return Crashes(folder, zygote=zygote)

    with kit("whole") as whole:
        points = whole.points(WEBHOOK)
    assert {name for name, _ in points} >= {"before a commit", "after a commit"}
    for index, (point, nth) in enumerate(points):
        with kit(str(index)) as crashes:
            crashes.kill_at(point, WEBHOOK, nth=nth)
            assert crashes.run(WEBHOOK).said == [["a", "b"]] * 2, (point, nth)
            async with fail_after(20), Runtime.open(crashes.store, tools=[ship], worker=True) as runtime:
                runs = [run for name in ("a", "b") for run in await runtime.session(name).runs()]
                done = Counter([(run.to_json()["session"], (await run.wait()).value) for run in runs])
        assert done == Counter([("a", 1), ("a", 2), ("b", 1), ("b", 2)]), (point, nth)
