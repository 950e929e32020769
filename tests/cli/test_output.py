"""How wide the output is: as wide as a screen, and where there is none, as wide as what it holds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run

LONG = "all work and no play makes a dull boy " * 20
NOTE = {"id": "n1", "name": "note", "arguments": {"text": LONG}}


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    """Nobody says how wide the output shall be."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.mark.usefixtures("pipe")
def test_a_table_in_a_pipe_is_as_wide_as_what_it_holds(run: Run, left: Callable[..., Path]) -> None:
    left(NOTE, {"id": "l1", "name": "launch", "arguments": {"where": LONG}})
    (batch,) = run("batches", "--db", "agent.db", "--json").json
    batches = run("batches", "--db", "agent.db").out
    assert [line.split()[0] for line in batches.splitlines()] == ["batch", batch["batch"].removeprefix("batch_")[:12]]
    shown = run("batches", "show", batch["batch"], "--db", "agent.db").out
    for said in (f'{{"text":"{LONG}"}}', LONG.rstrip(" "), "waits for approval, and no process runs it"):
        assert any(line.endswith(said) for line in shown.splitlines())
    asked = run("approvals", "--db", "agent.db").out
    assert f'{{"where":"{LONG}"}}' in asked
    for out in (batches, shown, asked):
        assert "…" not in out
        assert not any(line.endswith(" ") for line in out.splitlines())


@pytest.mark.usefixtures("pipe")
def test_names_are_whole_in_a_pipe_and_short_on_a_screen(
    run: Run, project: Path, left: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = "toolu_01A09q90qw90lq917835lq9"
    session, scope = "session-of-somebody-with-a-name", "turn-of-a-long-thread-42"
    left({"id": call, "name": "launch"}, session=session)
    (project / "calls.json").write_text(f'[{{"id": "{call}", "name": "note", "arguments": {{"text": "x"}}}}]')
    kit = ("--tools", "crashing.py", "--db", "agent.db")
    run("batch", "calls.json", *kit, "--session", session, "--scope", scope)
    batch = run("batches", "--db", "agent.db", "--json").json[-1]["batch"]
    shown = {
        ("batches",): [session, f"{session} / {scope}"],
        ("batches", "show", batch): [call],
        ("approvals",): [call, session],
        ("recover", "--tools", "crashing.py"): [call, session],
    }
    whole = {words: run(*words, "--db", "agent.db").out for words in shown}
    monkeypatch.setenv("COLUMNS", "200")
    for words, names in shown.items():
        short = run(*words, "--db", "agent.db").out
        assert [name for name in names if name not in whole[words] or name in short] == []
    assert "toolu_01A09…q917835lq9" in run("approvals", "--db", "agent.db").out


@pytest.mark.usefixtures("pipe", "background")
def test_what_shares_the_room_of_a_screen_has_its_own_in_a_pipe(run: Run) -> None:
    title = LONG[:190].strip()
    assert run("spawn", "film", "--title", title, "--tools", "background.py", "--db", "agent.db").code == 0
    assert title in run("runs", "--db", "agent.db").out


@pytest.mark.usefixtures("pipe")
def test_a_timeline_in_a_pipe_has_bars_of_some_width(run: Run, project: Path) -> None:
    (project / "calls.json").write_text('[{"id": "c1", "name": "echo", "arguments": {"text": "x"}}]')
    timeline = run("batch", "calls.json", "--tools", "kit.py", "--timeline").err
    assert "c1" in timeline
    assert "▄" in timeline
    assert max(map(len, timeline.splitlines())) < 140


@pytest.mark.usefixtures("pipe")
def test_who_sets_the_columns_has_them_in_a_pipe_too(
    run: Run, left: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    left(NOTE)
    (batch,) = run("batches", "--db", "agent.db", "--json").json
    monkeypatch.setenv("COLUMNS", "70")
    shown = run("batches", "show", batch["batch"], "--db", "agent.db").out
    assert max(map(len, shown.splitlines())) == 70
