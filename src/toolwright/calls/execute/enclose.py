"""The code of a tool inside of the host's context managers. Owns putting them around a plan's code, where it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from toolwright.calls.active_call import CURRENT, ActiveCall
from toolwright.calls.around import Around, Attempt, Inside, SentAround, described
from toolwright.calls.context import ToolPlan
from toolwright.calls.pools.process_pool import pickled
from toolwright.calls.suspend.context_services import idempotency_key
from toolwright.log_fields import log_fields
from toolwright.tools.outcome import told

log = logging.getLogger("toolwright.calls")

Code = Callable[..., Any]


def enclose(plan: ToolPlan, factories: tuple[Around, ...]) -> None:
    """Let the code of a plan run inside of context managers, in its task, its thread or its child process."""
    if plan.mode == "process":
        plan.around = tuple([sent for each in factories if (sent := _sent(each, plan.tool.name)) is not None])
        return
    plan.direct = None
    plan.invoke = (_in_task if plan.mode == "async" else _in_thread)(plan.invoke, factories)


def _sent(factory: Around, tool: str) -> SentAround | None:
    """A factory for a child process. One that cannot be sent there is logged: watching never breaks a call."""
    data = pickled(factory)
    if isinstance(data, bytes):
        return SentAround(described(factory), data)
    log.error(
        "The factory %s of a context manager around calls cannot be sent to the child process of tool %r (%s); make it "
        "a function of a module. The calls run without it",
        described(factory),
        tool,
        told(data),
        extra=log_fields("call.around_failed", tool=tool),
    )
    return None


def attempt_of(call: ActiveCall) -> Attempt:
    """The current attempt of a call."""
    session, scope = call.env.session_id, call.owner.scope
    return Attempt(
        session,
        scope,
        call.call_id,
        call.name,
        call.attempt,
        call.source,
        idempotency_key(session, scope, call.call_id),
    )


def _current() -> Attempt:
    call = CURRENT.get()
    assert call is not None, "the code of a tool runs in the context of its call"
    return attempt_of(call)


def _in_task(code: Code, factories: tuple[Around, ...]) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def run(arguments: object, context: object) -> object:
        with Inside(factories, _current()):
            return await code(arguments, context)

    return run


def _in_thread(code: Code, factories: tuple[Around, ...]) -> Code:
    def run(arguments: object, context: object) -> object:
        with Inside(factories, _current()):
            return code(arguments, context)

    return run
