"""Python signatures as tools. Owns the way from a function to its schema and validator; does not own raw JSON
Schema, nor calling the function. Imports pydantic, so it is imported when a tool is made and not before."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, NotRequired, Optional, Union, get_args, get_origin

import typing_extensions
from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import CoreSchema, SchemaValidator, ValidationError, core_schema, to_jsonable_python

from toolwright import jsonx
from toolwright.errors import InvalidArguments, ToolDefinitionError
from toolwright.tools.annotations import (
    FrameLocals,
    Names,
    UnresolvedAnnotation,
    capture_locals,
    context_alone,
    is_context,
    is_unbound_method,
    names_deps,
    names_visible_to,
    parameters_of,
    resolve_annotation,
    written_function,
)
from toolwright.tools.checking_cost import MOST_TYPED, cost_of_core_schema
from toolwright.tools.docstring import documentation_of
from toolwright.tools.outcome import ConnectionRequired, Failure, Pending, Success, ToolOutcome
from toolwright.tools.validation_messages import (
    MOST_PROBLEMS,
    ArgumentProblem,
    preview,
    shorten,
    typed_problem,
    unreadable,
)

__all__ = [
    "FrameLocals",
    "Signature",
    "UnresolvedAnnotation",
    "capture_locals",
    "is_unbound_method",
    "read_return",
    "read_signature",
    "type_schema",
]


@dataclass(frozen=True, slots=True)
class Signature:
    """The facts that a tool takes from its function: everything that is needed to describe it and to check a call."""

    input_schema: dict[str, Any]
    validate: Callable[[bytes], dict[str, Any]]
    description: str
    context_parameter: str | None
    wants_deps: bool
    parameters: tuple[str, ...]
    is_async: bool
    names: Names
    """The names that its annotations can see."""


class Returned(NamedTuple):
    """The output schema of a return annotation. Without a schema, any value is fine."""

    schema: dict[str, Any] | None = None
    exact: type | None = None
    """A class whose values, when they are of exactly this class, fit the schema without a check."""


def read_signature(function: Callable[..., Any], *, name: str, localns: Mapping[str, Any] | None = None) -> Signature:
    """Read a function, method, partial or callable object as the tool `name`.

    Raises:
        UnresolvedAnnotation: an annotation names something that is not defined yet.
        ToolDefinitionError: a parameter is one that no model can fill in.
    """
    if is_unbound_method(function):
        raise ToolDefinitionError(f"Tool {name!r} is a method without its object; use the method of an instance.")
    try:
        parameters = parameters_of(function)
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(
            f"Tool {name!r} has no signature to read ({error}); wrap it in a function with annotations."
        ) from None
    names = names_visible_to(function, localns)
    plain = _plain(function)
    documentation = documentation_of(plain)
    context: str | None = None
    deps = False
    fields: dict[str, Any] = {}
    for parameter in parameters:
        hint = _hint(parameter, names, name)
        if not is_context(hint):
            fields[parameter.name] = _field(parameter, hint, documentation.parameters.get(parameter.name))
        elif context is None:
            context, deps = parameter.name, names_deps(hint)
        else:
            raise ToolDefinitionError(
                f"Tool {name!r} takes its context twice, as {context!r} and {parameter.name!r}; keep one."
            )
    adapter, schema = _build(name, fields, names)
    for parameter in parameters:
        _show_default(schema, parameter, fields.get(parameter.name))
    return Signature(
        input_schema=schema,
        validate=_validator(adapter, schema, name),
        description=documentation.description,
        context_parameter=context,
        wants_deps=deps,
        parameters=tuple(fields),
        is_async=inspect.iscoroutinefunction(plain if inspect.isroutine(plain) else type(plain).__call__),
        names=names,
    )


def read_return(function: Callable[..., Any], names: Names, *, owner: str) -> Returned:
    """Read the return annotation of a tool's function as the schema of the tool's value.

    `Any`, `object`, `None`, and a type that has no JSON Schema say nothing of the value. `Failure`, `Pending` and
    `ConnectionRequired` are no values and count for nothing in a union; `Success` and `ToolOutcome` hold any value.

    Raises:
        UnresolvedAnnotation: it names something that is not defined yet, or for type checkers only.
    """
    annotation = getattr(written_function(function), "__annotations__", {}).get("return")
    try:
        hint = resolve_annotation(annotation, names)
    except (NameError, AttributeError) as error:
        raise UnresolvedAnnotation(
            f"Tool {owner!r} returns {annotation!r}, which cannot be found ({error}); define or import the type"
        ) from None
    except Exception:  # An annotation is a user's expression, and a wrong one says nothing.
        return Returned()
    if get_origin(hint) in (Awaitable, Coroutine):
        hint = get_args(hint)[-1]
    if isinstance(hint, type) and hint in _SIMPLE:
        return Returned(_SIMPLE[hint], None if hint is float else hint)
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    values = [member for member in members if member not in _NO_VALUES]
    if not values or all(value is NoneType for value in values) or any(value in _ANY_VALUE for value in values):
        return Returned()
    try:
        schema = type_schema(Union[tuple(values)], owner=owner)  # noqa: UP007 - the members are known only now
    except ToolDefinitionError:
        return Returned()
    exact = get_origin(hint) if hint in (dict[str, Any], list[Any]) else None
    return Returned(schema or None, exact)


_SIMPLE: dict[type, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},  # by its class alone it does not fit: infinity has no JSON form
    bool: {"type": "boolean"},
    dict: {"type": "object"},
    list: {"type": "array"},
}
_NO_VALUES = (Failure, Pending, ConnectionRequired)
_ANY_VALUE = (Any, object, Success, ToolOutcome)


def type_schema(given: Any, *, owner: str) -> dict[str, Any]:
    """Return the JSON Schema of the values of a type, as they are written.

    Raises:
        ToolDefinitionError: the type has none.
    """
    try:
        return TypeAdapter(given).json_schema(by_alias=False, mode="serialization", schema_generator=_JsonSchema)
    except Exception as error:  # The type is a user's, and may run code of its own here.
        raise ToolDefinitionError(
            f"Tool {owner!r} has an output type {given!r} without JSON Schema ({_reason(error)}); "
            "use a pydantic model, a dataclass or plain types."
        ) from error


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function under partials and `staticmethod`: it has the docstring, and is async or not."""
    while isinstance(function, partial | staticmethod):
        function = function.func if isinstance(function, partial) else function.__func__
    return function


