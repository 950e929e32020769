"""`toolwright tools`."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run

ALL = ["add", "append", "crash", "echo", "hang", "launch", "refuse"]


def test_the_table_names_every_tool_and_every_parameter(run: Run) -> None:
    ended = run("tools", "--tools", "kit.py")
    assert ended.code == 0
    for word in (
        *ALL,
        "Add two numbers.",
        "the first one.",
        "b?",
        "integer = 2",
        "needs approval",
        "key {name}",
    ):
        assert word in ended.out


def test_json_gives_whole_definitions_sorted_by_name(run: Run) -> None:
    found = run("tools", "--tools", "kit.py", "--json").json
    assert [item["name"] for item in found] == ALL
    add = found[0]
    assert add["description"] == "Add two numbers."
    assert add["input_schema"]["required"] == ["a"]
    assert add["hints"]["readonly"] is True
    assert add["concurrency"]["parallel"] is True
    assert found[5]["approval"] == "required"


def test_names_choose_what_is_listed(run: Run) -> None:
    assert [item["name"] for item in run("tools", "echo", "add", "-t", "kit.py", "--json").json] == [
        "echo",
        "add",
    ]


def test_an_unknown_name_is_answered_with_the_nearest_one(run: Run) -> None:
    ended = run("tools", "ecko", "-t", "kit.py")
    assert (ended.code, ended.out) == (2, "")
    assert "no tool 'ecko'; did you mean 'echo'?" in ended.err


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("openai-chat", {"type", "function"}),
        ("openai-responses", {"type", "name", "description", "parameters", "strict"}),
        ("anthropic", {"name", "description", "input_schema"}),
        ("mcp", {"name", "description", "inputSchema", "annotations"}),
    ],
)
def test_tools_are_printed_in_the_shape_of_a_provider(run: Run, provider: str, expected: set[str]) -> None:
    (found,) = run("tools", "add", "-t", "kit.py", "--provider", provider).json
    assert found.keys() == expected


def test_an_unknown_provider_is_answered_with_those_there_are(run: Run) -> None:
    ended = run("tools", "-t", "kit.py", "--provider", "acme")
    assert ended.code == 2
    assert "no provider 'acme'; use one of anthropic, mcp, openai-chat, openai-responses" in ended.err


def test_types_are_told_in_words(run: Run, project: Path) -> None:
    (project / "typed.py").write_text(
        "from enum import Enum\n"
        "from typing import Literal\n"
        "from toolwright import tool\n"
        "class Colour(Enum):\n"
        "    red = 'red'\n"
        "    blue = 'blue'\n"
        "@tool\n"
        "def paint(at: list[str], colour: Colour, mode: Literal['fast', 'slow'] | None = None) -> None: ...\n"
    )
    out = run("tools", "-t", "typed.py").out
    for word in ("list of string", '"red" | "blue"', '"fast" | "slow" | null = null', "mode?"):
        assert word in out


def test_a_probe_function_shows_in_json_by_its_name(run: Run, project: Path) -> None:
    (project / "probed.py").write_text(
        "from toolwright import tool\n"
        "def was_it_sent(call): ...\n"
        "@tool(on_crash=was_it_sent)\n"
        "def send() -> None: ...\n"
    )
    (found,) = run("tools", "-t", "probed.py", "--json").json
    assert found["on_crash"] == "was_it_sent"
