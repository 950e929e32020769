"""The demo, and the picture of it in the README."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import toolwright

ROOT = Path(__file__).parents[2]
CALLS = ("primes", "words", "ann-3", "read", "silent", "dump", "wrong", "typo", "audit", "late")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demo prints without a terminal. It leaves nothing behind."""
    place = tmp_path_factory.mktemp("demo")
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "COLUMNS": "120",
            "PYTHONPATH": str(Path(toolwright.__file__).parents[1]),
            "TMPDIR": str(place),
        },
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert list(place.iterdir()) == []
    return ended.stdout


@pytest.mark.parametrize(("word", "code", "said"), [("--help", 0, "--postgres"), ("--pgae", 2, "--pgae")])
def test_the_demo_tells_its_options_and_refuses_others(word: str, code: int, said: str) -> None:
    demo = [sys.executable, str(ROOT / "examples" / "demo.py"), word]
    ended = subprocess.run(demo, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, "15 calls" in ended.stdout) == (code, False)
    assert said in ended.stdout + ended.stderr


def test_the_first_act_runs_without_a_terminal_and_tells_of_every_call(printed: str) -> None:
    first, _, _ = printed.partition("Second act")
    for call in CALLS:
        assert len(re.findall(rf"^ {call}\b", first, re.MULTILINE)) == 2, call
    assert len(re.findall("✗ failure", first)) == 3
    for said in ("for ann-1", "for audit", "did not finish within", "whole in a file", "did you mean"):
        assert said in first


@pytest.mark.promise("EFF-04", "EFF-05", "EFF-06")
def test_the_second_act_repeats_nothing_but_what_may_be_repeated(printed: str) -> None:
    second = printed.partition("Second act")[2].partition("Third act")[0]
    killed, again = re.findall(r"Process (\d+) ", second)
    assert killed != again
    rows = re.findall(r"^ (\S+|)  .*?(replayed|rerun|run|interrupted|)  +(\d) \+ (\d)  (\w+)", second, re.MULTILINE)
    assert rows == [
        ("pay", "replayed", "1", "0", "paid"),
        ("rates", "rerun", "1", "1", "read"),
        ("upload", "rerun", "1", "1", "sent"),
        ("trip", "rerun", "1", "0", "flight"),
        ("", "", "0", "1", "hotel"),
        ("mail-1", "interrupted", "1", "0", "sent"),
        ("mail-2", "run", "0", "1", "sent"),
    ]


@pytest.mark.promise("BLT-01", "BLT-02", "AUTH-05", "SES-03")
def test_the_third_act_mends_a_project_shows_no_secret_and_removes_nothing(printed: str) -> None:
    third = printed.partition("Third act")[2].partition("Fourth act")[0]
    for said in (
        "/till/receipt.py:1: from till.tax import RATE, gross",  # grep_files
        "  1  RATE = 0.91  # 19 %",  # read_file, with its line numbers
        "18.4 35.144",  # bash, before the edit
        "-RATE = 0.91  # 19 %",  # the diff of the edit
        "+RATE = 0.19  # 19 %",
        "has changed: its hash",  # the second edit, which expects what is gone
        "18.4 21.896",  # bash, by what it remembers of the first script
        "live: > Bearer [secret:till]",
        "rule 'no rm'",
        "it is nowhere",
    ):
        assert said in third, said
    assert third.count("✓") == 7
    assert third.count("✗") == 2
    assert "till-7Qz" not in printed


@pytest.mark.promise("PROC-04", "PROC-07", "PROC-08")
def test_the_fourth_act_goes_on_with_a_run_whose_worker_was_killed(printed: str) -> None:
    part = printed.partition("Fourth act")[2].partition("an hour is missing")[0]
    first, second = re.findall(r"processes (\d+) and (\d+)", part)[0]
    (killed,) = re.findall(r"kill -9 (\d+)", part)
    (other,) = {first, second} - {killed}
    assert re.findall(r"^ (\w+) +(\d \+ \d) ", part.partition(f"{killed} + {other}")[2], re.MULTILINE) == [
        ("begin", "1 + 1"),
        ("json", "1 + 0"),
        ("email", "1 + 0"),
        ("asyncio", "1 + 0"),
        ("encodings", "0 + 1"),
        ("unittest", "0 + 1"),
        ("xml", "0 + 1"),
    ]
    before, after = part.split("kill -9")
    assert "3 of 6" in before
    assert "by process" in before
    assert "taken over by another worker, attempt 2" in after
    assert "✓ completed" in after
    assert "was told, once:" in part
    assert part.count("Background run completed.") == 1
    logged = part.partition("output.log\n  │")[2].partition("result.json")[0]
    packages = ("json", "email", "asyncio", "encodings", "unittest", "xml")
    assert re.findall(r"(\w+) +[0-9a-f]{12}  by process (\d+)", logged) == [
        *((package, killed) for package in packages[:3]),
        *((package, other) for package in packages[3:]),
    ]
    assert '"packages": 6' in part


@pytest.mark.promise("CRON-03")
def test_the_fourth_act_fires_each_instant_of_a_night_without_two_o_clock_once(printed: str) -> None:
    part = printed.partition("an hour is missing")[2]
    rows = re.findall(r"^  (\d\d:\d\d \w+) +(\d\d:\d\d)   (\S+ \S+ \* \* \*) +(\w+) +(\d+)$", part, re.MULTILINE)
    by_the_minute = [row[:4] for row in rows if row[2] == "* * * * *"]
    assert by_the_minute == [
        ("01:58 CET", "00:58", "* * * * *", "once"),
        ("01:59 CET", "00:59", "* * * * *", "once"),
        ("03:00 CEST", "01:00", "* * * * *", "once"),
        ("03:01 CEST", "01:01", "* * * * *", "once"),
        ("03:02 CEST", "01:02", "* * * * *", "once"),
    ]
    assert [row[:4] for row in rows if row[2] != "* * * * *"] == [("03:00 CEST", "01:00", "30 2 * * *", "once")]
    assert {row[4] for row in rows} <= set(re.findall(r"processes (\d+) and (\d+)", part)[0])
    assert "Each instant was worked for once" in part


@pytest.mark.promise("TURN-03", "TURN-06", "EFF-04")
def test_the_fifth_act_continues_a_turn_that_was_killed_and_does_nothing_twice(printed: str) -> None:
    fifth = printed.partition("Fifth act")[2]
    killed, again = re.findall(r"Process (\d+) ", fifth)
    assert killed != again
    rows = re.findall(r"^ (model: answer \d|receipt: \w+) +(\d) \+ (\d) ", fifth, re.MULTILINE)
    assert rows == [
        ("model: answer 1", "1", "0"),
        ("model: answer 2", "1", "0"),
        ("model: answer 3", "1", "0"),
        ("receipt: tea", "1", "0"),
        ("receipt: milk", "1", "0"),
        ("receipt: bread", "0", "1"),
        ("model: answer 4", "0", "1"),
    ]
    said = " ".join(fifth.split())
    assert "The turn is answered after 4 model calls (list_directory success, read_file success" in said
    assert "3 x print_receipt success" in said
    assert "The rate was 0.91 in place of 0.19" in said


@pytest.mark.parametrize("name", ["demo", "demo-crash", "demo-session", "demo-background", "demo-turn"])
def test_the_pictures_show_no_path_of_the_machine_they_were_made_on(name: str) -> None:
    picture = (ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8")
    assert "make&#160;demo" in picture or "make demo" in picture
    for start in ("/tmp", "/home", "/root", "/Users", "/usr", "/work", "C:\\"):
        assert start not in picture
