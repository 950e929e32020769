"""The units of the example service name commands and options that exist."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from toolwright.cli.app import app

UNITS = sorted((Path(__file__).parents[2] / "examples" / "service").glob("*.service"))


@pytest.mark.promise("HTTP-05")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_commands_of_a_unit_exist_with_their_options(unit):
    commands = re.findall(r"^ExecStart(?:Pre)?=/opt/agent/bin/toolwright (.+)$", unit.read_text(), re.MULTILINE)
    assert commands
    for command in commands:
        name, *words = shlex.split(command)
        known = get_command(app).commands[name]  # type: ignore[attr-defined]
        options = {option for parameter in known.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= options, command
