"""The secrets of a session that this process knows. Owns what is redacted, and when it is read from the store.

Whoever writes or reads a secret here makes it known, and so does a call that gives one to a tool. One that was replaced
or deleted, or given to a call, stays known for a while: a tool may still hold it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import msgspec

from toolwright import jsonx
from toolwright.calls.redact import SEALED, Redactor
from toolwright.errors import SecretsError
from toolwright.session.forms import SHORTEST
from toolwright.session.logs import guard_logs
from toolwright.session.redaction import Patterns, Scrubber, require_library
from toolwright.session.secrets import SecretStore
from toolwright.session.vault import Sealed, Vault
from toolwright.tools.outcome import encodable, told

log = logging.getLogger("toolwright.session")

FORMER = 100
"""How many values that were replaced or deleted, or given to calls, stay known."""
_BY_CHANCE = 6
"""Bytes of the shortest form that does not turn up by chance where all bytes are as likely."""


class KnownSecrets:
    """`Redactor` and `Keeper` of one session. `changed` gets it once there is something to redact, and not before."""

    def __init__(self, session: str, vault: Vault, changed: Callable[[Redactor], None]) -> None:
        self.vault = vault
        self._session = session
        self._changed = changed
        self._own: dict[tuple[str, str], None] = {}
        self._inherited: dict[tuple[str, str], None] = {}
        self._pairs: dict[tuple[str, str], None] = {}
        self._heirs: weakref.WeakSet[KnownSecrets] = weakref.WeakSet()
        self._current: dict[str, str] = {}
        self._patterns: tuple[dict[tuple[str, str], None], Patterns] | None = None
        self._loading: asyncio.Future[None] | None = None

    # --- which there are

    def learn(self, name: str, value: str) -> None:
        """From now on this value is redacted."""
        self._current[name] = value
        self._add((name, value))

    def learn_argument(self, name: str, value: Any) -> None:
        """Part of `Keeper`."""
        with contextlib.suppress(SecretsError):  # Without the library, whoever takes secrets must not tell them.
            for text in _texts(value):
                if len(text.strip()) >= SHORTEST:
                    self._add((name, text))

    def _add(self, pair: tuple[str, str]) -> None:
        if pair not in self._own:
            require_library()  # Whoever could not redact it must not know it.
            pairs = [*self._own, pair]
            former = [pair for pair in pairs if self._current.get(pair[0]) != pair[1]][:-FORMER]
            self._own = dict.fromkeys(pair for pair in pairs if pair not in former)
            self._redact_all()

    def pass_on(self, heir: Any) -> None:
        """From now on what is redacted here is redacted there, too: a tool takes what it knows into a child session."""
        self._heirs.add(heir)
        heir._inherit(self._pairs)

    def _inherit(self, pairs: dict[tuple[str, str], None]) -> None:
        if pairs.keys() - self._inherited.keys():
            self._inherited = {**self._inherited, **pairs}
            self._redact_all()

    def _redact_all(self) -> None:
        self._pairs = {**self._own, **self._inherited}
        guard_logs(self)
        self._changed(self)
        for heir in list(self._heirs):
            heir._inherit(self._pairs)

    def forget(self, name: str) -> None:
        """It was deleted: its value is one of the former now."""
        self._current.pop(name, None)

    @property
    def redactor(self) -> Redactor | None:
        """What takes them out of things; None for as long as there is nothing to take out."""
        return self if self._pairs else None

    async def load(self, store: SecretStore) -> None:
        """Read what the session has, once.

        Raises:
            StoreError: the store could not be read.
            SecretsError: a library is missing.
        """
        if self._loading is None or (self._loading.done() and _failed(self._loading)):
            self._loading = asyncio.ensure_future(self._load(store))
        await asyncio.shield(self._loading)

    async def _load(self, store: SecretStore) -> None:
        for name, row in await store.all_secrets(self._session):
            if name in self._current:
                continue
            try:
                value = self.vault.open(self._session, name, row)
            except SecretsError as error:
                # What this process can not open, no tool of it can have from here.
                log.warning("A secret can not be redacted: %s", error)
                continue
            self.learn(name, value)

    # --- `Keeper`

    def seal(self, name: str, payload: bytes) -> bytes:
        """Part of `Keeper`."""
        row = self.vault.seal(self._session, f"step {name}", payload.decode())
        return SEALED + jsonx.encode(row) + b"}"

    def unseal(self, name: str, payload: bytes) -> bytes:
        """Part of `Keeper`."""
        row = msgspec.json.decode(payload[len(SEALED) : -1], type=Sealed)
        return self.vault.open(self._session, f"step {name}", row).encode()

    def fingerprint(self, name: str, payload: bytes) -> str:
        """Part of `Keeper`."""
        return self.vault.fingerprint(self._session, f"argument {name}", payload.decode())

    # --- `Redactor`

    def text(self, text: str) -> str:
        """Part of `Redactor`."""
        data = text.encode("utf-8", "surrogatepass")
        redacted = self.patterns().redact(data)
        return text if redacted is data else redacted.decode("utf-8", "surrogatepass")

    def content(self, data: bytes, *, sparing: bool) -> bytes:
        """Part of `Redactor`."""
        return self.patterns().redact(data, _BY_CHANCE if sparing else 0)

    def json(self, payload: bytes) -> bytes:
        """Part of `Redactor`."""
        patterns = self.patterns()
        escaped = b"\\" in payload  # What is escaped looks different in JSON, and only there.
        one_text = payload[:1] == b'"'
        clean = (escaped and one_text) or patterns.redact(payload) is payload
        if clean and not escaped:
            return payload
        try:
            value = jsonx.decode(payload)
            changed = self.value(value)
        except (RecursionError, jsonx.DecodeError):
            return jsonx.encode(self.text(payload.decode("utf-8", "replace")))
        if clean and changed == value:
            return payload
        redacted = jsonx.encode(changed)
        left = patterns.without_handles(redacted)
        if patterns.redact(left) is left:
            return redacted
        # It stands across the parts of the value, or is one that has no letters to change, such as `true`.
        return jsonx.encode(self.text(redacted.decode()))

    def value(self, value: Any) -> Any:
        """Part of `Redactor`."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (int, float)):
            written = repr(value)
            return value if (shown := self.text(written)) is written else shown
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if isinstance(value, dict):
            return {self.value(key): self.value(each) for key, each in value.items()}
        return self._shown(value)

    def _shown(self, value: Any) -> Any:
        """Something that a tool reports and that is no JSON: as it is where it shows nothing, else what it shows."""
        try:
            written = encodable(repr(value))
        except Exception as error:  # the tool's code
            written = told(error)
        return value if (shown := self.text(written)) is written else shown

    def stream(self) -> TextStream:
        """Part of `Redactor`."""
        return TextStream(self)

    def patterns(self) -> Patterns:
        """What to look for now, compiled when it is first needed after a change."""
        pairs, known = self._pairs, self._patterns
        if known is None or known[0] is not pairs:
            known = self._patterns = (pairs, Patterns(pairs))
        return known[1]

    def __reduce__(self) -> NoReturn:
        raise TypeError("known secrets are not pickled")


class TextStream:
    """`Stream` over what a session knows, also what it learns while the stream goes on."""

    __slots__ = ("_known", "_scrubber")

    def __init__(self, known: KnownSecrets) -> None:
        self._known = known
        self._scrubber = Scrubber()

    def feed(self, text: str) -> str:
        """Part of `Stream`."""
        data = text.encode("utf-8", "surrogatepass")
        return self._scrubber.feed(self._known.patterns(), data).decode("utf-8", "surrogatepass")

    def end(self) -> str:
        """Part of `Stream`."""
        return self._scrubber.end(self._known.patterns()).decode("utf-8", "surrogatepass")


def _texts(value: Any) -> Iterator[str]:
    """The texts of what was given as JSON, and its numbers as they are written."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for each in value if isinstance(value, list) else value.values():
            yield from _texts(each)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield repr(value)


def _failed(future: asyncio.Future[None]) -> bool:
    return future.cancelled() or future.exception() is not None
