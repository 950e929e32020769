"""A tool of an MCP server as a tool of ours. Owns its definition: name, schemas, hints, crash policy; does not own
calling it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from toolwright import jsonx
from toolwright.errors import InvalidArguments
from toolwright.mcp.client_redaction import ServerSecrets
from toolwright.mcp.client_settings import ServerSettings
from toolwright.mcp.server_schemas import require_usable
from toolwright.mcp.tool_names import LONGEST_TITLE, clean_schema, clean_text
from toolwright.tools.arguments import Arguments
from toolwright.tools.context import StepCrashPolicy, ToolContext
from toolwright.tools.options import ToolOptions
from toolwright.tools.raw_schema import OutputCheck, Validate, compile_output_schema
from toolwright.tools.retry_policy import RetryPolicy
from toolwright.tools.tool import Tool

if TYPE_CHECKING:
    from mcp_types import Tool as ListedTool

_RETRY = RetryPolicy(attempts=3, base_delay=0.2)
"""For calls that may be repeated: a server that was started again answers the next attempt."""


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool of a server, as its calls need it."""

    own_name: str
    """Its name at the server."""
    name: str
    """Its name among ours."""
    check_output: OutputCheck | None
    repeatable: bool
    step_policy: StepCrashPolicy | None
    """The crash policy of each request, where requests are steps of their call; None where they are not."""


Call = Callable[[ServerTool, dict[str, Any], ToolContext[Any]], Awaitable[object]]


def make_tool(
    listed: ListedTool, name: str, settings: ServerSettings, secrets: ServerSecrets, call: Call, *, in_steps: bool
) -> Tool:
    """The tool of a listing. The hints of a server that is not trusted are not used.

    Raises:
        ToolDefinitionError: a schema is not usable, or too costly to check, or an option of the owner's is not.
    """
    input_schema = _schema(listed.input_schema, name, secrets)
    output_schema = None if listed.output_schema is None else _schema(listed.output_schema, name, secrets)
    options: dict[str, Any] = {
        "kind": "mcp",
        "id": f"mcp.{settings.name}.{listed.name}",
        "category": f"mcp:{settings.name}",
        "timeout": settings.timeout,
        **(_believed(listed) if settings.trusted else {}),
        **settings.tools.get(listed.name, {}),
    }
    repeatable = bool(options.get("readonly") or options.get("idempotent"))
    if repeatable:
        options.setdefault("retry", _RETRY)
    on_crash: StepCrashPolicy = options.get("on_crash") or ("rerun" if repeatable else "fail")
    in_steps = in_steps and not callable(on_crash)
    if in_steps:
        # The requests inside of the call are steps, which follow the policy one by one.
        options["on_crash"] = "rerun"
    title = clean_text(listed.title or (listed.annotations and listed.annotations.title) or "", LONGEST_TITLE)
    if title:
        options.setdefault("display_name", title)
    if output_schema is not None:
        options["output_schema"] = output_schema
    tool = ServerTool(
        listed.name,
        name,
        None if output_schema is None else compile_output_schema(output_schema, owner=name),
        repeatable,
        on_crash if in_steps else None,
    )

    async def run(arguments: Arguments, ctx: ToolContext[Any]) -> object:
        return await call(tool, {key: arguments[key] for key in arguments}, ctx)

    made = Tool.from_schema(
        name=name,
        description=clean_text(secrets.text(listed.description or "")),
        input_schema=input_schema,
        handler=run,
        **cast("ToolOptions", options),
    )
    made.validate = _without_nulls(made.validate, input_schema)
    made.check_output = None  # checked by the call, which names the server as the culprit
    return made


def _without_nulls(validate: Validate, schema: Mapping[str, Any]) -> Validate:
    """Arguments that fit when the nulls of optional parameters are left out, as models write them for "nothing"."""
    required = schema.get("required")
    needed = frozenset(required) if isinstance(required, list) else frozenset()

    def validated(raw: bytes) -> dict[str, Any]:
        try:
            return validate(raw)
        except InvalidArguments:
            given = None if b"null" not in raw else jsonx.decode(raw)
            if not isinstance(given, dict):
                raise
            left = {name: value for name, value in given.items() if value is not None or name in needed}
            if len(left) == len(given):
                raise
            return validate(jsonx.encode(left))

    return validated


def _schema(schema: Mapping[str, Any], tool: str, secrets: ServerSecrets) -> dict[str, Any]:
    require_usable(schema, tool=tool)
    cleaned: dict[str, Any] = clean_schema(secrets.data(dict(schema)))
    return cleaned


def _believed(listed: ListedTool) -> dict[str, Any]:
    """The hints of a trusted server; one that is not given is the dangerous one."""
    said = listed.annotations
    if said is None:
        return {}
    hints: dict[str, Any] = {}
    if said.read_only_hint is True:
        hints["readonly"] = True
    elif said.destructive_hint is not None:
        hints["destructive"] = said.destructive_hint
    if said.idempotent_hint is True:
        hints["idempotent"] = True
    if said.open_world_hint is not None:
        hints["open_world"] = said.open_world_hint
    return hints
