"""Events that a tool declares. Owns checking and telling them; keeping those of a process is its worker's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolwright import jsonx
from toolwright.calls.active_call import about
from toolwright.calls.conclude import lose
from toolwright.calls.redact import off_loop
from toolwright.calls.suspend.steps import Unrecorded
from toolwright.errors import ServiceError, StoreError
from toolwright.events import CallEmitted
from toolwright.tools.outcome import encodable
from toolwright.tools.schema import summarise

if TYPE_CHECKING:
    from toolwright.calls.execute.execute import CallRun

LARGEST = 64 * 1024
"""Bytes of an event's payload."""


async def emit(run: CallRun, name: str, payload: Any, key: str | None) -> None:
    """Check an event of a running call, keep it if the call is a process', and tell whoever watches.

    Raises:
        ServiceError: the tool declares no such event, or the payload is not what it declares.
    """
    host = run.host
    data = _checked(run, name, payload)
    if key is not None and (not isinstance(key, str) or not key or len(key) > 255 or encodable(key) != key):
        raise ServiceError(f"The key {key!r:.300} of event {name!r} is not usable; use a text of up to 255 characters")
    if host.redactor is not None:
        data = await off_loop(len(data), host.redactor.json, data)
        key = None if key is None else host.redactor.text(key)
    if host.keep_event is not None:
        try:
            await host.keep_event(name, data, key or _replay_key(run, name, data))
        except StoreError as fault:
            lose(run, fault)
            raise Unrecorded from fault
    if not run.concluded:
        host.channel.publish(CallEmitted(*about(run), name, jsonx.decode(data)))


def _replay_key(run: CallRun, name: str, data: bytes) -> str:
    """The key of an event that was given none: its place among those of the attempt, and what it is.

    So it is kept once when another worker runs the call again. What is told otherwise then is kept, too.
    """
    run.emitted += 1
    return f"\0{run.attempt}:{run.emitted}:{jsonx.digest(jsonx.encode([name, data.decode()]))[:32]}"


def _checked(run: CallRun, name: Any, payload: Any) -> bytes:
    assert run.tool is not None
    checks = run.tool.check_events
    check = checks.get(name) if isinstance(name, str) else None
    if check is None:
        known = f"it declares {', '.join(map(repr, checks))}" if checks else "declare it by @tool(events={...})"
        raise ServiceError(f"Tool {run.name!r} has no event {name!r:.200}; {known}")
    try:
        data = jsonx.encode(payload)
        problems = check(data)
    except Exception as error:  # a value may have code of its own for its JSON form
        raise ServiceError(f"The payload of event {name!r} of tool {run.name!r} is not usable: {error}") from error
    if problems:
        raise ServiceError(
            f"The payload of event {name!r} of tool {run.name!r} is not what it declares:\n{summarise(problems)}"
        )
    if len(data) > LARGEST:
        raise ServiceError(
            f"The payload of event {name!r} of tool {run.name!r} has {len(data)} bytes and may have {LARGEST}; "
            "put it in a file, and tell its path"
        )
    return data