def _hint(parameter: inspect.Parameter, names: Names, owner: str) -> object:
    """Return the type of a parameter, or refuse a parameter that a model cannot give."""
    where = f"Tool {owner!r} has a parameter {str(parameter).partition(':')[0].partition('=')[0]!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ToolDefinitionError(f"{where}, and a model needs a name for each value; name every parameter.")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ToolDefinitionError(
            f"{where} that is positional-only, and a model gives values by name; name it before the '/'."
        )
    if parameter.annotation is parameter.empty:
        remedy = f"{parameter.name}: {'ToolContext' if parameter.name in ('ctx', 'context') else 'str'}"
        raise ToolDefinitionError(f"{where} without a type; annotate it, as in '{remedy}'.")
    try:
        hint = resolve_annotation(parameter.annotation, names)
        Optional[hint]  # noqa: UP045 - raises for a value that is not a type
    except (NameError, AttributeError) as error:
        if (context := context_alone(parameter.annotation, names)) is not None:
            return context
        raise UnresolvedAnnotation(
            f"{where} annotated {parameter.annotation!r}, which cannot be found ({error}); "
            "define or import the type, and not for type checkers only, where the function is defined."
        ) from None
    except Exception as error:  # An annotation is a user's expression, and can fail in any way.
        raise ToolDefinitionError(
            f"{where} annotated {parameter.annotation!r}, which is not a type ({_reason(error)}); annotate it with one."
        ) from None
    if _names_generator(hint):
        raise ToolDefinitionError(f"{where} that is a generator, and a model gives a list; annotate it as list[...].")
    return hint


