"""The examples of the adapters: an approval and a crash in the middle, with the framework's own tools and with ours."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import toolwright

EXAMPLES = Path(__file__).parents[2] / "examples" / "adapters"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(toolwright.__file__).parents[1])}


@pytest.mark.promise("ADP-05")
@pytest.mark.parametrize(("mode", "times"), [("before", 2), ("after", 1)])
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*_refund.py")), ids=lambda path: path.stem)
def test_the_effect_happens_twice_before_and_once_after(example: Path, mode: str, times: int, tmp_path: Path) -> None:
    command = [sys.executable, str(example), mode]
    killed = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ended = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["Done.", *["refunded", "7"] * times]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(example: Path) -> None:
    assert len(example.read_text().splitlines()) < 60
