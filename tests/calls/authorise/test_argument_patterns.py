"""Remembered decisions with a pattern on a path hold for the path that is meant, however it is spelled."""

from pathlib import Path
from typing import Any

import pytest

from tests.calls.suspend.test_approvals import asked
from tests.support import fail_after
from toolwright import Tool, ToolCall, tool

pytestmark = pytest.mark.promise("AUTH-03")


@tool(approval="required", writes="path")
async def claimed(path: str) -> str:
    """Takes a path of the session, as its claim says."""
    return path


@tool(approval="required")
async def typed(path: Path) -> str:
    """Takes a path, as its type says."""
    return str(path)


@tool(approval="required")
async def plain(path: str) -> str:
    """Takes a text that may be anything."""
    return path


@tool(approval="required", kind="shell")
async def script(command: str) -> str:
    """Runs a script."""
    return command


async def answers(open_runtime: Any, tool: Tool, effect: str, pattern: str, values: list[str]) -> list[str]:
    """What becomes of calls after a decision was made for all that match: allowed, denied, or asked about again."""
    parameter = next(iter(tool.definition.input_schema["properties"]))
    runtime = await open_runtime(":memory:", tool)
    session, events = runtime.session("s"), runtime.subscribe()
    found = []
    async with fail_after(10):
        first = session.start_batch([ToolCall(name=tool.name, arguments={parameter: "/first"})])
        approval = await asked(runtime, events)
        decide = runtime.approve if effect == "allow" else runtime.deny
        await decide(approval.key, always={parameter: pattern})
        await first
        for value in values:
            batch = session.start_batch([ToolCall(name=tool.name, arguments={parameter: value})])
            (outcome,) = await batch.quiet()
            found.append("asked" if outcome.status == "pending" else str(outcome.decided_by))
            batch.cancel()
            await batch.settled()
    return found


INSIDE = ["/data/x", "/data/./x", "/data//x", "/data/a/../x", "/data/x/"]
OUTSIDE = ["/data/../etc/passwd", "/data/./../etc", "/data//../etc", "/data/a/../../etc", "/data/..", "\\data\\..\\etc"]


@pytest.mark.parametrize(
    ("tool", "value", "allowed"),
    [
        *((claimed, value, True) for value in (*INSIDE, "data/x", "./data/x", "/workspace/data/x", "a/../data/x")),
        *((claimed, value, False) for value in (*OUTSIDE, "/workspace/data/../etc", "data/../etc", "../etc")),
        *((typed, value, True) for value in INSIDE),
        *((typed, value, False) for value in (*OUTSIDE, "data/x", "/workspace/data/x", "../data/x")),
        (plain, "/data/x", True),
        (plain, "/data/x/", True),
        *((plain, value, False) for value in (*OUTSIDE, *INSIDE[1:4], "data/x", "/data/%2e%2e/etc", "/data/%2E./etc")),
    ],
    ids=lambda given: given.name if isinstance(given, Tool) else repr(given),
)
async def test_what_is_allowed_always_is_the_path_and_not_its_spelling(
    open_runtime: Any, tool: Tool, value: str, allowed: bool
):
    assert await answers(open_runtime, tool, "allow", "/data/*", [value]) == ["allow always" if allowed else "asked"]


@pytest.mark.parametrize("tool", [claimed, typed, plain], ids=lambda tool: tool.name)
async def test_what_is_denied_always_is_denied_in_every_spelling(open_runtime: Any, tool: Tool):
    values = [
        "/etc/x",
        "/data/../etc/x",
        "/etc/./x",
        "/etc//x",
        "//etc/x" if tool is not plain else "/etc/x",
        "/data/x",
    ]
    assert await answers(open_runtime, tool, "deny", "/etc/*", values) == [*["deny always"] * 5, "asked"]


@pytest.mark.parametrize(
    ("pattern", "value", "allowed"),
    [
        ("https://example.com/*", "https://example.com/a/b", True),
        ("https://example.com/api/*", "https://example.com/api/../admin", False),
        ("https://example.com/api/*", "https://example.com/api/%2e%2e/admin", False),
        ("https://example.com/*", "https://example.com/a//b", False),
        ("/data/*", "/data/../etc://x", False),
        ("/data/../etc", "/data/../etc", True),
        ("*", "a plain sentence.", True),
    ],
)
async def test_a_text_that_may_be_a_path_or_an_address_is_only_allowed_in_one_spelling(
    open_runtime: Any, pattern: str, value: str, allowed: bool
):
    assert await answers(open_runtime, plain, "allow", pattern, [value]) == ["allow always" if allowed else "asked"]


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        ("git status -s", True),
        *(
            (f"git status{more}", False)
            for more in ("; rm x", " && rm x", " $(rm x)", " `rm x`", "\nrm x", " | sh", " > x")
        ),
    ],
)
async def test_a_script_that_is_allowed_always_does_nothing_beside(open_runtime: Any, value: str, allowed: bool):
    assert await answers(open_runtime, script, "allow", "git status*", [value]) == [
        "allow always" if allowed else "asked"
    ]


async def test_a_pattern_may_be_spelled_in_any_way_too(open_runtime: Any):
    for pattern in ("/workspace/data/*", "data/*", "/data/./*", "/x/../data/*"):
        assert await answers(open_runtime, claimed, "allow", pattern, ["/data/x", "/etc/x"]) == [
            "allow always",
            "asked",
        ]
