"""Calls and the journal. Owns what a call's past means for it: fresh, finished, running elsewhere, or cut off.

Intent before effect: a batch's intents are one commit, before any of its tools runs. Outcome before answer: a call's
outcome is committed before its claims are freed and its caller sees it. A fault of the store is raised at whoever
awaits the batch, and never becomes an outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.approach import ANSWERS
from toolwright.calls.execute import CallRun
from toolwright.calls.hooks import Answer, ask
from toolwright.calls.mishaps import internal
from toolwright.clock import Clock
from toolwright.effects.journal import CallKey, Entry, Intent, JournalStore
from toolwright.errors import ReplayMismatch, StoreError
from toolwright.tools.outcome import Failure, ToolOutcome

log = logging.getLogger("toolwright.calls")

POLL = 0.05
"""Seconds between two looks at a call that runs in another process."""


class MemoryJournal:
    """What the calls of one session remember for the life of the process.

    Only calls that were given an id can come again, so only these are kept.
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self._calls: dict[CallKey, CallRun | tuple[str, bytes, ToolOutcome]] = {}

    def meet(self, run: CallRun, scope: str) -> None:
        """Let a call that was given an id meet its past.

        Raises:
            ReplayMismatch: its identity was used before, for something else.
        """
        assert run.tool is not None
        key = CallKey(self._session, scope, run.call_id)
        known = self._calls.get(key)
        if known is None:
            run.key = key
            self._calls[key] = run
        elif isinstance(known, CallRun):
            assert known.tool is not None
            _require_same(run, known.name, known.tool.definition.id, known.raw)
            run.shares = known
            known.sharers = (*known.sharers, run)
        else:
            _require_same(run, known[2].tool, known[0], known[1])
            run.outcome = replace(known[2], replayed=True)

    def marks_start(self, run: CallRun) -> bool:
        """Memory ends with the process, so there is nothing to mark."""
        return False

    def finish(self, run: CallRun, outcome: ToolOutcome, then: Callable[[Exception | None], None]) -> None:
        """Keep the outcome of a call, and go on at once."""
        assert run.key is not None
        assert run.tool is not None
        if outcome.status == "cancelled" and not outcome.may_have_run:
            self._calls.pop(run.key, None)
        else:
            self._calls[run.key] = (run.tool.definition.id, run.raw, outcome)
        then(None)


