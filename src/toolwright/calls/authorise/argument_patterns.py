"""Patterns on arguments. Owns whether a remembered decision is about a call, and which spelling of a path is matched.

A pattern is an object: each of its fields must be among the arguments, equal, or for text matching as a shell-style
pattern. A path has many spellings (`/data/../etc/passwd`, `/data//x`, `/workspace/data/x`), so where a parameter is a
path its pattern is matched against the resolved path. A text that is not declared as a path may be one nevertheless: to
allow a call, such a text must not be another spelling of anything. To deny one, any spelling is enough.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Literal

from toolwright.tools.claims import resolve_path
from toolwright.tools.definition import ToolDefinition

_PATH_FORMATS = frozenset(("path", "file-path", "directory-path"))
"""The formats by which a JSON schema declares a path, as `pathlib.Path` and similar types have it."""
_ENCODED = (("%2e", "."), ("%2f", "/"), ("%5c", "/"), ("\\", "/"))
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_CHAINING = frozenset(";|&$`<>(){}\n\r")
"""Characters by which a script does more than its first words show."""

Match = Callable[[str, str], bool]
"""Whether a pattern, the first, matches a text."""


def matches(pattern: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """True when each field of the pattern is there and the same, or for text matches as a shell-style pattern."""
    return _all_match(pattern, fields, {}, _as_written)


def decides(
    effect: Literal["allow", "deny"], pattern: Mapping[str, Any], arguments: Mapping[str, Any], tool: ToolDefinition
) -> bool:
    """True when a remembered decision with this pattern is about a call of the tool with these arguments."""
    by_name = _matches_by_parameter(tool, effect)
    return _all_match(pattern, arguments, by_name, _allows if effect == "allow" else _denies)


def _all_match(
    pattern: Mapping[str, Any], fields: Mapping[str, Any], by_name: Mapping[str, Match], otherwise: Match
) -> bool:
    for name, wanted in pattern.items():
        if name not in fields:
            return False
        given = fields[name]
        if isinstance(wanted, str) and isinstance(given, str):
            if not by_name.get(name, otherwise)(wanted, given):
                return False
        elif given != wanted or type(given) is not type(wanted):
            return False
    return True


def _matches_by_parameter(tool: ToolDefinition, effect: str) -> dict[str, Match]:
    """How the parameters are matched about which the tool declares something."""
    allows = effect == "allow"
    found: dict[str, Match] = {}
    properties = tool.input_schema.get("properties")
    for name, schema in properties.items() if isinstance(properties, Mapping) else ():
        if _is_path(schema):
            found[name] = _allows_path if allows else _denies_path
    for resource in (*tool.concurrency.reads, *tool.concurrency.writes):
        if resource.kind != "name":
            found[resource.source] = _allows_session_path if allows else _denies_session_path
    if allows and tool.script is not None:
        found[tool.script] = _allows_script
    return found


def _is_path(schema: object) -> bool:
    if not isinstance(schema, Mapping):
        return False
    choices = schema.get("anyOf")
    return schema.get("format") in _PATH_FORMATS or (isinstance(choices, list) and any(map(_is_path, choices)))


def _as_written(pattern: str, text: str) -> bool:
    return fnmatch.fnmatchcase(text, pattern)


def _allows(pattern: str, text: str) -> bool:
    return pattern == text or (_as_written(pattern, text) and _is_one_spelling(text))


def _denies(pattern: str, text: str) -> bool:
    return _as_written(pattern, text) or _as_written(pattern, posixpath.normpath(_decoded(text)))


def _allows_session_path(pattern: str, path: str) -> bool:
    return _as_written(session_path(pattern), session_path(path))


def _denies_session_path(pattern: str, path: str) -> bool:
    return _allows_session_path(pattern, path) or _denies(pattern, path)


def _allows_path(pattern: str, path: str) -> bool:
    """For a path that the tool itself resolves: a relative path is below a directory that is not known here."""
    shape, given = _lexical(pattern), _lexical(path)
    both = pattern.startswith("/") is path.startswith("/") and not given.startswith("..")
    return both and _as_written(shape, given)


def _denies_path(pattern: str, path: str) -> bool:
    return _denies_session_path(pattern, path) or _as_written(_lexical(pattern), _lexical(path))


def _allows_script(pattern: str, script: str) -> bool:
    return pattern == script or (_allows(pattern, script) and _CHAINING.isdisjoint(script))


def session_path(path: str) -> str:
    """The one spelling of a path as the files of a session have it, in one form of Unicode."""
    return resolve_path(_composed(path))


def _lexical(path: str) -> str:
    return posixpath.normpath(_composed(path).replace("\\", "/")).replace("//", "/")


def _composed(path: str) -> str:
    """In one form of Unicode, as the files of a session have it."""
    return path if path.isascii() else unicodedata.normalize("NFC", path)


def _is_one_spelling(text: str) -> bool:
    """True when a text, read as a path or an address, does not go up, stand still, or have an empty name within."""
    names = _SCHEME.sub("", _decoded(text)).rstrip("/").split("/")
    return "." not in names and ".." not in names and "" not in names[1:]


def _decoded(text: str) -> str:
    for written, meant in _ENCODED:
        text = text.replace(written, meant).replace(written.upper(), meant)
    return text
