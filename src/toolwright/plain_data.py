"""Values of ours as plain data. Owns the JSON form of a value by its fields; outcomes and definitions have their own.

An instant, which a field named `at`, `instant` or `deadline` holds, or one whose name ends in `_at`, is RFC 3339 text
in UTC. Durations stay seconds. A function or a class is shown by its qualified name, and never run.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Mapping
from typing import Any, SupportsFloat, SupportsIndex, cast

from msgspec import Struct, to_builtins

from toolwright import jsonx
from toolwright.clock import rfc3339


def plain_data(item: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a struct, a named tuple or a dataclass as plain data, but for those that are left out.

    A field of a dataclass that its `__init__` does not take is left out, too: it follows from the others.
    """
    names: tuple[str, ...]
    if dataclasses.is_dataclass(item):
        names = tuple(field.name for field in dataclasses.fields(item) if field.init)
    else:
        names = item.__struct_fields__ if isinstance(item, Struct) else item._fields
    return {name: _field(name, getattr(item, name)) for name in names if name not in without}


def plain_number(number: object) -> float | None:
    """The number as JSON and every store know it: of another type of numbers, such as one of NumPy, the plain integer
    or float. None for all else: True and False, what is not finite, and whole numbers of more than 64 bits."""
    plain: float
    if type(number) in (int, float):
        plain = cast(float, number)
    elif isinstance(number, bool) or not isinstance(number, (SupportsIndex, SupportsFloat)):
        return None
    else:
        try:
            plain = operator.index(number) if isinstance(number, SupportsIndex) else float(number)
        except Exception:  # the number's own code
            return None
    return plain if abs(plain) < 2**63 else None  # NaN is not below anything


def code_name(code: object) -> str:
    """The qualified name of a function or a class; of any other object, that of its class."""
    named = code if hasattr(code, "__qualname__") else getattr(code, "func", code)
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}.{named.__qualname__}"


def instant_text(seconds: float) -> str | float:
    """An instant as RFC 3339 text; the number itself, where it is beyond every calendar."""
    try:
        return rfc3339(seconds) or seconds
    except (ValueError, OverflowError, OSError):
        return seconds


def _field(name: str, value: object) -> object:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and _is_instant(name):
        return instant_text(value)
    return plain_value(value)


def _is_instant(name: str) -> bool:
    return name in ("at", "instant", "deadline") or name.endswith("_at")


def plain_value(value: object) -> object:
    """A value, and all that is inside it, as plain data."""
    tell = getattr(value, "to_json", None)
    if tell is not None and not isinstance(value, type):
        return tell()
    if isinstance(value, Struct) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return plain_data(value)
    if isinstance(value, Mapping):
        return {name: plain_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return [plain_value(item) for item in sorted(value, key=str)]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no infinity
    if callable(value):
        return code_name(value)
    return to_builtins(value, enc_hook=jsonx.known_form)
