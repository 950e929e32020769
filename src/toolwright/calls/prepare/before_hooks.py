"""Between prepare and authorise: the host's before-hooks and the tool's own prepare step. Owns asking them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.exception_failures import invalid
from toolwright.calls.hooks import Answer, BeforeHook, HookCall, PrepareCall, ReplaceArguments, invoke
from toolwright.calls.prepare.prepare import PreparedCall, own_arguments, read_arguments, validate
from toolwright.errors import InvalidArguments, StoreError
from toolwright.log_fields import log_fields
from toolwright.tools.outcome import ConnectionRequired, Failure, Success, ToolError, told
from toolwright.tools.session_protocols import SessionView

log = logging.getLogger("toolwright.calls")

ANSWERS = (Answer, Success, Failure, ConnectionRequired)
"""A hook's answer that ends a call in the tool's place."""


async def run_before_hooks(
    entry: PreparedCall, hooks: tuple[BeforeHook, ...], *, view: SessionView, batch: str, max_bytes: int, seconds: float
) -> None:
    """Ask the hooks in order, then the tool. Any may answer the call; a hook may replace its arguments.

    Whatever goes wrong here ends the call: a guard that breaks must not let it through.

    Raises:
        StoreError: the store failed while the tool's prepare step read it, so nothing is known of the call.
    """
    try:
        await _run_before_hooks(entry, hooks, view, batch, max_bytes, seconds)
    except StoreError:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        entry.fail(broken("hook", "CancelledError: raised by a hook or prepare step, not by the runtime"))
    except Exception as error:
        log.exception(
            "The way to call %r failed",
            entry.call_id,
            extra=log_fields("call.hook_failed", call_id=entry.call_id, tool=entry.name),
        )
        entry.fail(broken("hook", told(error)))


async def _run_before_hooks(
    entry: PreparedCall, hooks: tuple[BeforeHook, ...], view: SessionView, batch: str, max_bytes: int, seconds: float
) -> None:
    assert entry.tool is not None
    for hook in hooks:
        answer = await _asked(entry, "hook", seconds, hook, show(entry, view.id, batch))
        if type(answer) is ReplaceArguments:
            failure = read_arguments(entry, answer.arguments, max_bytes) or validate(entry, entry.tool)
            if failure is not None:
                entry.fail(replace(failure, source="hook"))
        elif type(answer) is Failure:
            entry.answer = replace(answer, source="hook")  # also one that was raised: the tool had no part in it
        elif isinstance(answer, ANSWERS):
            entry.answer = answer
        elif answer is not None and entry.outcome is None:
            entry.fail(broken("hook", f"returned {answer!r:.200}; use None, ReplaceArguments, Answer or Failure"))
        if entry.outcome is not None or entry.answer is not None:
            return
    tool = entry.tool
    if (step := tool.prepare) is not None:
        shown = PrepareCall(**structs.asdict(show(entry, view.id, batch)), view=view)
        found = await _asked(entry, "tool", seconds, lambda: step(own_arguments(entry, tool), shown))
        if isinstance(found, ANSWERS):
            entry.answer = found
        else:
            entry.payload = found


async def _asked(
    entry: PreparedCall, source: str, seconds: float, function: Callable[..., Any], *args: object
) -> object:
    try:
        async with asyncio.timeout(seconds):
            return await invoke(function, *args)
    except asyncio.CancelledError:
        raise
    except InvalidArguments as error:
        return invalid(entry.name, error)
    except (Exception, SystemExit, GeneratorExit) as error:  # the host's or the tool's code
        if source == "tool" and isinstance(error, StoreError):
            raise  # not the tool's failure: the session could not be read
        failure = getattr(error, "failure", None)
        if isinstance(error, ToolError) and type(failure) is Failure:
            return failure
        log.error(
            "The %s's code before call %r failed",
            source,
            entry.call_id,
            exc_info=error,
            extra=log_fields("call.hook_failed", call_id=entry.call_id, tool=entry.name),
        )
        entry.fail(broken(source, told(error)))
        return None


def broken(source: str, detail: str) -> Failure:
    what = "A hook" if source == "hook" else "The tool's prepare step"
    return Failure(
        category="internal",
        code="hook_error" if source == "hook" else "prepare_error",
        message=f"{what} failed before the tool ran; its details are in the log.",
        source="hook" if source == "hook" else "tool",
        detail=detail,
    )


def show(entry: PreparedCall, session: str, batch: str) -> HookCall:
    """A call as hooks see it; the arguments are their own copy."""
    assert entry.tool is not None
    return HookCall(
        session=session,
        batch=batch,
        call_id=entry.call_id,
        tool=entry.tool.definition,
        arguments=jsonx.decode(entry.raw),
        source=entry.source,
        parent=entry.parent_id,
    )
