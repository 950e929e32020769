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
    if not isinstance(schema, dict):
        return None  # true and false have no parts
    try:
        return _JsonForms(schema).cost()
    except RecursionError:  # references that lead on and on: its problems are listed for small values only
        return CheckingCost(_MANY, _MANY)


def parts_tried(schema: object) -> int | None:
    """How many parts of a JSON Schema are tried for one value, references followed; None if nesting multiplies them.

    A short schema can have very many: twenty definitions of which each refers twice to the next have a million.
    """
    if not isinstance(schema, dict):
        return 1
    try:
        forms = _JsonForms(schema)
        return None if forms.cost() is not None else forms.parts()
    except RecursionError:
        return None


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


class _JsonForms:
    """How many parts of a JSON Schema describe the same value, where the schema contains itself.

    Not only the forms of a union do: a field may match several patterns, and beside a reference, a condition or one
    form, the fields of the part itself hold too. Parts that contain each other are a component of the graph.
    """

    def __init__(self, root: _Node) -> None:
        self._root = root
        self._nodes: dict[int, _Node] = {}
        self._inside: dict[int, list[int]] = {}
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if id(node) not in self._nodes:
                self._nodes[id(node)] = node
                found = list(_json_children(node, root))
                self._inside[id(node)] = [id(each) for each in found]
                waiting.extend(found)
        self._component = _components(self._inside)
        self._counts: dict[tuple[int, int], _Count] = {}

    def cost(self) -> CheckingCost | None:
        objects = lists = forms = 1
        for place, node in self._nodes.items():
            in_objects, in_lists = self._count(node, self._component[place])
            objects, lists = max(objects, in_objects), max(lists, in_lists)
            if max(in_objects, in_lists) <= 1:
                forms = max([forms, *map(len, _unions(node))])
        cost = CheckingCost(objects, lists, forms)
        return cost if cost.multiplies else None

    def parts(self) -> int:
        """How many parts there are when each reference is replaced by the part it leads to. A part that contains itself
        counts once: for each level of a value it is tried once."""
        members: dict[int, list[int]] = {}
        for place, component in self._component.items():
            members.setdefault(component, []).append(place)
        known: dict[int, int] = {}

        def count(component: int) -> int:
            if component not in known:
                known[component] = sum(
                    1
                    + sum(
                        count(self._component[part])
                        for part in self._inside[place]
                        if self._component[part] != component
                    )
                    for place in members[component]
                )
            return known[component]

        return count(self._component[id(self._root)])

    def _count(self, node: _Node, home: int) -> _Count:
        """How many parts inside a component describe a field of an object, and an item of a list, that is given to a
        part."""
        known = self._counts.get((id(node), home))
        if known is not None:
            return known
        self._counts[id(node), home] = 0, 0  # for a part that refers to itself and to no other value
        named = node.get("type")
        kinds = {named} if isinstance(named, str) else set(named) if isinstance(named, list) else {"object", "array"}
        objects = self._fields(node, home) if "object" in kinds else 0
        lists = self._items(node, home) if "array" in kinds else 0
        for part in _same_value(node, self._root):
            if id(part) in self._nodes:
                more = self._count(part, home)
                objects, lists = objects + more[0], lists + more[1]
        self._counts[id(node), home] = min(objects, _MANY), min(lists, _MANY)
        return self._counts[id(node), home]

    def _fields(self, node: _Node, home: int) -> int:
        named = any(self._leads(part, home) for part in _by_name(node, "properties"))
        patterns = sum(self._leads(part, home) for part in _by_name(node, "patternProperties"))
        others = [node.get(key) for key in ("additionalProperties", "unevaluatedProperties")]
        return max(named + patterns, int(any(self._leads(part, home) for part in others)))

    def _items(self, node: _Node, home: int) -> int:
        listed = [part for key in ("items", "prefixItems") if isinstance(node.get(key), list) for part in node[key]]
        each = [node.get(key) for key in ("items", "additionalItems", "unevaluatedItems")]
        return any(self._leads(part, home) for part in (*listed, *each)) + self._leads(node.get("contains"), home)

    def _leads(self, part: object, home: int) -> bool:
        return isinstance(part, dict) and self._component.get(id(part)) == home


_MANY = 1_000
"""Forms beyond which no more are counted: no nested value is described by so many."""


def _same_value(node: _Node, root: _Node) -> Iterator[_Node]:
    """The parts that describe the same value as a part does."""
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        if isinstance(node.get(keyword), str):
            yield _referred(node[keyword], root)
    for keyword in ("allOf", "anyOf", "oneOf"):
        if isinstance(node.get(keyword), list):
            yield from (part for part in node[keyword] if isinstance(part, dict))
    for keyword in ("if", "then", "else", "not"):
        if isinstance(node.get(keyword), dict):
            yield node[keyword]
    for keyword in ("dependentSchemas", "dependencies"):
        yield from _by_name(node, keyword)


def _by_name(node: _Node, keyword: str) -> list[_Node]:
    named = node.get(keyword)
    return [part for part in named.values() if isinstance(part, dict)] if isinstance(named, dict) else []


def _components(inside: dict[int, list[int]]) -> dict[int, int]:
    """The component of each node of a graph: two nodes have the same where each can be reached from the other."""
    before: dict[int, list[int]] = {place: [] for place in inside}
    for place, parts in inside.items():
        for part in parts:
            before[part].append(place)
    order: list[int] = []
    seen: set[int] = set()
    for start in inside:
        if start in seen:
            continue
        seen.add(start)
        path = [(start, iter(inside[start]))]
        while path:
            place, rest = path[-1]
            following = next((part for part in rest if part not in seen), None)
            if following is None:
                order.append(place)
                path.pop()
            else:
                seen.add(following)
                path.append((following, iter(inside[following])))
    component: dict[int, int] = {}
    for start in reversed(order):
        waiting = [start]
        while waiting:
            place = waiting.pop()
            if place not in component:
                component[place] = start
                waiting.extend(each for each in before[place] if each not in component)
    return component
