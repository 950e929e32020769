"""Docstrings. Owns reading a description and parameter descriptions out of one; does not own schemas."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple


class Documentation(NamedTuple):
    """The parts of a docstring: the description, and that of each parameter it names."""

    description: str
    parameters: dict[str, str]


def documentation_of(function: Callable[..., Any]) -> Documentation:
    """Read a docstring of Google, NumPy, reST or Epydoc style; never fails, whatever stands in it."""
    text = _text_of(function)
    if not text:
        return Documentation("", {})
    import docstring_parser  # Here, as only a tool with a docstring needs it.

    try:
        parsed = docstring_parser.parse(text)
    except Exception:  # The parser trips over some texts in its own ways, and no tool should fail for its prose.
        return Documentation(text, {})
    known = (
        docstring_parser.DocstringParam,
        docstring_parser.DocstringReturns,
        docstring_parser.DocstringRaises,
    )
    if not any(isinstance(section, known) for section in parsed.meta):
        return Documentation(text, {})  # Prose with colons in it can look like sections, and would be lost.
    parameters = {
        name.strip(" *"): parameter.description.strip()
        for parameter in parsed.params
        if parameter.description
        for name in parameter.arg_name.split(",")
    }
    return Documentation((parsed.description or "").strip(), parameters)


def _text_of(function: object) -> str:
    if not inspect.isroutine(function):
        # The docstring of a callable object is that of its `__call__`, or else of its class.
        function = next(filter(_own_text, (type(function).__call__, type(function))), None)
        return inspect.cleandoc(_own_text(function))
    return inspect.cleandoc(_own_text(function) or _inherited_text(function))


def _inherited_text(function: object) -> str:
    """The docstring of the method that this one overrides.

    Not `inspect.getdoc`, which asks the class for its attribute: of a class method that is being read, that is the
    tool which is being made.
    """
    if not inspect.ismethod(function):
        return ""
    owner = function.__self__ if isinstance(function.__self__, type) else type(function.__self__)
    for base in owner.__mro__:
        attribute: Any = vars(base).get(function.__name__)
        while hasattr(attribute, "__wrapped__"):  # a class method, a static method, a tool
            attribute = attribute.__wrapped__
        if text := _own_text(attribute):
            return text
    return ""


def _own_text(thing: object) -> str:
    text = getattr(thing, "__doc__", None)
    return text if isinstance(text, str) and thing is not None else ""
