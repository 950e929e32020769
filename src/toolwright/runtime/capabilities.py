"""The capabilities of an opened app. Owns which are active, and adding their tools to those of the app."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from toolwright.app_options import AppSettings
from toolwright.tools.capability import Beneath, Capability, activate, add_tools
from toolwright.tools.registry import Snapshot, ToolRegistry, ToolSource, is_source


class Arranged(NamedTuple):
    """The tools and capabilities of an app for one runtime."""

    own: Any
    """The tools that the app was given: a registry for this runtime, or the source that is followed."""
    tools: ToolSource
    """The same with the tools of the active capabilities."""
    active: tuple[Capability, ...]


def arrange(app: AppSettings) -> Arranged:
    """Choose the active capabilities, and add their tools to those of the app.

    Raises:
        CapabilityError: a capability cannot be used, or brings a tool whose name another tool has.
    """
    local = app.local_tools
    if is_source(local):
        followed = local
        active = _activated(app, followed.snapshot(), app.capabilities)
        # It belongs to its owner and is not changed: the tools of capabilities lie beneath it.
        return Arranged(followed, add_tools(active, to=Beneath(followed)) if active else followed, active)
    own = ToolRegistry(local)
    active = _activated(app, own.snapshot(), app.capabilities)
    return Arranged(own, add_tools(active, to=own), active)


class LateCapabilities:
    """The capabilities that come by themselves with tools which are registered after the opening."""

    def __init__(self, app: AppSettings, active: tuple[Capability, ...]) -> None:
        self._app = app
        self._active = active
        self._seen: Snapshot | None = None
        self._late: tuple[Capability, ...] = ()

    def of(self, tools: Snapshot) -> tuple[Capability, ...]:
        """The capabilities that come with these tools, beyond the ones that were active at the opening."""
        if self._seen is not tools:
            late = _activated(self._app, tools, self._active)
            self._late = tuple(one for one in late if one not in self._active)
            self._seen = tools  # most sessions have the same tools
        return self._late


def _activated(app: AppSettings, tools: Snapshot, asked: Iterable[str | Capability]) -> tuple[Capability, ...]:
    """The capabilities that were asked for, and those that one of the tools brings automatically."""
    from toolwright.builtin import capabilities

    return activate(
        asked,
        capabilities.capability,
        automatic=capabilities.automatic() if app.automatic is None else app.automatic,
        tools=lambda: [tool.definition for tool in tools.values()],
    )
