"""The contract of a URL scheme: how its stores are opened and inspected. Owns the form of a location; opens nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import unquote

from msgspec import Struct

from toolwright.clock import Clock
from toolwright.stores.contracts.inspection import StoreInspector
from toolwright.stores.contracts.store import Store

SCHEME_NAME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
SECRET_OPTIONS = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})
"""The options of a URL whose values are never shown."""
_LIKE_SECRETS = re.compile(r"pass|pwd|secret|token|api", re.IGNORECASE)
_MISSPELT = re.compile(
    r"\s*postgres(ql)?\s*:|\s+\w+://|\s*(host|hostaddr|user|password|dbname|port|service)\s*=|\s*\w+\s*=.*password\s*=",
    re.IGNORECASE | re.DOTALL,
)
"""Matches what others take for the address of a database: a URL with a slip, and the options of libpq."""
_QUERY = re.compile(r"\?(?=[\w%]+=)")


class StoreOptions(Struct, frozen=True, kw_only=True):
    """How a store is to be opened.

    `sync` is "full" where acknowledged writes must survive the loss of power, "normal" where surviving the end of the
    process is enough. `clock` is the clock of the runtime, for tests; a store that has a clock of its own uses that for
    leases.
    """

    sync: Literal["full", "normal"] = "full"
    clock: Clock | None = None


class StoreScheme(Protocol):
    """How the stores of a URL scheme are opened and looked into. Implemented by `stores/sqlite/scheme.py`."""

    async def open(self, url: str, options: StoreOptions) -> Store:
        """Open the store of a URL as one more owner; a missing one is created.

        Raises:
            StoreError: the URL is not usable, or the store cannot be opened.
            StoreUnavailable: it cannot be reached now.
        """
        ...

    def inspect(self, url: str) -> StoreInspector:
        """Look after the store of a URL. Nothing is opened yet.

        Raises:
            StoreError: the URL is not usable.
        """
        ...


def is_url(location: str | Path) -> bool:
    """True for a URL, False for a path."""
    scheme, found, _ = str(location).partition("://")
    return bool(found) and isinstance(location, str) and bool(SCHEME_NAME.fullmatch(scheme))


def is_misspelt(location: str | Path) -> bool:
    """True for a text that is no URL, and was meant as the address of a server: its name may hold a password."""
    return not is_url(location) and _MISSPELT.match(str(location)) is not None


def file_of(location: str | Path) -> Path | None:
    """The file that a location names; None for the URL of a store that is not a file."""
    text = str(location)
    if not is_url(text):
        return Path(text)
    return Path(text.partition("://")[2].removeprefix("/")) if text.lower().startswith("sqlite://") else None


def without_password(location: str | Path) -> str:
    """A location as it may be shown. What stands before the host of a URL is hidden, also where a character of the
    password should have been encoded and was not.
    """
    text = str(location)
    if is_misspelt(text):
        return "…"
    scheme, _, rest = text.partition("://")
    if not is_url(text) or scheme.lower() == "sqlite":
        return text
    # A password may have a question mark, so the options begin after the user.
    options = _QUERY.search(rest, rest.find("@") + 1)
    place, query = (rest[: options.start()], rest[options.end() :]) if options else (rest, "")
    if "@" in place:
        place = f"…@{place.rpartition('@')[2]}"
    pieces = [piece.partition("=") for piece in query.split("&")]
    shown = "&".join(f"{name}{mark}{'…' if _is_secret(unquote(name)) else value}" for name, mark, value in pieces)
    return f"{scheme}://{place}{'?' if options else ''}{shown}"


def _is_secret(option: str) -> bool:
    return option.lower() in SECRET_OPTIONS or _LIKE_SECRETS.search(option) is not None
