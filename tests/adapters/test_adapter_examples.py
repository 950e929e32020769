"""The examples of the adapters: an agent that is killed right after a payment, with its own tools and with ours."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import toolwright

EXAMPLES = Path(__file__).parents[2] / "examples" / "adapters"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(toolwright.__file__).parents[1])}
LONGEST = 60


def run(example: str, mode: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(EXAMPLES / example), mode, str(folder)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)


@pytest.mark.promise("ADP-05")
@pytest.mark.parametrize(("mode", "paid"), [("before", 2), ("after", 1)])
@pytest.mark.parametrize("example", ["langgraph_agent.py", "claude_agent.py"])
def test_the_effect_happens_twice_before_and_once_after(tmp_path: Path, example: str, mode: str, paid: int) -> None:
    assert run(example, mode, tmp_path).returncode == -signal.SIGKILL
    ended = run(example, mode, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == f"paid {paid} x"


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_is_short(example: str) -> None:
    assert len((EXAMPLES / example).read_text(encoding="utf-8").splitlines()) < LONGEST
