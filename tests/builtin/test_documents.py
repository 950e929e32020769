"""The page about the tools in the box says what they take and give."""

import re
from pathlib import Path

import pytest

from tests.builtin.conftest import TOOLS
from toolwright.builtin import capability

PAGE = (Path(__file__).parents[2] / "docs" / "built-in-tools.md").read_text(encoding="utf-8")
ROWS: dict[str, list[str]] = {}
for line in PAGE.partition("## Capabilities")[0].splitlines():
    if line.startswith("| `"):
        cells = line.strip("|").split("|")
        ROWS[cells[0].strip(" `")] = cells
BY_CAPABILITY = ("kv_store", "secret_store", "tool_search")


def fields(cell: str) -> tuple[set[str], set[str]]:
    """All fields that a cell names, and those that may be missing."""
    return set(re.findall(r"`(\w+)`", cell)), set(re.findall(r"\*`(\w+)`\*", cell))


@pytest.mark.promise("BLT-01")
@pytest.mark.parametrize("tool", [*TOOLS, *capability("tool_search").tools], ids=lambda tool: tool.name)
def test_the_page_names_every_field_that_a_tool_takes_and_gives(tool):
    cells = ROWS[tool.name]
    takes, gives = cells[2:4] if tool.name in BY_CAPABILITY else cells[1:3]
    for cell, schema in ((takes, tool.definition.input_schema), (gives, tool.definition.output_schema)):
        named = set(schema["properties"])
        assert fields(cell) == (named, named - set(schema.get("required", ())))
