"""No text of a tool, a model or a store controls the terminal in which a command runs."""

import ast
import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

import toolwright.cli
from tests.cli.conftest import Run
from tests.cli.test_live import read_until

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\u200b\x7f\r\x08"
WILD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
TOOLS = """
import logging
from toolwright import ToolContext, ToolError, tool

ESCAPES = "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\u202egnp.exe\\u2066\\u200b\\x7f\\r\\x08"


@tool
async def fail() -> None:
    raise ToolError(f"no {ESCAPES}", code=f"bad{ESCAPES}")


@tool
async def crash() -> None:
    raise ValueError(f"no {ESCAPES}")


@tool
async def show(ctx: ToolContext) -> dict:
    await ctx.progress(1, total=2, label=f"half {ESCAPES}")
    logging.getLogger("toolwright.calls").warning("it says %s", ESCAPES)
    return {f"key {ESCAPES}": [f"value {ESCAPES}"]}
"""


@pytest.fixture
def wild(project: Path) -> Path:
    (project / "wild.py").write_text(TOOLS)
    return project


def on_a_terminal(*words: str) -> str:
    """What a terminal gets, without what moves the table and colours it."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        try:
            shown = read_until(ours, None)
        finally:
            os.close(ours)
            process.kill()
    text = shown.decode("utf-8", "replace")
    assert "owned" in text or "31m" in text or "gnp.exe" in text or "value" in text
    return re.sub(r"\x1b\[\??[0-9;]*[A-GJKhlm](?!.)|\x1b\[(?:\?25[lh]|[0-9;]*[mAK]|1G)|\r\n|\r(?=\x1b|$)", "\n", text)


@pytest.mark.promise("SAFE-04")
@pytest.mark.parametrize(
    "words",
    [
        ("call", "fail"),
        ("call", "crash", "-v"),
        ("call", "show", "-v"),
        ("call", "show", "--json"),
        ("batch", "calls.json"),
        ("batch", "calls.json", "--json"),
        ("batch", "calls.json", "--timeline"),
    ],
    ids=" ".join,
)
def test_no_command_lets_a_text_steer_the_terminal(wild: Path, command: list[str], words: tuple[str, ...]) -> None:
    calls = [{"name": name, "id": f"c{ESCAPES}{at}"} for at, name in enumerate(("fail", "show", f"no {ESCAPES}"))]
    (wild / "calls.json").write_text(json.dumps(calls))
    shown = on_a_terminal(*command, *words, "--tools", "wild.py")
    assert not WILD.findall(shown), ascii(shown)
    assert "owned" in shown


@pytest.mark.promise("SAFE-04")
def test_json_in_a_pipe_escapes_what_cannot_be_seen_and_means_the_same(wild: Path, run: Run) -> None:
    ended = run("call", "show", "--tools", "wild.py", "--json")
    assert not WILD.findall(ended.out.removesuffix("\n"))
    assert ended.json["value"] == {f"key {ESCAPES}": [f"value {ESCAPES}"]}


def test_commands_print_through_one_place_and_nowhere_else() -> None:
    folder = Path(toolwright.cli.__file__).parent
    wrong = []
    for path in folder.rglob("*.py"):
        if path.name in ("output.py", "__init__.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name in ("typer.echo", "typer.secho", "print", "Console", "sys.stdout.write", "sys.stderr.write"):
                    wrong.append(f"{path.relative_to(folder)}:{node.lineno}: {name}")
    assert not wrong, "Use echo, print_text, print_json or Screen of toolwright.cli.display.output: " + ", ".join(wrong)
