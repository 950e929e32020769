"""The key-values and the secrets of a session. A secret is written and removed, and never read."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from toolwright.http.cursors import Page, PageQuery, page_from, read_cursor
from toolwright.http.operations import Operation, ServiceRequest
from toolwright.http.problems import not_found
from toolwright.tools.service_protocols import KeyInfo


class KeysQuery(PageQuery, frozen=True, kw_only=True):
    """Which keys are listed."""

    prefix: Annotated[str, Meta(max_length=500, description="Only keys that begin with this.")] = ""


class Value(Struct, frozen=True, forbid_unknown_fields=True):
    """A value: any JSON."""

    value: Any


class KeyedValue(Struct, frozen=True):
    """A key and its value."""

    key: str
    value: Any


class SecretValue(Struct, frozen=True):
    """The value of a secret: text. It is checked where it is sealed, since no problem may show it."""

    value: Any


async def list_keys(request: ServiceRequest[None, KeysQuery]) -> dict[str, Any]:
    """The keys of a session, in order."""
    return _page(await request.session().kv.list(request.query.prefix), request.query)


async def read_value(request: ServiceRequest[None, None]) -> dict[str, Any]:
    """The value of a key."""
    key, missing = request.path["key"], object()
    value = await request.session().kv.get(key, missing)
    if value is missing:
        raise not_found(f"There is no key {key!r:.200} in this session; list its keys")
    return {"key": key, "value": value}


async def write_value(request: ServiceRequest[Value, None]) -> dict[str, Any]:
    """Write the value of a key, in place of the old one."""
    key = request.path["key"]
    await request.session().kv.set(key, request.body.value)
    return {"key": key, "value": request.body.value}


async def delete_value(request: ServiceRequest[None, None]) -> None:
    """Remove a key."""
    key = request.path["key"]
    if not await request.session().kv.delete(key):
        raise not_found(f"There is no key {key!r:.200} in this session; list its keys")


async def list_secrets(request: ServiceRequest[None, PageQuery]) -> dict[str, Any]:
    """The names of the secrets of a session, in order. Their values are never read."""
    return _page(await request.session().secrets.list(), request.query)


async def write_secret(request: ServiceRequest[SecretValue, None]) -> None:
    """Write a secret, in place of the old one."""
    await request.session().secrets.set(request.path["name"], request.body.value)


async def delete_secret(request: ServiceRequest[None, None]) -> None:
    """Remove a secret."""
    name = request.path["name"]
    if not await request.session().secrets.delete(name):
        raise not_found(f"There is no secret {name!r:.200} in this session; list their names")


def _page(keys: list[KeyInfo], query: PageQuery) -> dict[str, Any]:
    place = read_cursor(query.cursor, tuple[str])
    found = [info for info in keys if place is None or info.key > place[0]]
    return page_from(found, query.limit, lambda info: (info.key,))


_KEYS = "/sessions/{session}/kv"
_SECRETS = "/sessions/{session}/secrets"
OPERATIONS = (
    Operation(
        method="GET",
        path=_KEYS,
        handler=list_keys,
        scope="read",
        summary="List the keys of a session",
        tag="key-values",
        query=KeysQuery,
        answer=Page[KeyInfo],
    ),
    Operation(
        method="GET",
        path=f"{_KEYS}/{{key}}",
        handler=read_value,
        scope="read",
        summary="Read the value of a key",
        tag="key-values",
        answer=KeyedValue,
    ),
    Operation(
        method="PUT",
        path=f"{_KEYS}/{{key}}",
        handler=write_value,
        scope="run",
        summary="Write the value of a key",
        tag="key-values",
        body=Value,
        answer=KeyedValue,
    ),
    Operation(
        method="DELETE",
        path=f"{_KEYS}/{{key}}",
        handler=delete_value,
        scope="run",
        summary="Remove a key",
        tag="key-values",
        status=204,
    ),
    Operation(
        method="GET",
        path=_SECRETS,
        handler=list_secrets,
        scope="read",
        summary="List the names of the secrets of a session",
        tag="secrets",
        query=PageQuery,
        answer=Page[KeyInfo],
    ),
    Operation(
        method="PUT",
        path=f"{_SECRETS}/{{name}}",
        handler=write_secret,
        scope="run",
        summary="Write a secret, which is never read",
        tag="secrets",
        body=SecretValue,
        status=204,
    ),
    Operation(
        method="DELETE",
        path=f"{_SECRETS}/{{name}}",
        handler=delete_secret,
        scope="run",
        summary="Remove a secret",
        tag="secrets",
        status=204,
    ),
)
