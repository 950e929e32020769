"""Docstrings: what a model reads of them, and that none does harm."""

from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from tests.tools.signatures import schema_of
from toolwright.tools.function_schema import (
    read_signature,
)

GOOGLE = """Find people.

    Slowly, and
    with care.

    Args:
        name: whose name,
            all of it.
        age (int, optional): how old.

    Returns:
        list: them.

    Raises:
        KeyError: never.
    """
NUMPY = """Find people.

    Slowly, and
    with care.

    Parameters
    ----------
    name : str
        whose name,
        all of it.
    age : int, optional
        how old.

    Returns
    -------
    list
        them.
    """
REST = """Find people.

    Slowly, and
    with care.

    :param str name: whose name,
        all of it.
    :param age: how old.
    :returns: them.
    """


@pytest.mark.promise("TOOL-01")
@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_descriptions_come_from_docstrings_of_each_style(docstring: str):
    def find(name: str, age: int = 3) -> None: ...

    find.__doc__ = docstring
    signature = read_signature(find, name="it")
    assert signature.description == "Find people.\n\nSlowly, and\nwith care."
    assert signature.input_schema["properties"]["name"]["description"] == "whose name,\nall of it."
    assert signature.input_schema["properties"]["age"] == {
        "type": "integer",
        "default": 3,
        "description": "how old.",
    }


@pytest.mark.promise("TOOL-01")
def test_a_description_on_the_annotation_wins_over_the_docstring():
    def find(
        a: Annotated[int, Field(description="field")],
        b: Annotated[int, "plain"],
        c: Annotated[int, Field(ge=1)],
        d: int = Field(1, description="default"),
    ) -> None:
        """Find.

        Args:
            a: docstring
            b: docstring
            c: docstring
            d: docstring
        """

    found = {name: part["description"] for name, part in schema_of(find)["properties"].items()}
    assert found == {"a": "field", "b": "plain", "c": "docstring", "d": "default"}


def test_prose_with_colons_is_kept_whole():
    def work() -> None: ...

    for text in (
        "Do it.\n\n:class:`Thing` says: no.",
        "Note: this is all there is.",
        "Args:",
        "\x00:::",
        ":",
    ):
        work.__doc__ = text
        assert read_signature(work, name="it").description == text
    work.__doc__ = None
    assert read_signature(work, name="it").description == ""


PIECES = ["Args:", "    x: y", "Parameters", "----------", ":param x:", "Raises:", "@param x", " ", "x : int"]


@given(st.text("aA:\n\t -*`()@{}[].,é\x00\\") | st.text() | st.lists(st.sampled_from(PIECES)).map("\n".join))
@settings(max_examples=100, deadline=None)
def test_no_docstring_makes_a_tool_fail(text: str):
    def work(x: int) -> None: ...

    work.__doc__ = text
    assert read_signature(work, name="it").parameters == ("x",)


def test_a_callable_object_prefers_the_words_of_its_call():
    class Silent:
        def __call__(self, x: int) -> None: ...

    class Spoken:
        """The class."""

        def __call__(self, x: int) -> None:
            """The call.

            Args:
                x: An x.
            """

    assert read_signature(Silent(), name="it").description == ""
    signature = read_signature(Spoken(), name="it")
    assert signature.description == "The call."
    assert signature.input_schema["properties"]["x"]["description"] == "An x."
