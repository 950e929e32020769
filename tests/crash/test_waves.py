"""Calls that start as others end: what the journal knows of each when the process is killed anywhere between."""

import json
from collections import Counter

import pytest

from toolwright.testing import CrashKit

STORY = """
from toolwright import Policy

@tool(exclusive=exclusive, parallel=not exclusive)
async def pay(n: int) -> int:
    note(f"paid {n}")
    crash_point("the money has moved")
    return n

async def main():
    calls = [ToolCall(id=f"c{n}", name="pay", arguments={"n": n}) for n in range(count)]
    async with Runtime.open(store, tools=[pay], policy=Policy(max_concurrency=3)) as runtime:
        outcomes = await runtime.session("s").run_batch(calls)
        say([[outcome.status, outcome.failure and outcome.failure.category] for outcome in outcomes])
"""


@pytest.mark.promise("EFF-04", "EFF-05", "SCHED-01")
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize(("exclusive", "count"), [(False, 8), (True, 4)])
def test_killed_at_any_point_between_two_waves_each_payment_happens_once_or_is_in_doubt(
    zygote, tmp_path, exclusive, count, part
):
    given = {"exclusive": exclusive, "count": count}
    (tmp_path / "whole").mkdir()
    with CrashKit(tmp_path / "whole", zygote=zygote) as kit:
        points = kit.points(STORY, **given)
    slots, seen = 1 if exclusive else 3, 0
    for number, (point, nth) in enumerate(points[part::4]):
        (tmp_path / str(number)).mkdir()
        with CrashKit(tmp_path / str(number), zygote=zygote) as kit:
            # It may end before: writes of the same moment are one commit or two.
            seen += kit.start_doomed(point, STORY, nth=nth, **given).wait().killed
            paid = Counter(kit.ledger)
            states = {call.call_id: call.state for call in kit.calls()}
            (told,) = kit.run(STORY, **given).said
            after = Counter(kit.ledger)

        place = f"{point} {nth}: {json.dumps(states)}"
        assert max(after.values(), default=0) <= 1, place
        begun = [id for id, state in states.items() if state == "begun"]
        assert len(begun) <= slots, place
        for n in range(count):
            state, effect = states.get(f"c{n}"), f"paid {n}"
            if state in (None, "intended"):  # known not to have begun, so it ran the second time
                assert (paid[effect], after[effect], told[n]) == (0, 1, ["success", None]), place
            elif state == "begun":
                assert (after[effect], told[n]) == (paid[effect], ["failure", "interrupted"]), place
            else:
                assert (state, paid[effect], told[n]) == ("success", 1, ["success", None]), place
        if exclusive:  # what came first has its outcome before the next one begins
            order = [states.get(f"c{n}") for n in range(count)]
            assert order == sorted(order, key=["success", "begun", "intended", None].index), place
    assert seen > 5
