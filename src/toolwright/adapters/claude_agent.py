"""Toolwright inside the Claude Agent SDK: a session as an in-process MCP server, its policy for permissions, and tools
of the SDK as ours.

Owns which permission becomes which approval. The server is that of `toolwright.mcp`. The extra is `claude-agent`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from toolwright.errors import KeyRefused, MissingRequirement, ToolDefinitionError, ToolwrightError
from toolwright.extras import how_to_install, missing_libraries
from toolwright.log_fields import log_fields

if missing := missing_libraries("claude-agent"):
    raise MissingRequirement(
        f"toolwright.adapters.claude_agent needs libraries that are not installed ({', '.join(missing)}); "
        f"run: {how_to_install(['claude-agent'])}"
    )

from claude_agent_sdk import (
    McpSdkServerConfig,
    PermissionResultAllow,
    PermissionResultDeny,
    SdkMcpTool,
    ToolPermissionContext,
)
from pydantic import PydanticUserError, create_model
from typing_extensions import get_type_hints, is_typeddict

if TYPE_CHECKING:
    from toolwright.calls.policy import Policy
    from toolwright.event_bus import Subscription
    from toolwright.session.session import Session
    from toolwright.tools.arguments import Arguments
    from toolwright.tools.options import ToolOptions
    from toolwright.tools.tool import Tool

__all__ = ["can_use_tool", "sdk_server", "tools_from"]

PermissionResult = PermissionResultAllow | PermissionResultDeny
CanUseTool = Callable[[str, dict[str, Any], ToolPermissionContext], Awaitable[PermissionResult]]

log = logging.getLogger("toolwright.adapters")

WAIT = 3_600.0
"""Seconds that a call waits for somebody who decides in the inbox."""
ARRIVES_WITHIN = 300.0
"""Seconds within which a call arrives that a person has allowed; after that the permission is void."""
BY = "claude-agent-sdk"
"""Who decided, where the SDK asked: it does not say the person."""


def sdk_server(
    session: Session,
    *,
    name: str = "toolwright",
    tools: Sequence[str] | None = None,
    policy: Policy | None = None,
    wait: float = WAIT,
) -> McpSdkServerConfig:
    """The tools of a session as a server for `ClaudeAgentOptions(mcp_servers={"toolwright": sdk_server(session)})`.

    A call has the id that Claude Code gives it, so that one which comes again, also after a crash, has its recorded
    outcome. Where a rule asks, the call waits for the inbox, or for the person behind `can_use_tool`.

    Args:
        session: the session.
        name: the name of the server, which is also its key among the `mcp_servers`.
        tools: the names of the tools to offer, or patterns such as "git_*"; by default all.
        policy: more bounds for the calls of Claude: a call runs only where this policy and the session's let it.
        wait: seconds that a call waits for a decision in the inbox. After that Claude reads that it waits, and gets the
            outcome when it makes the same call again.

    Raises:
        ToolwrightError: it is no session, or one of `Runtime.open_blocking(...)`.
    """
    from toolwright.mcp.tool_server import server

    made = server(_async_session(session), name=name, tools=tools, policy=policy, approvals="inbox", wait=wait)
    return {"type": "sdk", "name": name, "instance": cast("Any", made)}


def can_use_tool(
    session: Session,
    ask: CanUseTool | None = None,
    *,
    name: str = "toolwright",
    otherwise: CanUseTool | None = None,
) -> CanUseTool:
    """The policy of a session as the `can_use_tool` of `ClaudeAgentOptions`.

    A call that the policy lets run is allowed, one that it denies is denied with the reason. One that needs an approval
    is asked about by `ask`, a function like `can_use_tool` itself: what it allows is approved in the session, with the
    input that it gives. Without `ask` the call waits in the inbox.

    Args:
        session: the session of `sdk_server`.
        ask: asks a person about one call.
        name: the name of the server.
        otherwise: decides about the tools of others; by default they are denied.
    """
    from toolwright.tools.call import ToolCall

    session = _async_session(session)
    prefix, approving = f"mcp__{name}__", set[asyncio.Task[None]]()

    async def decide(tool: str, given: dict[str, Any], context: ToolPermissionContext) -> PermissionResult:
        if not tool.startswith(prefix):
            if otherwise is not None:
                return await otherwise(tool, given, context)
            return PermissionResultDeny(message=f"Nobody decides about tool {tool!r} here; allow it in the options")
        own = tool.removeprefix(prefix)
        judged = await session.would(ToolCall(name=own, arguments=given, id=context.tool_use_id))
        if judged.effect == "deny" and judged.failure is None:
            return PermissionResultDeny(message=judged.reason or f"Tool {own!r} may not run, by rule {judged.rule!r}")
        if judged.effect != "ask" or ask is None:
            # A call that fails anyway fails in the session, which tells the model why.
            return PermissionResultAllow(updated_input=given)
        answer = await ask(tool, given, context)
        if isinstance(answer, PermissionResultAllow):
            arguments = given if answer.updated_input is None else answer.updated_input
            # It listens before Claude makes the call.
            events = session.subscribe()
            task = asyncio.ensure_future(_approve(session, events, own, arguments, context.tool_use_id))
            approving.add(task)
            task.add_done_callback(approving.discard)
        return answer

    return decide


def _async_session(given: Session) -> Session:
    """The session, if it lives on a loop that the agent can run on."""
    from toolwright.adapters.session_loop import session_of
    from toolwright.blocking import BlockingPortal

    if isinstance(given, BlockingPortal):
        raise ToolwrightError(
            f"{given!r:.200} is a session for code that is not async, and the SDK is async; open the runtime "
            "with `async with Runtime.open(...)`, on the loop of the agent"
        )
    return session_of(given)


async def _approve(
    session: Session, events: Subscription, tool: str, arguments: dict[str, Any], call_id: str | None
) -> None:
    """Approve the one call that a person has allowed, when it asks. One that ran before a crash does not."""
    from toolwright.events import CallEvent, CallWaiting
    from toolwright.mcp.server_calls import MADE_ID, SCOPE
    from toolwright.tools.names import wire_name

    try:
        async with asyncio.timeout(ARRIVES_WITHIN):
            async for event in events:
                if isinstance(event, CallEvent) and event.kind == "call.finished" and event.call_id == call_id:
                    return
                if not isinstance(event, CallWaiting) or event.what != "approval":
                    continue
                # Another call with the same arguments was not allowed. A client that gives no ids has ids made here.
                if event.call_id != call_id and not event.call_id.startswith(MADE_ID):
                    continue
                for each in await session.approvals():
                    if each.call_id != event.call_id or not each.scope.startswith(SCOPE) or each.cause != "policy":
                        continue
                    if tool in (each.tool, wire_name(each.tool)) and each.arguments == arguments:
                        with contextlib.suppress(KeyRefused):  # its call ended meanwhile
                            if (await session.approve(each.key, by=BY)).first:
                                return
    except TimeoutError:
        log.warning(
            "A call of tool %r that was allowed did not come; its permission is void",
            tool,
            extra=log_fields("claude_agent.permission_void", session=session.id, tool=tool),
        )
    finally:
        events.close()


def tools_from(tools: Iterable[SdkMcpTool[Any]], **options: Unpack[ToolOptions]) -> list[Tool]:
    """Tools that were made with the SDK's `@tool` as tools of ours, for an app or a session.

    Args:
        tools: the tools. Their annotations are their hints.
        options: options of our `@tool` for all of them, before those of the annotations.

    Raises:
        ToolDefinitionError: one is not a tool of the SDK, or its schema is not usable.
    """
    return [_ours(tool, options) for tool in tools]


def _ours(tool: SdkMcpTool[Any], options: ToolOptions) -> Tool:
    from toolwright.tools.outcome import Success, ToolError
    from toolwright.tools.tool import Tool
    from toolwright.wire.mcp import read_result

    if not isinstance(tool, SdkMcpTool):
        raise ToolDefinitionError(f"{tool!r:.200} is not a tool of the Claude Agent SDK; decorate it with @tool first")

    async def run(arguments: Arguments) -> object:
        result = dict(await tool.handler(dict(arguments)))
        if "is_error" in result:
            result["isError"] = bool(result.pop("is_error"))
        outcome = read_result(result, call_id="", tool=tool.name)
        if outcome.failure is not None:
            raise ToolError(outcome.failure.message)
        if outcome.images or outcome.attachments:
            return Success(outcome.value, images=outcome.images, attachments=outcome.attachments)
        return outcome.value

    hints = tool.annotations
    if hints is not None:
        told = {
            "readonly": hints.read_only_hint,
            "idempotent": hints.idempotent_hint,
            "destructive": hints.destructive_hint,
            "open_world": hints.open_world_hint,
        }
        options = cast("ToolOptions", {**{key: value for key, value in told.items() if value is not None}, **options})
    options = cast("ToolOptions", {"id": f"claude.{tool.name}", **options})
    return Tool.from_schema(
        name=tool.name, description=tool.description, input_schema=_schema(tool), handler=run, **options
    )


def _schema(tool: SdkMcpTool[Any]) -> dict[str, Any]:
    """The schema of a tool: JSON Schema, types by name, or a typed dictionary."""
    given = tool.input_schema
    try:
        if isinstance(given, Mapping):
            if isinstance(given.get("type"), str) and isinstance(given.get("properties", {}), Mapping):
                return dict(given)
            fields: dict[str, Any] = {name: (kind, ...) for name, kind in given.items()}
        elif is_typeddict(given):
            required = given.__required_keys__
            fields = {
                name: (kind, ...) if name in required else (kind, None) for name, kind in get_type_hints(given).items()
            }
        else:
            raise ToolDefinitionError(f"Tool {tool.name!r} has the schema {given!r:.200}; use a dict or a TypedDict")
        found = create_model("Arguments", **fields).model_json_schema()
    except (TypeError, ValueError, PydanticUserError) as error:
        raise ToolDefinitionError(f"Tool {tool.name!r} has a schema that cannot be used: {error}") from error
    return {name: value for name, value in found.items() if name != "title"}
