"""Failed calls. Owns turning exceptions into failures."""

from __future__ import annotations

import logging

from msgspec import Struct
from msgspec.structs import replace

from toolwright.calls.exception_failures import failure_told_by
from toolwright.calls.pools.process_messages import names_of
from toolwright.calls.pools.process_pool import ChildFailed, RaisedInChild
from toolwright.errors import MachineError
from toolwright.log_fields import LogFields
from toolwright.tools.outcome import INTERNAL_MESSAGE, Failure, told
from toolwright.tools.tool import Tool

log = logging.getLogger("toolwright.calls")


class Cancelled(Struct, frozen=True):
    """The end of a call that was stopped."""

    reason: str
    may_have_run: bool


class NotBegun(BaseException):
    """The machine could not run an attempt, whose code has not begun: `fault` says why."""

    def __init__(self, fault: MachineError) -> None:
        super().__init__(str(fault))
        self.fault = fault


def lacks_secrets(name: str, missing: list[str]) -> Failure:
    """The failure of a call whose tool requires secrets that the session does not have."""
    what = f"the secret {', '.join(map(repr, missing))}" if missing else "a secret"
    return Failure(
        category="unavailable",
        code="secret_missing",
        message=f"Tool {name!r} requires {what}, and this session does not have it; ask the user to set it first",
        source="runtime",
    )


def deadlocked(others: list[str]) -> Failure:
    """The failure of a nested call that could only wait for a call that waits for it."""
    return Failure(
        category="unavailable",
        code="deadlock",
        message=f"The call conflicts with {', '.join(map(repr, others))}, which waits for a call that this one is "
        "part of; it could never start",
        source="runtime",
    )


def raised(tool: Tool, name: str, call_id: str, error: BaseException, fields: LogFields) -> Failure:
    """The failure that an exception of the tool's code stands for. `fields` are those of a log line about the call."""
    if isinstance(error, ChildFailed):
        return error.failure(name)
    known = error.failure if isinstance(error, RaisedInChild) else failure_told_by(name, error)
    if known is not None:
        return replace(known, retry=True) if not known.retry and is_retried(error, tool) else known
    log.error(
        "Tool %r failed in call %r",
        name,
        call_id,
        exc_info=error,
        extra=fields,
    )
    failure = internal(error)
    if is_retried(error, tool):
        failure = replace(failure, category="external", code="transient_error", retry=True)
    return failure


def internal(error: BaseException) -> Failure:
    """The failure for an unexpected exception: the model reads one sentence, the record has the rest."""
    return Failure(
        category="internal",
        code="internal_error",
        message=INTERNAL_MESSAGE,
        source="tool",
        detail=cause_chain(error),
    )


def cause_chain(error: BaseException) -> str:
    """An exception and its causes, one line each."""
    lines: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        lines.append(told(current))
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\ncaused by ".join(lines)


def is_retried(error: BaseException, tool: Tool) -> bool:
    """True when the tool's retry policy names this exception."""
    kinds = tool.definition.retry.on
    if isinstance(error, RaisedInChild):
        return not names_of(kinds).isdisjoint(error.classes)
    return isinstance(error, kinds)


def interrupted(name: str, reason: str | None = None) -> Failure:
    """The failure of a call that a crash cut off and that is not run again."""
    return Failure(
        category="interrupted",
        code="interrupted",
        message=f"Tool {name!r} was cut off by a crash: it may have run, and was not run again"
        f"{f' ({reason})' if reason else ''}",
        source="runtime",
    )
