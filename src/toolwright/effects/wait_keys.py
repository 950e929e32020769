"""The keys of waits, and the meaning of a resolution for a call. Owns signing and reading keys; does not own storing
waits.

A key is the name of a wait in text, signed with a secret of the store: it can be given to the outside world, and cannot
be forged.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

import msgspec

from toolwright.errors import KeyRefused
from toolwright.stores.contracts.waits import BY_CALL, Resolution, WaitKey
from toolwright.tools.outcome import Failure

_PREFIX = "twk1"


def failure_of(resolution: Resolution, what: str) -> Failure:
    """The failure of a wait that did not end well, for the waiting call."""
    if resolution.failure is not None:
        return resolution.failure
    if resolution.status == "expired":
        return expired(what)
    return Failure(
        category="unavailable",
        code="wait_cancelled",
        message=f"The wait for {what} was cancelled{f': {resolution.reason}' if resolution.reason else ''}",
        source="runtime",
    )


def expired(what: str) -> Failure:
    """The failure of a wait that came to its deadline."""
    return Failure(
        category="timeout", code="expired", message=f"The wait for {what} came to its deadline", source="runtime"
    )


def was_answered(resolution: Resolution | None) -> bool:
    """True when a wait was resolved and that was acknowledged: it decides the outcome of the call."""
    return resolution is not None and resolution.by != BY_CALL


class KeyRing:
    """Signs the keys of waits and knows its own again."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def write(self, key: WaitKey) -> str:
        """The key in text, signed. The same wait always has the same."""
        body = _text(msgspec.msgpack.encode(key))
        return f"{_PREFIX}.{body}.{self._signature(body)}"

    def read(self, text: str) -> WaitKey:
        """The wait that a key names.

        Raises:
            KeyRefused: it is not one of this store's keys.
        """
        parts = text.split(".") if isinstance(text, str) and text.isascii() else []
        if len(parts) != 3 or parts[0] != _PREFIX:
            raise KeyRefused("The key was not made by this store; pass it on unchanged", "forged")
        # In constant time: the duration must not reveal how much of a guess is right.
        if not hmac.compare_digest(self._signature(parts[1]), parts[2]):
            raise KeyRefused("The key was not signed by this store; it is altered, or another store's", "forged")
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), type=WaitKey)

    def _signature(self, body: str) -> str:
        return _text(hmac.digest(self._secret, f"{_PREFIX}.{body}".encode(), hashlib.sha256))


def derived_key(secret: bytes, purpose: str) -> bytes:
    """A key of 32 bytes that is derived from a secret for one purpose; it reveals nothing of the secret."""
    return hmac.digest(secret, f"toolwright derived key: {purpose}".encode(), hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
