"""The examples of the adapters: an approval and a crash in the middle, with the framework's own tools and with ours."""

from pathlib import Path

import pytest

from toolwright.testing import CrashKit

EXAMPLES = Path(__file__).parents[2] / "examples" / "adapters"
PRELOADED = (
    "claude_agent_sdk",
    "agents.testing",
    "langgraph.checkpoint.sqlite.aio",
    "langgraph.prebuilt",
    "pydantic_ai.models.function",
    *(f"toolwright.adapters.{name}" for name in ("claude_agent", "langchain", "openai_agents", "pydantic_ai")),
)
"""What the examples import, which takes longer than all that they do."""
AS_COMMAND = """
import runpy, sys

def main():
    sys.argv, sys.path[0:0] = [example, *mode], [os.path.dirname(example)]
    runpy.run_path(example, run_name="__main__")
"""


@pytest.mark.promise("ADP-05")
@pytest.mark.parametrize(("mode", "times"), [(["before"], 2), (["after"], 1), ([], 1)], ids=["before", "after", "none"])
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*_refund.py")), ids=lambda path: path.stem)
def test_the_effect_happens_twice_before_and_once_after(
    example: Path, mode: list[str], times: int, crashes: CrashKit
) -> None:
    killed = crashes.start(AS_COMMAND, example=str(example), mode=mode).wait()
    assert killed.killed, killed.output
    ended = crashes.run(AS_COMMAND, example=str(example), mode=mode)
    assert ended.output.split() == ["Done.", *["refunded", "7"] * times]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(example: Path) -> None:
    assert len(example.read_text().splitlines()) < 60
