"""Raw JSON Schema. Owns compiling a schema and checking values with it; the words of problems are in
`validation_messages`, and schemas of Python functions in `function_schema`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from toolwright import jsonx
from toolwright.errors import InvalidArguments, ToolDefinitionError
from toolwright.large_json import MOST_CONTAINERS, MOST_ITEMS, has_few_parts
from toolwright.tools.checking_cost import MOST_LISTED, CheckingCost, cost_of_json_schema, parts_tried
from toolwright.tools.repeated_checks import MOST_CHECKS, repeated_checks
from toolwright.tools.validation_messages import (
    MOST_PROBLEMS,
    ArgumentProblem,
    Path,
    json_path,
    missing_field,
    one_of,
    preview,
    shorten,
    summarise,
    types_named,
    unexpected_field,
    unreadable,
)

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = [
    "BY_NAME",
    "ArgumentProblem",
    "OutputCheck",
    "Validate",
    "compile_output_schema",
    "compile_schema",
    "summarise",
]

_FEW_LISTS = 500
"""The number of lists and objects in a value up to which all problems are reported."""
_MOST_DESCRIBED = 20_000
"""The number of problems that a value may have, by the estimate, for all to be described: each takes some 15
microseconds, and an item has one for each part of the schema that it does not fit."""

Schema = Mapping[str, Any] | bool | None
Validate = Callable[[bytes], dict[str, Any]]
OutputCheck = Callable[[bytes], list[ArgumentProblem]]


def compile_schema(schema: Schema, *, owner: str) -> Validate:
    """Compile a tool's input schema, once, into a function from the JSON of an object to its dict.

    The function raises `InvalidArguments`, with every problem, for arguments that do not fit. None accepts any object.

    Raises:
        ToolDefinitionError: the schema is not JSON Schema, refers to something outside itself, or checks one part of a
            value too often.
    """
    compiled = _compile(schema, owner)
    accepts, decode = compiled.accepts, msgspec.json.Decoder(dict[str, Any]).decode
    too_many = _bound(compiled.times)

    def validate(raw: bytes) -> dict[str, Any]:
        if problem := too_many(raw):
            raise InvalidArguments([problem])
        try:
            value = decode(raw)
        except (jsonx.DecodeError, RecursionError) as error:
            raise InvalidArguments([unreadable(raw, error, "a JSON object")]) from None
        if accepts(value):
            return value
        raise InvalidArguments(compiled.problems(value, raw))

    return validate


def compile_output_schema(schema: Schema, *, owner: str) -> OutputCheck:
    """Compile a schema for JSON values of any kind, once, into a function that lists the problems of a value.

    Raises:
        ToolDefinitionError: the schema is not JSON Schema, refers to something outside itself, or checks one part of a
            value too often.
    """
    compiled = _compile(schema, owner)
    # The cost of checking one item: some keywords take several times as long as others.
    too_many = _bound(max([compiled.times, *map(_times, compiled.schema_parts())]))

    def check(raw: bytes) -> list[ArgumentProblem]:
        if problem := too_many(raw):
            return [problem]
        try:
            value = jsonx.decode(raw)
        except (jsonx.DecodeError, RecursionError) as error:
            return [unreadable(raw, error, "JSON")]
        return [] if compiled.accepts(value) else compiled.problems(value, raw)

    return check


def _bound(times: int) -> Callable[[bytes], ArgumentProblem | None]:
    """A function that finds JSON with too many parts for a schema that takes so many times longer for each."""
    most_containers, most_items = MOST_CONTAINERS // times, MOST_ITEMS // times

    def problem(raw: bytes) -> ArgumentProblem | None:
        if times == 1 or len(raw) <= most_containers or has_few_parts(raw, most_containers, most_items):
            return None
        message = "in too many parts to be checked, for its schema asks for different items or several forms"
        expected = f"at most {most_containers} lists and objects, and {most_items} items"
        return ArgumentProblem("$", message, f"{len(raw)} bytes of JSON", expected)

    return problem


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A copy of a schema, which changes to the original do not reach, and the validator made of it."""

    schema: Any
    accepts: Callable[[Any], bool]
    errors: Callable[[Any], Iterator[jsonschema_rs.ValidationError]]
    require: Callable[[Any], None]
    cost: CheckingCost | None
    times: int
    """How many times longer than by a plain schema one part of a value takes, for it is checked more than once."""

    def schema_parts(self) -> Iterator[dict[str, Any]]:
        """The parts of the schema that are schemas."""
        for _, part in _subschemas(self.schema, []):
            yield part

    def problems(self, value: object, raw: bytes) -> list[ArgumentProblem]:
        if self.cost is not None and not self.cost.fits_value(value, MOST_LISTED):
            # That it does not fit is found in a moment, and why takes time that grows with each level.
            message = "does not fit, and is nested too deeply, or in too many parts, for its problems to be listed"
            return [ArgumentProblem("$", message, preview(value), "a value that fits the schema")]
        # The validator finds all errors in one call: of a value with many parts, only the first is asked for.
        most = _MOST_DESCRIBED // (parts_tried(self.schema) or 1)
        few = has_few_parts(raw, min(_FEW_LISTS, most), min(MOST_PROBLEMS, most))
        errors = self.errors(value) if few else self._first(value)
        return [problem for error in errors for problem in _problems_of(self.schema, value, error)]

    def _first(self, value: object) -> Iterator[jsonschema_rs.ValidationError]:
        import jsonschema_rs

        try:
            self.require(value)
        except jsonschema_rs.ValidationError as error:
            yield error


