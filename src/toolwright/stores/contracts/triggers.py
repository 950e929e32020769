"""The contract of triggers: tools that start when something occurs. Owns an occurrence and the verbs of its store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from toolwright.plain_data import plain_data
from toolwright.stores.contracts.background_run import Registration
from toolwright.stores.contracts.run_store import Limits
from toolwright.tools.background_protocols import Trigger


class Occurrence(Struct, frozen=True, kw_only=True):
    """Something that occurred. `digest` stands for its payload."""

    topic: str
    key: str
    digest: str
    at: float

    def to_json(self) -> dict[str, Any]:
        """The occurrence as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class Start(NamedTuple):
    """A run that an occurrence starts, and the limits of its session."""

    registration: Registration
    limits: Limits


class TriggerStore(Protocol):
    """The contract of triggers in a database. A write is durable once its method has returned.

    Implemented by `stores/sql/background/triggers.py`.
    """

    async def add_trigger(self, trigger: Trigger, most: int) -> Trigger:
        """Register a trigger, and return it; an existing one with the same content gets its new authority.

        Raises:
            RunError: the session has as many ("trigger_limit"), or the id is another's ("conflict").
        """
        ...

    async def list_triggers(self, session: str) -> list[Trigger]:
        """The triggers of a session, the oldest first."""
        ...

    async def triggers_of(self, topic: str) -> list[Trigger]:
        """The triggers of a topic, of all sessions, the oldest first."""
        ...

    async def remove_trigger(self, session: str, id: str) -> bool:
        """Remove a trigger of a session; False when there is none."""
        ...

    async def occur(
        self, occurrence: Occurrence, known: Sequence[Trigger], starts: Sequence[Start]
    ) -> list[str] | None:
        """Record an occurrence with the runs that it starts, and return their ids; the same ids if it is recorded
        already.

        None when the triggers of the topic have changed since they were read: nothing was recorded.

        Raises:
            RunError: it occurred with another payload ("conflict"), or a run is refused, and nothing is written.
        """
        ...
