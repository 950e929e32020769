"""An agent of the Claude Agent SDK whose process is killed: the tool uses that come again have their outcomes."""

from collections import Counter
from typing import Any

import pytest

from toolwright.testing import CrashKit

PRELOADED = (
    "claude_agent_sdk",
    "tests.adapters.scripted_claude",
    "toolwright.adapters.claude_agent",
    "toolwright.app",
    "toolwright.mcp.tool_server",
)

PROGRAM = """
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, PermissionResultAllow
from tests.adapters.scripted_claude import ScriptedClaude
from toolwright.adapters.claude_agent import can_use_tool, sdk_server

@tool(readonly=True)
async def look(key: str) -> str:
    return f"seen {key}"

@tool(key="key")
async def pay(key: str) -> str:
    note(f"pay {key}")
    await asyncio.sleep(0)
    return f"paid {key}"

@tool(approval="required")
async def order(key: str) -> str:
    note(f"order {key}")
    await asyncio.sleep(0)
    return f"ordered {key}"

def answer(number, *calls):
    return [(f"toolu_{number}{place}", name, {"key": key}) for place, (name, key) in enumerate(calls)]

ANSWERS = [
    answer(1, ("look", "a"), ("pay", "b"), ("pay", "c")),
    answer(2, ("order", "d"), ("pay", "e"), ("order", "f")),
    answer(3, ("pay", "g"), ("look", "h")),
]

class Told(dict):
    def __setitem__(self, id, result):
        say([id, result["content"][0]["text"]])
        super().__setitem__(id, result)

async def allow(name, given, context):
    return PermissionResultAllow()

async def main():
    async with Runtime.open(store, tools=[look, pay, order]) as runtime:
        session = runtime.session("s")
        script = ScriptedClaude(*ANSWERS, asks=True)
        script.results = Told()
        options = ClaudeAgentOptions(
            mcp_servers={"toolwright": sdk_server(session)}, can_use_tool=can_use_tool(session, allow)
        )
        async with ClaudeSDKClient(options, script) as client:
            await client.query("go")
            async for _ in client.receive_response():
                pass
"""
CALLS = {
    "toolu_10": "look a",
    "toolu_11": "pay b",
    "toolu_12": "pay c",
    "toolu_20": "order d",
    "toolu_21": "pay e",
    "toolu_22": "order f",
    "toolu_30": "pay g",
    "toolu_31": "look h",
}
DONE = {"look": "seen", "pay": "paid", "order": "ordered"}
KILLS, PARTS = 34, 2


@pytest.mark.promise("ADP-04", "ADP-05")
@pytest.mark.parametrize("part", range(PARTS))
def test_an_agent_that_is_killed_at_any_point_continues_with_no_effect_twice(crashes, tmp_path, zygote, part):
    # How many commits there are depends on which of them happen together.
    points = [each for each in crashes.points(PROGRAM) if not each[0].endswith("a commit")]
    assert Counter(crashes.ledger) == Counter(name for name in CALLS.values() if not name.startswith("look"))
    chosen = [points[number * len(points) // KILLS] for number in range(KILLS)]
    assert len(set(chosen)) == KILLS
    for number, (point, nth) in enumerate(chosen[part::PARTS]):
        (folder := tmp_path / str(number)).mkdir()
        with CrashKit(folder, zygote=zygote) as kit:
            acknowledged: dict[str, str] = dict(kit.kill_at(point, PROGRAM, nth=nth).said)
            require_continued(kit, acknowledged)


def require_continued(kit: CrashKit, acknowledged: dict[str, str]) -> None:
    """The tool uses come again: no effect happens twice, and no result that was told is another one now."""
    said: Any = kit.run(PROGRAM).said
    results = dict(said)
    assert sorted(results) == sorted(CALLS)
    assert {id: results[id] for id in acknowledged} == acknowledged
    effects = Counter(kit.ledger)
    for id, text in results.items():
        name, key = CALLS[id].split()
        if name != "look":
            assert effects[CALLS[id]] <= 1
            if text == f"{DONE[name]} {key}":
                assert effects[CALLS[id]] == 1
            else:
                assert "interrupted" in text or "cut off" in text, text