def _compile(schema: Schema, owner: str) -> _Compiled:
    import jsonschema_rs  # Only users of raw schemas pay for the import.

    if schema is not None and not isinstance(schema, Mapping | bool):
        raise ToolDefinitionError(
            f"Tool {owner!r} has a {type(schema).__name__!r} where a JSON Schema belongs; "
            "give a dict such as {'type': 'object', 'properties': {...}}, or None to accept any object."
        )
    try:
        plain = True if schema is None else _copy(schema)
        for place, named in _drafts_inside(plain):
            raise ToolDefinitionError(
                f"Tool {owner!r} has an invalid JSON Schema: {place} names the draft {named!r:.200}, and the validator "
                "reads a schema as one draft; name it once, at the top, or leave '$schema' out."
            )
        for reference in _references(plain):
            # The validator has the published meta-schemas built in; a reader of the schema does not.
            if "://json-schema.org/" in reference:
                _refuse_reference(owner, f"Resource {reference!r} is not in the document")
        # A format is a note in every draft; the library would assert it in some of them.
        validator = jsonschema_rs.validator_for(plain, retriever=_never_fetch, validate_formats=False)
    except jsonschema_rs.ValidationError as error:
        if error.kind.name == "$ref" and not error.message.startswith("Unknown meta-schema"):
            detail = error.message.partition(" and retrieving it failed")[0]
            _refuse_reference(owner, detail.replace("present in a registry", "in the document"))
        if error.kind.name == "$ref":
            where, remedy = "$['$schema'] is not known", "name a published draft, or leave '$schema' out"
        else:
            problem = _problems_of({}, plain, error)[0]
            where, remedy = (
                f"{problem.path} {problem.message}",
                f"make it {problem.expected}, not {problem.given}",
            )
        raise ToolDefinitionError(f"Tool {owner!r} has an invalid JSON Schema: {where}; {remedy}.") from None
    except (ValueError, RecursionError) as error:
        raise ToolDefinitionError(
            f"Tool {owner!r} has an invalid JSON Schema: {error}; use plain JSON, nested less than 250 deep."
        ) from None
    checks = repeated_checks(plain)
    if checks is None or checks > MOST_CHECKS:
        raise ToolDefinitionError(
            f"Tool {owner!r} has a JSON Schema that checks one part of a value more than {MOST_CHECKS} times, or has "
            "references of which that cannot be told; refer to each form from fewer places, and as '#/$defs/<name>'."
        )
    cost = cost_of_json_schema(plain)
    # Most forms that a part of a value does not have are left at their first keyword.
    times = max(1, checks // 4)
    return _Compiled(plain, validator.is_valid, validator.iter_errors, validator.validate, cost, times)


def _never_fetch(uri: str) -> NoReturn:
    raise ValueError(f"{uri!r} is outside the document")


def _refuse_reference(owner: str, detail: str) -> NoReturn:
    raise ToolDefinitionError(
        f"Tool {owner!r} has a JSON Schema with a reference that leads nowhere inside it: {detail}. "
        "Nothing is ever fetched; copy the schema it means under '$defs' and refer to it as '#/$defs/<name>'."
    )


def _copy(node: object) -> Any:
    if isinstance(node, Mapping):
        return {key: _copy(value) for key, value in node.items()}
    return [_copy(item) for item in node] if isinstance(node, list | tuple) else node


def _references(schema: object) -> Iterator[str]:
    """Yield the references of a schema."""
    for _, node in _subschemas(schema, []):
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(node.get(key), str):
                yield node[key]


def _drafts_inside(schema: object) -> Iterator[tuple[str, str]]:
    """Yield where a part of a schema names another draft than the whole does, and its name."""
    whole = (schema.get("$schema") if isinstance(schema, dict) else None) or _DRAFT
    for path, node in _subschemas(schema, []):
        named = node.get("$schema")
        if path and named is not None and (not isinstance(named, str) or named.rstrip("#") != str(whole).rstrip("#")):
            yield json_path([*path, "$schema"]), named


def _subschemas(node: object, path: list[str | int]) -> Iterator[tuple[list[str | int], dict[str, Any]]]:
    """Yield the parts of a schema with their paths; `const` or `default` holds data, which may look like a schema."""
    if isinstance(node, list):
        for place, item in enumerate(node):
            yield from _subschemas(item, [*path, place])
    elif isinstance(node, dict):
        yield path, node
        for key, value in node.items():
            if key in BY_NAME and isinstance(value, dict):
                for name, item in value.items():
                    yield from _subschemas(item, [*path, key, name])
            elif key not in ("const", "enum", "default", "examples"):
                yield from _subschemas(value, [*path, key])


def _times(part: dict[str, Any]) -> int:
    """How many times longer than by a type it takes to check a value by a part of a schema, about."""
    forms = sum(len(part[key]) for key in ("anyOf", "oneOf", "allOf") if isinstance(part.get(key), list))
    options = part.get("enum")
    return max(8 if part.get("uniqueItems") else 1, forms, len(options) // 100 if isinstance(options, list) else 1)


_DRAFT = "https://json-schema.org/draft/2020-12/schema"
"""How a schema is read that names no draft."""

BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
"""The keywords whose values are objects of schemas, under names that mean nothing as keywords."""


# By keyword: the problem, and the expected value.
_WORDS = {
    "minimum": ("too small", "at least {limit}"),
    "maximum": ("too large", "at most {limit}"),
    "exclusiveMinimum": ("too small", "more than {limit}"),
    "exclusiveMaximum": ("too large", "less than {limit}"),
    "multipleOf": ("not a multiple", "a multiple of {multiple_of}"),
    "minLength": ("too short", "at least {limit} characters"),
    "maxLength": ("too long", "at most {limit} characters"),
    "pattern": ("does not match the pattern", "text that matches {pattern}"),
    "format": ("not well formed", "a {format}"),
    "minItems": ("too few items", "at least {limit} items"),
    "maxItems": ("too many items", "at most {limit} items"),
    "additionalItems": ("too many items", "at most {limit} items"),
    "unevaluatedItems": ("too many items", "no items at {unexpected}"),
    "uniqueItems": ("has equal items", "items that all differ"),
    "contains": ("lacks an item of the right form", "items as 'contains' asks"),
    "minProperties": ("too few fields", "at least {limit} fields"),
    "maxProperties": ("too many fields", "at most {limit} fields"),
    "falseSchema": ("not allowed here", "nothing here"),
    "not": ("has the one form that is not allowed", "anything that does not fit {schema}"),
}


def _problems_of(schema: object, value: object, error: jsonschema_rs.ValidationError) -> list[ArgumentProblem]:
    """Put one error of the validator in words; several unexpected fields are several problems."""
    path, given = _place(value, error)
    kind, detail = error.kind.name, error.kind.as_dict()
    match kind:
        case "required":
            return [missing_field(schema, [*path, detail["property"]], given)]
        case "additionalProperties" | "unevaluatedProperties":
            return [unexpected_field(schema, [*path, name], given.get(name)) for name in detail["unexpected"]]
        case "type":
            message, expected = "wrong type", types_named(detail["types"])
        case "enum":
            message, expected = "not one of the allowed values", one_of(detail["options"])
        case "const":
            message, expected = "not the one allowed value", preview(detail["expected_value"])
        case "anyOf" | "oneOf":
            forms = [[p for e in branch for p in _problems_of(schema, value, e)] for branch in detail["context"]]
            if all(forms):
                message, expected = "fits none of the allowed forms", _forms(json_path(path), forms)
            else:
                message, expected = (
                    "fits more than one of the allowed forms",
                    "exactly one of the allowed forms",
                )
        case "propertyNames":
            given = detail["error"].instance
            inner = _problems_of(schema, value, detail["error"])[0]
            message, expected = f"has a field whose name does not fit: {inner.message}", inner.expected
        case _:
            message, expected = _WORDS.get(kind, ("does not fit", f"a value that fits {kind!r}"))
            expected = expected.format_map(detail)
    return [ArgumentProblem(json_path(path), message, preview(given), shorten(expected, 500))]


def _place(document: Any, error: jsonschema_rs.ValidationError) -> tuple[Path, Any]:
    """Where in a document an error is, and the value there.

    The validator's own path does not distinguish a key made of digits from an index (`"007"` comes as 7), and leaves
    out an empty key. So each step is compared with the document; where that fits several keys, the text of the error
    decides.
    """
    path: list[str | int] = []
    value, steps, shown = document, list(error.instance_path), "\nOn instance"
    while True:
        if isinstance(value, dict) and "" in value and f'{shown}[""]' in error.verbose_message:
            step: str | int = ""
        elif not steps:
            return path, value
        else:
            step = steps.pop(0)
            if isinstance(value, dict) and isinstance(step, int):
                same = [key for key in value if re.fullmatch(rf"\+?0*{step}", key)]
                named = [key for key in same if shown + _step_shown(key) in error.verbose_message]
                step = next(iter(named or same), step)
        try:
            value = value[step]
        except (LookupError, TypeError):
            return path, value
        path.append(step)
        shown += _step_shown(step)


def _step_shown(step: str | int) -> str:
    """A step of a path as the validator writes it."""
    if isinstance(step, int) or (step.isascii() and step.isdecimal()):
        return f"[{step}]"
    return '["{}"]'.format(step.replace("~", "~0").replace("/", "~1"))


def _forms(path: str, forms: list[list[ArgumentProblem]]) -> str:
    words = (p.expected if p.path == path else f"a form where {p.path} is {p.expected}" for p, *_ in forms)
    return " or ".join(dict.fromkeys(words))
