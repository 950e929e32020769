"""What must hold when a process has closed, and when a world has come to its end."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.effects.interleaving.ledger import Ledger, plain, shown
from tests.effects.interleaving.scripts import RERUN
from toolwright import Policy, jsonx
from toolwright.effects.wait_keys import was_answered
from toolwright.stores.contracts.waits import WaitKey
from toolwright.testing import left_over

CODES = {
    *("scripted", "again", "flaky", "refused", "interrupted", "expired", "denied", "approval_expired"),
    *("timeout", "deadlock", "wait_cancelled", "given_up"),
}
"""How a call of a script may fail. Anything else is a fault that became an outcome."""
REASONS = {"somebody said so", "its caller was cancelled", "called off", "enough", "for good"}
"""Why a call may be kept as cancelled. One that the end of a program or a fault cut off is not kept so."""


def judge_runtime(ledger: Ledger, member: Any) -> None:
    """A runtime that was closed has nothing left, and told everything once."""
    runtime = member.runtime
    for what, things in left_over(runtime).items():
        ledger.wrong(f"{member} leaves {what}: {things}")
    balance: Counter[tuple[str, str, str]] = Counter()
    finished = 0
    while (event := member.events.take()) is not None:
        if event.kind == "call.started":
            balance[event.session, event.batch, event.call_id] += 1
        elif event.kind == "call.finished":
            finished += 1
            balance[event.session, event.batch, event.call_id] -= 1
            if balance[event.session, event.batch, event.call_id] < 0:
                ledger.wrong(f"{member}: {event.call_id} finished before it started")
    if any(balance.values()):
        ledger.wrong(f"{member}: events without their pair: {+balance}")
    records = list(runtime.log)
    if len(records) != finished or not all(record.outcome is not None for record in records):
        ledger.wrong(f"{member}: {len(records)} records, {finished} calls finished")


def judge_world(world: Any) -> None:
    """Nothing is unfinished, lost, changed, or done twice."""
    ledger, rows = world.ledger, world.rows
    for key, call in rows.calls.items():
        if call.entry.outcome is None:
            ledger.wrong(f"{key.call_id} is unfinished, of {call.owner!r}")
        elif key not in ledger.finished:
            ledger.wrong(f"{key.call_id} has an outcome that nobody wrote")
    for key, outcome in ledger.finished.items():
        row = rows.calls.get(key)
        if row is None or row.entry.outcome is None or plain(row.entry.outcome) != plain(outcome):
            ledger.wrong(f"{key.call_id} lost its outcome {shown(outcome)}")
        else:
            _judge_outcome(ledger, key, outcome, row)
    for key, outcome in ledger.told.items():
        if key not in ledger.finished or plain(ledger.finished[key]) != plain(outcome):
            ledger.wrong(f"{key.call_id} was told as {shown(outcome)}, and that is not what is kept")
    for key, times in ledger.runs.items():
        name = ledger.tools[key]
        if name in RERUN or (name == "look" and any(member.stale for member in world.members)):
            continue
        if times > 1 + ledger.leave[key]:
            ledger.wrong(f"{key.call_id} ({name}) ran {times} times")
    for (key, name), times in ledger.steps.items():
        if name.startswith(("fail-ok", "fail-error")) and times > 1:
            ledger.wrong(f"step {name} of {key.call_id} ran {times} times")
    for (key, _, what), result in ledger.seen.items():
        _judge_seen(ledger, rows.calls[key], key, what, result)
    _judge_signals(ledger)
    for key, life in ledger.sent:
        row = rows.calls.get(key.call)
        if life == ledger.life[key.call] and row is not None and row.signals.get(key) != ledger.sent[key, life]:
            ledger.wrong(f"the signals of {key} are not as they were sent")


def _judge_outcome(ledger: Ledger, key: Any, outcome: Any, row: Any) -> None:
    given_up = outcome.failure is not None and outcome.failure.code == "given_up"
    if given_up and ledger.deaths[key] < Policy().max_crashes:
        ledger.wrong(f"{key.call_id} is given up, and its process died {ledger.deaths[key]} times")
    if outcome.failure is not None and outcome.failure.code not in CODES:
        ledger.wrong(f"{key.call_id} failed with {outcome.failure}")
    interrupted = outcome.failure is not None and outcome.failure.code == "interrupted"
    if interrupted and key not in ledger.cut_off and not ledger.faults:
        ledger.wrong(f"{key.call_id} is interrupted, but was never cut off")
    if interrupted and row.entry.intent.tool in RERUN:
        ledger.wrong(f"{key.call_id} may run again, but was given up as interrupted")
    if outcome.status == "cancelled" and outcome.reason not in REASONS:
        ledger.wrong(f"{key.call_id} was cut off, and is kept as {shown(outcome)}")
    if outcome.status == "cancelled" and not outcome.may_have_run:
        ledger.wrong(f"{key.call_id} did not run, and that was kept")
    if outcome.ok:
        values = [
            *ledger.returned[key],
            {"found": row.entry.intent and jsonx.decode(row.entry.intent.arguments)["about"]},
        ]
        completion = row.waits.get(WaitKey(key, "completion"))
        if completion is not None and completion.resolution is not None and completion.resolution.status == "ok":
            values.append(jsonx.decode(completion.resolution.payload))
        if outcome.value not in [jsonx.decode(jsonx.encode(value)) for value in values]:
            ledger.wrong(f"{key.call_id} has a value that nobody gave: {outcome.value}, not {values}")
    completion = row.waits.get(WaitKey(key, "completion"))
    # Whoever resolved it was told that it stands: no death, no cancellation and nothing that its tool did is stronger.
    if completion is not None and was_answered(completion.resolution):
        status = completion.resolution.status
        expected = {"ok": "success", "cancelled": "cancelled"}.get(status, "failure")
        if outcome.status != expected:
            ledger.wrong(f"{key.call_id} was resolved as {status} and is {shown(outcome)}")


def _judge_seen(ledger: Ledger, row: Any, key: Any, what: str, result: Any) -> None:
    if what.startswith("event "):
        resolution = row.waits[WaitKey(key, "event", what.removeprefix("event "))].resolution
        failed = str(result).startswith("error")
        if (
            resolution is None
            or failed == (resolution.status == "ok")
            or (not failed and jsonx.decode(resolution.payload) != result)
        ):
            ledger.wrong(f"{key.call_id} saw {what} as {result}, which stands as {resolution}")
    elif (
        what.startswith("fail-")
        and str(result).startswith("error interrupted")
        and not (key in ledger.cut_off or ledger.faults)
    ):
        ledger.wrong(f"step {what} of {key.call_id} is interrupted, but was never cut off")


def _judge_signals(ledger: Ledger) -> None:
    """Whoever received did so from the first signal on, in their order."""
    received: dict[Any, list[tuple[str, Any]]] = {}
    for (key, attempt, what), result in ledger.seen.items():
        if what.startswith("signal ") and not str(result).startswith("error"):
            received.setdefault((key, attempt), []).append((what, result))
    for (key, _), results in received.items():
        sent = ledger.sent[WaitKey(key, "signal", "news"), ledger.life[key]]
        if [result for _, result in sorted(results)] != [jsonx.decode(payload) for payload in sent[: len(results)]]:
            ledger.wrong(f"{key.call_id} received {results}, and was sent {sent}")
