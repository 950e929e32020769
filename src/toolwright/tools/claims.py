"""Claims: resources that a call does not share. Owns claims and how they are read from arguments; does not own waiting
for them."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from toolwright.errors import ToolDefinitionError


class Claim(NamedTuple):
    """A claim on one resource: a path in a tree of names, to read or to write, with or without the paths below it."""

    resource: tuple[str, ...]
    write: bool
    tree: bool = False


EXCLUSIVE = (Claim((), write=True, tree=True),)
"""Conflicts with every call."""

PARALLEL = (Claim((), write=False),)
"""Conflicts with exclusive calls only."""

MOST_PATHS = 1_000
DEEPEST = 64
"""A call that names more paths, or deeper ones, claims all of them or a whole subtree: a model may write any number."""


class Resource(NamedTuple):
    """Where a tool's claim comes from: a parameter that names a path or a tree, or a fixed or templated name."""

    kind: Literal["path", "tree", "name"]
    source: str


def path(parameter: str) -> Resource:
    """The path, or each of the paths, in this parameter."""
    return Resource("path", parameter)


def tree(parameter: str) -> Resource:
    """The path in this parameter and everything below it."""
    return Resource("tree", parameter)


def resource(name: str) -> Resource:
    """A named resource; `{parameter}` in the name is filled from the arguments."""
    return Resource("name", name)


Resources = str | Resource | Iterable[str | Resource] | None


class Concurrency(NamedTuple):
    """How calls of a tool may overlap: exclusive unless the tool sets something else."""

    parallel: bool = False
    key: str | None = None
    reads: tuple[Resource, ...] = ()
    writes: tuple[Resource, ...] = ()
    limit: int | None = None

    @property
    def exclusive(self) -> bool:
        """True when calls of the tool overlap nothing."""
        return not (self.parallel or self.key is not None or self.reads or self.writes)


def read_resources(given: Resources) -> tuple[Resource, ...]:
    """Bring the short forms (`"path"`, a list) to one form: a plain string names a parameter that holds a path."""
    if given is None:
        return ()
    if isinstance(given, str):
        return (path(given),)
    if isinstance(given, Resource):
        return (given,)
    return tuple(path(item) if isinstance(item, str) else item for item in given)


def compile_claims(
    concurrency: Concurrency, *, owner: str, parameters: Iterable[str] | None
) -> tuple[Claim, ...] | Callable[[Mapping[str, Any]], tuple[Claim, ...]]:
    """Return the claims of every call when they are fixed, else a function from arguments to claims.

    Raises:
        ToolDefinitionError: a claim names a parameter the tool does not have.
    """
    if concurrency.exclusive:
        return EXCLUSIVE
    makers: list[Callable[[Mapping[str, Any]], Iterable[Claim]]] = []
    fixed: list[Claim] = []
    known = None if parameters is None else set(parameters)
    if concurrency.key is not None:
        _add(fixed, makers, ("key",), concurrency.key, True, owner, known)
    for found, write in ((concurrency.reads, False), (concurrency.writes, True)):
        for item in found:
            if item.kind == "name":
                _add(fixed, makers, ("name",), item.source, write, owner, known)
            else:
                _require(item.source, owner, known)
                makers.append(_path_maker(item.source, write, item.kind == "tree"))
    if not makers:
        return tuple(fixed) or PARALLEL
    return lambda arguments: (*fixed, *(claim for make in makers for claim in make(arguments))) or PARALLEL


def _require(parameter: str, owner: str, known: set[str] | None) -> None:
    if known is not None and parameter not in known:
        have = ", ".join(sorted(known)) or "none"
        raise ToolDefinitionError(
            f"Tool {owner!r} claims the parameter {parameter!r}, which it does not have; its parameters are: {have}"
        )


def _add(
    fixed: list[Claim],
    makers: list[Callable[[Mapping[str, Any]], Iterable[Claim]]],
    prefix: tuple[str, ...],
    template: str,
    write: bool,
    owner: str,
    known: set[str] | None,
) -> None:
    try:
        parsed = [part[1:] for part in string.Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        raise ToolDefinitionError(f"Tool {owner!r} has a malformed key {template!r}: {error}") from None
    if not parsed:
        fixed.append(Claim((*prefix, template.format()), write))
        return
    fields: list[str] = []
    for field, spec, conversion in parsed:
        # A format or a conversion could fail when the tool is called, and that is too late.
        if not field or not field.isidentifier() or spec or conversion:
            raise ToolDefinitionError(
                f"Tool {owner!r} has a key {template!r} that is more than parameter names in braces; write {{name}}"
            )
        _require(field, owner, known)
        fields.append(field)

    def make(arguments: Mapping[str, Any]) -> Iterable[Claim]:
        filled = {field: _word(arguments.get(field)) for field in fields}
        if None in filled.values():
            return (Claim(prefix, write, True),)  # Left out, it may be any.
        return (Claim((*prefix, template.format(**filled)), write),)

    makers.append(make)


def _word(value: object) -> str | None:
    """A value as part of a name, the same for equal values; None when it has no such form."""
    if type(value) is float and value.is_integer():
        return str(int(value))  # 1.0 and 1 are one number in JSON.
    # A value whose text is its address has another name each time.
    kind = type(value)
    if value is None or (kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__):
        return None
    try:
        if isinstance(value, (set, frozenset)):
            return str(sorted(map(str, value)))  # Its own text depends on the order in which it was filled.
        if isinstance(value, Decimal):
            return str((value + 0).normalize())  # 1.0 and 1.00 are one number.
        return str(value)
    except Exception:  # the code of the value's class
        return None


def _path_maker(parameter: str, write: bool, whole: bool) -> Callable[[Mapping[str, Any]], Iterable[Claim]]:
    def make(arguments: Mapping[str, Any]) -> Iterable[Claim]:
        given: Any = arguments.get(parameter)
        if isinstance(given, (str, PurePath)):
            return (_path_claim(str(given), write, whole),)
        several = isinstance(given, (list, tuple, set, frozenset)) and len(given) <= MOST_PATHS
        if several and all(isinstance(item, (str, PurePath)) for item in given):
            return [_path_claim(str(item), write, whole) for item in given]
        return (Claim(("path",), write, True),)  # Left out, or none that can be read here: it may be any.

    return make


def resolve_path(path: str) -> str:
    """The one spelling of a path of a session: `a//b/../c`, `/a/c` and `/workspace/a/c` name one file."""
    return "/" + "/".join(_names(path, []))


def _path_claim(path: str, write: bool, whole: bool) -> Claim:
    found = _names(path, ["path"])
    if len(found) > DEEPEST:
        return Claim(tuple(found[:DEEPEST]), write, True)
    return Claim(tuple(found), write, whole)


def _names(path: str, found: list[str]) -> list[str]:
    """Add the names in a path from the root to those found; an existing one stays."""
    root = len(found)
    for part in path.replace("\\", "/").split("/"):
        if part == "..":
            if len(found) > root:
                found.pop()
        elif part and part != ".":
            found.append(part)
    while len(found) > root and found[root] == "workspace":
        del found[root]
    return found
