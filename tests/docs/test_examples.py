"""The examples that are programs of their own do what they say. Those of the demo are tested with the command line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import toolwright
from toolwright import Runtime

ROOT = Path(__file__).parents[2]
NIGHTLY = [sys.executable, str(ROOT / "examples" / "nightly_report.py")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(toolwright.__file__).parents[1])}
HALF_PAST_TWO = ("T00:30:00Z", "T01:30:00Z", "T01:00:00Z")
"""In summer, in winter, and in the night in which the clocks are put forward."""


@pytest.mark.promise("CRON-03", "CRON-04")
def test_the_nightly_report_is_made_now_each_time_and_scheduled_once(tmp_path: Path) -> None:
    folder, store = tmp_path / "measured", tmp_path / "agent.db"
    folder.mkdir()
    (folder / "one.txt").write_text("hello")
    words = [*NIGHTLY, str(store), str(folder), "--now"]
    for _ in range(2):
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
        assert (done.returncode, done.stderr) == (0, "")
        due, made = done.stdout.splitlines()
        assert due.endswith(HALF_PAST_TWO)
        assert made == f"{folder} has 1 files with 5 bytes"
    with Runtime.open_blocking(store, worker=False) as runtime:
        session = runtime.session("reports")
        assert len(session.schedules()) == 1
        reports = [session.files.read(f"/reports/{run.id}.txt") for run in session.runs()]
        assert reports == [f"{made}\n"] * 2


def test_the_nightly_report_waits_for_the_night_until_it_is_interrupted(tmp_path: Path) -> None:
    words = [*NIGHTLY, str(tmp_path / "agent.db"), str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline().rstrip().endswith(HALF_PAST_TWO)
            program.send_signal(signal.SIGINT)
            assert program.wait(timeout=60) == 0
        finally:
            program.kill()
