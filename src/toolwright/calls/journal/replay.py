"""Replay check. A call id that was used before must have the same tool and arguments, else `ReplayMismatch`."""

from __future__ import annotations

from toolwright import jsonx
from toolwright.calls.active_call import ActiveCall
from toolwright.calls.redact import shown_arguments, written_arguments
from toolwright.effects.effect import differences
from toolwright.errors import ReplayMismatch


def require_same(call: ActiveCall, tool: str, tool_id: str, arguments: bytes) -> None:
    """Refuse a call that comes again as something else.

    Raises:
        ReplayMismatch: its tool or its arguments differ from those it had before.
    """
    # One of the two is enough: a tool may be renamed, or move to another module, whose name is part of its id.
    if tool != call.name and (call.tool is None or tool_id != call.tool.definition.id):
        differing = [f"tool: {tool!r} before, {call.name!r} now"]
    elif arguments not in (call.raw, written_arguments(call)):
        before, now = shown_arguments(call, arguments), shown_arguments(call)
        differing = list(differences("$", jsonx.decode(before), jsonx.decode(now)))[:5] or ["a secret differs"]
    else:
        return
    raise ReplayMismatch(
        f"The call {call.call_id!r} was run before with something else ({'; '.join(differing)}); "
        "give each call its own id, or separate ids that are used again by scope=",
        differing,
    )
