"""The OpenAPI 3.1 document. Made from the operations and from the types that check requests and shape answers, so that
it cannot say anything else than the service does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from inspect import cleandoc
from typing import Any

import msgspec
from msgspec import Struct

import toolwright
from toolwright.http.operations import LONGEST_ID, UNBOUNDED, Operation
from toolwright.http.problems import MEDIA_TYPE, ProblemDetails
from toolwright.tools.outcome import Failure, ToolOutcome

_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")
_REF = "#/components/schemas/{name}"
_BEARER = "token"
_PROBLEMS: dict[int, str] = {
    400: "The request cannot be read.",
    401: "There is no token, or none that is valid.",
    403: "The token does not allow it, or a rule refuses it.",
    404: "There is none, or none for this caller.",
    409: "It contradicts what stands.",
    410: "It is over.",
    413: "It is too large.",
    415: "The body has another media type.",
    422: "The request does not fit.",
    429: "There are too many.",
    503: "The store or the machine cannot serve it now.",
}


def openapi_document(operations: Iterable[Operation], title: str) -> dict[str, Any]:
    """The document of a service that has these operations."""
    shown = list(operations)
    types = _types(shown)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = {id(type): schema for type, schema in zip(types, schemas, strict=True)}
    told = {name: _as_told(name, component) for name, component in components.items()}
    paths: dict[str, dict[str, Any]] = {}
    for operation in shown:
        path = _PARAMETER.sub(r"{\1}", operation.full_path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": toolwright.__version__},
        "paths": paths,
        "components": {
            "schemas": told,
            "securitySchemes": {_BEARER: {"type": "http", "scheme": "bearer", "bearerFormat": "tw_…"}},
        },
    }


def _types(operations: Sequence[Operation]) -> list[Any]:
    found: dict[int, Any] = {id(ProblemDetails): ProblemDetails}
    for operation in operations:
        for type in (operation.answer, operation.body, operation.query, *operation.other_bodies, *_also(operation)):
            if type is not None:
                found[id(type)] = type
    return list(found.values())


def _also(operation: Operation) -> list[Any]:
    return [other.type for other in operation.also]


def _any_of(types: Sequence[object], by_type: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    schemas = [by_type[id(type)] for type in types]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _operation(operation: Operation, by_type: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    written: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), *_headers(operation)],
        "responses": _responses(operation, by_type),
    }
    if operation.description:
        written["description"] = cleandoc(operation.description)
    if operation.body is not None:
        written["requestBody"] = {
            "required": operation.body_needed,
            "content": {"application/json": {"schema": _any_of((operation.body, *operation.other_bodies), by_type)}},
        }
    elif operation.upload is not None:
        written["requestBody"] = {
            "required": True,
            "content": {operation.upload: {"schema": {"type": "string", "format": "binary"}}},
        }
    if operation.scope is not None:
        written["security"] = [{_BEARER: []}]
        written["x-scope"] = operation.scope
    return written


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, **_longest(name)}}
        for name in _PARAMETER.findall(operation.full_path)
    ]


def _longest(name: str) -> dict[str, int]:
    return {} if name in UNBOUNDED else {"maxLength": LONGEST_ID}


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    schema = msgspec.json.schema(operation.query, ref_template=_REF)
    fields: Mapping[str, Any] = schema["$defs"][operation.query.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": _without_null(field)}
        for name, field in fields.items()
    ]


def _without_null(field: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a parameter: it is left out where a field would be null."""
    choices = [choice for choice in field.get("anyOf", ()) if choice != {"type": "null"}]
    default = {} if field.get("default") is None else {"default": field["default"]}
    return {**choices[0], **default} if len(choices) == 1 else dict(field)


def _headers(operation: Operation) -> list[dict[str, Any]]:
    if operation.method != "POST" or not operation.remembered:
        return []
    return [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The same key gives the same answer, and the work is done once.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }
    ]


def _responses(operation: Operation, by_type: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(operation.status): _response(
            _phrase(operation.status), operation.media_type, operation.answer, operation.status, by_type
        )
    }
    for other in operation.also:
        response = _response(other.says, other.media_type, other.type, other.status, by_type)
        known = responses.setdefault(str(other.status), response)
        for media_type, content in response.get("content", {}).items() if known is not response else ():
            had = known.setdefault("content", {}).get(media_type)
            known["content"][media_type] = content if had is None else {"schema": _either(had, content)}
    problem = {"content": {MEDIA_TYPE: {"schema": by_type[id(ProblemDetails)]}}}
    for status, says in _PROBLEMS.items():
        if str(status) not in responses and (operation.scope is not None or status not in (401,)):
            responses[str(status)] = {"description": says, **problem}
    responses["default"] = {"description": "Any other problem.", **problem}
    return responses


def _either(had: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The schema that fits either content."""
    choices = [had["schema"]] if "anyOf" not in had["schema"] else had["schema"]["anyOf"]
    return {"anyOf": [*choices, other["schema"]]}


def _response(
    says: str, media_type: str, type: object, status: int, by_type: Mapping[int, dict[str, Any]]
) -> dict[str, Any]:
    if status in (204, 304):
        return {"description": says}
    schema = {} if type is None else by_type[id(type)]
    return {"description": says, "content": {media_type: {"schema": schema}}}


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase


# --- types of the core, whose JSON form is that of `plain_data`


def _as_told(name: str, component: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type as it is told over HTTP: instants are text, and what it does not tell is not there."""
    properties = component.get("properties")
    if properties is None:
        return component
    untold: frozenset[str] = _UNTOLD.get(name, frozenset())
    told = {
        field: _instant(schema) if _is_instant(field) else schema
        for field, schema in properties.items()
        if field not in untold
    }
    told.update(_BESIDE.get(name, {}))
    written = {**component, "properties": told}
    if "required" in written:
        written["required"] = [field for field in written["required"] if field in told]
    if "description" in written:
        written["description"] = cleandoc(written["description"])
    return written


def _is_instant(field: str) -> bool:
    return field in ("at", "instant", "deadline") or field.endswith("_at")


_TEXT = {"type": "string", "format": "date-time"}


def _instant(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") == "number":
        return {**_TEXT, **{name: value for name, value in schema.items() if name == "description"}}
    if "anyOf" in schema:
        return {**schema, "anyOf": [_instant(choice) for choice in schema["anyOf"]]}
    return schema


def _untold_of(*types: type[Struct]) -> dict[str, frozenset[str]]:
    return {type.__name__: getattr(type, "untold", frozenset()) for type in types}


_UNTOLD = _untold_of(ToolOutcome, Failure)
_BESIDE: dict[str, dict[str, Any]] = {
    "ToolOutcome": {
        "value": {"description": "The value of the tool, as JSON; null unless the call succeeded."},
        "text": {"type": "string", "description": "The text that the model reads."},
    }
}
"""Properties that are told, and are no fields."""
