"""The secrets of a session that this process knows. Owns which values are redacted, and when they are read from the
store.

A secret that is written or read here becomes known, and so does one that a call gives to its tool. A secret that was
replaced or deleted, or given to a call, stays known for a while: a tool may still hold it. Known secrets are compiled
in a thread, before anything can use them, and only the new ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from toolwright import jsonx
from toolwright.calls.redact import AT_ONCE
from toolwright.calls.redactor import AtOnce, Redactor
from toolwright.errors import SecretsError, ServiceError
from toolwright.large_json import decode_text, encode_in_pieces
from toolwright.log_fields import log_fields
from toolwright.session.secrets.encodings import LONGEST, SHORTEST
from toolwright.session.secrets.log_filter import guard_logs
from toolwright.session.secrets.secret_search import Pair, Patterns, Scrubber, Shard, compiled, require_library
from toolwright.session.secrets.vault import Vault, keep_fingerprints, read_sealed, write_sealed
from toolwright.stores.contracts.sessions import Sealed, SecretStore
from toolwright.tools.outcome import encodable, told

log = logging.getLogger("toolwright.session")

FORMER = 100
"""How many values that were replaced or deleted, or given to calls, stay known."""
FORMER_BYTES = 256 * 1024
"""How many characters these have together, at most."""
MOST_TO_FIND = 40_000
"""How much can be looked for in one pass: a short secret counts for about 20, and each line of a long one for as many
as 10."""
_SEARCHED = 8
"""How many long values are remembered with the result of searching them."""
_BY_CHANCE = 6
"""The length of the shortest form that is not found by chance in random bytes."""


class KnownSecrets:
    """`Redactor` and `Keeper` of one session. `changed` gets it once there is something to redact, and not before."""

    def __init__(
        self, session: str, vault: Vault, changed: Callable[[Redactor], None], store: SecretStore | None = None
    ) -> None:
        self.vault = vault
        self._session = session
        self._changed = changed
        self._own: dict[Pair, None] = {}
        self._shards: tuple[Shard, ...] = ()
        self._inherited: dict[Any, tuple[Shard, ...]] = {}
        self._heirs: weakref.WeakSet[KnownSecrets] = weakref.WeakSet()
        self._current: dict[str, str] = {}
        self._patterns = Patterns(())
        self._given: list[Pair] = []
        # Pairs with the name of a parameter, as calls gave them: the name of a secret of the session wins over it.
        self._arguments: set[Pair] = set()
        self._loading: asyncio.Future[None] | None = None
        self._lock = asyncio.Lock()
        # Where the secrets of the session are stored; None in memory, where a key of fingerprints need not be stored.
        self._store = store
        self._searched: dict[tuple[Patterns, bytes], bytes | None] = {}

    # --- which there are

    async def learn(self, name: str, value: str) -> None:
        """From now on this value is redacted."""
        async with self._lock:
            self._current[name] = value
            await self._compile([(name, value)])

    async def learn_new(self, name: str, value: str) -> None:
        """The same for a value that is about to be set.

        Raises:
            ServiceError: it would be too much to look for.
        """
        async with self._lock:
            before = self._current.get(name)
            self._current[name] = value
            try:
                await self._compile([(name, value)], most=MOST_TO_FIND)
            except BaseException:
                self.restore(name, before)
                raise

    def current(self, name: str) -> str | None:
        """The value that a secret has, as far as this process knows."""
        return self._current.get(name)

    def restore(self, name: str, value: str | None) -> None:
        """It could not be set: another value is one of the former now."""
        if value is None:
            self._current.pop(name, None)
        else:
            self._current[name] = value

    def learn_at_once(self, pairs: Iterable[Pair]) -> None:
        """Redact these values from now on. It takes its time, and nothing else happens meanwhile."""
        if new := self._new(pairs):
            own, gone = self._with(new)
            self._install(own, compiled(self._shards, [pair for pair in new if pair in own], gone))

    async def _compile(self, pairs: Iterable[Pair], most: int | None = None) -> None:
        pairs = list(pairs)
        while new := self._new(pairs):
            before, (own, gone) = self._shards, self._with(new)
            kept = [pair for pair in new if pair in own]
            shards = await asyncio.to_thread(compiled, before, kept, gone)
            if most is not None and sum(shard.size for shard in shards) > most:
                raise ServiceError(
                    "The secrets of the session are too many to be looked for, or have too many lines; "
                    "delete some, or keep a long one elsewhere",
                    "quota",
                )
            if self._shards is before:  # else others were learnt at once meanwhile, and are not among these
                self._install(own, shards)
                break

    def _new(self, pairs: Iterable[Pair]) -> list[Pair]:
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._own]
        if new:
            require_library()  # A secret that could not be redacted must not be known.
        return new

    def _with(self, new: list[Pair]) -> tuple[dict[Pair, None], set[Pair]]:
        """The known secrets after adding the new ones, and the former ones that are no longer known."""
        own = dict.fromkeys([*self._own, *new])
        named = self._named(own)
        gone = {pair for pair in self._arguments if pair[1] in named and self._current.get(pair[0]) != pair[1]}
        own = {pair: None for pair in own if pair not in gone}
        former = [pair for pair in own if self._current.get(pair[0]) != pair[1]]
        count, size = 0, 0
        for pair in reversed(former):
            count, size = count + 1, size + len(pair[1])
            if count > FORMER or (size > FORMER_BYTES and count > 1):
                gone.add(pair)
                del own[pair]
        return own, gone

    def _named(self, own: Iterable[Pair]) -> set[str]:
        """The values among these that secrets of the session have now."""
        return {value for name, value in own if self._current.get(name) == value}

    def _install(self, own: dict[Pair, None], shards: tuple[Shard, ...]) -> None:
        self._own, self._shards = own, shards
        self._arguments = {pair for pair in self._arguments if pair in own or pair in self._given}
        self._redact_all()

    # --- secrets that calls give to their tools

    def learn_argument(self, name: str, value: object, *, at_once: AtOnce | None) -> bool:
        texts = list(_texts(value))
        if len(texts) > FORMER or sum(map(len, texts)) > LONGEST:
            raise ServiceError(
                f"The secret argument {name!r} is too long to be redacted; use at most {LONGEST} characters, in at "
                f"most {FORMER} texts",
                "quota",
            )
        named = self._named(self._own)
        pairs = [(name, text) for text in texts if len(text.strip()) >= SHORTEST and text not in named]
        self._arguments.update(pair for pair in pairs if pair not in self._own)
        with contextlib.suppress(SecretsError):  # Without the library, a tool that takes secrets must not reveal them.
            if at_once is not None:
                new = self._new(pairs)
                at_once.take([text for _, text in new])
                self.learn_at_once(new)
            else:
                self._given += self._new(pairs)
        # The fingerprint of the call's arguments is made next, and its key must be stored before the call is journaled.
        return not self._given and (self._store is None or self.vault.keeps_fingerprints)

    @property
    def behind(self) -> bool:
        return bool(self._given)

    async def catch_up(self) -> None:
        if self._store is not None and not self.vault.keeps_fingerprints:
            await keep_fingerprints(self._store, self.vault)
        async with self._lock:
            while self._given:
                given, self._given = self._given, []
                try:
                    # At most the number that stays known, or a batch could give any number to be compiled.
                    await self._compile(given[-FORMER:])
                except BaseException:
                    # Some may be those of a batch that waits for its turn here.
                    self._given = [*given, *self._given]
                    raise

    # --- secrets of its parent that a child session knows

    def pass_on(self, heir: Any) -> None:
        """From now on values that are redacted here are redacted there, too: a tool takes its knowledge into a child
        session."""
        self._heirs.add(heir)
        heir._inherit(self, self._all())

    def _all(self) -> tuple[Shard, ...]:
        """The compiled secrets of this session and of those it inherits from, each once."""
        shards = dict.fromkeys(self._shards)
        for each in self._inherited.values():
            shards.update(dict.fromkeys(each))
        return tuple(shards)

    def _inherit(self, parent: KnownSecrets, shards: tuple[Shard, ...]) -> None:
        if shards != self._inherited.get(id(parent), ()):
            self._inherited[id(parent)] = shards
            self._redact_all()

    def _redact_all(self) -> None:
        shards = self._all()
        self._patterns = Patterns(shards)
        guard_logs(self)
        self._changed(self)
        for heir in list(self._heirs):
            heir._inherit(self, shards)

    def forget(self, name: str) -> None:
        """It was deleted: its value is one of the former now."""
        value = self._current.pop(name, None)
        if value is not None and (name, value) in self._own:
            del self._own[name, value]
            self._own[name, value] = None  # the latest of the former ones

    @property
    def redactor(self) -> Redactor | None:
        """Removes the secrets from values; None as long as there are none."""
        return self if self._shards or self._inherited else None

    async def load(self, store: SecretStore) -> None:
        """Read the secrets of the session, once.

        Raises:
            StoreError: the store could not be read.
            SecretsError: a library is missing.
        """
        if self._loading is None or (self._loading.done() and _failed(self._loading)):
            self._loading = asyncio.ensure_future(self._load(store))
        await asyncio.shield(self._loading)

    async def reload(self, store: SecretStore) -> None:
        """Read them again, as `load` does: all were replaced. The values they had stay known for a while."""
        for name in list(self._current):
            self.forget(name)
        self._loading = None
        await self.load(store)

    async def _load(self, store: SecretStore) -> None:
        rows = await store.all_secrets(self._session)
        async with self._lock:
            new = await asyncio.to_thread(self._opened, [row for row in rows if row[0] not in self._current])
            self._current.update(new)
            await self._compile(new.items())

    def _opened(self, rows: list[tuple[str, Sealed]]) -> dict[str, str]:
        found = {}
        for name, row in rows:
            try:
                found[name] = self.vault.open(self._session, name, row)
            except SecretsError as error:
                # A secret that this process cannot open is out of reach of its tools.
                log.warning(
                    "A secret cannot be redacted: %s",
                    error,
                    extra=log_fields("secrets.not_redacted", session=self._session),
                )
        return found

    # --- `Keeper`

    def seal(self, name: str, payload: bytes) -> bytes:
        row = self.vault.seal(self._session, f"step {name}", payload.decode())
        return write_sealed(row)

    def unseal(self, name: str, payload: bytes) -> bytes:
        return self.vault.open(self._session, f"step {name}", read_sealed(payload)).encode()

    def fingerprint(self, name: str, payload: bytes) -> str:
        return self.vault.fingerprint(self._session, f"argument {name}", payload.decode())

    # --- `Redactor`

    def text(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        redacted = self.patterns().redact(data)
        return text if redacted is data else redacted.decode("utf-8", "surrogatepass")

    def content(self, data: bytes, *, sparing: bool) -> bytes:
        return self.patterns().redact(data, _BY_CHANCE if sparing else 0)

    def json(self, payload: bytes) -> bytes:
        if len(payload) <= AT_ONCE:
            return self._json(payload)
        # Long values are searched in a thread, once: later users may be on the loop.
        key = (self.patterns(), payload)
        searched = self._searched
        if key in searched:
            return searched[key] or payload
        redacted = self._json(payload)
        kept = {} if len(searched) >= _SEARCHED else searched
        self._searched = {**kept, key: None if redacted is payload else redacted}
        return redacted

    def _json(self, payload: bytes) -> bytes:
        patterns = self.patterns()
        escaped = b"\\" in payload  # Escaped text looks different in JSON, and only there.
        one_text = payload[:1] == b'"'
        clean = (escaped and one_text) or patterns.redact(payload) is payload
        if clean and not escaped:
            return payload
        try:
            value = decode_text(payload) if one_text else jsonx.decode(payload)
            changed = self.value(value)
        except (RecursionError, jsonx.DecodeError):
            return jsonx.encode(self.text(payload.decode("utf-8", "replace")))
        if clean and changed == value:
            return payload
        redacted = encode_in_pieces(changed, sys.maxsize)
        left = patterns.without_handles(redacted)
        if patterns.redact(left) is left:
            return redacted
        # It stands across the parts of the value, or is one that has no letters to change, such as `true`.
        return jsonx.encode(self.text(redacted.decode()))

    def value(self, value: object) -> object:
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

    def _shown(self, value: object) -> object:
        """A value that a tool reports and that is not JSON: unchanged if its text has no secret, else its redacted
        text."""
        try:
            written = encodable(repr(value))
        except Exception as error:  # the tool's code
            written = told(error)
        return value if (shown := self.text(written)) is written else shown

    def stream(self) -> TextStream:
        return TextStream(self)

    def patterns(self) -> Patterns:
        """The patterns to search for now."""
        return self._patterns

    def __reduce__(self) -> NoReturn:
        raise TypeError("known secrets are not pickled")


class TextStream:
    """`Stream` over the secrets of a session, also those it learns while the stream is open."""

    __slots__ = ("_known", "_scrubber")

    def __init__(self, known: KnownSecrets) -> None:
        self._known = known
        self._scrubber = Scrubber()

    def feed(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return self._scrubber.feed(self._known.patterns(), data).decode("utf-8", "surrogatepass")

    def end(self) -> str:
        return self._scrubber.end(self._known.patterns()).decode("utf-8", "surrogatepass")


def _texts(value: object) -> Iterator[str]:
    """The texts of a value given as JSON, and its numbers as they are written."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for each in value if isinstance(value, list) else value.values():
            yield from _texts(each)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield repr(value)


def _failed(future: asyncio.Future[None]) -> bool:
    return future.cancelled() or future.exception() is not None
