"""The HTTP service over an app and its store. Nothing imports it before it is used; it needs the extra `http`."""

from importlib import import_module
from typing import TYPE_CHECKING

from toolwright.extras import require_extra

if TYPE_CHECKING:
    from toolwright.http.access.caller import Authenticate, Caller, Scope
    from toolwright.http.access.limits import Limits
    from toolwright.http.access.refusals import TooManyRequests, Unauthenticated, WrongOrigin
    from toolwright.http.service import Service, create_app

_HOMES = {
    "Authenticate": "toolwright.http.access.caller",
    "Caller": "toolwright.http.access.caller",
    "Limits": "toolwright.http.access.limits",
    "Scope": "toolwright.http.access.caller",
    "Service": "toolwright.http.service",
    "TooManyRequests": "toolwright.http.access.refusals",
    "Unauthenticated": "toolwright.http.access.refusals",
    "WrongOrigin": "toolwright.http.access.refusals",
    "create_app": "toolwright.http.service",
}

__all__ = [
    "Authenticate",
    "Caller",
    "Limits",
    "Scope",
    "Service",
    "TooManyRequests",
    "Unauthenticated",
    "WrongOrigin",
    "create_app",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'toolwright.http' has no attribute {name!r}")
    require_extra("http", f"toolwright.http.{name}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
