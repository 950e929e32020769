"""Secrets. Owns the client of a session's secrets, and the verbs a store must offer for them; not their encryption."""

from __future__ import annotations

from typing import NoReturn

from toolwright.calls.redact import off_loop
from toolwright.clock import Clock
from toolwright.errors import SecretsError, ServiceError
from toolwright.session.secrets.encodings import LONGEST, SHORTEST
from toolwright.session.secrets.redactor import KnownSecrets
from toolwright.session.secrets.vault import Vault, keep_fingerprints, read_sealed, write_sealed
from toolwright.session.services.quotas import Marker, require_name
from toolwright.stores.contracts.sessions import Quota, SecretStore
from toolwright.tools.outcome import encodable
from toolwright.tools.service_protocols import KeyInfo


class Secrets:
    """The secrets client of one session, for its host or for one attempt of a call."""

    def __init__(
        self, store: SecretStore, session: str, marker: Marker, clock: Clock, quota: Quota, known: KnownSecrets
    ) -> None:
        self._store = store
        self._session = session
        self._marker = marker
        self._clock = clock
        self._quota = quota
        self._known = known

    async def get(self, name: str) -> str | None:
        """The value of a secret, or None.

        Raises:
            SecretsError: it cannot be opened.
        """
        row = await self._store.get_secret(self._session, require_name("secret name", name))
        if row is None:
            return None
        value = self._known.vault.open(self._session, name, row)
        await self._known.learn(name, value)
        return value

    async def set(self, name: str, value: str) -> None:
        """Write a value, replacing the old one.

        Raises:
            ServiceError: the name or the value is not usable, or the session's quota is used up.
            SecretsError: it cannot be sealed.
        """
        _require_value(require_name("secret name", name), value)
        vault = self._known.vault
        row = vault.seal(self._session, name, value)
        vault.fingerprint(self._session, name, value)
        if not vault.keeps_fingerprints:
            await keep_fingerprints(self._store, vault)
        mark = self._marker.mark("secrets.set", name, vault.fingerprint(self._session, name, value))
        before = self._known.current(name)
        await self._known.learn_new(name, value)  # Before it is written: a tool that sees it must not show it.
        try:
            await self._store.set_secret(self._session, name, row, self._clock.now(), self._quota, mark)
        except Exception:  # where this is cancelled, it is written nevertheless
            self._known.restore(name, before)
            raise

    async def delete(self, name: str) -> bool:
        """Remove a secret; False when there was none."""
        mark = self._marker.mark("secrets.delete", require_name("secret name", name))
        deleted = await self._store.delete_secret(self._session, name, mark)
        self._known.forget(name)
        return deleted

    async def list(self) -> list[KeyInfo]:
        """The names, in order, and their instants."""
        return await self._store.list_secrets(self._session)

    async def hides(self, text: str) -> bool:
        """True when a text has a secret of the session in it, in any of its usual encodings."""
        redactor = self._known.redactor
        return redactor is not None and await off_loop(len(text), redactor.text, text) is not text

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secrets client is not pickled; take it from the session")


async def rotate(store: SecretStore, vault: Vault, page: int = 200) -> int:
    """Move every secret and every sealed result of a step to the current master key, and return how many that were.

    It can be cut off and done again.

    Raises:
        SecretsError: some cannot be opened; all others were moved.
    """
    moved, stuck, after = 0, [], ("", "")
    while rows := await store.secrets_after(after, page):
        changes = []
        for session, name, row in rows:
            try:
                changed = vault.rewrap(session, name, row)
            except SecretsError as error:
                stuck.append(error)
                continue
            if changed is not None:
                changes.append((session, name, row, changed))
        if changes:
            moved += await store.rewrap_secrets(changes)
        after = rows[-1][:2]
    moved += await _rotate_steps(store, vault, page, stuck)
    try:
        await keep_fingerprints(store, vault)
    except SecretsError as error:
        stuck = stuck or [error]
    if stuck:
        raise SecretsError(f"{len(stuck)} secrets stay under their old master key, the others were moved; {stuck[0]}")
    return moved


async def _rotate_steps(store: SecretStore, vault: Vault, page: int, stuck: list[SecretsError]) -> int:
    moved, after = 0, ("", "", "", "")
    while rows := await store.sealed_steps_after(after, page):
        changes = []
        for key, payload in rows:
            session, _, _, label = key
            try:
                row = read_sealed(payload)
                changed = vault.rewrap(session, f"step {label.partition(':')[2]}", row)
            except SecretsError as error:
                stuck.append(error)
                continue
            if changed is not None:
                changes.append((key, payload, write_sealed(changed)))
        if changes:
            moved += await store.rewrap_steps(changes)
        after = rows[-1][0]
    return moved


def _require_value(name: str, value: str) -> None:
    """Refuse a value that could not be stored or redacted. No message shows it."""
    if not isinstance(value, str) or encodable(value) != value:
        raise ServiceError(f"The value of secret {name!r} is not usable; use text")
    if len(value.strip()) < SHORTEST:
        raise ServiceError(
            f"The value of secret {name!r} is too short to be told from other text, and could not be redacted; "
            f"use at least {SHORTEST} characters"
        )
    if len(value.encode()) > LONGEST:
        raise ServiceError(f"The value of secret {name!r} is too long; use at most {LONGEST} bytes", "quota")
    if value in name:
        raise ServiceError("The name of a secret has its value in it, and names are shown; use another name")
