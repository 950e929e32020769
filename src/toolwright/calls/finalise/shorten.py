"""Output that is too long for a model. Owns keeping the whole of it before it is cut; how it is cut is in `bounds`."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.finalise.spill import save_output
from toolwright.calls.finalise.truncate import bound, bound_within
from toolwright.calls.policy import Policy
from toolwright.calls.redact import off_loop
from toolwright.errors import ToolwrightError
from toolwright.tools.outcome import ToolOutcome

log = logging.getLogger("toolwright.calls")

Keep = Callable[[str], Awaitable[str]]
"""Keeps the whole output of a call in a file of its session, and returns the path."""


async def bounded(outcome: ToolOutcome, text: str, policy: Policy, keep: Keep) -> ToolOutcome:
    """Cut what the model reads; the whole goes to a file first."""
    if outcome.status == "success":
        where = await _spill(outcome, text, policy, keep)
        shown = await off_loop(
            len(text), functools.partial(bound, text, policy.max_lines, policy.max_bytes, where=where)
        )
    else:
        # An object with one text in it: the text is cut, and the object stays JSON.
        ((key, message),) = jsonx.decode(text).items()
        where = await _spill(outcome, message, policy, keep)
        shown = bound_within(
            message,
            lambda part: jsonx.encode({key: part}).decode(),
            policy.max_lines,
            policy.max_bytes,
            where,
        )
    return replace(outcome, model_text=shown, spilled_to=where)


async def persisted(outcome: ToolOutcome, text: str, policy: Policy, keep: Keep) -> ToolOutcome:
    """Keep what a tool gave whole in a file, though it is short enough for the model."""
    return replace(outcome, spilled_to=await _spill(outcome, text, policy, keep))


async def _spill(outcome: ToolOutcome, text: str, policy: Policy, keep: Keep) -> str | None:
    """Write the whole text to a file named after the call; None when that fails, for the marker must not lie.

    The file is one of the session's, unless the policy names a directory of the host. What was written before, for an
    outcome that comes from the journal, is not written again.
    """
    if outcome.replayed and (outcome.spilled_to is not None or policy.spill_dir is None):
        return outcome.spilled_to
    try:
        if policy.spill_dir is None:
            return await keep(text)
        return await asyncio.to_thread(save_output, Path(policy.spill_dir), outcome.call_id, text.encode())
    except (OSError, ValueError, ToolwrightError):
        place = "a file of its session" if policy.spill_dir is None else policy.spill_dir
        log.exception("The output of call %r could not be written to %s", outcome.call_id, place)
        return None
