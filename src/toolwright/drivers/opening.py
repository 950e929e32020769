"""Drivers by their URL. Owns the registry of schemes; each scheme makes its drivers.

A driver is named "store", or by a URL such as `temporal://127.0.0.1:7233/default?queue=agent`. Another scheme comes
from another package: by `register_driver`, or by an entry point of the group `toolwright.drivers` whose name is the
scheme.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from toolwright.clock import Clock
from toolwright.drivers.contract import Driver, DriverScheme
from toolwright.drivers.store import StoreDriver
from toolwright.errors import DriverError
from toolwright.stores.contracts.scheme import without_password

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.metadata import EntryPoint

GROUP = "toolwright.drivers"
"""The group of entry points, in which a package names the schemes that it offers."""
STORE = "store"
"""The name of the driver that workers have without another: they look for work in the store."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")

_schemes: dict[str, DriverScheme] = {}


def register_driver(name: str, scheme: DriverScheme) -> None:
    """Let drivers be named by URLs that begin with `name://`. A scheme of the same name is replaced.

    Raises:
        DriverError: the name or the object is not usable.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DriverError(f"The scheme {name!r:.100} of a driver is not usable; use letters, digits, and any of + . -")
    if not callable(getattr(scheme, "make", None)):
        raise DriverError(f"The scheme {name!r} is a {type(scheme).__name__}; give it the method make")
    _schemes[name.lower()] = scheme


def open_driver(name: str | None, clock: Clock) -> Driver:
    """The driver of a name or URL; the store's own for None.

    Raises:
        DriverError: the URL is not usable, or its scheme is not known.
        MissingRequirement: a library is not installed.
    """
    if name is None or name == STORE:
        return StoreDriver()
    scheme, separator, rest = name.partition("://") if isinstance(name, str) else ("", "", "")
    if not separator or not rest or not _NAME.fullmatch(scheme):
        raise DriverError(
            f"The driver {without_password(str(name))!r:.200} is not usable; use 'store', or a URL such as "
            "'temporal://127.0.0.1:7233/default?queue=agent'"
        )
    found = _schemes.get(scheme.lower()) or _load(scheme.lower())
    if found is None:
        known = sorted({STORE, "temporal", *_schemes, *(each.name for each in _offered())})
        raise DriverError(
            f"The driver {without_password(str(name))!r:.200} has the scheme {scheme!r}, which is not known "
            f"(known: {', '.join(known)}); use one of these, or install the package that offers it"
        )
    return found.make(name, clock)


def _load(name: str) -> DriverScheme | None:
    if name == "temporal":
        from toolwright.drivers.temporal.scheme import TemporalScheme

        register_driver(name, TemporalScheme())
        return _schemes[name]
    for each in _offered():
        if each.name.lower() == name:
            try:
                offered = each.load()
                register_driver(name, offered() if isinstance(offered, type) else offered)
            except Exception as error:  # code of another package
                raise DriverError(
                    f"The driver {name!r} of {each.value!r} cannot be loaded ({type(error).__name__}: {error}); "
                    "check that package"
                ) from error
            return _schemes[name]
    return None


def _offered() -> Iterable[EntryPoint]:
    """The schemes of installed packages. Looked for only when a URL needs it: that reads the metadata of them all."""
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)
