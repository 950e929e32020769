"""The structured fields of log lines."""

from __future__ import annotations

import ast
import asyncio
import logging
from pathlib import Path

import pytest

import toolwright
from tests.support import fail_after
from toolwright import Policy, Runtime, ToolCall, tool
from toolwright.log_fields import FIELDS, log_fields
from toolwright.session.secrets.log_filter import LOGGERS

AMOUNT = 471108150000001
"""A number that is in no time and no id of a thread."""
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def test_every_log_line_of_the_library_has_fields():
    lines, bare = 0, []
    for path in Path(toolwright.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
                target = node.func.value
                if isinstance(target, ast.Name) and target.id in ("log", "logger", "logging"):
                    lines += 1
                    if not any(keyword.arg == "extra" for keyword in node.keywords):
                        bare.append(f"{path}:{node.lineno}")
    assert bare == []
    assert lines > 30


def test_no_field_has_a_name_that_a_log_record_uses_itself():
    record = logging.LogRecord("n", logging.INFO, "p", 1, "m", None, None)
    assert not set(FIELDS) & {*vars(record), "message", "asctime"}
    assert tuple(log_fields("a", **dict.fromkeys(FIELDS[1:], "x"))) == FIELDS


async def test_the_line_of_a_failed_tool_names_session_batch_call_and_tool(caplog: pytest.LogCaptureFixture):
    @tool
    async def breaks() -> None:
        raise ZeroDivisionError

    async with Runtime.open(tools=[breaks]) as runtime:
        batch = runtime.session("s1").start_batch([ToolCall(id="c1", name="breaks")])
        await batch
    (line,) = [record for record in caplog.records if record.name.startswith("toolwright")]
    shown = {name: getattr(line, name) for name in FIELDS if hasattr(line, name)}
    assert shown == {"action": "call.raised", "session": "s1", "batch": batch.id, "call_id": "c1", "tool": "breaks"}


@pytest.mark.parametrize("place", [":memory:", "agent.db"])
async def test_a_call_that_begins_to_wait_for_a_person_is_logged(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    @tool(approval="required")
    async def pay(amount: int) -> int:
        return amount

    caplog.set_level(logging.INFO, "toolwright")
    store = place if place == ":memory:" else tmp_path / place
    async with Runtime.open(store, tools=[pay], policy=Policy(on_ask="wait")) as runtime:
        batch = runtime.session("s1").start_batch([ToolCall(id="c1", name="pay", arguments={"amount": AMOUNT})])
        waiting = asyncio.ensure_future(batch.wait())
        async with fail_after(5):
            await runtime.session("s1").wait_for_idle()
            asked = await runtime.approvals()
        (line,) = [record for record in caplog.records if getattr(record, "action", "") == "call.waiting"]
        shown = {name: getattr(line, name) for name in FIELDS if hasattr(line, name)}
        assert shown == {
            "action": "call.waiting",
            "session": "s1",
            "batch": batch.id,
            "call_id": "c1",
            "tool": "pay",
            "waits_for": "approval",
        }
        assert line.levelno == logging.INFO
        assert "'c1'" in line.getMessage()
        assert "toolwright approvals" in line.getMessage()
        assert str(AMOUNT) not in repr(vars(line))
        async with fail_after(5):
            await runtime.approve(asked[0].key)
            (outcome,) = await waiting
        assert outcome.value == AMOUNT


async def test_a_secret_in_a_field_is_redacted(caplog: pytest.LogCaptureFixture):
    @tool
    async def breaks() -> None:
        raise ZeroDivisionError

    async with Runtime.open(tools=[breaks]) as runtime:
        session = runtime.session("s1")
        await session.secrets.set("pin", "correct horse")
        await session.run_batch([ToolCall(id="id of correct horse", name="breaks")])
    (line,) = [record for record in caplog.records if record.name.startswith("toolwright")]
    assert vars(line)["call_id"] == "id of [secret:pin]"
    assert "correct horse" not in repr(vars(line))


def test_the_filter_of_secrets_knows_every_logger_of_the_library():
    named = set()
    for path in Path(toolwright.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger":
                named |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    assert "toolwright.calls" in named
    assert named <= set(LOGGERS)
