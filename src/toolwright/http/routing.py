"""Finding the operation of a request. Owns matching paths by their segments, so that a parameter may hold an encoded
slash, and many routes cost no more than few."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from toolwright.errors import ToolwrightError
from toolwright.http.operations import Operation
from toolwright.http.problems import Problem


class _Node:
    __slots__ = ("fixed", "operations", "parameter", "rest")

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.rest: _Node | None = None
        self.operations: dict[str, tuple[Operation, tuple[str, ...]]] = {}


class Routes:
    """The operations of a service by path and method."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        for operation in operations:
            self._add(operation)

    def _add(self, operation: Operation) -> None:
        node, names = self._root, []
        for segment in operation.full_path.strip("/").split("/"):
            if not segment.startswith("{"):
                node = node.fixed.setdefault(segment, _Node())
                continue
            name, _, kind = segment.strip("{}").partition(":")
            names.append(name)
            if kind == "path":
                node.rest = node = node.rest or _Node()
            else:
                node.parameter = node = node.parameter or _Node()
        if operation.method in node.operations:
            raise ToolwrightError(f"{operation.method} {operation.full_path} is defined twice; leave one out")
        node.operations[operation.method] = (operation, tuple(names))

    def find(self, method: str, raw_path: bytes) -> tuple[Operation, dict[str, str]] | None:
        """The operation of a request and the parameters of its path; None where no path is like it.

        Raises:
            Problem: the path has no such method, or a parameter is not UTF-8.
        """
        try:
            segments = raw_path.decode("ascii").removeprefix("/").rstrip("/").split("/")
        except UnicodeDecodeError:
            raise Problem(400, "bad_path", "The path has bytes that must be percent-encoded") from None
        values: list[str] = []
        node = _walk(self._root, segments, 0, values)
        if node is None:
            return None
        found = node.operations.get("GET" if method == "HEAD" else method)
        if found is None:
            allowed = ", ".join(sorted(node.operations))
            raise Problem(
                405, "method_not_allowed", f"The path does not take {method}; use {allowed}", headers={"Allow": allowed}
            )
        operation, names = found
        try:
            return operation, dict(zip(names, [unquote(value, errors="strict") for value in values], strict=True))
        except UnicodeDecodeError:
            raise Problem(400, "bad_path", "A part of the path is not UTF-8; encode it as such") from None


def _walk(node: _Node, segments: list[str], at: int, values: list[str]) -> _Node | None:
    """The node of a path. A fixed segment wins over a parameter."""
    if at == len(segments):
        return node if node.operations else None
    segment = segments[at]
    found = node.fixed.get(segment)
    if found is not None:
        reached = _walk(found, segments, at + 1, values)
        if reached is not None:
            return reached
    if node.parameter is not None and segment:
        values.append(segment)
        reached = _walk(node.parameter, segments, at + 1, values)
        if reached is not None:
            return reached
        values.pop()
    if node.rest is not None and segment:
        values.append("/".join(segments[at:]))
        return node.rest
    return None
