"""Capabilities: tools, prompt and hooks that belong together. Owns `Capability`, and which are active: required ones
and automatic ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from toolwright.errors import CapabilityError
from toolwright.plain_data import code_name
from toolwright.tools.change_notices import Callback, Unsubscribe, follow
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.function import as_tool
from toolwright.tools.registry import Catalogue, Snapshot, ToolRegistry, ToolSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Tools, and the prompt, hooks and settings that belong to them: `Runtime.open(capabilities=[...])` takes them
    together.

    Args:
        name: the name by which others require it.
        tools: the tools that it adds to every session.
        prompt: text about it for the model.
        before: hooks that see each call, before those of the runtime.
        after: hooks that see each outcome, before those of the runtime.
        settings: the settings it was made with, for display.
        requires: capabilities that must be active with it: names, or capabilities.
        comes_with: for an automatic one: the tools that bring it.
        whole: for an automatic one: gives the capability to take in its place, when it comes. So its tools
            are not made where they are not needed.
        unusable: why it cannot be used yet.
    """

    name: str
    tools: Sequence[Any] = ()
    prompt: str = ""
    before: Sequence[Callable[..., Any]] = ()
    after: Sequence[Callable[..., Any]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    requires: Sequence[str | Capability] = ()
    comes_with: Callable[[ToolDefinition], bool] | None = None
    whole: Callable[[], Capability] | None = None
    unusable: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise CapabilityError(f"The capability name {self.name!r:.200} is not usable; use some text")
        for part in ("tools", "before", "after", "requires"):
            given: Any = getattr(self, part)
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise CapabilityError(f"The capability {self.name!r} has {part}={given!r:.200}; use a list")
            object.__setattr__(self, part, tuple(given))
        if not isinstance(self.prompt, str):
            raise CapabilityError(f"The capability {self.name!r} has prompt={self.prompt!r:.200}; use text")
        object.__setattr__(self, "tools", tuple(as_tool(tool) for tool in self.tools))

    def to_json(self) -> dict[str, Any]:
        """The capability as plain data: tools, hooks and other code by name.

        Of the settings it shows numbers and truth values, and of any other the type: a text may hold a password.
        """
        return {
            "name": self.name,
            "tools": [tool.name for tool in self.tools],
            "prompt": self.prompt,
            "before": list(map(code_name, self.before)),
            "after": list(map(code_name, self.after)),
            "settings": {
                name: value if value is None or isinstance(value, (bool, int, float)) else type(value).__name__
                for name, value in self.settings.items()
            },
            "requires": [one if isinstance(one, str) else one.name for one in self.requires],
            "comes_with": None if self.comes_with is None else code_name(self.comes_with),
            "unusable": self.unusable,
        }


Lookup = Callable[[str], Capability]


def activate(
    asked: Iterable[str | Capability],
    lookup: Lookup,
    *,
    automatic: Iterable[Capability] = (),
    tools: Callable[[], Iterable[ToolDefinition]] = tuple,
) -> tuple[Capability, ...]:
    """The active capabilities, each after the ones that it requires.

    They are the ones asked for, the ones that these require, and of the `automatic` ones those that a tool brings, be
    it one of `tools` or of another capability. A name stands for one asked for by that name, or else for the result of
    `lookup`.

    Raises:
        CapabilityError: one is not known or not usable, two have one name, or they require each other in a circle.
    """
    choice = _Choice(asked, lookup)
    for item in choice.asked:
        choice.take(item)
    waiting = [one for one in map(require_capability, automatic) if one.unusable is None and one.comes_with is not None]
    given = list(tools()) if waiting else []
    while waiting:
        have = [*given, *(tool.definition for one in choice.active.values() for tool in one.tools)]
        come = [one for one in waiting if one.comes_with is not None and any(map(one.comes_with, have))]
        if not come:
            break
        waiting = [one for one in waiting if one not in come]
        for one in come:
            choice.take(choice.known.get(one.name) or (one if one.whole is None else one.whole()))
    return tuple(choice.active.values())


def require_capability(one: object) -> Capability:
    """The capability itself.

    Raises:
        CapabilityError: it is something else.
    """
    if not isinstance(one, Capability):
        raise CapabilityError(f"{one!r:.200} is not a capability; use Capability(...)")
    return one


class _Choice:
    """The capabilities taken so far, in order."""

    def __init__(self, asked: Iterable[str | Capability], lookup: Lookup) -> None:
        if isinstance(asked, (str, Capability)):
            raise CapabilityError(f"capabilities={asked!r:.100} is one of them; give a list")
        self.asked = tuple(asked)
        self.active: dict[str, Capability] = {}
        self.known: dict[str, Capability] = {}
        self._lookup = lookup
        for item in self.asked:
            if isinstance(item, Capability):
                self._know(item)

    def take(self, item: str | Capability, above: tuple[str, ...] = ()) -> None:
        """Make a capability active, after the ones it requires."""
        found = self._find(item)
        if found.name in above:
            circle = " -> ".join(map(repr, (*above[above.index(found.name) :], found.name)))
            raise CapabilityError(f"Capabilities require each other: {circle}; drop one of these requirements")
        if found.unusable is not None:
            raise CapabilityError(f"The capability {found.name!r} cannot be used: {found.unusable}")
        if found.name in self.active:
            return
        for required in found.requires:
            self.take(required, (*above, found.name))
        self.active[found.name] = found

    def _find(self, item: object) -> Capability:
        if isinstance(item, Capability):
            return self._know(item)
        if not isinstance(item, str):
            raise CapabilityError(f"{item!r:.200} is not a capability; use a name, or Capability(...)")
        return self.known.get(item) or self._know(self._lookup(item))

    def _know(self, found: Capability) -> Capability:
        known = self.known.setdefault(found.name, found)
        if known is not found and known != found:
            raise CapabilityError(f"Two capabilities have the name {found.name!r}; give one of them another")
        return known


Extensible = TypeVar("Extensible", ToolRegistry, "Beneath")
"""A set of tools that the tools of capabilities can be added to."""


class Beneath(Catalogue):
    """A source with more tools beneath it: a name is looked up in the source first."""

    def __init__(self, source: ToolSource) -> None:
        self._source = source
        self._more = ToolRegistry()
        self._seen: object = None
        self._snapshot: Snapshot = MappingProxyType({})

    @property
    def version(self) -> object:
        """Changes when either does."""
        return (self._source.version, self._more.version)

    def snapshot(self) -> Snapshot:
        version = self.version
        if self._seen != version:
            self._snapshot = MappingProxyType({**self._more.snapshot(), **self._source.snapshot()})
            self._seen = version
        return self._snapshot

    def on_change(self, callback: Callback) -> Unsubscribe:
        """Call a function after each change of either."""
        ends = follow(self._source, callback), self._more.on_change(callback)

        def unsubscribe() -> None:
            for end in ends:
                end()

        return unsubscribe

    def register(self, thing: object) -> None:
        """Add a tool beneath."""
        self._more.register(thing)


def add_tools(active: Iterable[Capability], *, to: Extensible) -> Extensible:
    """Add the tools of capabilities to a registry, and return it. A tool that is there already is not added again.

    Raises:
        CapabilityError: another tool has its name.
    """
    owners: dict[str, str] = {}
    for capability in active:
        for tool in capability.tools:
            other = to.snapshot().get(tool.name)
            if other is None:
                to.register(tool)
                owners[tool.name] = f"the capability {capability.name!r}"
            # Made with settings, it is not the same as one of the same id.
            elif other is not tool and (other.definition.id != tool.definition.id or capability.settings):
                raise CapabilityError(
                    f"The capability {capability.name!r} brings a tool {tool.name!r}, and "
                    f"{owners.get(tool.name, 'the runtime')} has another of that name; leave one of them out"
                )
    return to