def _names_generator(hint: object) -> bool:
    """True for a generator, and for a type that has one among its arguments."""
    return hint is Generator or get_origin(hint) is Generator or any(map(_names_generator, get_args(hint)))


def _field(parameter: inspect.Parameter, hint: object, documented: str | None) -> object:
    """Return the type of a field of the arguments: the user's own settings come last, and so win."""
    base, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    for place, item in enumerate(metadata):
        text = item if isinstance(item, str) else getattr(item, "documentation", None)
        if isinstance(text, str):
            metadata[place] = Field(description=text)
    if documented:
        metadata.insert(0, Field(description=documented))
    default = parameter.default
    if default is None and base not in (Any, object):
        base = Optional[base]  # noqa: UP045 - a model that reads "default: null" will send null
    if isinstance(default, FieldInfo):
        metadata.append(default)
        default = parameter.empty
    has_default = any(isinstance(item, FieldInfo) and not item.is_required() for item in metadata)
    if default is not parameter.empty:
        if has_default:
            metadata.append(Field(default=default))
        has_default = True
    field = Annotated[base, *metadata] if metadata else base
    return NotRequired[field] if has_default else field


def _build(owner: str, fields: dict[str, Any], names: Names) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """Make the validator and the schema of an object with these fields.

    A typed dict: it takes any name for a field, leaves Python's defaults to Python, and becomes a plain dict.
    """
    typed_dict: Any = typing_extensions.TypedDict
    arguments = typed_dict("Arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)
    try:
        adapter = TypeAdapter[Any](arguments)
        # Types may name local types. Other local names are a last resort, as they hide module names.
        classes = {name: value for name, value in names.locals.items() if _is_local_class(value)}
        try:
            adapter.rebuild(force=True, _types_namespace=classes)
        except PydanticUndefinedAnnotation:
            adapter.rebuild(force=True, _types_namespace=names.locals)
        return adapter, adapter.json_schema(schema_generator=_JsonSchema)
    except Exception as error:  # The types are a user's, and may run code of their own here.
        if len(fields) > 1:
            for name, field in fields.items():
                _build(owner, {name: field}, names)
        where = f"Tool {owner!r} has a parameter {next(iter(fields), '')!r} of a type"
        if isinstance(error, PydanticUndefinedAnnotation) or getattr(error, "code", "") == "class-not-fully-defined":
            raise UnresolvedAnnotation(
                f"{where} that needs another one, which cannot be found ({_reason(error)}); define or import that one."
            ) from error
        raise ToolDefinitionError(
            f"{where} that has no JSON Schema ({_reason(error)}); use a type that has one, such as a pydantic model, "
            "a dataclass or plain types. A model cannot give an object of the program, such as a connection: "
            "return it from the lifespan of the app, and take it as ctx.deps."
        ) from error


def _is_local_class(value: object) -> bool:
    return isinstance(value, type) and "<locals>" in value.__qualname__


def _reason(error: BaseException) -> str:
    text = " ".join(str(getattr(error, "message", error)).split())
    return shorten(text.partition(". ")[0] or type(error).__name__, 300)


def _show_default(schema: dict[str, Any], parameter: inspect.Parameter, field: type[Any] | None) -> None:
    """Put a Python default into the schema, where it has a JSON form."""
    default = parameter.default
    if field is None or default is parameter.empty or isinstance(default, FieldInfo):
        return
    if hasattr(default, "get_secret_value"):
        return  # Its JSON form is a row of stars, which a model might send.
    try:
        shown = to_jsonable_python(default)
        json.dumps(shown, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return
    info = FieldInfo.from_annotation(field)
    alias = info.validation_alias or info.alias
    prop = schema["properties"].get(alias if isinstance(alias, str) else parameter.name)
    if prop is not None:
        prop["default"] = shown


class _JsonSchema(GenerateJsonSchema):
    """JSON Schema without the titles that pydantic makes up; those that a user wrote stay."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as pydantic declares it

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _untitled(super().model_schema(schema), schema)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _untitled(super().dataclass_schema(schema), schema)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _untitled(super().typed_dict_schema(schema), schema)

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        made = super().generate(schema, mode)
        for definition in (made, *made.get("$defs", {}).values()):
            if "enum" in definition:
                definition.pop("title", None)  # Of an enum it is always its class.
        return made


def _untitled(made: JsonSchemaValue, schema: Mapping[str, object]) -> JsonSchemaValue:
    if made.get("title") == getattr(schema.get("cls"), "__name__", None):
        made.pop("title", None)
    return made


def _validator(adapter: TypeAdapter[Any], schema: dict[str, Any], owner: str) -> Callable[[bytes], dict[str, Any]]:
    validate_json = _eager(adapter, owner).validate_json

    def validate(raw: bytes) -> dict[str, Any]:
        try:
            arguments: dict[str, Any] = validate_json(raw)
            return arguments
        except ValidationError as error:
            raise InvalidArguments(_problems_of(error, raw, schema)) from None

    cost = cost_of_core_schema(adapter.core_schema)
    if cost is None:
        return validate
    short = cost.short(MOST_TYPED)

    def validate_if_cheap(raw: bytes) -> dict[str, Any]:
        if len(raw) > short and not cost.fits(raw, MOST_TYPED):
            raise InvalidArguments([_too_costly(raw)])
        return validate(raw)

    return validate_if_cheap


def _too_costly(raw: bytes) -> ArgumentProblem:
    return ArgumentProblem(
        "$",
        "nested too deeply, or in too many parts, to be checked, for a part may have one of several forms",
        f"{len(raw)} bytes of JSON",
        "fewer levels of nesting or fewer items; divide them among several calls",
    )


def _eager(adapter: TypeAdapter[Any], owner: str) -> Any:
    """The validator of the arguments, with each `Iterable` read as a list.

    pydantic gives an `Iterable` as an iterator that checks each item when the function asks for it. Arguments are
    checked before the tool runs, so every item is checked here.
    """
    core = adapter.core_schema
    changed = _with_lists(core)
    if changed is core:
        return adapter.validator
    make: Any = SchemaValidator
    try:
        # Without the validators that models carry with them: these are the ones that check later.
        return make(changed, _use_prebuilt=False)
    except TypeError:
        raise ToolDefinitionError(
            f"Tool {owner!r} takes an Iterable, which this version of pydantic checks only while the tool runs; "
            "annotate it as list[...], or install pydantic 2.12 or newer."
        ) from None


def _with_lists(node: object) -> object:
    """A core schema of pydantic with lists in place of generators; the same object where it has none."""
    if isinstance(node, list | tuple):
        items = [_with_lists(item) for item in node]
        return type(node)(items) if any(new is not old for new, old in zip(items, node, strict=True)) else node
    if not isinstance(node, dict):
        return node
    changes = {key: new for key, old in node.items() if key != "metadata" and (new := _with_lists(old)) is not old}
    if node.get("type") == "generator" and node.keys() <= _GENERATOR_FIELDS:
        changes["type"] = "list"
    return {**node, **changes} if changes else node


_GENERATOR_FIELDS = {"type", "items_schema", "min_length", "max_length", "ref", "metadata", "serialization"}
"""The fields of the core schema of a generator. The fields of a list schema have the same names."""


def _problems_of(error: ValidationError, raw: bytes, schema: dict[str, Any]) -> list[ArgumentProblem]:
    try:
        document = jsonx.decode(raw)
    except (jsonx.DecodeError, RecursionError) as unread:
        return [unreadable(raw, unread, "a JSON object")]
    if error.error_count() > MOST_PROBLEMS:  # To list them takes one call, and time for each.
        message = f"{error.error_count()} parts do not fit, which are too many to be listed"
        return [ArgumentProblem("$", message, preview(document), "arguments of the right types")]
    found: dict[ArgumentProblem, None] = {}
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        found[typed_problem(detail["type"], detail["loc"], detail["msg"], document, schema)] = None
    return list(found)
