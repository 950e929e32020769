"""The example that runs the demo's agent with a real model, through the real library and a server on loopback."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

import toolwright
from tests.providers.dialects import MESSAGES
from tests.providers.loopback import Loopback
from tests.support import fail_after
from toolwright import ToolCall
from toolwright.tools.model import ModelAnswer

EXAMPLES = Path(__file__).parents[2] / "examples"
ITEMS = ("tea", "milk", "bread")
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY")


async def run_example(place: Path, *words: str, **variables: str) -> tuple[int, str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in KEYS}
    environment |= {"PYTHONPATH": str(Path(toolwright.__file__).parents[1]), "TMPDIR": str(place), "COLUMNS": "120"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / "real_agent.py"), *words),
        env=environment | variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_without_a_key_it_says_what_is_missing(tmp_path: Path) -> None:
    async with fail_after(60):
        assert await run_example(tmp_path) == (
            0,
            "There is no key of a provider; set ANTHROPIC_API_KEY or OPENAI_API_KEY, and run it again.\n",
            "",
        )
        code, out, err = await run_example(tmp_path, "anthropic:claude-sonnet-4-5")
    assert (code, out) == (2, "")
    assert "ANTHROPIC_API_KEY" in err


@pytest.mark.promise("TURN-02", "TURN-03")
async def test_a_turn_with_a_provider_continues_after_the_kill_and_no_answer_is_paid_twice(
    tmp_path: Path, server: Loopback
) -> None:
    prints = tuple(ToolCall("print_receipt", f'{{"item": "{item}"}}', f"call_{item}") for item in ITEMS)
    look = ToolCall("read_file", '{"path": "/till/tax.py"}', "call_look")
    server.will(
        MESSAGES.reply(ModelAnswer(text="I look.", calls=(look,), stop="calls")),
        MESSAGES.reply(ModelAnswer(calls=prints, stop="calls")),
        MESSAGES.reply(ModelAnswer(text="All is mended.")),
    )
    async with fail_after(120):
        code, out, err = await run_example(
            tmp_path, ANTHROPIC_API_KEY="sk-loopback-1", ANTHROPIC_BASE_URL=server.address
        )
    assert (code, err) == (0, "")
    assert re.findall(r"^ receipt: (\w+) +(\d \+ \d) ", out, re.MULTILINE) == [
        ("tea", "1 + 0"),
        ("milk", "1 + 0"),
        ("bread", "0 + 1"),
    ]
    assert "The turn is answered after 3 model calls" in " ".join(out.split())
    assert "All is mended." in out
    assert len(server.asked) == 3
    for asked in server.asked:
        MESSAGES.check(asked.body)
    assert "sk-loopback-1" not in out
    assert list(tmp_path.iterdir()) == []
