"""Leases of runs in SQLite. Owns admission, takeover and handing back.

All of it happens inside the transaction of the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apsw

from toolwright.errors import RunError
from toolwright.stores.contracts.background_run import BackgroundRun, Registration, scope_of
from toolwright.stores.contracts.run_store import Claimed, Limits
from toolwright.stores.sqlite.background.run_resources import add_resource, update_resource
from toolwright.stores.sqlite.background.run_rows import (
    ACTIVE,
    LEASED,
    PENDING,
    TRACKED,
    add_event,
    insert_run,
    read_run,
)
from toolwright.stores.sqlite.calls.journal import NOBODY
from toolwright.stores.sqlite.calls.waits import completion_came
from toolwright.stores.sqlite.core.codec import one, unpacker
from toolwright.tools.outcome import Failure, ToolOutcome

_outcome = unpacker(ToolOutcome)
_failure = unpacker(Failure)


def enter_run(connection: apsw.Connection, registration: Registration, limits: Limits, now: float) -> None:
    """Enter a process, to be taken at once or held until there is room. `now` is by the clock of leases.

    Raises:
        RunError: a limit is reached, and further runs are not to wait.
    """
    if registration.parent is not None:
        query = f"SELECT 1 FROM processes WHERE id = ? AND {PENDING} AND cancel_reason IS NULL"
        if one(connection, query, (registration.parent,)) is None:
            raise RunError(f"The run {registration.parent!r} is finished or cancelled, and starts no more runs", "over")
    if registration.options.tracked:
        _enter_tracked(connection, registration, limits)
        return
    full = _session_is_full(connection, registration.session, limits)
    # A run must not hold the runs that it starts: it may wait for them, and both would wait for ever.
    if full and (not limits.queue or registration.parent is not None):
        raise _session_limit(limits)
    if not limits.queue:
        query = "SELECT coalesce(sum(capacity), 0) FROM workers WHERE until >= ?"
        most: int = one(connection, query, (now,)) or limits.per_worker
        query = f"SELECT count(*) FROM (SELECT 1 FROM processes WHERE {ACTIVE} LIMIT ?)"
        if one(connection, query, (most,)) >= most:
            raise RunError(
                f"Worker is already running the maximum {most} active background runs. "
                "Try again after an existing run finishes.",
                "worker_limit",
            )
    if registration.alone:
        query = f"SELECT 1 FROM processes WHERE schedule = ? AND {PENDING}"
        full = full or one(connection, query, (registration.schedule,)) is not None
    insert_run(connection, registration, "held" if full else "queued")
    add_resource(connection, registration, limits.resources)
    add_event(connection, registration.id, "queued", {}, registration.at)


def _enter_tracked(connection: apsw.Connection, registration: Registration, limits: Limits) -> None:
    """Enter a process that happens elsewhere: it is running, and no worker takes it."""
    most = limits.tracked_per_session
    query = f"SELECT count(*) FROM (SELECT 1 FROM processes WHERE {TRACKED} AND session = ? LIMIT ?)"
    if one(connection, query, (registration.session, most)) >= most:
        raise RunError(
            f"Maximum {most} unfinished tracked runs per session. Finish or cancel one before starting another.",
            "session_limit",
        )
    insert_run(connection, registration, "running")
    statement = "UPDATE processes SET status_text = 'Running', started_at = created_at WHERE id = ?"
    connection.execute(statement, (registration.id,))
    add_resource(connection, registration, limits.resources)
    add_event(connection, registration.id, "tracked", {}, registration.at)


def _session_is_full(connection: apsw.Connection, session: str, limits: Limits) -> bool:
    query = f"SELECT count(*) FROM (SELECT 1 FROM processes WHERE {ACTIVE} AND session = ? LIMIT ?)"
    active: int = one(connection, query, (session, limits.per_session))
    return active >= limits.per_session


def _session_limit(limits: Limits) -> RunError:
    return RunError(
        f"Maximum {limits.per_session} active background runs per session. "
        "Wait for an existing run to finish before starting another.",
        "session_limit",
    )


def reopen_run(
    connection: apsw.Connection, id: str, by: str | None, limits: Limits, at: float, authority: bytes | None = None
) -> None:
    """Queue an abandoned run again; its calls and steps in doubt are forgotten, and run again.

    Raises:
        RunError: it is not abandoned, or its session has as many active as it may.
    """
    process = read_run(connection, id)
    if process is None or process.status != "abandoned":
        state = "no longer in the store" if process is None else process.status
        raise RunError(f"The run {id!r} is {state}; only an abandoned run can be resumed", "conflict")
    if _session_is_full(connection, process.session, limits):
        raise _session_limit(limits)
    scope = (process.session, scope_of(id))
    finished: list[Any] = connection.execute(
        "SELECT call_id, outcome FROM calls WHERE session = ? AND scope = ? AND outcome IS NOT NULL", scope
    ).fetchall()
    for call_id, outcome in finished:
        failure = _outcome(outcome).failure
        if call_id == id or (failure is not None and failure.code == "interrupted"):
            # As if it had not started: its crash policy is not asked, for a person has decided.
            connection.execute(
                "UPDATE calls SET owner = ?, started_at = NULL, finished_at = NULL, status = NULL, outcome = NULL"
                " WHERE session = ? AND scope = ? AND call_id = ?",
                (NOBODY, *scope, call_id),
            )
    doubtful: list[Any] = connection.execute(
        "SELECT call_id, label, failure FROM effects WHERE session = ? AND scope = ?"
        " AND (failure IS NOT NULL OR NOT done)",
        scope,
    ).fetchall()
    for call_id, label, failed in doubtful:
        if failed is None or _failure(failed).code == "interrupted":
            connection.execute(
                "DELETE FROM effects WHERE session = ? AND scope = ? AND call_id = ? AND label = ?",
                (*scope, call_id, label),
            )
    connection.execute("DELETE FROM waits WHERE session = ? AND scope = ? AND resolution IS NULL", scope)
    connection.execute(
        "UPDATE processes SET state = 'queued', status_text = 'Queued', ended_at = NULL, outcome = NULL, worker = NULL,"
        " deadline = NULL, crashes = 0, authority = coalesce(?, authority) WHERE id = ?",
        (authority, id),
    )
    add_event(connection, id, "reopened", {"by": by}, at)
    update_resource(connection, process.session, id, at)


def take_run(connection: apsw.Connection, process: BackgroundRun, worker: str, at: float, until: float) -> Claimed:
    """Give a run to a worker; the unfinished calls of the previous one are released, so that this one may continue
    them."""
    scope = scope_of(process.id)
    # An existing outcome stays: nothing is in doubt, and only the end is missing. So does a completion that has come:
    # its sender was told that it was accepted, and it is the outcome of the call.
    query = "SELECT outcome IS NOT NULL FROM calls WHERE session = ? AND scope = ? AND call_id = ?"
    finished = one(connection, query, process.call)
    done = bool(finished) or (finished is not None and completion_came(connection, process.call))
    crashes = _crashes(connection, process, scope)
    if process.attempts and process.options.disposition == "rerun" and not done:
        for table in ("calls", "effects", "crashes", "waits"):
            connection.execute(f"DELETE FROM {table} WHERE session = ? AND scope = ?", (process.session, scope))
    elif process.attempts:
        connection.execute(
            "UPDATE calls SET owner = ? WHERE session = ? AND scope = ? AND outcome IS NULL",
            (NOBODY, process.session, scope),
        )
    timeout = process.options.timeout
    connection.execute(
        "UPDATE processes SET state = 'running', status_text = 'Starting', worker = ?2, token = token + 1,"
        " lease_until = ?3, attempts = attempts + 1, crashes = ?6,"
        " started_at = coalesce(started_at, ?4),"
        " deadline = coalesce(deadline, ?5) WHERE id = ?1",
        (process.id, worker, until, at, None if timeout is None else at + timeout, crashes),
    )
    started = {"worker": worker, "attempt": process.attempts + 1, "taken_over_from": process.worker}
    add_event(connection, process.id, "started", started, at)
    taken = read_run(connection, process.id)
    assert taken is not None
    return Claimed(taken, process.worker, done)


def _crashes(connection: apsw.Connection, process: BackgroundRun, scope: str) -> int:
    """How many workers in a row died with a run that made no progress. A run that waited does not count."""
    if process.status != "running":
        return process.crashes
    query = "SELECT at FROM process_events WHERE process = ? AND type = 'started' ORDER BY number DESC LIMIT 1"
    since = one(connection, query, (process.id,))
    query = "SELECT 1 FROM effects WHERE session = ? AND scope = ? AND done AND at > ?"
    return 1 if one(connection, query, (process.session, scope, since)) is not None else process.crashes + 1


def queue_again(connection: apsw.Connection, worker: str, held: Iterable[tuple[str, int]], at: float) -> None:
    """Let others claim the runs of a worker, each by its id and the token of the lease."""
    for id, token in held:
        # Its worker stays recorded: the next one continues its unfinished calls.
        session = one(
            connection,
            f"UPDATE processes SET state = 'queued', status_text = 'Queued', lease_until = NULL"
            f" WHERE id = ? AND token = ? AND {LEASED} RETURNING session",
            (id, token),
        )
        if session is not None:
            add_event(connection, id, "handed_back", {"worker": worker}, at)
            update_resource(connection, session, id, at)
