"""Steps of parallel calls, whose marks and results share commits with everything else: what each is worth when the
process is killed anywhere between."""

import json
from collections import Counter
from typing import Any

import pytest

from toolwright.testing import CrashKit, Zygote

STORY = """
import os

from toolwright import Policy, ToolContext

@tool(parallel=True, on_crash="rerun")
async def pay(ctx: ToolContext, n: int) -> str:
    async def charge() -> str:
        note(f"paid {n}")
        crash_point("the money has moved")
        return os.urandom(4).hex()

    receipt = await ctx.step("charge", charge, on_crash=on_crash)
    note(f"saw {n} {receipt}")
    crash_point("the receipt is seen")
    return receipt

async def main():
    calls = [ToolCall(id=f"c{n}", name="pay", arguments={"n": n}) for n in range(count)]
    async with Runtime.open(store, tools=[pay], policy=Policy(max_concurrency=2)) as runtime:
        outcomes = await runtime.session("s").run_batch(calls)
        say([outcome.value if outcome.status == "success" else outcome.failure.category for outcome in outcomes])
"""
COUNT = 4


def killed_everywhere(zygote: Zygote, folder: Any, on_crash: str, part: int) -> Any:
    """For each point at which a program can be killed: the point, the ledger then and after a second run, and what
    that one says of the calls."""
    given = {"on_crash": on_crash, "count": COUNT}
    (folder / "whole").mkdir()
    with CrashKit(folder / "whole", zygote=zygote) as kit:
        points = kit.points(STORY, **given)
    killed = 0
    for number, (point, nth) in enumerate(points[part::4]):
        (folder / str(number)).mkdir()
        with CrashKit(folder / str(number), zygote=zygote) as kit:
            # It may end before: writes of the same moment are one commit or two.
            killed += kit.start_doomed(point, STORY, nth=nth, **given).wait().killed
            before = list(kit.ledger)
            (told,) = kit.run(STORY, **given).said
            yield f"{point} {nth}: {json.dumps(before)}", before, list(kit.ledger), told
    assert killed > 5


def receipts_seen(ledger: list[str], n: int) -> set[str]:
    """The receipts that the code behind the step of a call was given."""
    return {line.split()[2] for line in ledger if line.startswith(f"saw {n} ")}


@pytest.mark.promise("EFF-06", "EFF-05")
@pytest.mark.parametrize("part", range(4))
def test_killed_anywhere_a_step_that_may_not_be_repeated_happens_once_or_is_in_doubt(zygote, tmp_path, part):
    for place, before, after, told in killed_everywhere(zygote, tmp_path, "fail", part):
        paid, in_all = Counter(before), Counter(after)
        for n in range(COUNT):
            effect = f"paid {n}"
            if told[n] == "interrupted":
                # It had its mark, and perhaps happened; it does not happen now, and no code saw a receipt.
                assert in_all[effect] == paid[effect] <= 1, place
                assert receipts_seen(after, n) == set(), place
            else:
                assert in_all[effect] == 1, place
                assert receipts_seen(after, n) == {told[n]}, place
        assert told.count("interrupted") <= 2, place  # of no more than are running at once


@pytest.mark.promise("EFF-06", "EFF-04")
@pytest.mark.parametrize("part", range(4))
def test_killed_anywhere_a_step_that_may_run_again_has_one_result_that_code_has_seen(zygote, tmp_path, part):
    for place, _, after, told in killed_everywhere(zygote, tmp_path, "rerun", part):
        for n in range(COUNT):
            assert receipts_seen(after, n) == {told[n]}, place
            assert Counter(after)[f"paid {n}"] in (1, 2), place
