"""The types that users see: mypy and pyright over a program of theirs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("user_code.py")
ROOT = PROGRAM.parents[2]
EXPECTED = {number for number, line in enumerate(PROGRAM.read_text().splitlines(), 1) if line.endswith("# error")}


def differences(found: dict[int, list[str]]) -> list[str]:
    """The errors that no comment expects, and the expected ones that were not found."""
    unexpected = [f"line {line}: {said}" for line, said in sorted(found.items()) if line not in EXPECTED]
    return unexpected + [f"line {line}: no error" for line in sorted(EXPECTED - found.keys())]


@pytest.mark.promise("APP-06")
def test_mypy_strict_sees_the_types_of_tools_steps_and_options(tmp_path):
    settings = tmp_path / "mypy.ini"
    settings.write_text(f"[mypy]\nstrict = true\npython_version = 3.11\nmypy_path = {ROOT / 'src'}\n")
    # The cache of its own is kept between runs: without it, each run would check the whole package.
    cache = ROOT / ".mypy_cache" / "user_code"
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), "--cache-dir", str(cache), str(PROGRAM)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert not said.stderr, said.stderr
    found: dict[int, list[str]] = {}
    for name, line, message in re.findall(r"^(\S+):(\d+): error: (.*)$", said.stdout, re.MULTILINE):
        assert name.endswith(PROGRAM.name), f"{name}:{line}: {message}"
        found.setdefault(int(line), []).append(message)
    assert differences(found) == [], said.stdout


@pytest.mark.promise("APP-06")
def test_pyright_strict_sees_the_types_of_tools_steps_and_options(tmp_path):
    settings = tmp_path / "pyrightconfig.json"
    settings.write_text(
        json.dumps(
            {
                "include": [str(PROGRAM)],
                "extraPaths": [str(ROOT / "src")],
                "pythonVersion": "3.11",
                "typeCheckingMode": "strict",
            }
        )
    )
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(settings)]
    said = subprocess.run(
        [*command, "--pythonpath", sys.executable], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    found: dict[int, list[str]] = {}
    for item in json.loads(said.stdout)["generalDiagnostics"]:
        if item["severity"] == "error":
            assert Path(item["file"]).name == PROGRAM.name, item
            found.setdefault(item["range"]["start"]["line"] + 1, []).append(item["message"])
    assert differences(found) == [], said.stdout
