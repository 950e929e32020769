"""The timeline and the table of outcomes."""

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from toolwright import CallRecord, Failure, ToolOutcome, jsonx
from toolwright.cli.display.outcome_table import outcome_table
from toolwright.cli.display.timeline import Bar, Span, timeline

START = 1_000.0


def record(
    call_id: str, started: float | None, finished: float, *, waited_for: tuple[str, ...] = (), **more: Any
) -> CallRecord:
    return CallRecord(
        session="s",
        batch="b",
        call_id=call_id,
        tool="t",
        tool_id="t",
        source="model",
        parent=more.get("parent"),
        raw_arguments=b"{}",
        offset=START,
        queued=0.0,
        started=started,
        finished=finished,
        attempts=0 if started is None else 1,
        waited_for=waited_for,
        outcome=ToolOutcome(call_id=call_id, tool="t", status=more.get("status", "success")),
    )


def shown(thing: RenderableType, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as captured:
        console.print(thing, end="")
    return captured.get()


@pytest.mark.parametrize(
    ("started", "finished", "expected"),
    [
        (0.0, 10.0, "▄▄▄▄▄▄▄▄▄▄"),
        (0.0, 5.0, "▄▄▄▄▄"),
        (5.0, 10.0, "·····▄▄▄▄▄"),
        (2.5, 7.5, "··▗▄▄▄▄▖"),
        (4.0, 4.0, "····▖"),
        (4.5, 4.5, "····▗"),
        (10.0, 10.0, "·········▗"),
        (None, 0.0, "│"),
        (None, 6.0, "······│"),
        (None, 10.0, "·········│"),
    ],
)
def test_a_bar_has_dots_while_the_call_waited_and_blocks_while_it_ran(
    started: float | None, finished: float, expected: str
) -> None:
    bar = Bar(record("c", started, finished), Span(START, START + 10))
    assert shown(bar, width=10) == expected


def test_each_call_has_a_line_with_its_times_and_why_it_waited() -> None:
    text = shown(
        timeline([record("a", 0, 2), record("b", 2, 3, waited_for=("a",)), record("c", None, 0, status="failure")])
    )
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert lines["a"].split()[-2:] == ["2.00", "s"]
    assert lines["b"].split()[-6:] == ["2.00", "s", "1.00", "s", "for", "a"]
    assert lines["c"].split()[-1] == "never"
    assert "3 calls, 3.00 s of running in 3.00 s, up to 1 at once" in text


def test_the_axis_has_labels_at_round_times() -> None:
    text = shown(timeline([record("a", 0, 4)]))
    for label in ("╵0", "╵1 s", "╵2 s", "╵3 s"):
        assert label in text


def test_of_many_that_were_waited_for_the_last_one_is_named() -> None:
    text = shown(
        timeline(
            [
                record("quick", 0, 1),
                record("slow", 0, 5),
                record("middle", 0, 3),
                record("alone", 5, 6, waited_for=("quick", "middle", "slow")),
            ]
        )
    )
    assert "for slow and others" in text


def test_a_slot_is_named_as_the_record_names_it() -> None:
    assert "for a slot of the batch" in shown(timeline([record("a", 1, 2, waited_for=("a slot of the batch",))]))


def test_nested_calls_stand_below_theirs() -> None:
    text = shown(timeline([record("outer", 0, 3), record("last", 0, 1), record("inner", 1, 2, parent="outer")]))
    places = [text.index(name) for name in ("outer", "└ inner", "last")]
    assert places == sorted(places)


def test_of_too_many_calls_those_that_ran_longest_are_drawn() -> None:
    records = [record(f"quick{number}", 0, 1) for number in range(5)]
    text = shown(timeline([*records, record("slow", 0, 9)], most=2))
    assert "slow" in text
    assert "quick4" not in text
    assert "6 calls (2 shown" in text


def test_no_calls_give_an_empty_timeline() -> None:
    assert "0 calls" in shown(timeline([]))


def test_long_ids_are_cut_in_the_middle() -> None:
    text = shown(timeline([record("toolu_01ABCDEFGHIJKLMNOPQRSTUVWXYZ", 0, 1)]))
    assert "toolu_01ABC…QRSTUVWXYZ" in text


def test_outcomes_show_the_first_line_of_what_the_model_reads() -> None:
    failure = Failure(message="Out of paper", code="empty")
    text = shown(
        outcome_table(
            [
                ToolOutcome(call_id="a", tool="t", status="success", payload=b'"one\\ntwo\\nthree"'),
                ToolOutcome(call_id="b", tool="t", status="failure", failure=failure),
                ToolOutcome(
                    call_id="c",
                    tool="t",
                    status="success",
                    payload=jsonx.encode("x" * 2_000_000),
                    model_text="xx",
                    spilled_to="somewhere",
                ),
            ]
        )
    )
    assert "[3 lines] one" in text
    assert "two" not in text
    assert '{"error":"Out of paper"}' in text
    assert "[2.0 MB, whole in a file] xx" in text


def test_markup_in_a_result_is_text() -> None:
    outcome = ToolOutcome(call_id="[red]a", tool="t", status="success", payload=b'"[bold]x[/bold]"')
    assert "[bold]x[/bold]" in shown(outcome_table([outcome]))


def test_of_too_many_outcomes_failures_are_shown_first() -> None:
    fine = [ToolOutcome(call_id=f"ok{number}", tool="t", status="success") for number in range(5)]
    bad = ToolOutcome(call_id="bad", tool="t", status="failure", failure=Failure(message="no"))
    text = shown(outcome_table([*fine, bad], most=2))
    assert "bad" in text
    assert "2 of 6 outcomes" in text
