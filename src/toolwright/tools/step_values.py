"""Values of steps as the types that their functions return. Owns the way back from a recorded JSON value to the return
annotation; does not own running or recording a step.

`jsonx` defines the JSON form of a value, and this is the inverse. A function without a return annotation, or with one
whose values are plain JSON data, needs nothing of this.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Union, get_args, get_origin
from weakref import WeakKeyDictionary

import msgspec
from typing_extensions import TypeAliasType

from toolwright.tools.annotations import names_visible_to, resolve_annotation, written_function
from toolwright.tools.outcome import ToolError

Rebuild = Callable[[object], object]

_PLAIN = frozenset({Any, object, None, types.NoneType, str, int, float, bool, dict, list})
_PLAIN_NAMES = frozenset({"Any", "object", "None", "str", "int", "float", "bool", "dict", "list"})
_LISTS = (list, Sequence, Collection, Iterable)
_OBJECTS = (dict, Mapping, MutableMapping)

_known: WeakKeyDictionary[object, Rebuild | None] = WeakKeyDictionary()


def restore(step: str, function: Callable[..., object], value: object) -> object:
    """The recorded JSON value of a step as the declared return type of its function.

    Raises:
        ToolError: the value does not fit that type.
    """
    code = written_function(function)
    annotation = getattr(code, "__annotations__", {}).get("return")
    if annotation is None or annotation in _PLAIN_NAMES or annotation in _PLAIN:
        return value
    try:
        rebuild = _known[code]
    except (KeyError, TypeError):
        rebuild = _rebuilder(function, annotation)
        with suppress(TypeError):  # of a function that cannot be referenced weakly
            _known[code] = rebuild
    if rebuild is None:
        return value
    try:
        return rebuild(value)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise ToolError(
            f"The value of step {step!r} does not fit the return type of its function; return that type",
            code="step_type",
            detail=str(error) if isinstance(error, msgspec.ValidationError) else type(error).__name__,
        ) from error


def _rebuilder(function: Callable[..., object], annotation: object) -> Rebuild | None:
    try:
        hint = resolve_annotation(annotation, names_visible_to(function, None))
    except Exception:  # an annotation is a user's expression, and may name a type for type checkers only
        return None
    if get_origin(hint) in (Awaitable, Coroutine):
        hint = get_args(hint)[-1]
    if _is_plain(hint):
        return None
    try:
        msgspec.json.Decoder(hint)
    except TypeError:  # such as a union of two dataclasses
        return _by_pydantic(hint)
    return lambda value: msgspec.convert(value, hint, dec_hook=_rebuilt, str_keys=True)


def _is_plain(hint: object) -> bool:
    """True for a type whose values are the same as their JSON form."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is typing.Annotated or origin in _LISTS:
        return _is_plain(parts[0])
    if origin in _OBJECTS:
        return parts[0] is str and _is_plain(parts[1])
    if origin in (Union, types.UnionType):
        return all(map(_is_plain, parts))
    if origin is Literal:
        return all(type(part) in (str, int, bool, types.NoneType) for part in parts)
    if isinstance(hint, TypeAliasType):
        return _is_plain(hint.__value__)
    if isinstance(hint, typing.NewType):
        return _is_plain(hint.__supertype__)
    if isinstance(hint, type) and typing.is_typeddict(hint):
        return all(map(_is_plain, typing.get_type_hints(hint).values()))
    try:
        return isinstance(hint, typing.TypeVar) or hint in _PLAIN
    except TypeError:
        return False


def _rebuilt(kind: type, value: object) -> object:
    """A value of a type that msgspec does not know, from the JSON form that `jsonx` gives it."""
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(value)
    if hasattr(kind, "__fspath__") or issubclass(kind, (str, int, float)):
        return kind(value)
    if isinstance(value, kind):
        return value
    raise NotImplementedError(f"{kind.__name__!r} cannot be made of its JSON form")


def _by_pydantic(hint: type[object]) -> Rebuild | None:
    from pydantic import TypeAdapter

    try:
        validate: Rebuild = TypeAdapter[object](hint).validate_python
    except Exception:  # the type is a user's, and may run code of its own here
        return None
    return validate
