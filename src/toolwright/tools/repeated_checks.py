"""How often a JSON Schema checks one part of a value. Owns the estimate, and finding where references lead; does not
own the check.

A short schema can ask for very much: thirty definitions of which each applies the next one twice check a value a
thousand million times, in one call that holds the interpreter's lock. So a schema is measured before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

MOST_CHECKS = 5_000
"""How often one part of a value may be checked."""
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_DATA = ("const", "enum", "default", "examples")
_SAME_VALUE = ("allOf", "anyOf", "oneOf")
_SAME_VALUE_ONE = ("not", "if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_NO_CHECK = frozenset(
    (*_SAME_VALUE, *_SAME_VALUE_ONE, *_REFERENCES, "$defs", "definitions", "dependentSchemas", "dependencies")
) | {"$id", "$schema", "$anchor", "$dynamicAnchor", "$comment", "title", "description", "default", "examples"}

_Node = dict[str, Any]


def repeated_checks(schema: object) -> int | None:
    """How often one part of a value may be checked by a schema, about; None if it is not known where a reference leads.

    A part of a schema that contains itself counts once: the validator remembers its result for each part of a value.
    """
    if not isinstance(schema, dict):
        return 1
    places = _Places(schema)
    return _most(places) if places.known else None


def has_circles(schema: object) -> bool:
    """True when a part of a schema applies to the same value again and again."""
    return isinstance(schema, dict) and _circles(_Places(schema))


class _Places:
    """The parts of a schema, the parts that apply to the same value as each does, and those that apply inside of it."""

    def __init__(self, schema: _Node) -> None:
        self.root = schema
        self.known = True
        self._resource: dict[int, tuple[_Node, str]] = {}  # of each part: the schema that its pointers begin in, its id
        self._by_url: dict[str, _Node] = {}
        self.nodes: dict[int, _Node] = {}
        id_keyword = "id" if "draft-04" in str(schema.get("$schema")) else "$id"
        dynamic: set[str] = set()
        waiting: list[tuple[object, _Node, str]] = [(schema, schema, "")]
        while waiting:
            node, resource, base = waiting.pop()
            if isinstance(node, list):
                waiting.extend((item, resource, base) for item in node)
            if not isinstance(node, dict) or id(node) in self.nodes:
                continue
            own = node.get(id_keyword)
            if isinstance(own, str) and not own.startswith("#"):
                resource, base = node, urldefrag(urljoin(base, own)).url
                self._name(base, node)
            elif isinstance(own, str):
                self._name(base + own, node)
            elif node is schema:
                self._name(base, node)
            for key in ("$anchor", "$dynamicAnchor"):
                if isinstance(node.get(key), str):
                    self._name(f"{base}#{node[key]}", node)
            moving = node.get("$dynamicAnchor", node.get("$recursiveAnchor"))
            if moving is not None and str(moving) in dynamic:
                self.known = False  # which of them is meant depends on the way there
            dynamic.add(str(moving))
            self.nodes[id(node)] = node
            self._resource[id(node)] = resource, base
            waiting.extend((part, resource, base) for part in _inside(node))
        self.same: dict[int, list[int]] = {}
        self.deeper: dict[int, list[list[int]]] = {}
        for place, node in self.nodes.items():
            self.same[place] = [id(part) for part in self._same_value(node) if id(part) in self.nodes]
            self.deeper[place] = [
                [id(part) for part in parts if id(part) in self.nodes] for parts in _parts_of_items(node)
            ]

    def _name(self, url: str, node: _Node) -> None:
        if self._by_url.setdefault(url, node) is not node:
            self.known = False

    def _same_value(self, node: _Node) -> Iterator[object]:
        for key in _SAME_VALUE:
            if isinstance(node.get(key), list):
                yield from node[key]
        for key in _SAME_VALUE_ONE:
            yield node.get(key)
        for key in ("dependentSchemas", "dependencies"):
            yield from _named(node, key)
        for key in _REFERENCES:
            if isinstance(node.get(key), str):
                yield self._target(node, node[key])

    def _target(self, node: _Node, reference: str) -> object:
        resource, base = self._resource[id(node)]
        url, _, fragment = reference.partition("#")
        if url:
            base = urldefrag(urljoin(base, url)).url
            found = self._by_url.get(base)
        else:
            found = resource
        if fragment and not fragment.startswith("/"):
            found = self._by_url.get(f"{base}#{fragment}")
        elif fragment and found is not None:
            found = _at(found, fragment)
        if found is None or (found and id(found) not in self.nodes):
            self.known = False  # it leads nowhere, or to data
        return found


def _inside(node: _Node) -> Iterator[object]:
    for key, value in node.items():
        if key in _BY_NAME and isinstance(value, dict):
            yield from value.values()
        elif key not in _DATA:
            yield value


def _at(schema: _Node, pointer: str) -> _Node | None:
    found: Any = schema
    for step in unquote(pointer).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return None
    return found if isinstance(found, dict) else {} if isinstance(found, bool) else None


def _named(node: _Node, key: str) -> list[object]:
    found = node.get(key)
    return list(found.values()) if isinstance(found, dict) else []


def _parts_of_items(node: _Node) -> Iterator[list[object]]:
    """For each item that a value may have: the parts that apply to it."""
    other = [node.get("additionalProperties"), node.get("unevaluatedProperties"), *_named(node, "patternProperties")]
    for part in _named(node, "properties"):
        yield [part, *other]
    yield other
    yield [node.get("propertyNames")]
    listed = [part for key in ("items", "prefixItems") if isinstance(node.get(key), list) for part in node[key]]
    every = [node.get(key) for key in ("items", "additionalItems", "unevaluatedItems", "contains")]
    for part in listed:
        yield [part, *every]
    yield every


def _circles(places: _Places) -> bool:
    done: set[int] = set()
    for start in places.nodes:
        path = [] if start in done else [(start, iter(places.same[start]))]
        above = {start}
        while path:
            place, rest = path[-1]
            following = next((part for part in rest if part not in done), None)
            if following is None:
                path.pop()
                above.discard(place)
                done.add(place)
            elif following in above:
                return True
            else:
                above.add(following)
                path.append((following, iter(places.same[following])))
    return False


def _most(places: _Places) -> int:
    """The largest number of checks of one part of a value."""
    here: dict[int, int] = {}  # checks of the value itself
    below: dict[int, int] = {}  # of the part of it that is checked most
    path: list[tuple[int, Iterator[int]]] = [(id(places.root), _all(places, id(places.root)))]
    entered = {id(places.root)}
    while path:
        place, rest = path[-1]
        following = next((part for part in rest if part not in entered), None)
        if following is not None:
            entered.add(following)
            path.append((following, _all(places, following)))
            continue
        path.pop()
        node = places.nodes[place]
        own = int(not node.keys() <= _NO_CHECK)
        same = places.same[place]
        # A part that is not counted yet contains this one.
        here[place] = own + sum(here.get(part, 1) for part in same)
        items = (sum(max(here.get(part, 1), below.get(part, 1)) for part in parts) for parts in places.deeper[place])
        below[place] = max([0, *items]) + sum(below.get(part, 1) for part in same)
    return max(1, *here.values(), *below.values())


def _all(places: _Places, place: int) -> Iterator[int]:
    yield from places.same[place]
    for parts in places.deeper[place]:
        yield from parts
