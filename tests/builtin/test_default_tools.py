"""The tools that come without asking for more."""

import subprocess
import sys

import pytest

from toolwright import Policy
from toolwright.builtin import capability, default_tools
from toolwright.builtin.capabilities import NAMES
from toolwright.wire import anthropic, openai_chat

SEVENTEEN = {
    "get_current_time": "Get Current Time",
    "echo": "Echo",
    "report_progress": "Report Progress",
    "add": "Add",
    "subtract": "Subtract",
    "multiply": "Multiply",
    "divide": "Divide",
    "get_weather": "Get Weather",
    "get_forecast": "Get Forecast",
    "write_todos": "Write Todos",
    "read_file": "Read File",
    "write_file": "Write File",
    "edit_file": "Edit File",
    "list_directory": "List Directory",
    "grep_files": "Grep Files",
    "delete_file": "Delete File",
    "stat_file": "Stat File",
}
WRITE = {"write_todos", "write_file", "edit_file", "delete_file"}


@pytest.fixture
def tools():
    return {tool.name: tool.definition for tool in default_tools()}


@pytest.mark.promise("BLT-01")
def test_there_are_eighteen_with_display_names(tools):
    shown = {name: definition.display_name for name, definition in tools.items()}
    assert shown.pop("web_fetch")
    assert shown == SEVENTEEN
    assert len(default_tools()) == 18


@pytest.mark.promise("BLT-01")
def test_the_stronger_ones_come_only_with_their_capability(tools):
    assert not tools.keys() & {"bash", "kv_store", "secret_store", "tool_search", "spawn_background"}
    assert [tool.name for tool in capability("session_storage").tools] == ["kv_store", "secret_store"]
    assert [tool.name for tool in capability("tool_search").tools] == ["tool_search"]


@pytest.mark.promise("BLT-01")
def test_each_says_what_it_does_and_what_it_gives(tools):
    assert {name for name, definition in tools.items() if definition.hints.mutating} == WRITE
    for definition in tools.values():
        assert definition.id == f"toolwright.builtin.{definition.name}"
        assert len(definition.description) > 10
        assert definition.output_schema is not None
        assert not definition.concurrency.exclusive, definition.name
        for name, schema in definition.input_schema["properties"].items():
            assert schema.get("description"), f"{definition.name}.{name}"
    writing = {name for name, definition in tools.items() if "writes_files" in definition.capabilities}
    assert writing == {"write_file", "edit_file", "delete_file"}


def test_each_can_be_shown_to_models(tools):
    for write in (openai_chat.write_tools, anthropic.write_tools):
        assert len(write(tools.values())) == 18


def test_what_is_not_used_is_not_imported():
    program = (
        "import sys, toolwright, toolwright.builtin; toolwright.Runtime; toolwright.builtin.capability('todo');"
        "print([name for name in ('bm25s', 'numpy', 'httpx', 'bashkit', 're2', 'cryptography') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_every_name_of_a_capability_is_one():
    assert set(NAMES) == {
        "files",
        "web",
        "virtual_bash",
        "session_storage",
        "todo",
        "background_execution",
        "tool_search",
    }


@pytest.mark.promise("BLT-01")
@pytest.mark.parametrize(
    ("library", "name", "arguments"),
    [
        ("re2", "grep_files", {"pattern": "x"}),
        ("bm25s", "tool_search", {"query": "files"}),
        (
            "cryptography.hazmat.primitives.ciphers.aead",
            "secret_store",
            {"action": "set", "name": "k", "value": "12345"},
        ),
    ],
)
async def test_a_tool_whose_library_goes_missing_says_which_extra_it_needs(
    open_runtime, monkeypatch, library, name, arguments
):
    boxes = ["files", "virtual_bash", "session_storage", "tool_search"]
    runtime = await open_runtime(":memory:", capabilities=boxes, policy=Policy(defer_tools_from=1))
    monkeypatch.setitem(sys.modules, library, None)
    outcome = await runtime.session("s").call(name, **arguments)
    assert (outcome.failure.category, outcome.failure.code) == ("unavailable", "not_installed")
    assert "pip install 'toolwright[" in f"{outcome.failure.message} {outcome.failure.detail}"
