"""Effects. Owns the name of an effect, the hash of its input, and the record of its end; does not own storing it.

An effect is something a call does that is not deterministic: a step, a sleep, a wait. Its replay key is the identity
of the call and a name within it, never a position: work that runs side by side finds its past in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from toolwright import jsonx
from toolwright.errors import ReplayMismatch
from toolwright.stores.contracts.journal import CallKey, Kept

EffectKind = Literal["step", "sleep", "receive", "question"]


class Effect(Struct, frozen=True, gc=False):
    """One effect of a call. `input` is the canonical JSON of its input, without secrets.

    `given` is the same with secrets, where there are any: before they were known as secrets, it was stored like that.
    """

    call: CallKey
    kind: EffectKind
    name: str
    input: bytes = b"null"
    given: bytes | None = None

    @property
    def label(self) -> str:
        """Its name within its call."""
        return f"{self.kind}:{self.name}"


def require_same_input(effect: Effect, kept: Kept) -> None:
    """Refuse a replay key that was used for something else.

    Raises:
        ReplayMismatch: the input differs; the first places where it does are listed.
    """
    if kept.input in (effect.input, effect.given):
        return
    differing = list(differences("$", jsonx.decode(kept.input), jsonx.decode(effect.input)))[:5]
    raise ReplayMismatch(
        f"The {effect.kind} {effect.name!r} of call {effect.call.call_id!r} was run before with something else "
        f"({'; '.join(differing)}); give it a different name",
        differing,
    )


def differences(path: str, before: object, now: object) -> Iterator[str]:
    """Where two JSON values differ, one line for each place."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *now}):
            if before.get(name) != now.get(name) or (name in before) != (name in now):
                yield from differences(f"{path}.{name}", before.get(name), now.get(name))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for place, (old, new) in enumerate(zip(before, now, strict=True)):
            if old != new:
                yield from differences(f"{path}[{place}]", old, new)
    else:
        yield f"{path}: {_short(before)} before, {_short(now)} now"


def _short(value: object) -> str:
    text = jsonx.encode(value).decode()
    return text if len(text) <= 60 else text[:59] + "…"
