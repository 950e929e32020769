"""Opening stores by their URL. Owns the registry of schemes; each scheme knows how its stores are opened.

A location is a path, or a URL such as `sqlite:///agent.db` or `postgresql://host/database`. Another scheme comes from
another package: by `register_scheme`, or by an entry point of the group `toolwright.stores` whose name is the scheme.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from toolwright.clock import Clock
from toolwright.errors import StoreError
from toolwright.extras import require_extra
from toolwright.stores.contracts.scheme import (
    SCHEME_NAME,
    StoreOptions,
    StoreScheme,
    is_misspelt,
    is_url,
    without_password,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.metadata import EntryPoint

    from toolwright.stores.contracts.inspection import StoreInspector
    from toolwright.stores.contracts.store import Store

GROUP = "toolwright.stores"
"""The group of entry points, in which a package names the schemes that it offers."""
POSTGRES = ("postgresql", "postgres")
"""The schemes of the stores in PostgreSQL."""
MEMORY = ":memory:"
"""The location of a runtime that holds everything in memory: there is no store then."""


schemes: dict[str, StoreScheme] = {}


def register_scheme(name: str, scheme: StoreScheme) -> None:
    """Let stores be opened by URLs that begin with `name://`. A scheme of the same name is replaced.

    Raises:
        StoreError: the name or the object is not a scheme.
    """
    if not isinstance(name, str) or not SCHEME_NAME.fullmatch(name):
        raise StoreError(f"The scheme {name!r:.100} is not usable; use letters, digits, and any of + . -")
    if not callable(getattr(scheme, "open", None)) or not callable(getattr(scheme, "inspect", None)):
        raise StoreError(f"The scheme {name!r} is a {type(scheme).__name__}; give it the methods open and inspect")
    schemes[name.lower()] = scheme


async def open_store(
    location: str | Path | Store, sync: Literal["full", "normal"] = "full", clock: Clock | None = None
) -> Store:
    """Open the store of a path or a URL. A store that is open already is used as it is.

    Raises:
        StoreError: the location is not usable, its scheme is not known, or the store cannot be opened.
        StoreUnavailable: the store cannot be reached now.
    """
    if isinstance(location, (str, Path)) or not (hasattr(location, "journal") and hasattr(location, "waits")):
        scheme, url = find_scheme(location)
    else:
        return location
    return await scheme.open(url, StoreOptions(sync=sync, clock=clock))


def inspect_store(location: str | Path) -> StoreInspector:
    """Look after the store of a path or a URL: history, counts, checks, pruning. Nothing is opened yet.

    Raises:
        StoreError: the location is not usable, or its scheme is not known.
    """
    scheme, url = find_scheme(location)
    return scheme.inspect(url)


def _is_a_file_name(text: str) -> bool:
    """True when the file system has a form for a name; a lone surrogate may stand for a byte of an odd name."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def find_scheme(location: object) -> tuple[StoreScheme, str]:
    """The scheme of a path or a URL, and that as text.

    Raises:
        StoreError: the location is not usable, or its scheme is not known.
    """
    text = str(location)
    if not isinstance(location, (str, Path)) or not text or "\0" in text or not _is_a_file_name(text):
        shown = without_password(text) if isinstance(location, (str, Path)) else location
        raise StoreError(f"The store {shown!r} is not usable; use the path of a file, ':memory:', or a Store")
    if text == MEMORY:
        raise StoreError("A store in memory is its runtime's alone; use the path of a file, or a URL")
    if is_misspelt(text):
        raise StoreError(
            "The store looks like the address of a PostgreSQL server, and is none (it is not shown, for it may hold a "
            "password); write postgresql://user@host/database, or ./ before the path of a file"
        )
    name = text.partition("://")[0].lower() if is_url(text) else "sqlite"
    scheme = schemes.get(name) or _load(name)
    if scheme is None:
        known = sorted({"postgresql", "sqlite", *schemes, *(each.name for each in _offered())})
        raise StoreError(
            f"The store {without_password(text)!r} has the scheme {name!r}, which is not known "
            f"(known: {', '.join(known)}); use a path, or sqlite:///path, or install the package that offers it"
        )
    return scheme, text


def _load(name: str) -> StoreScheme | None:
    if name == "sqlite":
        from toolwright.stores.sqlite.scheme import SqliteScheme

        register_scheme(name, SqliteScheme())
        return schemes[name]
    if name in POSTGRES:
        require_extra("postgres", f"A store at {name}://…")
        from toolwright.stores.postgres.scheme import PostgresScheme

        register_scheme(name, PostgresScheme())
        return schemes[name]
    for each in _offered():
        if each.name.lower() == name:
            try:
                offered = each.load()
                register_scheme(name, offered() if isinstance(offered, type) else offered)
            except Exception as error:  # code of another package
                raise StoreError(
                    f"The scheme {name!r} of {each.value!r} cannot be loaded ({type(error).__name__}: {error}); "
                    "check that package"
                ) from error
            return schemes[name]
    return None


def _offered() -> Iterable[EntryPoint]:
    """The schemes of installed packages. Looked for only when a URL needs it: that reads the metadata of them all."""
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)
