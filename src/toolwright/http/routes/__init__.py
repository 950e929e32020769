"""The routes of the API. Each file has the operations of one kind of thing, as `OPERATIONS`; here they are all."""

from toolwright.http.operations import Operation
from toolwright.http.routes import (
    batches,
    calls,
    events,
    files,
    health,
    inbox,
    login,
    runs,
    schedules,
    search,
    sessions,
    tokens,
    tools,
    turns,
    values,
)

OPERATIONS: tuple[Operation, ...] = (
    *health.OPERATIONS,
    *tools.OPERATIONS,
    *sessions.OPERATIONS,
    *turns.OPERATIONS,
    *batches.OPERATIONS,
    *calls.OPERATIONS,
    *inbox.OPERATIONS,
    *files.OPERATIONS,
    *values.OPERATIONS,
    *runs.OPERATIONS,
    *schedules.OPERATIONS,
    *events.OPERATIONS,
    *search.OPERATIONS,
    *login.OPERATIONS,
    *tokens.OPERATIONS,
)
"""Every operation of the service."""
