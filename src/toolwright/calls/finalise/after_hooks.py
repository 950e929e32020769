"""Between finalise and the model: the host's after-hooks and its projector. Owns asking them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable

from msgspec import UNSET
from msgspec.structs import replace

from toolwright.calls.finalise.to_outcome import failed_after
from toolwright.calls.finalise.truncate import bound
from toolwright.calls.hooks import AfterHook, HookCall, Hooks, ProjectedCall, awaited, invoke, invoke_now
from toolwright.calls.policy import Policy
from toolwright.log_fields import log_fields
from toolwright.tools.outcome import Failure, ToolError, ToolOutcome, encodable, error_text, told

log = logging.getLogger("toolwright.calls")


async def run_after_hooks(
    hooks: tuple[AfterHook, ...], call: HookCall, outcome: ToolOutcome, seconds: float
) -> ToolOutcome:
    """Let each after-hook see the outcome, and change it; a hook that raises is a failure of its own kind."""
    for hook in hooks:
        try:
            async with asyncio.timeout(seconds):
                changed = await invoke(hook, call, outcome)
            outcome = outcome if changed is None else _changed(outcome, changed)
        except ToolError as error:  # the host's code chooses the text for the model
            return failed_after(outcome, replace(error.failure, source="hook"))
        except Exception as error:  # the host's code
            log.exception(
                "A hook after call %r failed",
                outcome.call_id,
                extra=log_fields("call.hook_failed", call_id=outcome.call_id, tool=outcome.tool),
            )
            failure = Failure(
                category="internal",
                code="hook_error",
                message="A hook failed after the tool ran; its details are in the log.",
                source="hook",
                detail=told(error),
            )
            # Nothing of the tool's result is passed on: the hook may have been there to withhold it.
            return failed_after(outcome, failure)
    return outcome


def _changed(outcome: ToolOutcome, changed: object) -> ToolOutcome:
    """A hook's change of an outcome, without cached values of the old one."""
    if type(changed) is not ToolOutcome:
        raise TypeError(f"an after-hook returned a {type(changed).__name__}; use None or a ToolOutcome")
    if (changed.call_id, changed.tool) != (outcome.call_id, outcome.tool):
        raise ValueError("an after-hook returned the outcome of another call; change the one it was given")
    if (changed.status == "failure") != (changed.failure is not None):
        raise ValueError("an after-hook returned a status that does not go with its failure; change both")
    failure = changed.failure
    if failure is not None and failure != outcome.failure:
        changed = replace(changed, failure=replace(failure, source="hook"))
    given_text = changed.given_text
    if changed.payload != outcome.payload and given_text == outcome.given_text:
        given_text = None  # It is about the old value, which the hook may have been there to withhold
    if given_text is not None and not isinstance(given_text, str):
        raise TypeError(f"an after-hook returned a {type(given_text).__name__} as its given_text; use a string")
    given_text = None if given_text is None else encodable(given_text)
    renewed: ToolOutcome = replace(changed, cached_value=UNSET, model_text=None, given_text=given_text)
    _ = renewed.value  # raises for a payload that is not JSON
    return renewed


def project_now(outcome: ToolOutcome, policy: Policy, hooks: Hooks, call: Callable[[], ProjectedCall]) -> ToolOutcome:
    """The same for a call that was stopped, which nothing may hold up: an async projector is not asked about it."""
    if hooks.project is None:
        return outcome
    try:
        text = invoke_now(hooks.project, outcome, *([call()] if hooks.project_call else []))
        if inspect.iscoroutine(text):
            text.close()
        if inspect.isawaitable(text):
            return outcome
    except Exception as error:  # the host's code
        text = _not_shown(outcome, error)
    return _projected(outcome, text, policy)


async def project(outcome: ToolOutcome, policy: Policy, hooks: Hooks, call: Callable[[], ProjectedCall]) -> ToolOutcome:
    """Let the session's projector make the text for the model; if it fails, the model reads that."""
    if hooks.project is None:
        return outcome
    try:
        text = invoke_now(hooks.project, outcome, *([call()] if hooks.project_call else []))
        if inspect.isawaitable(text):
            async with asyncio.timeout(policy.timeout):
                text = await awaited(text)
    except Exception as error:  # the host's code
        text = _not_shown(outcome, error)
    return _projected(outcome, text, policy)


def _projected(outcome: ToolOutcome, text: object, policy: Policy) -> ToolOutcome:
    if not isinstance(text, str):
        text = _not_shown(outcome, TypeError(f"the projector returned a {type(text).__name__} and not a string"))
    return replace(outcome, model_text=bound(encodable(text), policy.max_lines, policy.max_bytes))


def _not_shown(outcome: ToolOutcome, error: Exception) -> str:
    """The text for the model in place of a result that could not be shown; the outcome stays."""
    log.error(
        "The projector failed for call %r",
        outcome.call_id,
        exc_info=error,
        extra=log_fields("call.projector_failed", call_id=outcome.call_id, tool=outcome.tool),
    )
    return error_text(f"The result could not be shown: {type(error).__name__}")
