"""`toolwright turns`: turns listed, shown, followed, steered and cancelled, also those of another process."""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.talking import APP, DB, write_agent
from toolwright import jsonx


@pytest.fixture(autouse=True)
def agent(project: Path) -> None:
    write_agent(project)


@pytest.fixture
def elsewhere(project: Path, fresh_command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """A process whose turn hangs in its tool."""
    words = [*fresh_command, "ask", "hang", *APP, *DB, "--session", "s1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 40
        while not (project / "hanging").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.02)
        yield process
        process.kill()


def test_turns_are_listed_newest_first_and_shown_with_their_calls(run: Run) -> None:
    assert run("turns", *DB).code == 2
    assert run("ask", "add", *APP, *DB, "--session", "s1").code == 0
    assert run("ask", "fail", *APP, *DB, "--session", "s2").code == 1
    table = run("turns", *DB).out
    assert table.index("✗ failed") < table.index("✓ answered")
    (one,) = run("turns", "--session", "s1", *DB, "--json").json
    shown = run("turns", "show", one["id"], *DB).out
    for said in (one["id"], "s1, its turn 1", "✓ answered", "function:function", "c0-0", "✗ failure", "The results: 3"):
        assert said in shown
    data = run("turns", "show", one["id"], *DB, "--json").json
    assert [call["status"] for call in data["calls"]] == ["success", "failure"]
    assert (data["tool_calls"], data["model_calls"]) == (2, 2)
    assert run("turns", "--active", *DB).err == "No turn is unfinished.\n"


def test_a_turn_is_named_by_the_beginning_of_its_id(run: Run) -> None:
    assert run("ask", "one", *APP, *DB, "--id", "first").code == 0
    assert run("ask", "two", *APP, *DB, "--id", "fifth").code == 0
    assert run("turns", "show", "fir", *DB, "--json").json["message"] == "one"
    ended = run("turns", "show", "fi", *DB)
    assert ended.code == 2
    assert "More than one turn is called 'fi'" in ended.err
    for word in ("zz", ""):
        ended = run("turns", "show", word, *DB)
        assert (ended.code, ended.out) == (2, "")
        assert f"There is no turn {word!r}; toolwright turns lists them" in ended.err


@pytest.mark.promise("TURN-07", "TURN-11")
def test_a_turn_of_another_process_is_followed_and_cancelled(
    run: Run, command: list[str], elsewhere: "subprocess.Popen[str]"
) -> None:
    (turn,) = run("turns", "--active", *DB, "--json").json
    assert (turn["state"], turn["cut_off"]) == ("running", False)
    words = [*command, "turns", "follow", turn["id"], *DB, "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        kinds = []
        for line in follower.stdout:
            kinds.append(jsonx.decode(line)["kind"])
            if kinds[-1] == "call.progress":
                break
        assert run("turns", "steer", turn["id"], "Hurry.", *DB).code == 0
        ended = run("turns", "cancel", turn["id"], "--reason", "not needed", *DB)
        assert (ended.code, ended.out) == (0, f"{turn['id']} is to stop; its process is told\n")
        kinds += [jsonx.decode(line)["kind"] for line in follower.stdout]
        assert follower.wait(timeout=40) == 1
    assert (kinds[0], kinds[-1]) == ("turn.started", "turn.ended")
    _, err = elsewhere.communicate(timeout=40)
    assert elsewhere.returncode == 1
    assert "⊘ cancelled: not needed" in err
    assert run("turns", "cancel", turn["id"], *DB).code == 3
    assert run("turns", "steer", turn["id"], "Too late.", *DB).code == 3
    assert run("turns", "follow", turn["id"], *DB).code == 1


@pytest.mark.promise("TURN-03")
def test_a_turn_whose_process_is_gone_is_cancelled_at_once(run: Run, elsewhere: "subprocess.Popen[str]") -> None:
    elsewhere.kill()
    elsewhere.communicate(timeout=40)
    (turn,) = run("turns", "--active", *DB, "--json").json
    assert turn["cut_off"]
    ended = run("turns", "cancel", turn["id"], "--reason", "not needed", *DB)
    assert (ended.code, ended.out) == (0, f"{turn['id']} is cancelled\n")
    (turn,) = run("turns", *DB, "--json").json
    assert (turn["state"], turn["reason"]) == ("cancelled", "not needed")
    assert run("ask", "add", *APP, *DB, "--session", "s1").code == 0


@pytest.mark.promise("TURN-05")
def test_ctrl_c_cancels_the_turn_and_its_outcome_is_stored(run: Run, elsewhere: "subprocess.Popen[str]") -> None:
    elsewhere.send_signal(signal.SIGINT)
    _, err = elsewhere.communicate(timeout=40)
    assert elsewhere.returncode == 130
    assert "⊘ cancelled: interrupted by Ctrl-C" in err
    (turn,) = run("turns", *DB, "--json").json
    assert (turn["state"], turn["reason"]) == ("cancelled", "interrupted by Ctrl-C")
