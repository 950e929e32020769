"""The cost of checking a value whose parts may have several forms. Owns the estimate; does not own the check.

A validator tries the forms of a union one after another. In a type that contains itself through such a union, each
level of nesting multiplies the work: two forms and 30 levels are a thousand million attempts, in one call that holds
the interpreter's lock. So the forms are counted when a tool is defined, and arguments are measured before the check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from toolwright import jsonx

MOST_TYPED = 35_000
"""How many attempts the check of typed arguments may take, by the estimate: some 30 to 50 ms."""
MOST_LISTED = 5_000
"""The same where each problem of a value is described by the forms that it does not have, which takes longer."""

_Node = dict[str, Any]
_Count = tuple[int, int]


class CheckingCost(msgspec.Struct, frozen=True):
    """How many attempts the parts of a value take.

    `objects` and `lists` are the forms that are tried for an object or a list in a type that contains itself: they
    multiply from level to level. `forms` is how many are tried for a part elsewhere, and `fields` how many fields are
    looked for in an object.
    """

    objects: int = 1
    lists: int = 1
    forms: int = 1
    fields: int = 0

    @property
    def multiplies(self) -> bool:
        """True when each level of nesting multiplies the work."""
        return self.objects > 1 or self.lists > 1

    def short(self, most: int) -> int:
        """How many bytes of JSON are checked by no more attempts than `most`, whatever is in them."""
        return 0 if self.multiplies else 2 * most // (self.forms * (1 + self.fields))

    def fits(self, raw: bytes, most: int) -> bool:
        """True when the value of some JSON is checked by no more attempts than `most`."""
        try:
            value = jsonx.decode(raw)
        except (jsonx.DecodeError, RecursionError):
            return True  # The check will report it.
        return self.fits_value(value, most)

    def fits_value(self, value: object, most: int) -> bool:
        """The same for a value that was decoded."""
        inside: Iterable[Any] = list(value.values()) if isinstance(value, dict) else [value]
        waiting = [(inside, 1)]
        while waiting:
            items, factor = waiting.pop()
            for item in items:
                kind = type(item)
                if kind is dict:
                    inner = factor * self.objects
                    most -= inner * self.forms * (1 + max(len(item), self.fields))
                    waiting.append((item.values(), inner))
                elif kind is list:
                    inner = factor * self.lists
                    most -= inner * self.forms * (1 + len(item))
                    waiting.append((item, inner))
                if most < 0:
                    return False
        return True


def cost_of_core_schema(schema: Mapping[str, Any]) -> CheckingCost | None:
    """The cost of checking a value by a core schema of pydantic; None if each part costs little.

    The fields of the whole are not counted: there is one of it.
    """
    whole = schema["schema"] if schema.get("type") == "definitions" else schema
    return _Graph(schema, _core_children, _core_count).cost(lambda node: 0 if node is whole else _core_fields(node))


def cost_of_json_schema(schema: object) -> CheckingCost | None:
    """The cost of describing the problems of a value by a JSON Schema; None where nesting multiplies nothing."""

    def children(node: _Node, _: dict[str, _Node]) -> Iterator[_Node]:
        yield from _json_children(node, whole)

    whole: _Node = schema if isinstance(schema, dict) else {}  # true and false have no parts
    cost = _Graph(whole, children, _json_count).cost(lambda node: 0)
    return cost if cost is not None and cost.multiplies else None


class _Graph:
    """A schema as a graph: each part leads to the parts inside it, and to the parts that it refers to."""

    def __init__(
        self,
        schema: object,
        children: Callable[[_Node, dict[str, _Node]], Iterator[_Node]],
        count: Callable[[_Graph, _Node, set[int]], _Count],
    ) -> None:
        self.nodes: dict[int, _Node] = {}
        self.inside: dict[int, list[_Node]] = {}
        self.named: dict[str, _Node] = {}
        self._count = count
        for node in _dicts(schema):
            if isinstance(node.get("ref"), str):
                self.named[node["ref"]] = node
        waiting = [schema] if isinstance(schema, dict) else []
        while waiting:
            node = waiting.pop()
            if id(node) not in self.nodes:
                self.nodes[id(node)] = node
                self.inside[id(node)] = found = list(children(node, self.named))
                waiting.extend(found)

    def cost(self, fields: Callable[[_Node], int]) -> CheckingCost | None:
        objects = lists = forms = 1
        most_fields = 0
        for node in self.nodes.values():
            most_fields = max(most_fields, fields(node))
            for choices in _unions(node):
                back = self._leading_to(node)
                counts = [self._count(self, choice, back) for choice in choices]
                in_objects, in_lists = sum(each[0] for each in counts), sum(each[1] for each in counts)
                if max(in_objects, in_lists) > 1:
                    objects, lists = max(objects, in_objects), max(lists, in_lists)
                else:
                    forms = max(forms, len(choices))
        if objects == lists == forms == 1 and most_fields <= 1:
            return None
        return CheckingCost(objects, lists, forms, most_fields)

    def _leading_to(self, target: _Node) -> set[int]:
        """The parts from which a part can be reached, itself among them only where it contains itself."""
        before: dict[int, list[int]] = {}
        for place, inside in self.inside.items():
            for part in inside:
                before.setdefault(id(part), []).append(place)
        found: set[int] = set()
        waiting = [id(target)]
        while waiting:
            for place in before.get(waiting.pop(), ()):
                if place not in found:
                    found.add(place)
                    waiting.append(place)
        return found


def _dicts(node: object) -> Iterator[_Node]:
    waiting, seen = [node], set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if id(each) in seen:
                continue
            seen.add(id(each))
            yield each
            waiting.extend(value for key, value in each.items() if key not in _NO_SCHEMA)
        elif isinstance(each, list | tuple):
            waiting.extend(each)


def _unions(node: _Node) -> Iterator[list[Any]]:
    """The forms among which a part has a choice, or all of which it has."""
    if node.get("type") == "union" and isinstance(node.get("choices"), list):
        yield [choice[0] if isinstance(choice, tuple) else choice for choice in node["choices"]]
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(node.get(keyword), list) and len(node[keyword]) > 1:
            yield [choice for choice in node[keyword] if isinstance(choice, dict)]


# --- core schemas of pydantic

_NO_SCHEMA = frozenset(
    ("metadata", "serialization", "config", "default", "expected", "cls", "const", "enum", "examples")
)
_OBJECTS = frozenset(("typed-dict", "model-fields", "dataclass-args", "dict"))
_LISTS = frozenset(("list", "tuple", "set", "frozenset", "generator"))
_ONE_OF_THEM = frozenset(("lax-or-strict", "json-or-python", "tagged-union"))


def _core_children(node: _Node, named: dict[str, _Node]) -> Iterator[_Node]:
    if node.get("type") == "definition-ref":
        if node.get("schema_ref") in named:
            yield named[node["schema_ref"]]
        return
    waiting = [value for key, value in node.items() if key not in _NO_SCHEMA]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list | tuple):
            waiting.extend(each)
        elif isinstance(each, dict):
            if isinstance(each.get("type"), str):
                yield each
            else:  # fields or forms by name
                waiting.extend(each.values())


def _core_count(graph: _Graph, node: _Node, leading_back: set[int]) -> _Count:
    """How many forms that lead back to a union are tried for an object, and for a list, that one part is given."""
    seen: set[int] = set()

    def count(part: _Node) -> _Count:
        if id(part) in seen or id(part) not in leading_back:
            return 0, 0
        kind = part.get("type")
        if kind in _OBJECTS:
            return 1, 0
        if kind in _LISTS:
            return 0, 1
        if kind == "arguments":
            return 1, 1
        seen.add(id(part))
        found = [count(inner) for inner in graph.inside[id(part)]]
        seen.discard(id(part))
        objects, lists = [each[0] for each in found], [each[1] for each in found]
        return (max([0, *objects]), max([0, *lists])) if kind in _ONE_OF_THEM else (sum(objects), sum(lists))

    return count(node)


def _core_fields(node: _Node) -> int:
    """How many fields an object may lack: each is a problem of its own."""
    kind, fields = node.get("type"), node.get("fields")
    if kind in ("model-fields", "typed-dict", "dataclass-args") and isinstance(fields, dict | list):
        return len(fields)
    return 0


# --- JSON Schema


def _json_children(node: _Node, root: _Node) -> Iterator[_Node]:
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        if isinstance(node.get(keyword), str):
            yield _referred(node[keyword], root)
    for key, value in node.items():
        if key in _NO_SCHEMA:
            continue
        if isinstance(value, dict):
            yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, dict))


def _referred(reference: str, root: _Node) -> _Node:
    """The target of a reference; the whole schema if it is not found, so that it counts as containing itself."""
    if not reference.startswith("#/"):
        return root
    place: Any = root
    for step in unquote(reference[2:]).split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        elif isinstance(place, dict) and name in place:
            place = place[name]
        else:
            return root
    return place if isinstance(place, dict) else root


def _json_count(graph: _Graph, node: _Node, leading_back: set[int]) -> _Count:
    if id(node) not in leading_back:
        return 0, 0
    seen: set[int] = set()
    while isinstance(node.get("$ref"), str) and "type" not in node and id(node) not in seen:
        seen.add(id(node))
        node = graph.inside[id(node)][0]
    named = node.get("type")
    kinds = {named} if isinstance(named, str) else set(named) if isinstance(named, list) else {"object", "array"}
    return int("object" in kinds), int("array" in kinds)
