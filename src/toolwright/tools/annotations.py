"""Annotations of functions. Owns finding the types they name, also as text and in local scopes; does not own
schemas."""

from __future__ import annotations

import builtins
import functools
import inspect
import re
import sys
import typing
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, FunctionType, NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Required, Union, get_args, get_origin

import typing_extensions

from toolwright.errors import ToolDefinitionError


class UnresolvedAnnotation(ToolDefinitionError):
    """An annotation names something that does not exist, or not yet: further down the module it may."""


class FrameLocals(dict[str, Any]):
    """The local names of running functions and classes of one module, the innermost winning."""

    def __init__(self, module: str, scopes: list[tuple[str, dict[str, Any]]]) -> None:
        super().__init__(ChainMap(*(names for _, names in scopes)))
        self.module = module
        self.scopes = scopes


class Names(NamedTuple):
    """The names that annotations of one function can see."""

    globals: dict[str, Any]
    locals: Mapping[str, Any]


class _InjectedContext:
    """Stands in for a `ToolContext` that is imported for type checkers only."""

    __tool_context__ = True

    def __class_getitem__(cls, deps: object) -> object:
        return Annotated[cls, deps]


def capture_locals(depth: int = 0) -> FrameLocals:
    """Note the local names where a tool is being defined, for the time when those frames are gone.

    Args:
        depth: how many frames above the caller the definition stands.
    """
    frame: FrameType | None = sys._getframe(depth + 1)
    # One of our own functions may define a tool on behalf of its caller.
    while frame is not None and f"{frame.f_globals.get('__name__')}.".startswith("toolwright.tools."):
        frame = frame.f_back
    if frame is None or frame.f_code.co_name == "<module>":
        return FrameLocals("", [])
    scopes = [(found.f_code.co_qualname, dict(found.f_locals)) for found in _frames(frame, frame.f_globals)]
    return FrameLocals(str(frame.f_globals.get("__name__")), scopes)


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters a caller may give by name or position; parameters bound by a `partial` are not among them.

    Raises:
        ValueError, TypeError: there is no signature to be found.
    """
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        signature = inspect.signature(function, annotation_format=Format.FORWARDREF)
    else:
        signature = inspect.signature(function)
    bound: set[str] = set()
    while isinstance(function, functools.partial):
        bound.update(function.keywords)
        function = function.func
    return [parameter for parameter in signature.parameters.values() if parameter.name not in bound]


def is_unbound_method(function: Callable[..., Any]) -> bool:
    """True for a function in a class that still waits for its `self` or `cls`."""
    if not isinstance(function, FunctionType):
        return False
    parent = function.__qualname__.rpartition(".")[0]
    if not parent or parent.endswith("<locals>"):
        return False
    first = next(iter(inspect.signature(function).parameters), None)
    return first in ("self", "cls")


def names_visible_to(function: Callable[..., Any], localns: Mapping[str, Any] | None) -> Names:
    """Gather the names that annotations of a function see where they are written, the nearest scope first."""
    code = written_function(function)
    module_names: dict[str, Any] = getattr(code, "__globals__", {})
    scopes: list[Mapping[str, Any]] = []
    if isinstance(code, FunctionType):
        qualname = code.__code__.co_qualname
        scopes += _class_names(function, code.__module__, qualname)
        if not isinstance(localns, FrameLocals):
            scopes.append(localns or {})
        elif localns.module == code.__module__:
            scopes += [_seen(scope, names, qualname) for scope, names in localns.scopes]
        scopes.append(_closure(code))
        # The defining function may still run, and may have defined more names by now.
        scopes += [
            _seen(frame.f_code.co_qualname, frame.f_locals, qualname)
            for frame in _frames(sys._getframe(1), module_names)
            if _encloses(frame.f_code.co_qualname, qualname)
        ]
        scopes.append({parameter.__name__: parameter for parameter in getattr(code, "__type_params__", ())})
    return Names({"ToolContext": _InjectedContext, **module_names}, dict(ChainMap(*map(dict, scopes))))


def resolve_annotation(annotation: object, names: Names) -> Any:
    """Return the type an annotation names; one that is no text, and has none inside, is returned as it is."""
    holder = SimpleNamespace(__annotations__={"it": annotation})
    hint = typing.get_type_hints(holder, names.globals, dict(names.locals), include_extras=True)["it"]
    return hint if sys.version_info >= (3, 12) else _with_full_typed_dicts(hint, names, ())


def is_context(hint: object) -> bool:
    """True for `ToolContext`, its subclasses, and an optional one."""
    origin = get_origin(hint)
    if origin is Annotated:
        return is_context(get_args(hint)[0])
    if origin in (Union, UnionType):
        members = [member for member in get_args(hint) if member is not NoneType]
        return bool(members) and all(map(is_context, members))
    return getattr(origin or hint, "__tool_context__", False) is True


def names_deps(hint: object) -> bool:
    """True for the annotation of a context with the type of its dependencies, as in `ToolContext[Database]`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(map(names_deps, parts))
    if origin is Annotated:
        return parts[0] is _InjectedContext or names_deps(parts[0])
    return bool(parts) and is_context(origin) and parts[0] not in (Any, NoneType)


