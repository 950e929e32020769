"""A call that a crash cut off. Owns the meaning of its tool's crash policy; does not own finding it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.active_call import ActiveCall, Past, Waited, call_fields
from toolwright.calls.conclude import give_up
from toolwright.calls.failures import internal, interrupted
from toolwright.calls.hooks import Answer, invoke
from toolwright.calls.prepare.before_hooks import ANSWERS
from toolwright.calls.suspend.connection_wait import restore_connections
from toolwright.stores.contracts.journal import CallKey, JournalStore
from toolwright.tools.outcome import Failure, ToolError

log = logging.getLogger("toolwright.calls")


async def recover(call: ActiveCall, past: Past, key: CallKey, store: JournalStore) -> None:
    """Apply the crash policy of its tool to a call that was cut off, unless it had not even begun."""
    assert call.tool is not None
    policy, refused = call.tool.definition.on_crash, call.answer
    asked = await call.env.effects.waits.waits_of(key, "approval")
    provider = restore_connections(call, await store.effects(key))
    if past.pending:
        call.answer = None  # Its result comes from outside: the tool does not run again.
        past.recovered = "waiting"
        past.waited.append(Waited("completion"))
    elif provider is not None:
        # It said that it did nothing, so nothing is in doubt.
        if call.owner.policy.on_connection == "wait":
            past.recovered = "waiting"
            past.waited.append(Waited("connection", provider))
        else:
            past.recovered = "run"
    elif past.crashes >= call.owner.policy.max_crashes and (policy == "rerun" or callable(policy)):
        _give_up_for_good(call, past)
    elif policy == "rerun":
        past.recovered = "rerun"
    elif past.started_at is None:
        past.recovered, past.key_out = "run", False
    elif callable(policy):
        # The probe itself may end the process: that counts, as its start does.
        await store.start(key, call.env.clock.now())
        await _probe(call, policy)
        past.recovered = "probed"
    elif policy == "ask" and call.owner.policy.on_ask == "wait":
        past.recovered = "asked"
        # Another crash of the same call asks another question.
        past.waited.append(Waited("crash", repr(past.started_at)))
    else:
        past.recovered = "interrupted"
        give_up(call, interrupted(call.name))
    if refused is not None and call.answer is refused:  # such as a call without the value of its secret argument
        past.recovered = "interrupted"
        if policy == "rerun" or past.started_at is not None:
            give_up(call, refused)
    elif asked:
        past.waited.append(Waited("approval", request=asked[-1]))


async def _probe(call: ActiveCall, probe: Callable[..., Any]) -> None:
    """Let the code of a tool find out what a call did before it was cut off."""
    try:
        found = await invoke(probe, jsonx.decode(call.raw))
    except ToolError as error:
        found = error.failure
    except Exception as error:  # a tool's code
        log.exception(
            "The probe of tool %r failed for call %r",
            call.name,
            call.call_id,
            extra=call_fields(call, "call.probe_failed"),
        )
        found = replace(internal(error), code="probe_failed")
    if found is not None:
        call.attempt = 1  # the attempt that was cut off
        call.answer = found if isinstance(found, ANSWERS) else Answer(found)


def _give_up_for_good(call: ActiveCall, past: Past) -> None:
    """End a call that was running each time its process died, and perhaps is why."""
    log.error(
        "Call %r of tool %r is given up: its process died %d times",
        call.call_id,
        call.name,
        past.crashes,
        extra=call_fields(call, "call.crashed_too_often"),
    )
    past.recovered = "given_up"
    failure = Failure(
        category="interrupted",
        code="given_up",
        message=f"Tool {call.name!r} was running each of the {past.crashes} times that its process died; it may have "
        "run, and is given up",
        source="runtime",
    )
    give_up(call, failure)
