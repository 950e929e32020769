"""What a runtime holds at this moment, for tests that nothing is left over. Owns where each thing is found.

It reads the parts of a runtime, which no user sees: a test asks here, and only this file changes when the parts do.
"""

from __future__ import annotations

from toolwright.calls.schedule.admission import Limit
from toolwright.runtime.runtime import Runtime
from toolwright.runtime.wiring import Parts
from toolwright.session.core import SessionCore
from toolwright.session.session import Session


def is_idle(where: Runtime | Session) -> bool:
    """True when no call of a runtime or a session holds or waits for a slot or a claim.

    A call that waits for something outside, such as an answer, holds no slot, and may hold claims.
    """
    if isinstance(where, Session):
        return _session_is_idle(where._core)
    parts = where._parts
    return _free(_limits(parts)) and all(map(_session_is_idle, parts.sessions.all()))


def slots_in_use(where: Runtime | Session) -> int:
    """How many slots the calls of a runtime or a session hold, of those that its policy has."""
    return where._core.limit.in_use if isinstance(where, Session) else where._parts.shared.limit.in_use


def left_over(runtime: Runtime) -> dict[str, str]:
    """All that calls left behind in a runtime where none runs: the kind of thing, and what there is of it.

    Empty when nothing is left. In addition to what `is_idle` looks at: batches, waits and those who watch them, tasks,
    deadlines, and calls that were given up and still run.
    """
    parts = runtime._parts
    shared, sessions, journal = parts.shared, parts.sessions.all(), parts.storage.journal
    found: dict[str, object] = {
        "slots": [f"{limit.name}: {limit.in_use}" for limit in _limits(parts) if not _free([limit])],
        "sessions": [session.id for session in sessions if not _session_is_idle(session)],
        "batches": [session.batches for session in sessions if session.batches],
        "lingering calls": shared.lingering,
        "waits": shared.effects.room.open_waits(),
        "calls of the journal": [] if journal is None else journal.live_calls(),
        "tasks": [task for task in shared.tasks if not task.done()],
        "deadlines": shared.deadlines.pending,
    }
    return {kind: repr(things) for kind, things in found.items() if things}


def _session_is_idle(core: SessionCore) -> bool:
    return core.environment.admission.idle and _free([core.limit])


def _limits(parts: Parts) -> list[Limit]:
    limits = parts.shared.tool_limits
    return [parts.shared.limit, limits.processors, *limits.by_tool.values()]


def _free(limits: list[Limit]) -> bool:
    return not any(limit.in_use or limit.waiting for limit in limits)
