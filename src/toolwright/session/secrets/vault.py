"""Sealed values. Owns their encryption: AES-256-GCM, a fresh key for each value, that key sealed by a master key.

The name and owner of a value are authenticated: a row that was changed, or put in the place of another, is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, NoReturn

import msgspec

from toolwright import jsonx
from toolwright.calls.redact import SEALED
from toolwright.errors import SecretsError
from toolwright.session.secrets.master_keys import SIZE, KeyProvider
from toolwright.stores.contracts.sessions import Sealed, SecretStore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE = 12
_FINGERPRINTS = ("", "key of fingerprints")  # no session has this id


class Vault:
    """Seals and opens the values of a runtime's sessions."""

    __slots__ = ("_fingerprints", "_kept", "_keys")

    def __init__(self, keys: KeyProvider, fingerprints: Sealed | None = None) -> None:
        self._keys = keys
        self._kept = fingerprints
        self._fingerprints = b""

    @property
    def keys(self) -> KeyProvider:
        """The master keys."""
        return self._keys

    def seal(self, session: str, name: str, value: str) -> Sealed:
        """Seal a value with the current master key.

        Raises:
            SecretsError: there is no usable key.
        """
        master, key = self._current()
        own = secrets.token_bytes(SIZE)
        wrapped = _encrypt(key, own, _bound("key", session, name, master))
        return Sealed(master, wrapped, _encrypt(own, value.encode(), _bound("value", session, name)))

    def open(self, session: str, name: str, row: Sealed) -> str:
        """The value of a row.

        Raises:
            SecretsError: its master key is not known, or it is not the row that was written.
        """
        own = self._own_key(session, name, row)
        return _decrypt(own, row.sealed, _bound("value", session, name), session, name, row.master).decode()

    def rewrap(self, session: str, name: str, row: Sealed) -> Sealed | None:
        """The row under the current master key; None when it is under it already.

        Raises:
            SecretsError: as for `open`.
        """
        master, key = self._current()
        if row.master == master:
            return None
        own = self._own_key(session, name, row)
        return Sealed(master, _encrypt(key, own, _bound("key", session, name, master)), row.sealed)

    def fingerprint(self, session: str, name: str, value: str) -> str:
        """A keyed hash: equal values have equal fingerprints, and without the master key no guess can be checked.

        The key of fingerprints is derived from the master key that was current when one was first needed. It is stored
        under the master key from then on, so that fingerprints stay the same when the master key is renewed.

        Raises:
            SecretsError: there is no usable key.
        """
        return hmac.new(self._own(), jsonx.encode([session, name, value]), hashlib.sha256).hexdigest()

    def _own(self) -> bytes:
        if not self._fingerprints:
            if self._kept is not None:
                # Where its master key is lost, earlier calls are not found again; new ones are.
                with contextlib.suppress(SecretsError):
                    self._fingerprints = bytes.fromhex(self.open(*_FINGERPRINTS, self._kept))
            if not self._fingerprints:
                self._fingerprints = hmac.digest(self._current()[1], b"toolwright fingerprints", hashlib.sha256)
        return self._fingerprints

    @property
    def keeps_fingerprints(self) -> bool:
        """True once the key of fingerprints is written down."""
        return self._kept is not None

    def fingerprints_to_keep(self) -> tuple[Sealed | None, Sealed] | None:
        """The key of fingerprints, as it is stored and as it must be stored now; None where nothing is to be
        written."""
        if self._kept is None:
            return (None, self.seal(*_FINGERPRINTS, self._fingerprints.hex())) if self._fingerprints else None
        changed = self.rewrap(*_FINGERPRINTS, self._kept)
        return None if changed is None else (self._kept, changed)

    def keep_fingerprints(self, row: Sealed) -> None:
        """It is stored so. If another process was first, its key is used from now on."""
        self._kept, self._fingerprints = row, b""

    def _current(self) -> tuple[str, bytes]:
        master = self._keys.current()
        key = self._keys.key(master)
        if not isinstance(key, bytes) or len(key) != SIZE:
            raise SecretsError(
                f"The current master key {master!r:.100} is not usable; let its provider give {SIZE} bytes"
            )
        return master, key

    def _own_key(self, session: str, name: str, row: Sealed) -> bytes:
        key = self._keys.key(row.master)
        if not isinstance(key, bytes) or len(key) != SIZE:
            raise SecretsError(
                f"The secret {name!r} of session {session!r} is sealed with the master key {row.master!r:.100}, which "
                "is not known; provide that key, and nothing is lost"
            )
        return _decrypt(key, row.wrapped, _bound("key", session, name, row.master), session, name, row.master)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a vault is not pickled; open a runtime where it is needed")


def _bound(*parts: str) -> bytes:
    """The data that a sealed text is bound to; as JSON, so that no two lists of parts look alike."""
    return jsonx.encode(["toolwright", 1, *parts])


def _encrypt(key: bytes, text: bytes, bound: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE)
    return nonce + bytes(_cipher(key).encrypt(nonce, text, bound))


def _decrypt(key: bytes, data: bytes, bound: bytes, session: str, name: str, master: str) -> bytes:
    cipher = _cipher(key)  # first: its error names the missing library
    from cryptography.exceptions import InvalidTag

    try:
        return bytes(cipher.decrypt(data[:_NONCE], data[_NONCE:], bound))
    except (InvalidTag, ValueError):
        raise SecretsError(
            f"The secret {name!r} of session {session!r} cannot be opened: its row was changed, or the key given as "
            f"{master!r:.100} is another one; provide the key that sealed it, or set the secret again"
        ) from None


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise SecretsError("Secrets need the library 'cryptography'; pip install 'toolwright[secrets]'") from error
    return AESGCM(key)


async def keep_fingerprints(store: SecretStore, vault: Vault) -> None:
    """Write down the key of fingerprints if it was made, or must be moved to the current master key."""
    if (change := vault.fingerprints_to_keep()) is not None:
        vault.keep_fingerprints(await store.keep_fingerprints(*change))


def write_sealed(row: Sealed) -> bytes:
    """The result of a step that is sealed, as JSON."""
    return SEALED + jsonx.encode(row) + b"}"


def read_sealed(payload: bytes) -> Sealed:
    """What `write_sealed` wrote.

    Raises:
        SecretsError: it is not that.
    """
    try:
        return msgspec.json.decode(payload[len(SEALED) : -1], type=Sealed)
    except msgspec.MsgspecError as error:
        raise SecretsError(f"The sealed result of a step cannot be read ({error}); the row was changed") from error
