"""Calls and the journal. Owns what a call's past means for it: fresh, finished, running elsewhere, or cut off.

Intent before effect: a batch's intents are one commit, before any of its tools runs. Outcome before answer: a call's
outcome is committed before its claims are freed and its caller sees it. A fault of the store is raised at whoever
awaits the batch, and never becomes an outcome.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.approach import ANSWERS
from toolwright.calls.execute import CallRun
from toolwright.calls.hooks import Answer, ask
from toolwright.calls.mishaps import internal
from toolwright.clock import Clock
from toolwright.effects.journal import CallKey, Entry, Intent, JournalStore, Then
from toolwright.errors import ReplayMismatch, StoreError
from toolwright.tools.outcome import Failure, ToolError, ToolOutcome

log = logging.getLogger("toolwright.calls")

POLL = 0.05
"""Seconds between two looks at a call that runs in another process."""
LEFT = "left"
"""What was done so far for a call that a crash cut off: nothing."""


class MemoryJournal:
    """What the calls of one session remember for the life of the process.

    Only calls that were given an id can come again, so only these are kept.
    """

    takes_time = False

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], tuple[str, bytes, CallRun | ToolOutcome]] = {}

    def meet(self, runs: Iterable[CallRun], scope: str) -> bool:
        """Let the calls of a batch that were given an id meet their past, all or none; True when one has a past.

        Raises:
            ReplayMismatch: an identity was used before, for something else.
        """
        calls, met, past = self._calls, [], False
        try:
            for run in runs:
                if not run.named or run.outcome is not None or run.tool is None:
                    continue
                key = (scope, run.call_id)
                known = calls.get(key)
                if known is None:
                    run.key = key
                    # As they were given: a hook may replace the arguments later.
                    calls[key] = (run.tool.definition.id, run.raw, run)
                else:
                    past = True
                    self._meet(run, *known)
                met.append(run)
        except ReplayMismatch:
            for run in met:
                if run.key is not None:
                    del calls[run.key]
                if run.shares is not None:
                    run.shares.sharers = tuple(other for other in run.shares.sharers if other is not run)
            raise
        return past

    def _meet(self, run: CallRun, tool_id: str, arguments: bytes, past: CallRun | ToolOutcome) -> None:
        if isinstance(past, CallRun):
            _require_same(run, past.name, tool_id, arguments)
            run.shares = past
            past.sharers = (*past.sharers, run)
        else:
            _require_same(run, past.tool, tool_id, arguments)
            run.outcome = replace(past, replayed=True)

    def marks_start(self, run: CallRun) -> bool:
        """Memory ends with the process, so there is nothing to mark."""
        return False

    def keep(self, run: CallRun, outcome: ToolOutcome) -> None:
        """Keep the outcome of a call."""
        if outcome.status == "cancelled" and not outcome.may_have_run:
            self._calls.pop(run.key, None)
        else:
            tool_id, arguments, _ = self._calls[run.key]
            self._calls[run.key] = (tool_id, arguments, outcome)


class StoreJournal:
    """The journal of a runtime, in a store that outlives the process."""

    takes_time = True

    def __init__(self, store: JournalStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._live: dict[CallKey, CallRun] = {}
        self.closing = False

    async def begin(self, session: str, scope: str, batch: str, runs: Sequence[CallRun]) -> None:
        """Write the intents of a batch's calls, and let each meet its past.

        Raises:
            ReplayMismatch: a call's identity was used before, for something else. Nothing runs.
            StoreError: the journal could not be written. Nothing runs.
        """
        now = self._clock.now()
        waiting = [run for run in runs if run.outcome is None and run.tool is not None]
        intents = [_intent(run, CallKey(session, scope, run.call_id), batch, now) for run in waiting]
        if not waiting:
            return
        while not await self._written(waiting, intents):
            await self._clock.sleep(POLL)
        for run in waiting:
            if run.recovered == LEFT:
                await self._recover(run)
        for run in waiting:
            if run.concluded and run.key is not None:  # cancelled meanwhile
                await _answer(self._store.release if run.recovered == LEFT else self._store.forget, run.key)
                self._drop(run)

    async def _written(self, waiting: list[CallRun], intents: list[Intent]) -> bool:
        """Write the intents and let each call meet its past; False while another process runs one of them."""
        # They meet when it is done, and no later: what the store answers next may be that one of them is finished.
        job = asyncio.ensure_future(self._store.begin(intents, functools.partial(self._meet, waiting, intents)))
        stopped: asyncio.CancelledError | None = None
        while not job.done():
            # What is written must be known here, or it could not be taken back: stopping waits for it.
            try:
                await asyncio.shield(job)
            except asyncio.CancelledError as error:
                stopped = error
            except Exception:
                break
        entries = job.result()
        for run, entry in zip(waiting, entries, strict=True):
            if entry is not None:
                before = entry.intent
                _require_same(run, before.tool, before.tool_id, before.arguments)
        if stopped is not None:
            raise stopped
        return not any(self._runs_elsewhere(entry) for entry in entries)

    def _meet(self, waiting: list[CallRun], intents: list[Intent], entries: list[Entry | None]) -> None:
        if not any(self._runs_elsewhere(entry) for entry in entries):
            for run, intent, entry in zip(waiting, intents, entries, strict=True):
                self._claim(run, intent.key, entry)

    def _runs_elsewhere(self, entry: Entry | None) -> bool:
        return entry is not None and entry.outcome is None and entry.owner != self._store.owner

    def _claim(self, run: CallRun, key: CallKey, entry: Entry | None) -> None:
        """Say whose a call is: this run's, or another's that has or will have the outcome."""
        other = self._live.get(key)
        if entry is not None and entry.outcome is not None:
            run.outcome = replace(entry.outcome, replayed=True)
        elif entry is not None and other is not None:
            run.shares = other
            other.sharers = (*other.sharers, run)
        else:
            run.key = key
            self._live[key] = run
            if entry is not None:
                run.recovered = LEFT
                run.cut_off_after_start = entry.started_at is not None

    def _drop(self, run: CallRun) -> None:
        if self._live.get(run.key) is run:
            del self._live[run.key]

    async def _recover(self, run: CallRun) -> None:
        """A call was cut off by a crash: do what its tool says, unless it had not even begun."""
        assert run.tool is not None
        policy = run.tool.definition.on_crash
        if policy == "rerun":
            run.recovered = "rerun"
        elif not run.cut_off_after_start:
            run.recovered = "run"
        elif callable(policy):
            try:
                found = await ask(policy, jsonx.decode(run.raw))
            except ToolError as error:
                found = error.failure
            except Exception as error:  # a tool's code
                log.exception("The probe of tool %r failed for call %r", run.name, run.call_id)
                found = replace(internal(error), code="probe_failed")
            if found is not None:
                run.answer = found if isinstance(found, ANSWERS) else Answer(found)
            run.recovered = "probed"
        else:
            run.recovered = "interrupted"
            run.answer = _interrupted(run.name, asks=policy == "ask")

    def marks_start(self, run: CallRun) -> bool:
        """True when it must be known after a crash whether the call had begun: its tool may not simply run again."""
        return run.tool is not None and run.tool.definition.on_crash != "rerun"

    def mark_started(self, run: CallRun, then: Callable[[Exception | None], None]) -> None:
        """Commit that a call begins, and call `then` with None, or with what went wrong."""
        assert run.key is not None
        self._store.start(run.key, run.record.started_at, functools.partial(self._answered, run, then))

    def finish(self, run: CallRun, outcome: ToolOutcome, then: Callable[[Exception | None], None]) -> None:
        """Commit the outcome of a call, and call `then` with None, or with what went wrong."""
        assert run.key is not None
        told = functools.partial(self._finished, run, then)
        if self.closing and outcome.status == "cancelled" and outcome.may_have_run:
            # Cut off by the end of the program, as by a crash: its tool's crash policy decides, the next time.
            self._store.release(run.key, told)
        elif outcome.status != "cancelled" or outcome.may_have_run:
            self._store.finish(run.key, outcome, run.record.started_at, self._clock.now(), told)
        elif run.recovered == LEFT:
            # Nobody has decided yet what a crash did to it: that stays to be done.
            self._store.release(run.key, told)
        else:
            # It did not run: nothing to remember, and it may run another time.
            self._store.forget(run.key, told)

    def _finished(self, run: CallRun, then: Callable[[Exception | None], None], answer: bool | Exception) -> None:
        self._drop(run)
        self._answered(run, then, answer)

    def _answered(self, run: CallRun, then: Callable[[Exception | None], None], answer: bool | Exception) -> None:
        if answer is False:
            answer = StoreError(
                f"The call {run.call_id!r} was taken over by another process, which believes that this one "
                "is gone; do not remove files beside the store while it is in use"
            )
        then(None if answer is True else answer)


async def _answer(ask_store: Callable[[CallKey, Then], None], key: CallKey) -> None:
    """Ask the store, and wait for it to answer."""
    answered: asyncio.Future[bool | Exception] = asyncio.get_running_loop().create_future()

    def then(answer: bool | Exception) -> None:
        if not answered.done():
            answered.set_result(answer)

    ask_store(key, then)
    if isinstance(answer := await answered, Exception):
        raise answer


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
    # One of the two is enough: a tool may be renamed, or move to another module, whose name is part of its id.
    if tool_id != run.tool.definition.id and tool != run.name:
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
