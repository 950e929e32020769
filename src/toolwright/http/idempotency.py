"""`Idempotency-Key`. Owns reading it, the ids that are derived from it, and giving the same answer again.

Work that is started under a derived id is the same work when the request comes again, in any process; and the answer is
kept in the store, so that it is the same one, whatever happened since.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from starlette.responses import Response

from toolwright.http.access.caller import Caller
from toolwright.http.answers import JsonAnswer, StreamAnswer
from toolwright.http.problems import Problem, answer_of, problem_of
from toolwright.stores.contracts.requests import KeptAnswer, RequestStore

Answered = JsonAnswer | StreamAnswer | Response
"""The answer of an operation, ready to be sent."""
HEADER = "idempotency-key"
LONGEST = 255
KEPT = 7 * 24 * 3600.0
"""Seconds for which an answer is kept."""
LARGEST = 4 * 1024 * 1024
"""Bytes of an answer that is kept; a larger one is made again, from the records of the same work."""
_NOT_KEPT = frozenset({401, 403, 429})
"""Answers that may be other ones the next time."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The key of a request. The same text of another caller, or for another path, is another key."""

    digest: str
    again: bool = False
    """True when a process that is gone had begun the request: its work may have been done."""

    def derive(self, prefix: str) -> str:
        """An id that every request with this key gets."""
        return f"{prefix}{self.digest[:40]}"


def read_key(given: str, caller: Caller, method: str, path: str) -> IdempotencyKey:
    """The key that a request gives.

    Raises:
        Problem: it is not usable.
    """
    if not 0 < len(given) <= LONGEST or not given.isprintable():
        raise Problem(
            400, "bad_idempotency_key", f"The Idempotency-Key is not usable; use 1 to {LONGEST} printable characters"
        )
    parts = "\0".join((caller.token or caller.name, method, path, given))
    return IdempotencyKey(hashlib.sha256(parts.encode("utf-8", "surrogateescape")).hexdigest())


class RememberedRequests:
    """The requests with a key that this process works on; the answers of all are in the store."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Future[None]] = {}

    async def answer(
        self,
        store: RequestStore,
        now: float,
        key: IdempotencyKey,
        content: bytes,
        work: Callable[[IdempotencyKey], Awaitable[Answered]],
        *,
        keeps_refusals: bool = True,
    ) -> Answered:
        """The answer of a request: the kept one, or that of `work`, which is kept then; a refusal only with
        `keeps_refusals`.

        Raises:
            Problem: the key was used for another request, or another process works on this one.
        """
        while (running := self._running.get(key.digest)) is not None:
            await asyncio.shield(running)
        done = self._running[key.digest] = asyncio.get_running_loop().create_future()
        try:
            state = await store.begin(key.digest, hashlib.sha256(content).hexdigest(), now, now - KEPT)
            if state.answer is not None:
                kept = state.answer
                media_type = kept.headers.pop("content-type", "application/json")
                headers = {**kept.headers, "Idempotent-Replayed": "true"}
                return JsonAnswer(kept.body, kept.status, headers, media_type=media_type)
            if state.state == "other":
                raise Problem(
                    422,
                    "idempotency_key_reused",
                    "The Idempotency-Key was used for another request; use a new key for each",
                )
            if state.state == "running":
                raise Problem(
                    409,
                    "in_progress",
                    "Another server works on the request of this Idempotency-Key; ask again",
                    headers={"Retry-After": "1"},
                )
            return await self._work(store, replace(key, again=state.state == "again"), work, keeps_refusals)
        finally:
            del self._running[key.digest]
            done.set_result(None)

    async def _work(
        self,
        store: RequestStore,
        key: IdempotencyKey,
        work: Callable[[IdempotencyKey], Awaitable[Answered]],
        keeps_refusals: bool,
    ) -> Answered:
        answer: Answered
        try:
            answer = await work(key)
        except Exception as error:  # told as a problem, as without a key
            answer = answer_of(problem_of(error))
        status, most = answer.status if isinstance(answer, JsonAnswer) else 0, 500 if keeps_refusals else 400
        if isinstance(answer, JsonAnswer) and status < most and status not in _NOT_KEPT and len(answer.body) <= LARGEST:
            headers = {**answer.headers, "content-type": answer.media_type}
            await store.finish(key.digest, KeptAnswer(answer.status, headers, answer.body))
        else:
            await store.forget(key.digest)
        return answer