def context_alone(annotation: object, names: Names) -> object:
    """The context of an annotation such as `ToolContext[Database]` whose other type is imported for type checkers only.

    The type of the dependencies is for them, and not needed to run the tool. None for any other annotation.
    """
    found = re.fullmatch(r"([\w.]*ToolContext)\[.+\]", annotation, re.DOTALL) if isinstance(annotation, str) else None
    if found is None:
        return None
    try:
        context = resolve_annotation(found[1], names)
    except (NameError, AttributeError):
        return None
    return context[object] if is_context(context) else None


def _with_full_typed_dicts(hint: Any, names: Names, within: tuple[Any, ...]) -> object:
    """Replace the `TypedDict` of Python 3.11, which lacks attributes that pydantic needs, by a full one."""
    if typing.is_typeddict(hint) and type(hint).__module__ == "typing" and hint not in within:
        fields: dict[str, Any] = {}
        local = names.locals if "<locals>" in hint.__qualname__ else {}
        for name, field in typing.get_type_hints(hint, None, dict(local), include_extras=True).items():
            field = _with_full_typed_dicts(field, names, (*within, hint))
            marked = get_origin(field) in (Required, NotRequired)
            fields[name] = field if marked or name in hint.__required_keys__ else NotRequired[field]
        make: Any = typing_extensions.TypedDict
        full = make(hint.__name__, fields)
        full.__doc__, full.__module__, full.__qualname__ = hint.__doc__, hint.__module__, hint.__qualname__
        return full
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal or not parts:
        return hint
    if origin is Annotated:
        return Annotated[_with_full_typed_dicts(parts[0], names, within), *parts[1:]]
    parts = tuple(_with_full_typed_dicts(part, names, within) for part in parts)
    if origin is UnionType:
        return Union[parts]  # noqa: UP007 - the parts are known only now
    return hint.copy_with(parts) if hasattr(hint, "copy_with") else hint.__origin__[parts]


def written_function(function: object) -> object:
    """Go through partials, bound methods, wrappers and callable objects to the function somebody wrote."""
    while True:
        if type(function) is FunctionType and not hasattr(function, "__wrapped__"):
            return function
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.isroutine(function):
            return function
        else:
            function = type(function).__call__


def _frames(frame: FrameType | None, module_names: dict[str, Any]) -> Iterator[FrameType]:
    while frame is not None:
        if frame.f_globals is module_names and frame.f_code.co_name != "<module>":
            yield frame
        frame = frame.f_back


def _encloses(scope: str, qualname: str) -> bool:
    return qualname.startswith(f"{scope}.<locals>.") or qualname.rpartition(".")[0] == scope


def _seen(scope: str, names: Mapping[str, Any], qualname: str) -> Mapping[str, Any]:
    """Return the names of a scope that are visible to code of this qualified name."""
    if not _encloses(scope, qualname):
        return {}
    return names if qualname.startswith(f"{scope}.<locals>.") else _without_builtins(names)


def _without_builtins(names: Mapping[str, Any]) -> dict[str, Any]:
    # A class with a method called `list` still means the builtin when it writes `list[str]`.
    return {name: value for name, value in names.items() if not hasattr(builtins, name)}


def _class_names(function: object, module: str, qualname: str) -> list[Mapping[str, Any]]:
    while isinstance(function, functools.partial):
        function = function.func
    owner = function.__self__ if inspect.ismethod(function) else function
    bases = (owner if isinstance(owner, type) else type(owner)).__mro__
    parent = (module, qualname.rpartition(".")[0])
    return [_without_builtins(vars(base)) for base in bases if (base.__module__, base.__qualname__) == parent]


def _closure(code: FunctionType) -> dict[str, Any]:
    found = {}
    for name, cell in zip(code.__code__.co_freevars, code.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # Not assigned yet.
            continue
    return found
