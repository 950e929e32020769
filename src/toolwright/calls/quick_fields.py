"""Structs whose fields are written in little time. Owns how that is done; the structs are those of a call on its way.

A `msgspec.Struct` is made in C with all its defaults, in half the time of a class with slots. But its `__setattr__`
takes three times as long as that of other objects: it looks whether the garbage collector must know the struct now.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

_Kind = TypeVar("_Kind", bound=type[Struct])


def quick_fields(kind: _Kind) -> _Kind:
    """Let the fields of a struct be written as those of other objects are.

    Only for a struct with `gc=False`, or one that is always made with a field of which the garbage collector knows.
    """
    kind.__setattr__ = object.__setattr__  # type: ignore[method-assign]
    kind.__delattr__ = object.__delattr__  # type: ignore[method-assign]
    return kind