class StoreJournal:
    """The journal of a runtime, in a store that outlives the process."""

    def __init__(self, store: JournalStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._live: dict[CallKey, CallRun] = {}

    async def begin(self, session: str, scope: str, batch: str, runs: Sequence[CallRun]) -> None:
        """Write the intents of a batch's calls, and let each meet its past.

        Raises:
            ReplayMismatch: a call's identity was used before, for something else. Nothing runs.
            StoreError: the journal could not be written. Nothing runs.
        """
        now = self._clock.now()
        waiting = [run for run in runs if run.outcome is None and run.tool is not None]
        intents = [_intent(run, CallKey(session, scope, run.call_id), batch, now) for run in waiting]
        entries = await self._store.begin(intents)
        for run, intent, entry in zip(waiting, intents, entries, strict=True):
            if entry is not None:
                before = entry.intent
                _require_same(run, before.tool, before.tool_id, before.arguments)
            else:
                run.key = intent.key
                self._live[intent.key] = run
        for run, intent, entry in zip(waiting, intents, entries, strict=True):
            if entry is not None:
                await self._meet(run, intent, entry)

    async def _meet(self, run: CallRun, intent: Intent, entry: Entry) -> None:
        """Decide what becomes of a call that the journal knows already."""
        key = intent.key
        while entry.outcome is None:
            other = self._live.get(key)
            if other is not None and other is not run:
                run.shares = other
                other.sharers = (*other.sharers, run)
                return
            if entry.owner != self._store.owner and await self._store.is_alive(entry.owner):
                await self._clock.sleep(POLL)
            elif await self._store.take_over(key, entry.owner):
                run.key = key
                self._live[key] = run
                await self._recover(run, began=entry.started_at is not None)
                return
            (found,) = await self._store.begin([intent])
            if found is None:
                run.key = key
                self._live[key] = run
                return
            entry = found
        run.outcome = replace(entry.outcome, replayed=True)

    async def _recover(self, run: CallRun, *, began: bool) -> None:
        """A call was cut off by a crash: do what its tool says, unless it had not even begun."""
        assert run.tool is not None
        policy = run.tool.definition.on_crash
        if policy == "rerun":
            run.recovered = "rerun"
        elif not began:
            run.recovered = "run"
        elif callable(policy):
            run.recovered = "probed"
            try:
                found = await ask(policy, jsonx.decode(run.raw))
            except Exception as error:  # a tool's code
                log.exception("The probe of tool %r failed for call %r", run.name, run.call_id)
                found = replace(internal(error), code="probe_failed")
            if found is not None:
                run.answer = found if isinstance(found, ANSWERS) else Answer(found)
        else:
            run.recovered = "interrupted"
            run.answer = _interrupted(run.name, asks=policy == "ask")

    def marks_start(self, run: CallRun) -> bool:
        """True when it must be known after a crash whether the call had begun: its tool may not simply run again."""
        return run.tool is not None and run.tool.definition.on_crash != "rerun"

    def mark_started(self, run: CallRun, then: Callable[[Exception | None], None]) -> None:
        """Commit that a call begins, and call `then` with None, or with what went wrong."""
        assert run.key is not None
        self._when_done(self._store.start(run.key, run.record.started_at), then)

    def finish(self, run: CallRun, outcome: ToolOutcome, then: Callable[[Exception | None], None]) -> None:
        """Commit the outcome of a call, and call `then` with None, or with what went wrong."""
        assert run.key is not None
        if outcome.status == "cancelled" and not outcome.may_have_run:
            # It did not run: nothing to remember, and it may run another time.
            job = self._store.forget(run.key)
        else:
            record = run.record
            job = self._store.finish(run.key, outcome, record.started_at, self._clock.now())

        def committed(fault: Exception | None) -> None:
            self._live.pop(run.key, None)
            then(fault)

        self._when_done(job, committed)

    def _when_done(self, job: Awaitable[bool], then: Callable[[Exception | None], None]) -> None:
        def done(task: asyncio.Future[bool]) -> None:
            if task.cancelled():
                then(StoreError("The journal was closed before it could write"))
            else:
                then(task.exception())  # type: ignore[arg-type]

        asyncio.ensure_future(job).add_done_callback(done)


def _intent(run: CallRun, key: CallKey, batch: str, now: float) -> Intent:
    assert run.tool is not None
    return Intent(key, batch, run.position, run.name, run.tool.definition.id, run.raw, run.source, run.parent_id, now)


def _interrupted(name: str, *, asks: bool) -> Failure:
    person = "; a person must decide whether to run it again" if asks else ""
    return Failure(
        category="interrupted",
        code="interrupted",
        message=f"Tool {name!r} was cut off by a crash: it may have run, and was not run again{person}",
        source="runtime",
    )


def _require_same(run: CallRun, tool: str, tool_id: str, arguments: bytes) -> None:
    assert run.tool is not None
    if tool_id != run.tool.definition.id:
        differences = [f"tool: {tool!r} before, {run.name!r} now"]
    elif arguments != run.raw:
        differences = list(_differences("$", jsonx.decode(arguments), jsonx.decode(run.raw)))[:5]
    else:
        return
    raise ReplayMismatch(
        f"The call {run.call_id!r} was run before with something else ({'; '.join(differences)}); "
        "give each call its own id, or separate ids that are used again by scope=",
        differences,
    )


def _differences(path: str, before: Any, now: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *now}):
            if before.get(name) != now.get(name) or (name in before) != (name in now):
                yield from _differences(f"{path}.{name}", before.get(name), now.get(name))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for place, (old, new) in enumerate(zip(before, now, strict=True)):
            if old != new:
                yield from _differences(f"{path}[{place}]", old, new)
    else:
        yield f"{path}: {_short(before)} before, {_short(now)} now"


def _short(value: Any) -> str:
    text = jsonx.encode(value).decode()
    return text if len(text) <= 60 else text[:59] + "…"
