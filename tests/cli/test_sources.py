"""Where tools come from: `--tools` and pyproject.toml."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run

SOME = """
from toolwright import Capability, Tool, ToolRegistry, tool

@tool
def one() -> int: return 1

@tool
def two() -> int: return 2

@tool
def _hidden() -> int: return 3

def plain(x: int) -> int:
    "A plain function."
    return x

class Box:
    @tool
    def open(self) -> int: return 4

def make_tools() -> list[Tool]:
    return [one]

def make_registry() -> "ToolRegistry":
    return ToolRegistry([one])

def unsaid(x):
    return [one]

made = make_tools()
greeting = Capability(name="greeting", tools=[two])
pair = [one, plain]
registry = ToolRegistry([two])
box = Box()
number = 5
"""


@pytest.fixture
def some(project: Path) -> Path:
    (project / "some.py").write_text(SOME)
    return project


def names(run: Run, *words: str) -> list[str]:
    ended = run("tools", "--json", *words)
    assert ended.code == 0, ended.err
    return [item["name"] for item in ended.json]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("some", ["one", "two"]),
        ("some.py", ["one", "two"]),
        ("some:made", ["one"]),
        ("some:greeting", ["two"]),
        ("./some.py", ["one", "two"]),
        ("some:one", ["one"]),
        ("some.py:one", ["one"]),
        ("some:plain", ["plain"]),
        ("some:pair", ["one", "plain"]),
        ("some:registry", ["two"]),
        ("some:box.open", ["open"]),
    ],
)
def test_a_source_is_a_module_or_a_file_or_something_in_one(
    run: Run, some: Path, source: str, expected: list[str]
) -> None:
    assert names(run, "--tools", source) == expected


@pytest.mark.promise("BLT-04")
def test_a_built_in_capability_is_a_source_by_its_name(run: Run, some: Path) -> None:
    assert names(run, "--tools", "todo", "-t", "some:one") == ["one", "write_todos"]
    ended = run("call", "write_todos", 'todos=[{"content": "a", "status": "pending"}]', "-t", "todo")
    assert ended.code == 0, ended.err


def test_a_module_of_the_directory_comes_before_a_capability_of_its_name(run: Run, some: Path) -> None:
    (some / "todo.py").write_text("from kit import echo\n")
    assert names(run, "--tools", "todo") == ["echo"]


def test_sources_add_up_and_the_same_tool_twice_is_one(run: Run, some: Path) -> None:
    assert names(run, "-t", "some:one", "-t", "some:pair", "-t", "kit:echo") == ["echo", "one", "plain"]


def test_a_file_inside_a_package_may_import_its_neighbours(run: Run, project: Path) -> None:
    package = project / "pack"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "base.py").write_text("WORD = 'hello'\n")
    (package / "inner.py").write_text(
        "from toolwright import tool\nfrom .base import WORD\n@tool\ndef greet() -> str: return WORD\n"
    )
    assert run("call", "greet", "-t", "pack/inner.py").out == "hello\n"


def test_the_nearest_project_names_the_tools_relative_to_itself(
    run: Run, some: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (some / "pyproject.toml").write_text('[tool.toolwright]\ntools = ["some.py:one", "kit:add"]\n')
    deep = some / "a" / "b"
    deep.mkdir(parents=True)
    (some / "a" / "pyproject.toml").write_text('[project]\nname = "other"\n')
    monkeypatch.chdir(deep)
    assert names(run) == ["add", "one"]


def test_the_option_wins_over_the_project(run: Run, some: Path) -> None:
    (some / "pyproject.toml").write_text('[tool.toolwright]\ntools = ["some.py"]\n')
    assert names(run, "-t", "kit.py:echo") == ["echo"]


def test_what_a_module_prints_while_it_is_imported_stays_out_of_the_output(run: Run, project: Path) -> None:
    (project / "loud.py").write_text("print('loud!')\nfrom kit import echo\n")
    ended = run("call", "echo", "text=x", "-t", "loud.py")
    assert ended.out == "x\n"
    assert "loud!" in ended.err


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nowhere.py", "no file"),
        ("nowhere", "no module 'nowhere'; install it"),
        ("some.deeper", "no module 'some.deeper'; install it"),
        ("some:ona", "'some' has no 'ona'; did you mean 'one'?"),
        (
            "some:make_tools",
            "The function 'make_tools' makes tools, and is none; name them, as in tools = make_tools()",
        ),
        ("some:make_registry", "The function 'make_registry' makes tools, and is none"),
        ("some:unsaid", "The function 'unsaid' has no return annotation"),
        ("toolwright.builtin:default_tools", "The function 'default_tools' makes tools, and is none"),
        ("some:number", "5 is not a tool; decorate a function with @tool"),
        ("some/", "neither a Python file nor a module; use tools.py"),
        ("some:", "neither a Python file nor a module; use tools.py"),
        ("empty.py", "none at all; decorate a function with @tool"),
        ("broken.py", "SyntaxError"),
        ("broken.py", "(broken.py, line 2)"),
        ("raising.py", "ZeroDivisionError: division by zero (raising.py, line 1)"),
        ("leaving.py", "SystemExit: 3"),
        ("needing.py", "install 'no_such_library'"),
        ("wrong.py", "which cannot be found"),
        ("json.py", "another has that name; rename it"),
    ],
)
def test_tools_that_cannot_be_loaded_are_named_with_the_remedy(run: Run, some: Path, source: str, said: str) -> None:
    (some / "empty.py").touch()
    (some / "broken.py").write_text("x = 1\ndef (:\n")
    (some / "raising.py").write_text("1 / 0\n")
    (some / "leaving.py").write_text("raise SystemExit(3)\n")
    (some / "needing.py").write_text("import no_such_library\n")
    (some / "wrong.py").write_text("from toolwright import tool\n@tool\ndef f(x: 'Missing') -> None: ...\n")
    (some / "json.py").write_text("from kit import echo\n")
    ended = run("tools", "--tools", source)
    assert (ended.code, ended.out) == (2, "")
    assert source.rstrip(":/") in ended.err
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_two_tools_of_one_name_are_refused_with_both_places(run: Run, some: Path) -> None:
    (some / "more.py").write_text("from toolwright import tool\n@tool\ndef one() -> int: return 7\n")
    ended = run("tools", "-t", "some", "-t", "more.py")
    assert ended.code == 2
    assert "Two tools have the name 'one', in 'some' and in 'more.py'" in ended.err


def test_no_tools_at_all_are_answered_with_every_way_to_name_some(run: Run) -> None:
    ended = run("tools")
    assert ended.code == 2
    for way in ("--app module:app", "--tools tools.py", "[tool.toolwright] in pyproject.toml"):
        assert way in ended.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[tool.toolwright\n", "is not TOML"),
        ("[tool.toolwright]\n", "has no tools and no app; write a list of sources"),
        ('[tool.toolwright]\ntools = "kit.py"\n', "has tools = 'kit.py'; write a list"),
        ("[tool.toolwright]\ntools = [1]\n", "has tools = [1]; write a list"),
        ('[tool.toolwright]\ntools = ["gone.py"]\n', "The tools 'gone.py' cannot be found"),
    ],
)
def test_a_wrong_project_file_is_named_with_the_remedy(run: Run, project: Path, content: str, said: str) -> None:
    (project / "pyproject.toml").write_text(content)
    ended = run("tools")
    assert ended.code == 2
    assert said in ended.err
