"""Master keys. Owns where they come from; does not own the data sealed with them.

A key is 32 bytes, and its id is derived from it. Data sealed with a lost key is lost, so a key stays known until
`Runtime.rotate_secrets` has moved every secret to the current one.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, Protocol

from toolwright.errors import SecretsError

VARIABLE = "TOOLWRIGHT_MASTER_KEY"
SIZE = 32


class KeyProvider(Protocol):
    """Where master keys come from; write your own for a key service."""

    def current(self) -> str:
        """The id of the key that seals new data."""
        ...

    def key(self, key_id: str) -> bytes | None:
        """The 32 bytes of a key, or None when it is not known."""
        ...


class GivenKeys:
    """Keys that the program passes in; the first is the current one. Without any, a key that ends with the process."""

    __slots__ = ("_keys",)

    def __init__(self, *keys: bytes) -> None:
        for key in keys:
            if not isinstance(key, bytes) or len(key) != SIZE:
                raise SecretsError(f"A master key is not usable; use {SIZE} random bytes")
        self._keys = {key_id(key): key for key in keys or (secrets.token_bytes(SIZE),)}

    def current(self) -> str:
        return next(iter(self._keys))

    def key(self, key_id: str) -> bytes | None:
        return self._keys.get(key_id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(self._keys)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("master keys are not pickled; make them again where they are needed")


class EnvironmentKeys:
    """Keys from the environment: base64 of 32 bytes, several separated by commas, the first is the current one.

    They are read when one is first needed.
    """

    __slots__ = ("_keys", "variable")

    def __init__(self, variable: str = VARIABLE) -> None:
        self.variable = variable
        self._keys: GivenKeys | None = None

    def current(self) -> str:
        return self._read().current()

    def key(self, key_id: str) -> bytes | None:
        return self._read().key(key_id)

    def _read(self) -> GivenKeys:
        if self._keys is None:
            # The text is a key, or nearly one: no message may show it.
            keys = [_decoded(part.strip()) for part in os.environ.get(self.variable, "").split(",") if part.strip()]
            if not keys or None in keys:
                wrong = f"key {keys.index(None) + 1} in" if keys else "value of"
                raise SecretsError(
                    f"The {wrong} the environment's {self.variable} is not usable; use base64 of {SIZE} random bytes, "
                    "several separated by commas"
                )
            self._keys = GivenKeys(*(key for key in keys if key is not None))
        return self._keys

    def __repr__(self) -> str:
        return f"EnvironmentKeys({self.variable!r})"

    def __reduce__(self) -> tuple[type[EnvironmentKeys], tuple[str]]:
        return EnvironmentKeys, (self.variable,)


class KeyFile:
    """Keys in a file that only its owner may read, one a line in base64, the last is the current one.

    It is made when a key is first needed. `renew` adds a key; nothing is ever removed, and no key is lost where two
    processes do it at once.
    """

    __slots__ = ("_keys", "path")

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._keys: dict[str, bytes] = {}

    def current(self) -> str:
        if not self.path.exists():
            self._create()
        self._read()  # each time: another process may have renewed it
        if not self._keys:
            raise SecretsError(f"The key file {str(self.path)!r} has no key; restore it from a copy")
        return next(reversed(self._keys))

    def key(self, key_id: str) -> bytes | None:
        if key_id not in self._keys and self.path.exists():
            self._read()
        return self._keys.get(key_id)

    def renew(self) -> str:
        """Add a key, which is the current one from now on, and return its id."""
        self.current()  # refuses a file that is not usable
        line = _encoded(secrets.token_bytes(SIZE))
        with self._failing(), _opened(self.path, os.O_WRONLY | os.O_APPEND) as number:
            os.write(number, b"\n" + line + b"\n")
            os.fsync(number)
        return self.current()

    def _read(self) -> None:
        with self._failing(), _opened(self.path, os.O_RDONLY) as number:
            self._require_private(os.fstat(number))
            data = os.read(number, 1024 * 1024)
        found: dict[str, bytes] = {}
        for line in data[: data.rfind(b"\n") + 1].split():  # A line without its end was cut off by a crash.
            key = _decoded(line.decode("ascii", "replace"))
            if key is None:
                raise SecretsError(f"The key file {str(self.path)!r} is damaged; restore it from a copy")
            found[key_id(key)] = key
        self._keys = found

    def _require_private(self, status: os.stat_result) -> None:
        if os.name == "nt":
            return
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
            raise SecretsError(f"The key file {str(self.path)!r} is not a file of this user; choose another")
        if mode & 0o077:
            raise SecretsError(
                f"The key file {str(self.path)!r} may be read by others (mode {mode:04o}); "
                f"run chmod 600 on it, and renew the key if others may have read it"
            )

    def _create(self) -> None:
        """Make the file whole or not at all; where another process was first, its file stands."""
        draft = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}")
        with self._failing():
            try:
                with _opened(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as number:
                    os.write(number, _encoded(secrets.token_bytes(SIZE)) + b"\n")
                    os.fsync(number)
                with contextlib.suppress(FileExistsError):
                    os.link(draft, self.path)
            finally:
                draft.unlink(missing_ok=True)
            # A key that is lost with the power loses every value that was sealed with it.
            if os.name != "nt":
                with _opened(self.path.parent, os.O_RDONLY) as number:
                    os.fsync(number)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SecretsError(
                f"The key file {str(self.path)!r} cannot be used ({error.strerror}); check its permissions"
            ) from error

    def __repr__(self) -> str:
        return f"KeyFile({str(self.path)!r})"

    def __reduce__(self) -> tuple[type[KeyFile], tuple[str]]:
        return KeyFile, (str(self.path),)


class MissingKeys:
    """No keys: for a store that is not a file, where no key can lie beside it. Secrets cannot be set without one."""

    def current(self) -> str:
        """There is no current key.

        Raises:
            SecretsError: always, with the remedy.
        """
        raise SecretsError(
            f"The store is not a file, so that no master key lies beside it; set {VARIABLE}, or open the runtime with "
            "master_key="
        )

    def key(self, key_id: str) -> bytes | None:
        return None


def default_keys(store: Path | None, *, lasting: bool = False) -> KeyProvider:
    """The keys of a runtime that was told of none: the environment's, else a file beside the store.

    Without a file, they end with the process; for a store that is `lasting` there are none then.
    """
    if os.environ.get(VARIABLE, "").strip():
        return EnvironmentKeys()
    if store is not None:
        return KeyFile(store.with_name(f"{store.name}.key"))
    return MissingKeys() if lasting else GivenKeys()


def key_id(key: bytes) -> str:
    """The id of a key, from which the key cannot be derived."""
    return hashlib.sha256(b"toolwright master key\0" + key).hexdigest()[:16]


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    number = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        if flags & os.O_CREAT and os.name != "nt":
            os.fchmod(number, 0o600)  # whatever the umask is
        yield number
    finally:
        os.close(number)


def _encoded(key: bytes) -> bytes:
    return base64.b64encode(key)


def _decoded(text: str) -> bytes | None:
    """The key that a text stands for, in either alphabet of base64; None when it is none."""
    try:
        key = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) == SIZE else None
