"""The HTTP service over an app and its store. Nothing imports it before it is used; it needs the extra `http`."""

from importlib import import_module
from typing import TYPE_CHECKING

from toolwright.extras import require_extra

if TYPE_CHECKING:
    from toolwright.http.service import Service, create_app

_HOMES = {
    "Service": "toolwright.http.service",
    "create_app": "toolwright.http.service",
}

__all__ = ["Service", "create_app"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'toolwright.http' has no attribute {name!r}")
    require_extra("http", f"toolwright.http.{name}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
