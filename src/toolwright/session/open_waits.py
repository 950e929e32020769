"""What calls of a session wait for outside. Owns its form as values, and the contract of the inbox that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from toolwright.calls.suspend.approvals import Approval
from toolwright.calls.suspend.questions import Question
from toolwright.plain_data import plain_data
from toolwright.stores.contracts.waits import WaitKind
from toolwright.tools.outcome import Failure


class Resolved(Struct, frozen=True):
    """The resolution of a key. `first` is False if it was resolved before: then nothing was changed.

    `status` is "ok", "error", "cancelled" or "expired"; `value` and `failure` are the result that the call got.
    """

    first: bool
    status: Literal["ok", "error", "cancelled", "expired"]
    value: Any = None
    failure: Failure | None = None
    reason: str | None = None
    at: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The answer as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class OpenWait(Struct, frozen=True, kw_only=True):
    """One thing that an unfinished call waits for outside, by the key with which it is answered.

    `kind` is "approval" or "crash" for a decision of a person, "completion" for the result of a tool that returned
    `Pending`, "event" for one that the tool named, "question" for the answer of a person, "connection" for a provider.
    `name` is the name of the event or the question, or the provider.
    """

    key: str
    kind: WaitKind
    scope: str
    call_id: str
    name: str
    opened_at: float
    deadline: float | None

    def to_json(self) -> dict[str, Any]:
        """The wait as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class InboxClient(Protocol):
    """Answers the waits of calls, by their keys. With a `session`, keys of other sessions are refused."""

    async def approvals(self, session: str | None) -> list[Approval]:
        """The requests that wait for a person, oldest first."""
        ...

    async def waits(self, session: str) -> list[OpenWait]:
        """What the calls of a session wait for, oldest first."""
        ...

    async def approve(
        self,
        key: str,
        arguments: Mapping[str, Any] | None,
        always: Mapping[str, Any] | None,
        by: str | None,
        via: str | None,
        session: str | None = None,
    ) -> Resolved:
        """Let a call run."""
        ...

    async def deny(
        self,
        key: str,
        reason: str | None,
        always: Mapping[str, Any] | None,
        by: str | None,
        via: str | None,
        session: str | None = None,
    ) -> Resolved:
        """Deny a call."""
        ...

    async def questions(
        self, session: str | None, decided: bool = False, limit: int = 100, before: int | None = None
    ) -> list[Question]:
        """The questions that wait for a person, oldest first, or those that were decided, the newest first."""
        ...

    async def answer(
        self, key: str, value: object, by: str | None, via: str | None, session: str | None = None
    ) -> Resolved:
        """Answer a question, with a value that fits its schema."""
        ...

    async def decline(
        self, key: str, reason: str | None, by: str | None, via: str | None, session: str | None = None
    ) -> Resolved:
        """Decline a question."""
        ...

    async def resolve(self, key: str, value: object, session: str | None = None) -> Resolved:
        """Complete the wait of a key with a value."""
        ...

    async def reject(self, key: str, code: str, message: str, category: str, session: str | None = None) -> Resolved:
        """Complete the wait of a key with an error."""
        ...
