"""The demo with PostgreSQL: a worker and the database are killed, and it leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolwright

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, str(ROOT / "examples" / "demo.py"), "--postgres"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for temporary files that another user can reach: a server does not run as root."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def environment(place: Path) -> dict[str, str]:
    source = str(Path(toolwright.__file__).parents[1])
    return {**os.environ, "COLUMNS": "120", "PYTHONPATH": source, "TMPDIR": str(place)}


def is_running(process: str) -> bool:
    """True for a process that has not ended; one that nobody waited for yet has."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", process], capture_output=True, text=True).stdout.strip()
    return bool(found) and not found.startswith("Z")


@pytest.mark.promise("ENG-02", "PROC-04", "EFF-04")
def test_a_killed_worker_and_a_killed_database_lose_nothing_and_repeat_nothing(place: Path) -> None:
    ended = subprocess.run(DEMO, capture_output=True, text=True, timeout=120, env=environment(place))
    assert (ended.returncode, ended.stderr) == (0, "")
    printed = ended.stdout
    workers = re.findall(r"processes (\d+), (\d+), (\d+)", printed)[0]
    server, restarted = re.findall(r"as process (\d+)", printed)
    assert server != restarted
    assert re.findall(r"kill -9 (\d+)", printed)[0] in workers
    assert re.findall(r"kill -9 (\d+)", printed)[1] == server
    assert "its runs are taken over" in printed
    rows = re.findall(r"^ (\w+) +(\d+) +(\d+) +(\d+) +(\d+) *$", printed, re.MULTILINE)
    assert [row[0] for row in rows] == ["reserve", "charge", "pack", "ship", "label"]
    for _, asked, happened, twice, lost in rows:
        assert int(asked) > 0
        assert (happened, twice, lost) == (asked, "0", "0")
    # An order whose step was cut off by the kill is not delivered, and is named.
    in_doubt = re.findall(r"Cut off inside of a step: order ([\d, ]+)", " ".join(printed.split()))
    missing = len(in_doubt[0].split(",")) if in_doubt else 0
    (given,) = re.findall(r"(\d+) runs of 4 steps", printed)
    assert int(rows[0][1]) == int(given) - missing
    assert "Nothing was lost, and nothing happened twice." in printed
    assert [each for each in (*workers, server, restarted) if is_running(each)] == []
    assert list(place.iterdir()) == []


def test_ctrl_c_ends_the_workers_and_the_database(place: Path) -> None:
    with subprocess.Popen(
        DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(place)
    ) as demo:
        assert demo.stdout is not None
        began = ""
        try:
            while "times toolwright worker" not in began:
                line = demo.stdout.readline()
                assert line, demo.communicate()
                began += line
        finally:
            demo.send_signal(signal.SIGINT)
            _, told = demo.communicate(timeout=60)
    assert (demo.returncode, told) == (130, "")
    started = re.findall(r"\d{2,}", began.partition("runs as process")[2].replace("3 times", ""))
    assert len(started) == 4
    assert [each for each in started if is_running(each)] == []
    assert list(place.iterdir()) == []
