"""The reference has every public name, and each of them says what it is."""

import dataclasses
import importlib
import inspect
import re
import textwrap

import pytest

import toolwright
from tests.docs.pages import ROOT
from toolwright import Hints, Policy, RetryPolicy, Rule, ToolDefinition, ToolOptions, ToolOutcome, errors, events

SHOWN = {
    name
    for page in (ROOT / "docs" / "reference").glob("*.md")
    for name in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.M)
}
ALSO_PUBLIC = ("builtin", "drivers", "http", "providers", "stores", "testing", "testing.conformance")
BY_FIELD = [ToolOptions, Policy, Rule, RetryPolicy, Hints, ToolDefinition, ToolOutcome]


def is_shown(name: str) -> bool:
    module, _, last = name.rpartition(".")
    return name in SHOWN or module in SHOWN or (hasattr(errors, last) and "toolwright.errors" in SHOWN)


@pytest.mark.parametrize("name", toolwright.__all__)
def test_a_public_name_is_in_the_reference_and_has_a_docstring(name: str):
    assert is_shown(f"toolwright.{name}")
    assert inspect.getdoc(getattr(toolwright, name))


@pytest.mark.parametrize("module", ALSO_PUBLIC)
def test_the_names_of_another_public_module_are_in_the_reference(module: str):
    names = importlib.import_module(f"toolwright.{module}").__all__
    assert [name for name in names if not is_shown(f"toolwright.{module}.{name}")] == []


@pytest.mark.parametrize("module", [errors, events], ids=lambda module: module.__name__)
def test_every_error_and_event_says_what_it_is(module):
    classes = [
        thing for thing in vars(module).values() if inspect.isclass(thing) and thing.__module__ == module.__name__
    ]
    assert len(classes) > 10
    assert [thing.__name__ for thing in classes if not (thing.__doc__ or "").strip()] == []


@pytest.mark.parametrize("kind", BY_FIELD, ids=lambda kind: kind.__name__)
def test_every_field_has_a_docstring_under_it(kind: type):
    fields = getattr(kind, "__struct_fields__", None) or [
        *([field.name for field in dataclasses.fields(kind) if field.init] if dataclasses.is_dataclass(kind) else []),
        *(kind.__annotations__ if not dataclasses.is_dataclass(kind) else []),
    ]
    source = textwrap.dedent(inspect.getsource(kind))
    without = [
        name
        for name in fields
        if not name.startswith("_")
        and not re.search(rf'^    {name}: .*\n    """', source, re.M)
        and name != "cached_value"
    ]
    assert without == []


def test_the_page_about_defining_tools_has_every_option():
    page = (ROOT / "docs" / "defining-tools.md").read_text(encoding="utf-8")
    assert [
        option for option in ToolOptions.__annotations__ if f"`{option}=" not in page and f" `{option}=" not in page
    ] == []
