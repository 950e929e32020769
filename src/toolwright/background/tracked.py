"""Runs that happen elsewhere: a deployment, a job of another system. Owns the reports on them.

A tracked run is listed, awaited, followed and cancelled like any other run, and adds a message to its session when it
is finished. No worker ever takes it: the program that does the work, or watches it, reports on it, from any process.
"""

from __future__ import annotations

import asyncio
import re

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.argument_checks import require_text
from toolwright.background.output import Gathered, LogText, live_tail
from toolwright.background.run_reports import STREAM, WORDS
from toolwright.calls.finalise.truncate import bound
from toolwright.calls.redact import off_loop, redact_outcome, weight
from toolwright.calls.redactor import Redactor
from toolwright.calls.returned_media import MARK, take_media
from toolwright.errors import RunError, ServiceError, ToolDefinitionError
from toolwright.large_json import MOST_CONTAINERS, MOST_ITEMS, TooLong, encode_in_pieces, has_few_parts, is_small
from toolwright.plain_data import plain_number
from toolwright.session.services.quotas import to_json
from toolwright.stores.contracts.background_run import BackgroundRun, Progress
from toolwright.stores.contracts.run_store import Report
from toolwright.tools.definition import RESERVED_EVENTS
from toolwright.tools.outcome import Failure, ToolOutcome, encodable
from toolwright.tools.tool import Tool

LARGEST_VALUE = 8 * 1024 * 1024
"""Bytes of the value of a tracked run."""
LARGEST_EVENT = 256 * 1024
"""Bytes of the payload of an event that a host appends."""
LONGEST_SUMMARY = 2_000
"""Characters of a summary that are stored."""
MOST_LINES = 2_000
MOST_BYTES = 50 * 1024
"""How much of a value a model reads."""
_EVENT = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


def tracked_tool(name: str) -> Tool:
    """The tool that rules judge a tracked run by: it has the name of the run, and may change anything.

    Raises:
        RunError: the name is not usable.
    """
    try:
        return Tool.from_schema(name=name, id=f"tracked.{name}", display_name=name, handler=lambda arguments: None)
    except ToolDefinitionError as error:
        raise RunError(
            f"The name {name!r:.200} of a tracked run is not usable; use 1 to 128 letters, digits, or any of _ . : / -"
        ) from error


def require_event_name(name: object) -> str:
    """The name of an event that a host appends.

    Raises:
        RunError: it is not usable, or is the name of an event that every run has.
    """
    if not isinstance(name, str) or not _EVENT.fullmatch(name) or name in RESERVED_EVENTS:
        raise RunError(
            f"The event {name!r:.200} cannot be appended; use a lower-case name, and none of "
            f"{', '.join(sorted(RESERVED_EVENTS))}"
        )
    return name


def require_payload(payload: object) -> bytes:
    """The JSON of an event's payload.

    Raises:
        RunError: it is too large.
        ServiceError: it has no JSON form.
    """
    data = to_json("payload of an event", payload)
    if len(data) > LARGEST_EVENT:
        raise RunError(
            f"The payload of an event has {len(data)} bytes, and may have {LARGEST_EVENT}; use a smaller payload"
        )
    return data


def progress_of(current: float | None, total: float | None, label: str | None, unit: str | None) -> Progress | None:
    """How far a run is said to be; None when nothing is said.

    Raises:
        RunError: a number is not usable.
    """
    for what, number in (("progress", current), ("total", total)):
        if number is not None and plain_number(number) is None:
            raise RunError(f"The {what} {number!r:.100} of a run is not usable; use a number")
    if current is None and total is None and label is None and unit is None:
        return None
    words = (None if text is None else encodable(require_text("progress", text))[:WORDS] for text in (unit, label))
    return Progress(plain_number(current), plain_number(total), *words)


def report_of(
    run: BackgroundRun,
    at: float,
    *,
    status: str | None,
    progress: Progress | None,
    output: str | None,
    stream: str,
    redactor: Redactor | None,
) -> Report:
    """A host's report on a tracked run, as its store has it.

    Its text has no secrets; `redactor` finds one that began in the report before.
    """
    gathered, tail = Gathered(run.log_chars), None
    if output:
        gathered.add(" ".join(stream[:STREAM].split()) or "output", output)
    pieces, dropped = gathered.take()
    if pieces:
        tail = live_tail(run.tail, pieces, LogText(run.tail))
        tail = tail if redactor is None else redactor.text(tail)
    return Report(
        id=run.id,
        token=run.token,
        at=at,
        pieces=pieces,
        dropped=dropped,
        progress=progress,
        opening_text=None if status is None else status[:WORDS],
        tail=tail,
    )


async def success(run: BackgroundRun, value: object, summary: str | None, redactor: Redactor | None) -> ToolOutcome:
    """The outcome of a tracked run that ended with a value. A large one is encoded and searched in a thread.

    Raises:
        RunError: the value is too large.
        ServiceError: it has no JSON form.
    """
    outcome = await asyncio.to_thread(_success, run, value) if not is_small(value) else _success(run, value)
    if summary is not None:
        outcome = replace(outcome, metadata={"summary": summary[:LONGEST_SUMMARY]})
    return await _for_model(outcome, redactor)


def _success(run: BackgroundRun, value: object) -> ToolOutcome:
    try:
        data = encode_in_pieces(value, LARGEST_VALUE)
    except TooLong as error:
        raise _too_large(run) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ServiceError(f"The value of a run has no JSON form: {error}") from error
    if not has_few_parts(data):
        raise _too_large(run)
    data, images, attachments = take_media(value, data) if MARK in data else (data, (), ())
    return ToolOutcome(run.id, run.tool, "success", payload=data, attempts=1, images=images, attachments=attachments)


def _too_large(run: BackgroundRun) -> RunError:
    return RunError(
        f"The value of run {run.id!r} is too large: it may have {LARGEST_VALUE} bytes, {MOST_CONTAINERS} lists and "
        f"objects, and {MOST_ITEMS} items; use a file"
    )


async def failure_of(run: BackgroundRun, failure: Failure, redactor: Redactor | None) -> ToolOutcome:
    """The outcome of a tracked run that failed. A message that is too long is cut."""
    over = len(failure.message) - LARGEST_EVENT
    if over > 0:
        failure = replace(failure, message=f"{failure.message[:LARGEST_EVENT]} [{over} characters omitted]")
    outcome = ToolOutcome(run.id, run.tool, "failure", failure=failure, attempts=1, may_have_run=True)
    return await _for_model(outcome, redactor)


async def _for_model(outcome: ToolOutcome, redactor: Redactor | None) -> ToolOutcome:
    """The outcome without secrets, with as much text as a model reads."""
    size = weight(outcome)
    if redactor is not None:
        outcome = await off_loop(size, redact_outcome, redactor, outcome)
    text = await off_loop(size, outcome.full_text)
    return replace(outcome, model_text=await off_loop(size, bound, text, MOST_LINES, MOST_BYTES))


def event_text(payload: bytes) -> str:
    """The text of an event, for the message to its session."""
    value = jsonx.decode(payload)
    return value if isinstance(value, str) else payload.decode()
