"""Calls over a connected server. Owns sending them, the rounds in which a server asks for input, and their progress;
does not own connecting, nor the form of results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from toolwright.clock import Clock
from toolwright.mcp.client_input import CallInput, InputAnswers
from toolwright.mcp.client_redaction import ServerSecrets
from toolwright.mcp.client_result import NOT_CONNECTED, bad_answer, read_error
from toolwright.mcp.client_settings import ServerSettings
from toolwright.mcp.tool_names import clean_text
from toolwright.tools.context import StepCrashPolicy, ToolContext
from toolwright.tools.outcome import ToolError

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp_types import RequestParamsMeta

IDEMPOTENCY_KEY = "dev.toolwright/idempotency-key"
"""The field of a request's `_meta` that is the same whenever the same call is sent."""
MOST_ROUNDS = 25
"""How often a server may ask for input in one call."""
_CLOSED = "Connection closed"
"""How the SDK says that there is no connection any more."""
_PROGRESS_EVERY = 0.05
"""Seconds between two reports of progress that are passed on."""
_LONGEST_LABEL = 500
_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)
_CURRENT: ContextVar[CallInput | None] = ContextVar("toolwright_mcp_call", default=None)


@dataclass(slots=True, eq=False)
class LiveServer:
    """A connected server: the client of the SDK, and the calls that are on their way."""

    settings: ServerSettings
    client: Client
    secrets: ServerSecrets
    clock: Clock
    list_again: Callable[[], Any]
    """Read the list of tools again, and wait for it."""
    in_flight: list[CallInput] = field(default_factory=list)
    ended: str | None = None
    """Why the connection is no longer usable."""

    @property
    def modern(self) -> bool:
        """Whether the protocol is that of 2026, where a server asks by its result."""
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    def asking_call(self) -> CallInput | None:
        """The call that a question of the server belongs to; None if that cannot be known.

        Over HTTP the question comes in the context of the request; over stdio, only a call that is alone is known.
        """
        current = _CURRENT.get()
        if current is not None and current in self.in_flight:
            return current
        return self.in_flight[0] if len(self.in_flight) == 1 else None

    async def send(
        self,
        tool: str,
        arguments: dict[str, Any],
        call: CallInput,
        *,
        repeatable: bool,
        responses: dict[str, Any] | None = None,
        state: str | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Send one request, and wait for its result.

        Raises:
            ToolError: the server answers with an error or rubbish, or is gone.
        """
        name = self.settings.name
        marker = _CURRENT.set(call)
        self.in_flight.append(call)
        try:
            return await self._request(tool, arguments, call.ctx, responses, state)
        except MCPError as error:
            if error.code == HEADER_MISMATCH and self.modern:
                # It was refused unseen: the server's schema of the tool is another than ours.
                await self.list_again()
                try:
                    return await self._request(tool, arguments, call.ctx, responses, state)
                except MCPError as second:
                    error = second
            # Over HTTP nobody tells when a connection ends; a process is there until it is known to have ended.
            there = self.settings.transport == "stdio" and self.ended is None and error.message != _CLOSED
            raise read_error(
                error, name, tool, self.secrets.text, repeatable=repeatable, why=self.ended, open=there
            ) from None
        except ValidationError as error:
            raise bad_answer(name, tool, error) from None
        finally:
            self.in_flight.remove(call)
            _CURRENT.reset(marker)

    async def _request(
        self,
        tool: str,
        arguments: dict[str, Any],
        ctx: ToolContext[Any],
        responses: dict[str, Any] | None,
        state: str | None,
    ) -> CallToolResult | InputRequiredResult:
        request = CallToolRequest(
            params=CallToolRequestParams(
                name=tool,
                arguments=arguments,
                input_responses=responses,
                request_state=state,
                _meta=cast("RequestParamsMeta", {IDEMPOTENCY_KEY: ctx.idempotency_key}),
            )
        )
        # Not by `call_tool`: that checks output schemas in slow code, and raises after the effect.
        result = await self.client.session.send_request(
            request, _RESULT, progress_callback=_Progress(ctx, self.clock, self.secrets)
        )
        return self._redacted(result)

    def _redacted(self, result: CallToolResult | InputRequiredResult) -> CallToolResult | InputRequiredResult:
        if not self.secrets:
            return result
        told = result.model_dump(by_alias=True, mode="json", exclude_unset=True)
        cleaned = self.secrets.data(told)
        return result if cleaned is told else _RESULT.validate_python(cleaned)


FindServer = Callable[[LiveServer | None], Awaitable[LiveServer]]
"""The server, once it is connected; given one that could not be reached, once that is looked into."""


class _Progress:
    """Passes the progress of a call on, at most every few milliseconds."""

    __slots__ = ("_clock", "_ctx", "_next", "_secrets")

    def __init__(self, ctx: ToolContext[Any], clock: Clock, secrets: ServerSecrets) -> None:
        self._ctx = ctx
        self._clock = clock
        self._secrets = secrets
        self._next = float("-inf")

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        now = self._clock.monotonic()
        if now < self._next and progress != total:
            return
        self._next = now + _PROGRESS_EVERY
        label = None if message is None else clean_text(self._secrets.text(message), _LONGEST_LABEL)
        self._ctx.progress(progress, total, label)


async def call_in_rounds(
    live: FindServer,
    tool: str,
    arguments: dict[str, Any],
    call: CallInput,
    answers: InputAnswers,
    *,
    repeatable: bool,
    step_policy: StepCrashPolicy | None,
) -> CallToolResult:
    """Call a tool, and answer what its server asks for, round by round.

    With a `step_policy` each request is a step of the call: a call whose question is open survives the end of this
    process then, and a request that was cut off follows the policy.

    Raises:
        ToolError: as for `LiveServer.send`; or the server asks for something it may not have, or too often.
    """
    responses: dict[str, Any] | None = None
    state: str | None = None
    waits = 0
    for number in range(1, MOST_ROUNDS + 1):
        send = _Send(live, tool, arguments, call, repeatable, responses, state)
        if step_policy is None:
            result = await send.now()
        else:
            told = await call.ctx.step(f"mcp-call-{number}", send.told, on_crash=step_policy)
            result = send.result or _RESULT.validate_python(told)
        if isinstance(result, CallToolResult):
            return result
        state = result.request_state
        if result.input_requests:
            responses = await answers.all(call, result.input_requests)
        else:
            responses = None
            await asyncio.sleep(min(0.05 * 2**waits, 1.0))
            waits += 1
    raise ToolError(
        f"The MCP server asked for input {MOST_ROUNDS} times in one call of {tool!r}; it is given up",
        category="external",
        code="mcp_too_many_rounds",
    )


@dataclass(slots=True)
class _Send:
    """One request of a call."""

    live: FindServer
    tool: str
    arguments: dict[str, Any]
    call: CallInput
    repeatable: bool
    responses: dict[str, Any] | None
    state: str | None
    result: CallToolResult | InputRequiredResult | None = None

    async def now(self) -> CallToolResult | InputRequiredResult:
        """Send it. A request that never reached the server is sent once more, when it is there again."""
        server = await self.live(None)
        try:
            return await self._over(server)
        except ToolError as error:
            if error.failure.code != NOT_CONNECTED:
                raise
        return await self._over(await self.live(server))

    async def _over(self, server: LiveServer) -> CallToolResult | InputRequiredResult:
        return await server.send(
            self.tool,
            self.arguments,
            self.call,
            repeatable=self.repeatable,
            responses=self.responses,
            state=self.state,
        )

    async def told(self) -> dict[str, Any]:
        """Send it, and return the result as plain data; it is also kept as it came."""
        self.result = result = await self.now()
        return result.model_dump(by_alias=True, mode="json", exclude_unset=True)
