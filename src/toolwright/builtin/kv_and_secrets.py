"""Tools over the named values of a session: `kv_store` and `secret_store`. Owns which of them a model may see."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, WithJsonSchema

from toolwright.builtin.builtin_tool import boxed
from toolwright.builtin.output_schemas import one_of, several, shape
from toolwright.builtin.time_and_echo import instant
from toolwright.errors import SecretsError
from toolwright.tools.arguments import is_hidden
from toolwright.tools.context import ToolContext
from toolwright.tools.outcome import ToolError
from toolwright.tools.service_protocols import KeyInfo

RESERVED = "toolwright:"
"""Keys that begin so are the runtime's own; a model neither sees nor changes them."""

Key = Annotated[str, Field(min_length=1, max_length=255)]

MOST_SECRET = 16_384
# Checked in the tool: a value that is refused earlier is shown in the failure, and this one must not be.
Secret = Annotated[Any, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MOST_SECRET})]

T = TypeVar("T")
_LEFT_OUT: Any = object()  # for null is a value like any other
_LISTED = several(shape({"key": "string", "created_at": "string", "updated_at": "string"}))


def _listed(found: list[KeyInfo], limit: int) -> list[dict[str, Any]]:
    return [
        {"key": info.key, "created_at": instant(info.created_at), "updated_at": instant(info.updated_at)}
        for info in found[:limit]
    ]


def _require(action: str, field: str, given: T) -> T:
    if given is _LEFT_OUT:
        raise ToolError(
            f"The action {action!r} needs {field!r}; give it", category="invalid_arguments", code="missing_argument"
        )
    return given


def _open_key(action: str, key: str | None) -> str:
    name: str = _require(action, "key", _LEFT_OUT if key is None else key)
    if name.startswith(RESERVED):
        raise ToolError(
            f"The key {name!r} is the runtime's own; use one that does not begin with {RESERVED!r}",
            category="permission_denied",
            code="reserved_key",
        )
    return name


@boxed(
    "Key-Value Store",
    category="storage",
    idempotent=True,
    destructive=True,
    open_world=False,
    key="kv_store",
    gives=shape(
        {
            "action": one_of("get", "set", "delete", "list"),
            "key?": "string",
            "found?": "boolean",
            "value?": {},
            "deleted?": "boolean",
            "keys?": _LISTED,
            "total?": "integer",
        }
    ),
)
async def kv_store(
    ctx: ToolContext,
    action: Literal["get", "set", "delete", "list"],
    key: Key | None = None,
    value: object = _LEFT_OUT,
    prefix: Annotated[str, Field(max_length=255)] = "",
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100,
) -> object:
    """Store values of any JSON form under names, for the length of the session.

    Args:
        action: What to do.
        key: The name, for get, set and delete.
        value: The value to store, for set.
        prefix: List only names that begin so.
        limit: List at most so many names.
    """
    if action == "list":
        found = [info for info in await ctx.kv.list(prefix) if not info.key.startswith(RESERVED)]
        return {"action": action, "keys": _listed(found, limit), "total": len(found)}
    name = _open_key(action, key)
    if action == "set":
        await ctx.kv.set(name, _require(action, "value", value))
        return {"action": action, "key": name}
    if action == "delete":
        return {"action": action, "key": name, "deleted": await ctx.kv.delete(name)}
    kept = await ctx.kv.get(name, _LEFT_OUT)
    if kept is _LEFT_OUT:
        return {"action": action, "key": name, "found": False}
    return {"action": action, "key": name, "found": True, "value": kept}


def handle_of(name: str) -> str:
    """The name that a model uses in place of a secret."""
    return f"secret:{name}"


@boxed(
    "Secret Store",
    category="storage",
    idempotent=True,
    destructive=True,
    open_world=False,
    needs=["secrets"],
    secret="value",
    key="secret_store",
    gives=shape(
        {
            "action": one_of("set", "delete", "list"),
            "handle?": "string",
            "deleted?": "boolean",
            "secrets?": several(shape({"handle": "string", "created_at": "string", "updated_at": "string"})),
            "total?": "integer",
        }
    ),
)
async def secret_store(
    ctx: ToolContext,
    action: Literal["set", "delete", "list"],
    name: Key | None = None,
    value: Secret = _LEFT_OUT,
    limit: Annotated[int, Field(ge=1, le=500)] = 100,
) -> object:
    """Store secrets such as passwords and tokens for the session's tools. A value is never shown again.

    It returns a handle, which stands for the secret in later text.

    Args:
        action: What to do.
        name: The name of the secret, for set and delete.
        value: The secret itself, for set.
        limit: List at most so many.
    """
    if action == "list":
        found = await ctx.secrets.list()
        shown = [
            {
                "handle": handle_of(info.key),
                "created_at": instant(info.created_at),
                "updated_at": instant(info.updated_at),
            }
            for info in found[:limit]
        ]
        return {"action": action, "secrets": shown, "total": len(found)}
    chosen: str = _require(action, "name", _LEFT_OUT if name is None else name)
    if action == "delete":
        return {"action": action, "handle": handle_of(chosen), "deleted": await ctx.secrets.delete(chosen)}
    secret = _require(action, "value", value)
    if not isinstance(secret, str) or not 0 < len(secret) <= MOST_SECRET:
        raise ToolError(
            f"The value of {chosen!r} is not usable; use a text of 1 to {MOST_SECRET} characters",
            category="invalid_arguments",
            code="bad_value",
        )
    if is_hidden(secret):
        # A call that was cut off by a crash is finished with its recorded arguments, which do not hold the value.
        raise ToolError(
            f"The value of {chosen!r} was not recorded, so it is not known whether it was set; set it again",
            category="interrupted",
            code="value_not_kept",
        )
    try:
        await ctx.secrets.set(chosen, secret)
    except SecretsError as error:
        # The remedy is the owner's, and may name a path: it is for the record.
        raise ToolError(
            "Secrets cannot be stored here: the host lacks a key or a library for them",
            category="unavailable",
            code="not_installed",
            detail=str(error),
        ) from error
    return {"action": action, "handle": handle_of(chosen)}
