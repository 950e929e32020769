"""A call that a crash cut off. Owns the meaning of its tool's crash policy; does not own finding it."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.active_call import ActiveCall, call_fields
from toolwright.calls.authorise.approvals import interrupted
from toolwright.calls.execute.failures import internal
from toolwright.calls.hooks import Answer, invoke
from toolwright.calls.prepare.before_hooks import ANSWERS
from toolwright.calls.suspend.connection_wait import waits_of
from toolwright.stores.contracts.journal import CallKey, JournalStore
from toolwright.tools.outcome import Failure, ToolError

log = logging.getLogger("toolwright.calls")


async def recover(run: ActiveCall, key: CallKey, store: JournalStore) -> None:
    """Apply the crash policy of its tool to a call that was cut off, unless it had not even begun."""
    assert run.tool is not None
    policy = run.tool.definition.on_crash
    asked = await run.env.effects.waits.waits_of(key, "approval")
    run.asked_before = asked[-1] if asked else None
    run.connecting, run.parked_for = waits_of(await store.effects(key))
    if run.pending_before:
        run.recovered = "waiting"
    elif run.parked_for is not None:
        # It said that it did nothing, so nothing is in doubt.
        if run.owner.policy.on_connection != "wait":
            run.parked_for = None
        run.recovered = "run" if run.parked_for is None else "waiting"
    elif run.crashes >= run.owner.policy.max_crashes and (policy == "rerun" or callable(policy)):
        _give_up_for_good(run)
    elif policy == "rerun":
        run.recovered = "rerun"
    elif run.cut_off_after_start is None:
        run.recovered = "run"
    elif callable(policy):
        # The probe itself may end the process: that counts, as its start does.
        await store.start(key, run.env.clock.now())
        try:
            found = await invoke(policy, jsonx.decode(run.raw))
        except ToolError as error:
            found = error.failure
        except Exception as error:  # a tool's code
            log.exception(
                "The probe of tool %r failed for call %r",
                run.name,
                run.call_id,
                extra=call_fields(run, "call.probe_failed"),
            )
            found = replace(internal(error), code="probe_failed")
        if found is not None:
            run.attempt = 1  # the attempt that was cut off
            run.answer = found if isinstance(found, ANSWERS) else Answer(found)
        run.recovered = "probed"
    elif policy == "ask" and run.owner.policy.on_ask == "wait":
        run.recovered = "asked"
        run.doubt = repr(run.cut_off_after_start)  # Another crash of the same call asks another question.
    else:
        run.recovered = "interrupted"
        give_up(run, interrupted(run.name))


def _give_up_for_good(run: ActiveCall) -> None:
    """End a call that was running each time its process died, and perhaps is why."""
    log.error(
        "Call %r of tool %r is given up: its process died %d times",
        run.call_id,
        run.name,
        run.crashes,
        extra=call_fields(run, "call.crashed_too_often"),
    )
    run.recovered = "given_up"
    failure = Failure(
        category="interrupted",
        code="given_up",
        message=f"Tool {run.name!r} was running each of the {run.crashes} times that its process died; it may have "
        "run, and is given up",
        source="runtime",
    )
    give_up(run, failure)


def give_up(run: ActiveCall, failure: Failure) -> None:
    """Let a call that had begun end by this failure: it was tried once, and may have run."""
    run.attempt, run.ran, run.answer = 1, True, failure
