"""Identifiers. Owns how new ids are made; does not own what they name."""

from __future__ import annotations

import os
import time
from itertools import count

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_run = "".join(_ALPHABET[byte & 31] for byte in os.urandom(12))
_next = count().__next__
_last = 0


def new_id(prefix: str) -> str:
    """Return an id no other call of this function returns, in this process or another."""
    return f"{prefix}_{_run}{_next()}"


def uuid7() -> str:
    """Return a UUIDv7 as text. Ids of one process sort in the order they were made, others by the millisecond."""
    global _last
    # The spare bits of the format hold parts of a millisecond, so that ids made together keep their order.
    _last = stamp = max(time.time_ns() * 4096 // 1_000_000, _last + 1)
    value = (stamp >> 12 << 80) | (0x7 << 76) | ((stamp & 0xFFF) << 64) | int.from_bytes(os.urandom(8), "big")
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _renew_after_fork() -> None:
    global _run, _next
    _run = "".join(_ALPHABET[byte & 31] for byte in os.urandom(12))
    _next = count().__next__


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
