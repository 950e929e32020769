"""What the tools of a server said about themselves, as hashes. Owns telling whether a tool has changed; does not own
where hashes are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolwright import jsonx

if TYPE_CHECKING:
    from mcp_types import Tool as ListedTool


def pin_of(listed: ListedTool) -> str:
    """The hash of everything a model or a policy relies on: name, title, description, schemas and hints."""
    told = listed.model_dump(by_alias=True, mode="json", exclude_none=True)
    kept = {
        key: told[key]
        for key in ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
        if key in told
    }
    return jsonx.digest(jsonx.canonical(kept))


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The tools that are in both, with different hashes."""
    return sorted(name for name, pin in now.items() if before.get(name, pin) != pin)
