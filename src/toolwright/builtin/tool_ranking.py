"""Which tools fit a question. Owns which text of a tool is searched; the ranking is BM25, by the library `bm25s`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType

from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import ToolError

# Where an identifier is put together of words: snake_case, camelCase, HTTPServer.
_SEAMS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\W]+")


def rank(question: str, tools: Sequence[ToolDefinition], most: int) -> list[ToolDefinition]:
    """The tools that fit a question, best first; tools that the question names come before all others.

    Raises:
        ToolError: the library is not installed.
    """
    asked = set(re.findall(r"[A-Za-z0-9_.:/-]+", question))
    named = [tool for tool in tools if tool.name in asked]
    others = [tool for tool in tools if tool.name not in asked]
    return [*named, *_by_words(question, others)][:most]


def _by_words(question: str, tools: Sequence[ToolDefinition]) -> list[ToolDefinition]:
    try:
        import bm25s
    except ImportError:
        raise ToolError(
            "Tools cannot be searched here: the host lacks a library (pip install 'toolwright[search]')",
            category="unavailable",
            code="not_installed",
        ) from None
    words = _words([question, *map(_document, tools)], bm25s)
    known = {word for document in words[1:] for word in document}
    sought = [word for word in words[0] if word in known]
    if not sought:
        return []
    index = bm25s.BM25()
    index.index(words[1:], show_progress=False)
    scores = index.get_scores(sought)
    best = sorted(range(len(tools)), key=lambda place: (-scores[place], tools[place].name))
    return [tools[place] for place in best if scores[place] > 0]


def _words(texts: list[str], bm25s: ModuleType) -> list[list[str]]:
    split = [_SEAMS.sub(" ", text) for text in texts]
    found: list[list[str]] = bm25s.tokenize(split, stopwords="en", return_ids=False, show_progress=False)
    return [[_singular(word) for word in words] for words in found]


def _singular(word: str) -> str:
    """One form for a thing and for many of it, so that "files" finds "file"; which form does not matter."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us")) else word


def _document(tool: ToolDefinition) -> str:
    """The searched text of a tool. Its name counts twice, because it says most."""
    properties = tool.input_schema.get("properties")
    parameters = properties if isinstance(properties, dict) else {}
    about = [f"{name} {_description(schema)}" for name, schema in parameters.items()]
    return " ".join([tool.name, tool.name, tool.display_name or "", tool.category or "", tool.description, *about])


def _description(schema: object) -> str:
    found = schema.get("description") if isinstance(schema, dict) else None
    return found if isinstance(found, str) else ""
