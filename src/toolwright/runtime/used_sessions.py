"""The sessions that requests of clients used. Owns how many of them stay in memory: a service comes to very many."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from toolwright.runtime.runtime import Runtime, leave_session
from toolwright.session.session import Session

MOST_SESSIONS = 1_000
"""How many sessions stay in memory when nothing happens in them, those that were used last."""
_LOOKS = 2
"""How many sessions are looked at for each one that is used: more than one, so that the number falls again."""
_USED: WeakKeyDictionary[Runtime, dict[str, None]] = WeakKeyDictionary()


def used_session(runtime: Runtime, session_id: str) -> Session:
    """The session of an id, for a request."""
    session = runtime.session(session_id)
    used = _USED.setdefault(runtime, {})
    used.pop(session_id, None)
    used[session_id] = None
    for _ in range(_LOOKS):
        if len(used) <= MOST_SESSIONS:
            break
        oldest = next(iter(used))
        del used[oldest]
        if not leave_session(runtime, oldest):
            used[oldest] = None  # it is looked at again
    return session
