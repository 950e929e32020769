"""The contract of remembered requests: the answer of each that named a key, so that it is given again when the request
comes again, in any process and after any crash. Owns their rows and verbs."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct


class KeptAnswer(Struct, frozen=True, gc=False):
    """The answer of a request, as it was sent."""

    status: int
    headers: dict[str, str]
    body: bytes


class RequestState(Struct, frozen=True, gc=False):
    """The state of a request under a key.

    "begun": it is new, and its caller does the work now. "again": it was begun earlier by a process that is gone, or by
    this one, and its work may have been done. "running": another process works on it. "done": it has its `answer`.
    "other": the key was used for another request.
    """

    state: Literal["begun", "again", "running", "done", "other"]
    answer: KeptAnswer | None = None


class RequestStore(Protocol):
    """Requests by their keys. Implemented by `stores/sql/requests.py`."""

    async def begin(self, key: str, content: str, at: float, keep: float) -> RequestState:
        """Begin a request; `content` is the hash of all that it asks for. Requests from before `keep` are forgotten."""
        ...

    async def finish(self, key: str, answer: KeptAnswer) -> None:
        """Keep the answer of a request that was begun."""
        ...

    async def forget(self, key: str) -> None:
        """Forget a request that failed and may come again as a new one."""
        ...
