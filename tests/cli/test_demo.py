"""The demo, and the picture of it in the README."""

import os
import re
import subprocess
import sys
from pathlib import Path

import toolwright

ROOT = Path(__file__).parents[2]
CALLS = ("primes", "words", "ann-3", "read", "silent", "dump", "wrong", "typo", "audit", "late")


def test_the_demo_runs_without_a_terminal_and_tells_of_every_call() -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "120", "PYTHONPATH": str(Path(toolwright.__file__).parents[1])},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    for call in CALLS:
        assert len(re.findall(rf"^ {call}\b", ended.stdout, re.MULTILINE)) == 2, call
    assert len(re.findall("✗ failure", ended.stdout)) == 3
    for said in ("for ann-1", "for audit", "did not finish within", "whole in a file", "did you mean"):
        assert said in ended.stdout


def test_the_picture_shows_no_path_of_the_machine_it_was_made_on() -> None:
    picture = (ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8")
    assert "make&#160;demo" in picture or "make demo" in picture
    for start in ("/tmp", "/home", "/root", "/Users", "/usr", "/work", "C:\\"):
        assert start not in picture
