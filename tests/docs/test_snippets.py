"""The blocks of code in the documentation run as a reader would run them, and print what the page shows."""

import configparser
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.docs.pages import BLOCKS, ROOT, STORIES, Block, as_shown
from tests.support import fail_after
from toolwright.cli.app import app
from toolwright.testing import CrashKit, Zygote

ALONE = [block for block in BLOCKS if block.language == "python" and block.page not in STORIES]
DATA = [block for block in BLOCKS if block.language in ("toml", "ini", "json", "yaml")]
SHELL = [block for block in BLOCKS if block.language == "sh"]
IN_DOCSTRINGS = [
    snippet
    for file in sorted((ROOT / "src").rglob("*.py"))
    for snippet in re.findall(r"^ *```python\n(.*?)^ *```$", file.read_text(encoding="utf-8"), re.M | re.S)
]
SET_UP = ("pip ", "make ")
"""Commands that set up a machine; tests of the build run these."""


@pytest.mark.parametrize("block", ALONE, ids=str)
def test_a_snippet_of_the_documents_runs(block: Block, tmp_path: Path, zygote: Zygote):
    file = tmp_path / "snippet.py"
    file.write_text(block.code)
    running = CrashKit(tmp_path, zygote=zygote).start(file)
    running.listen(60)
    printed = running.wait().output
    assert "Traceback" not in printed, printed  # a tool that fails is logged, and its program goes on
    assert block.output is None or as_shown(printed, block.output), printed


@pytest.mark.parametrize("snippet", IN_DOCSTRINGS)
async def test_a_snippet_of_a_docstring_runs(snippet: str):
    names: dict[str, Any] = {}
    exec(textwrap.dedent(snippet), names)
    tests = [thing for name, thing in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        async with fail_after(5):
            await test()


@pytest.mark.parametrize("page", STORIES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_that_is_followed_from_the_top_works(page: Path, tmp_path: Path):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for block in STORIES[page]:
        if block.language == "python":
            file = tmp_path / (block.title or "snippet.py")
            file.write_text(block.code)
            commands = [] if block.title else [f"python {file.name}"]
        else:
            commands = _commands(block) if block.language == "sh" else []
        printed = ""
        for command in commands:
            ended = subprocess.run(
                shlex.split(command),
                cwd=tmp_path,
                env={**os.environ, "PATH": path, "COLUMNS": "120"},
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert ended.returncode == 0, f"{block}: {command}\n{ended.stdout}{ended.stderr}"
            assert "Traceback" not in ended.stderr, f"{block}: {command}\n{ended.stderr}"
            printed += ended.stdout
        assert not commands or block.output is None or as_shown(printed, block.output), f"{block}:\n{printed}"


@pytest.mark.parametrize("block", DATA, ids=str)
def test_a_block_of_data_can_be_read(block: Block):
    if block.language == "toml":
        assert tomllib.loads(block.code)
    elif block.language == "json":
        assert json.loads(block.code) is not None
    elif block.language == "yaml":
        assert yaml.safe_load(block.code)
    else:
        parser = configparser.ConfigParser()
        parser.read_string(block.code)
        assert parser.sections()


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_a_command_of_the_documents_exists_with_its_options(block: Block):
    for command in _commands(block):
        name, *words = shlex.split(command, comments=True)
        assert name in ("toolwright", "python"), f"{block}: {command}"
        if name == "toolwright":
            _require_command(words, f"{block}: {command}")


def test_every_block_is_of_a_kind_that_is_checked():
    kinds = {"python", "sh", "toml", "ini", "json", "yaml", "text", "dockerfile"}  # the last two are shown, and not run
    assert [str(block) for block in BLOCKS if block.language not in kinds] == []


def test_the_documents_have_blocks_of_every_kind():
    assert len(ALONE) > 40
    assert len(STORIES) >= 3
    assert DATA
    assert SHELL


@pytest.mark.parametrize("block", [block for block in ALONE if block.page.name == "README.md"], ids=str)
def test_a_snippet_of_the_readme_runs_in_a_new_interpreter(block: Block, tmp_path: Path):
    file = tmp_path / "snippet.py"
    file.write_text(block.code)
    done = subprocess.run([sys.executable, file.name], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert block.output is not None
    assert as_shown(done.stdout, block.output), done.stdout


def _commands(block: Block) -> list[str]:
    lines = (re.sub(r"\s+#.*", "", line).strip() for line in block.code.splitlines())
    return [line for line in lines if line and not line.startswith((*SET_UP, "#"))]


@functools.cache
def _toolwright() -> Any:
    return typer.main.get_command(app)


def _require_command(words: list[str], where: str) -> None:
    """Find the command by its names, and each option among those that it has."""
    command = _toolwright()
    while words and (subcommand := getattr(command, "commands", {}).get(words[0])):
        command, words = subcommand, words[1:]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "--install-completion", "--show-completion"}
    for word in words:
        if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word):
            assert word.partition("=")[0] in known, f"{where} has no option {word!r}"
    required = [
        parameter for parameter in command.params if parameter.required and not parameter.opts[0].startswith("-")
    ]
    given = [word for word in words if not word.startswith("-")]
    assert len(given) >= len(required), f"{where} lacks {[parameter.name for parameter in required]}"
