"""The crash kit, as somebody uses it who tests tools."""

import asyncio
import os
import signal

import pytest

from toolwright import Runtime, ToolCall, tool
from toolwright.errors import ToolwrightError
from toolwright.testing import CrashKit, crash_point, note, say
from toolwright.testing.crash_points import POINTS

CALL = ToolCall(id="c1", name="pay", arguments={"amount": 5})


@tool
async def pay(amount: int) -> str:
    note(f"paid {amount}")
    crash_point("the money has moved")
    return "paid"


async def agent(*, store="agent.db", turns: int = 1) -> None:
    async with Runtime.open(store, tools=[pay]) as runtime:
        for turn in range(turns):
            (outcome,) = await runtime.session("s").run_batch([CALL], scope=f"turn {turn}")
            say(outcome.status)


@pytest.mark.promise("EFF-04", "EFF-05")
@pytest.mark.parametrize(
    ("point", "known", "ran", "status"),
    [
        ("before the intents are written", [], 1, "success"),
        ("after the intents are written", ["begun"], 0, "failure"),
        ("before the tool runs", ["begun"], 0, "failure"),
        ("the money has moved", ["begun"], 1, "failure"),
        ("after the tool ran", ["begun"], 1, "failure"),
        ("before the outcome is written", ["begun"], 1, "failure"),
        ("after the outcome is written", ["success"], 1, "success"),
        # The first commits make the store; these are those of the intent with the start, and of the outcome.
        ("before a commit", [], 1, "success"),
        ("after a commit", ["begun"], 0, "failure"),
        ("before a commit 2", ["begun"], 1, "failure"),
        ("after a commit 2", ["success"], 1, "success"),
    ],
)
def test_a_program_killed_at_a_point_left_what_it_had_done_by_then(crashes, point, known, ran, status):
    name = point.rstrip(" 2")
    nth = int(point.removeprefix(name) or 1)
    if name.endswith("a commit"):
        crashes.run(agent, turns=0)
        nth += name == "before a commit"  # opening a store is one
    killed = crashes.kill_at(name, agent, nth=nth)
    left = [call.state for call in crashes.calls()]
    again = crashes.run(agent)

    assert (killed.killed, killed.said, left) == (True, [], known)
    assert (again.killed, again.said) == (False, [status])
    assert crashes.ledger == ["paid 5"] * ran
    assert [call[:4] for call in crashes.calls()] == [("s", "turn 0", "c1", "pay")]


async def pays_twice(*, store="agent.db") -> None:
    calls = [CALL, ToolCall(id="c2", name="pay", arguments={"amount": 6})]
    async with Runtime.open(store, tools=[pay]) as runtime:
        say([outcome.status for outcome in await runtime.session("s").run_batch(calls)])


@pytest.mark.promise("EFF-04", "EFF-05")
@pytest.mark.parametrize(
    ("point", "known", "paid", "statuses"),
    [
        ("after the intents are written", ["begun", "intended"], [6], ["failure", "success"]),
        ("before the outcome is written", ["begun", "intended"], [5, 6], ["failure", "success"]),
        ("before the start is written", ["begun", "intended"], [5, 6], ["failure", "success"]),
        # The outcome of the first and the start of the second are one commit.
        ("after the outcome is written", ["success", "begun"], [5], ["success", "failure"]),
        ("after the start is written", ["success", "begun"], [5], ["success", "failure"]),
        ("before a commit 2", ["begun", "intended"], [5, 6], ["failure", "success"]),
        ("after a commit 2", ["success", "begun"], [5], ["success", "failure"]),
        ("before a commit 3", ["success", "begun"], [5, 6], ["success", "failure"]),
        ("after a commit 3", ["success", "success"], [5, 6], ["success", "success"]),
    ],
)
def test_a_call_that_waits_for_another_is_marked_as_started_with_the_outcome_of_that(
    crashes, point, known, paid, statuses
):
    name = point.rstrip(" 23")
    nth = int(point.removeprefix(name) or 1)
    if name.endswith("a commit"):
        crashes.run(agent, turns=0)
        nth += name == "before a commit"  # opening a store is one
    killed = crashes.kill_at(name, pays_twice, nth=nth)
    left = [call.state for call in crashes.calls()]
    again = crashes.run(pays_twice)

    assert (killed.killed, left) == (True, known)
    assert (again.said, crashes.ledger) == ([statuses], [f"paid {sum}" for sum in paid])


def test_a_point_may_be_passed_several_times_before_the_kill(crashes):
    killed = crashes.kill_at("after the tool ran", agent, nth=3, turns=5)

    assert killed.said == ["success", "success"]
    assert crashes.ledger == ["paid 5"] * 3


def test_the_points_that_a_program_passes_are_listed(crashes):
    passed = crashes.points(agent, turns=2)

    twice = [name for name, nth in passed if nth == 2 and "a commit" not in name]
    assert twice == [*POINTS[:2], POINTS[4], "the money has moved", *POINTS[5:8]]
    assert [(name, nth) for name, nth in crashes.points(agent, turns=2) if "a commit" not in name] == [
        ("before the intents are written", 1),
        ("before the intents are written", 2),
        ("after the intents are written", 1),
        ("after the intents are written", 2),
    ]


