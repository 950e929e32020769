"""Between finalise and the model: the host's after-hooks and its projector. Owns asking them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from toolwright.calls.bounds import bound
from toolwright.calls.hooks import AfterHook, HookCall, Projector, ask, ask_now
from toolwright.calls.policy import Policy
from toolwright.calls.returned import failed_after
from toolwright.tools.outcome import Failure, ToolError, ToolOutcome, encodable, error_text, told

log = logging.getLogger("toolwright.calls")


async def ask_after(hooks: tuple[AfterHook, ...], call: HookCall, outcome: ToolOutcome, seconds: float) -> ToolOutcome:
    """Let each after-hook see the outcome, and change it; one that breaks is a failure of its own kind."""
    for hook in hooks:
        try:
            async with asyncio.timeout(seconds):
                changed = await ask(hook, call, outcome)
            outcome = outcome if changed is None else _changed(outcome, changed)
        except ToolError as error:  # the host's code says itself what the model reads
            return failed_after(outcome, replace(error.failure, source="hook"))
        except Exception as error:  # the host's code
            log.exception("A hook after call %r failed", outcome.call_id)
            failure = Failure(
                category="internal",
                code="hook_error",
                message="A hook failed after the tool ran; its details are in the log.",
                source="hook",
                detail=told(error),
            )
            # Nothing of what the tool gave goes on: the hook may have been there to hold it back.
            return failed_after(outcome, failure)
    return outcome


def _changed(outcome: ToolOutcome, changed: Any) -> ToolOutcome:
    """What a hook made of an outcome, without what was read of the old one and may be old too."""
    if type(changed) is not ToolOutcome:
        raise TypeError(f"an after-hook returned a {type(changed).__name__}; use None or a ToolOutcome")
    if (changed.call_id, changed.tool) != (outcome.call_id, outcome.tool):
        raise ValueError("an after-hook returned the outcome of another call; change the one it was given")
    if (changed.status == "failure") != (changed.failure is not None):
        raise ValueError("an after-hook returned a status that does not go with its failure; change both")
    failure = changed.failure
    if failure is not None and failure != outcome.failure:
        changed = replace(changed, failure=replace(failure, source="hook"))
    renewed: ToolOutcome = replace(changed, cached_value=UNSET, model_text=None)
    _ = renewed.value  # raises for a payload that is not JSON
    return renewed


def project(outcome: ToolOutcome, policy: Policy, projector: Projector | None) -> ToolOutcome:
    """Let the session's projector say what the model reads; if it fails, the model reads that."""
    if projector is None:
        return outcome
    try:
        text = ask_now(projector, outcome)
        if not isinstance(text, str):
            raise TypeError(f"the projector returned a {type(text).__name__} and not a string")
    except Exception as error:  # the host's code: the model reads that it failed, the outcome stays
        log.exception("The projector failed for call %r", outcome.call_id)
        text = error_text(f"The result could not be shown: {type(error).__name__}")
    return replace(outcome, model_text=bound(encodable(text), policy.max_lines, policy.max_bytes))
