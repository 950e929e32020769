"""What calls need of a session that has secrets. The session's own are in `toolwright.session.secrets`.

`redact.py` says where secrets are looked for in what a call takes and gives.
"""

from __future__ import annotations

from typing import Any, Protocol

from toolwright.errors import ServiceError


class AtOnce:
    """How much a batch that a tool starts without waiting may still have compiled on the event loop."""

    __slots__ = ("characters", "values")

    def __init__(self) -> None:
        self.characters = 16 * 1024
        self.values = 16

    def take(self, values: list[str]) -> None:
        """Take room for some values.

        Raises:
            ServiceError: there is not enough.
        """
        self.characters -= sum(map(len, values))
        self.values -= len(values)
        if values and (self.characters < 0 or self.values < 0):
            raise ServiceError(
                "A batch that a tool starts with start_batch may bring 16 new secrets of 16384 characters together; "
                "use `await session.run_batch(...)`, which takes more, or several batches",
                "quota",
            )


class Stream(Protocol):
    """A stream of text, of which secrets are taken out also where they are split."""

    def feed(self, text: str) -> str:
        """What can be shown now."""
        ...

    def end(self) -> str:
        """What was held back."""
        ...


class Redactor(Protocol):
    """Takes the secrets of a session out of things: each is replaced by its handle. Any thread may use it."""

    def text(self, text: str) -> str: ...

    def json(self, payload: bytes) -> bytes:
        """Of JSON, which stays JSON: numbers and keys are looked at too."""
        ...

    def value(self, value: object) -> Any:
        """Of a value that a tool gave, whatever it is."""
        ...

    def content(self, data: bytes, *, sparing: bool) -> bytes:
        """Of bytes; `sparing` leaves alone what is so short that it turns up by chance in a picture."""
        ...

    def stream(self) -> Stream: ...


class Keeper(Protocol):
    """Seals what must be written down with a secret in it. It is there also where there is nothing to redact."""

    def seal(self, name: str, payload: bytes) -> bytes:
        """JSON that tells nothing of the JSON it is made of."""
        ...

    def unseal(self, name: str, payload: bytes) -> bytes: ...

    def fingerprint(self, name: str, payload: bytes) -> str:
        """A keyed hash: equal payloads have equal fingerprints, and the payload cannot be derived from one.

        Raises:
            SecretsError: there is no usable key.
        """
        ...

    def learn_argument(self, name: str, value: object, *, at_once: AtOnce | None) -> bool:
        """Redact the value of a secret argument from now on, if it is long enough to be searched for.

        With `at_once` that is done before this returns; otherwise `catch_up` must be awaited before its tool runs,
        unless this returns True.

        Raises:
            ServiceError: it is too long, or too long to be done at once.
        """
        ...

    @property
    def behind(self) -> bool:
        """True while something is put off."""
        ...

    async def catch_up(self) -> None:
        """Redact from now on the values that `learn_argument` put off."""
        ...

    def pass_on(self, heir: object) -> None:
        """Let the redactor of a child session redact the values of this session, too."""
        ...