def test_a_doomed_program_is_killed_at_its_point_while_others_go_on(crashes):
    doomed = crashes.start_doomed("the money has moved", agent, nth=2, turns=3)
    other = crashes.start(signal.pause)

    assert (doomed.wait().killed, doomed.wait().said) == (True, ["success"])
    assert other.kill().killed


def test_a_frozen_program_stands_still_at_its_point_until_it_is_thawed(crashes):
    frozen = crashes.start_frozen("the money has moved", agent, nth=2, turns=3)
    frozen.listen(0.05)
    assert crashes.ledger == ["paid 5"] * 2

    frozen.thaw()
    assert frozen.wait().said == ["success", "success"]
    assert crashes.ledger == ["paid 5"] * 3


def test_a_program_may_be_frozen_anywhere(crashes):
    def count() -> None:
        for number in range(1_000_000):
            note(str(number))
            if number == 10:
                say("counting")

    running = crashes.start(count)
    running.hear()
    running.freeze()
    running.listen(0.02)  # the signal takes its time
    still = crashes.ledger
    running.listen(0.02)
    assert crashes.ledger == still
    running.thaw()
    assert running.kill().killed


def test_looking_at_a_store_changes_nothing(crashes):
    crashes.kill_at("before the tool runs", agent)
    before = {path.name: path.read_bytes() for path in crashes.folder.iterdir()}

    assert [call.state for call in crashes.calls()] == ["begun"]
    assert {path.name: path.read_bytes() for path in crashes.folder.iterdir()} == before


def test_a_point_that_is_never_reached_is_a_failed_test_that_lists_the_others(crashes):
    with pytest.raises(
        AssertionError, match=r"before it passed 'the mony has moved' 1 x; it passed .*'the money has moved' 1 x"
    ):
        crashes.kill_at("the mony has moved", agent)


def test_a_call_that_is_cancelled_passes_the_points_of_taking_back_and_of_letting_go(crashes):
    async def stopped(closing: bool) -> None:
        @tool
        async def hang() -> None:
            begun.set()
            await asyncio.Event().wait()

        begun = asyncio.Event()
        async with Runtime.open("agent.db", tools=[hang]) as runtime:
            # Both are exclusive: the second has not begun when the first is cancelled.
            calls = [ToolCall(id=name, name="hang") for name in ("first", "second")]
            batch = runtime.session("s").start_batch(calls)
            await begun.wait()
            if not closing:
                batch.cancel()
                await batch

    assert crashes.kill_at("after the intent is taken back", stopped, closing=False).killed
    states = {call.call_id: call.state for call in crashes.calls()}
    assert "second" not in states
    assert crashes.kill_at("after the call is released", stopped, closing=True).killed


@pytest.mark.parametrize("isolation", ["none", "thread", "process"])
def test_the_points_around_a_tools_code_are_there_wherever_it_runs(crashes, isolation):
    async def program() -> None:
        if isolation == "none":

            @tool
            async def work() -> str:
                return "done"
        else:

            @tool(isolation="process" if isolation == "process" else "none")
            def work() -> str:
                return "done"

        async with Runtime.open("agent.db", tools=[work]) as runtime:
            say((await runtime.session("s").call("work")).value)

    ended = crashes.run(program)

    assert ended.said == ["done"]
    assert ended.passed["before the tool runs"] == ended.passed["after the tool ran"] == 1
    crashes.kill_at("after the tool ran", program)


def test_a_program_may_be_a_text_or_a_script_or_plain(crashes):
    text = "def main():\n    say(greeting)\n"
    script = crashes.folder / "script.py"
    script.write_text(
        "from toolwright.testing import say\nif __name__ == '__main__':\n    say(greeting)\n    print('bye')"
    )

    assert crashes.run(text, greeting="hello").said == ["hello"]
    assert crashes.run(script, greeting="good day")[1:3] == (["good day"], "bye\n")
    assert crashes.run(lambda greeting: say(greeting), greeting="servus").said == ["servus"]


def test_a_program_is_killed_after_a_while_unless_it_has_ended(crashes):
    assert crashes.kill_after(0.05, signal.pause).killed
    assert not crashes.kill_after(20, agent).killed


def test_a_program_that_raises_fails_the_test_with_its_traceback(crashes):
    def broken() -> None:
        print("so far so good")
        raise ValueError("odd")

    with pytest.raises(AssertionError, match=r"so far so good\n(.*\n)*ValueError: odd"):
        crashes.run(broken)


def test_what_a_program_says_does_not_stop_it_however_much_it_is(crashes):
    def chatty() -> None:
        for n in range(5_000):
            say("x" * 100 + str(n))

    assert len(crashes.run(chatty).said) == 5_000


def test_what_still_runs_is_killed_when_the_kit_is_closed(zygote, tmp_path):
    def hang() -> None:
        say(os.getpid())
        signal.pause()

    with CrashKit(tmp_path, zygote=zygote) as kit:
        pid = kit.start(hang).hear()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_note_and_say_outside_of_the_kit_are_refused_and_a_point_is_nothing():
    crash_point("anywhere")
    with pytest.raises(ToolwrightError, match="use note, say and hear in a program it runs"):
        note("lost")
