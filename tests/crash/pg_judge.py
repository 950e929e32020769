"""What must hold for each cell of the kill matrix on PostgreSQL. Owns the expectations; rounds own what happened."""

from __future__ import annotations

from typing import Any

from tests.crash.pg_agent import WORKS
from tests.crash.pg_rounds import TAKEN_OVER

RERUN = ("rerun", "steps", "probe")
"""Tools that another process may run again, or find out about; all others run once at most."""
FENCED = tuple(fault for fault in TAKEN_OVER if "killed" not in fault)
"""Faults after which the former owner goes on, and must find that its work is no longer its own."""


def judge(fault: str, point: str, work: str, cell: dict[str, Any]) -> None:
    """Hold what was done against what may be done, for one work at one point.

    Raises:
        AssertionError: something was lost, or repeated, or did not end.
    """
    assert cell["again"] is not None, f"nobody could say how it ended: {cell}"
    assert "unfinished" not in cell, f"a call has no outcome: {cell}"
    run = cell.get("run")
    assert run is None or run[1] in ("completed", "abandoned"), f"the run has not ended: {cell}"
    if fault in TAKEN_OVER:
        judge_takeover(fault, point, work, cell)
    else:
        judge_survivor(point, work, cell)


def judge_survivor(point: str, work: str, cell: dict[str, Any]) -> None:
    """The process lives: everything happens once, nobody takes it over, and what it was told is what is stored."""
    lines, kind = cell["lines"], WORKS[work].kind
    assert cell["refused"] is None, f"a living owner was refused: {cell}"
    assert cell["ended"] is not None, f"it did not come to its end: {cell}"
    assert cell["ended"] == cell["again"], f"an acknowledged outcome is another one now: {cell}"
    assert (lines.count("tool"), lines.count("step")) == (1, 1), f"it happened twice, or not at all: {cell}"
    if "turn" in kind:
        assert cell["ended"] == ["answered", "Done.", None], cell
        assert lines.count("model") == 2, f"the model was asked again: {cell}"
        assert cell["token"] == 1, f"the turn was taken over: {cell}"
        return
    assert cell["ended"][0] == "success", cell
    assert (point == "in a wait" and WORKS[work].tool != "approved") == str(cell["ended"][1]).endswith("went"), cell
    if "run" in cell:
        assert cell["run"] == [1, "completed"], f"the run was taken over: {cell}"


def judge_takeover(fault: str, point: str, work: str, cell: dict[str, Any]) -> None:
    """Another process has it: what was stored stands, and the rest is as the crash policy says."""
    lines, (kind, tool) = cell["lines"], WORKS[work]
    tools, steps = lines.count("tool"), lines.count("step")
    status, value, code = cell["again"]
    done = status == "answered" and code is None if "turn" in kind else status == "success"
    cut_off = code == "interrupted"
    assert done or cut_off, f"it ended in another way: {cell}"
    # Its approval may come in time for its tool to begin.
    approved = point == "in a wait" and tool == "approved" and tools == 1
    if cell["committed"] or (point in ("before it begins", "in a wait", "at the end") and not approved):
        assert done, f"a stored outcome, or an acknowledged resolution, is lost: {cell}"
    if point in ("in a tool", "in a step"):
        may_run_again = tool in RERUN and not (point == "in a step" and tool == "steps")
        assert done == may_run_again, f"its crash policy is not followed: {cell}"
    if point == "in a wait" and tool != "approved" and "turn" not in kind:
        assert str(value).endswith("went"), f"an acknowledged resolution is lost: {cell}"

    most = 2 if tool in RERUN and point not in ("before it begins", "at the end") and not cell["committed"] else 1
    assert 1 <= tools <= most, f"the tool ran {tools} x: {cell}"
    # A step of a tool that may simply be repeated is repeated, too.
    most = 2 if tool == "rerun" and point in ("in a tool", "in a step") else 1
    assert steps <= most, f"its step ran {steps} x: {cell}"
    assert not done or steps >= 1, f"it succeeded without its step: {cell}"
    if "run" in cell:
        assert cell["run"][0] <= 2, cell
        assert (cell["run"][1] == "completed") == done, cell
    if fault in FENCED:
        assert (cell["ended"] is None) != (cell["refused"] is None), f"its former owner does not end: {cell}"
        assert cell["ended"] in (None, cell["again"]), f"its former owner was told something else: {cell}"
