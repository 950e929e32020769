"""`Idempotency-Key`. Owns reading it, and the ids that are derived from it: work that is started under such an id is
the same work when the request comes again, in any process."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from toolwright.http.access.caller import Caller
from toolwright.http.problems import Problem

HEADER = "idempotency-key"
LONGEST = 255


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The key of a request. The same text of another caller, or for another path, is another key."""

    digest: str

    def derive(self, prefix: str) -> str:
        """An id that every request with this key gets."""
        return f"{prefix}{self.digest[:40]}"


def read_key(given: str | None, caller: Caller, method: str, path: str) -> IdempotencyKey | None:
    """The key that a request gives; None without one.

    Raises:
        Problem: it is not usable.
    """
    if given is None:
        return None
    if not 0 < len(given) <= LONGEST or not given.isprintable():
        raise Problem(
            400, "bad_idempotency_key", f"The Idempotency-Key is not usable; use 1 to {LONGEST} printable characters"
        )
    parts = "\0".join((caller.token or caller.name, method, path, given))
    return IdempotencyKey(hashlib.sha256(parts.encode("utf-8", "surrogateescape")).hexdigest())
