"""`tools/call` of an MCP server. Owns the identity of a served call, and the calls that outlive their requests.

A call is known by the key that its client gives with it; the same key again is the same call, in this process and after
a restart. A request that ends early because its connection is lost leaves its call running: the client gives the key
again, and gets the outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from toolwright.background.handle import Run
from toolwright.calls.policy import Policy
from toolwright.errors import ReplayMismatch
from toolwright.ids import new_id
from toolwright.log_fields import log_fields
from toolwright.mcp.server_answers import result_of
from toolwright.mcp.server_executions import BatchExecution, Execution, RunExecution
from toolwright.mcp.server_progress import Reports
from toolwright.mcp.server_request import ClientRequest
from toolwright.mcp.server_sessions import NoSession, ServedSessions
from toolwright.mcp.server_tools import OfferedTools
from toolwright.mcp.server_waiting import Flight, OutcomeWaits
from toolwright.mcp.tasks import ServedTasks
from toolwright.session.session import Session
from toolwright.tools.call import ToolCall
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import ToolOutcome, encodable

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

log = logging.getLogger("toolwright.mcp")

IDEMPOTENCY_KEY = "dev.toolwright/idempotency-key"
"""The field of `_meta` in which a client names a call: the same name again is the same call."""
TOOL_USE_ID = "claudecode/toolUseId"
"""The field in which Claude Code gives the id of a call, which is used as its key."""
LONGEST_KEY = 256
"""Characters of a key."""
MADE_ID = "call_"
"""The start of the id of a call for which the client gives none."""
ABANDONED_SECONDS = 600.0
"""Seconds after which a call without a key ends that waits for its client."""
SCOPE = "mcp:"
"""The start of the scope of a served call; its id follows, so that everything of the call is found by its scope."""


class ServedCalls:
    """Runs the calls of clients, each under the policy for clients."""

    def __init__(
        self,
        sessions: ServedSessions,
        tools: OfferedTools,
        tasks: ServedTasks,
        waits: OutcomeWaits,
        policy: Policy | None,
    ) -> None:
        self._sessions = sessions
        self._tools = tools
        self._tasks = tasks
        self._waits = waits
        self._policy = policy
        self._reports = Reports()
        self._flights: dict[tuple[str, str], Flight] = {}
        self._watching: set[asyncio.Task[None]] = set()

    async def call(
        self, context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> dict[str, Any]:
        """Run the call of a request, or continue with it, and return its result, its task, or its questions."""
        request = ClientRequest(context)
        try:
            session = self._sessions.session_of(request)
            return await self._call(request, session, params)
        except (MCPError, ValidationError):
            raise
        except ReplayMismatch as error:
            # Not how it differs: clients that share a session are not to read each other's arguments.
            said = "The idempotency key was given with another call before: another tool, or other arguments; "
            raise MCPError(types.INVALID_PARAMS, f"{said}give each call its own key") from error
        except NoSession as error:
            raise MCPError(types.INVALID_REQUEST, str(error)) from error
        except Exception as error:  # the edge: what went wrong here is for the log, and not for a client
            log.exception("A served call failed", extra=log_fields("mcp.call_failed", tool=params.name))
            raise MCPError(types.INTERNAL_ERROR, "The server failed; its log says why") from error

    async def close(self) -> None:
        """Watch no more calls; those that run belong to the runtime."""
        for watching in self._watching:
            watching.cancel()
        if self._watching:
            await asyncio.wait(self._watching)

    async def _call(
        self, request: ClientRequest, session: Session, params: types.CallToolRequestParams
    ) -> dict[str, Any]:
        tool = self._offered(session, params.name)
        self._tasks.require_taken(request, tool)
        key, arguments = params.request_state or key_of(request.meta), params.arguments or {}
        if tool.hints.supports_background and request.takes_tasks:
            return await self._tasks.create(session, tool, arguments, key)
        reported = self._reports.wanted(request)
        flight = await self._flight(session, tool, arguments, key, at_once=not reported)
        if not isinstance(flight, Flight):
            return flight
        execution, clock = flight.execution, self._sessions.runtime.clock
        flight.requests += 1
        try:
            if not reported:
                ended = await self._waits.until_ended(request, session, flight, params, clock)
            else:
                async with self._reports.following(request, session, execution.scope, execution.call_id):
                    ended = await self._waits.until_ended(request, session, flight, params, clock)
        except BaseException as error:
            self._keep(session, flight, cancel=isinstance(error, asyncio.CancelledError) and request.was_cancelled)
            raise
        finally:
            flight.requests -= 1
        if isinstance(ended, ToolOutcome):
            self._flights.pop((session.id, flight.id), None)
            return await result_of(session, ended, tool, request.revision)
        self._keep(session, flight)
        return ended

    def _offered(self, session: Session, name: str) -> ToolDefinition:
        """The tool of a name.

        Raises:
            MCPError: there is none for this client.
        """
        runtime = self._sessions.runtime
        tool = self._tools.find(runtime, session, name)
        if tool is None:
            near = self._tools.near(runtime, session, name)
            hint = f"did you mean {near[0]!r}?" if near else "list the tools to see their names"
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {encodable(name[:200])!r}; {hint}")
        return tool

    # --- calls on their way

    async def _flight(
        self, session: Session, tool: ToolDefinition, arguments: Mapping[str, Any], key: str | None, *, at_once: bool
    ) -> Flight | dict[str, Any]:
        """The call of a request: a new one, or the one of its key; a result where it may not start.

        `at_once` lets it begin before anybody listens to its reports.
        """
        if key is None:
            id = new_id("call")
            return Flight(id, False, tool.name, arguments, self._start(session, tool, arguments, id, at_once))
        known = self._flights.get((session.id, key))
        if known is not None and known.is_of(tool.name, arguments) and not known.execution.done:
            return known
        execution: Execution
        if tool.hints.supports_background:
            # As a run also for a client that takes no task: the key is the same call for a client that does.
            run = await self._tasks.start(session, tool, arguments, key)
            if not isinstance(run, Run):
                return run
            execution = RunExecution(run)
        else:
            execution = self._start(session, tool, arguments, key, at_once)
        flight = self._flights[session.id, key] = Flight(key, True, tool.name, arguments, execution)
        return flight

    def _start(
        self, session: Session, tool: ToolDefinition, arguments: Mapping[str, Any], id: str, at_once: bool
    ) -> Execution:
        call, scope = ToolCall(name=tool.name, arguments=arguments, id=id), SCOPE + id
        batch = session.start_batch([call], scope=scope, under=self._policy, at_once=at_once)
        return BatchExecution(id, scope, batch)

    def _keep(self, session: Session, flight: Flight, *, cancel: bool = False) -> None:
        """Keep a call that continues without its request, until it ends; or let it end."""
        if flight.execution.done:
            self._flights.pop((session.id, flight.id), None)
            return
        self._flights[session.id, flight.id] = flight
        flight.kept += 1
        watching = asyncio.ensure_future(self._forget(session.id, flight, cancel))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)

    async def _forget(self, session: str, flight: Flight, cancel: bool) -> None:
        try:
            if cancel and not flight.requests:  # else another request of the same key waits for it
                await flight.execution.cancel("the client cancelled the request")
            elif not flight.keyed and await self._abandoned(flight):
                await flight.execution.cancel("its client did not come back")
            await flight.execution.settled()
        finally:
            if self._flights.get((session, flight.id)) is flight:
                del self._flights[session, flight.id]

    async def _abandoned(self, flight: Flight) -> bool:
        """True when the client of a call without a key has not come back for long: nobody else can, and a call that
        waits may keep later calls of the session waiting."""
        kept, clock = flight.kept, self._sessions.runtime.clock
        settled = asyncio.ensure_future(flight.execution.settled())
        late = asyncio.ensure_future(clock.sleep(ABANDONED_SECONDS))
        try:
            await asyncio.wait({settled, late}, return_when=asyncio.FIRST_COMPLETED)
            return not settled.done() and flight.requests == 0 and flight.kept == kept
        finally:
            settled.cancel()
            late.cancel()


def key_of(meta: Mapping[str, Any]) -> str | None:
    """The key that a client gives for a call; None if it gives none.

    Raises:
        MCPError: it is not usable.
    """
    for name in (IDEMPOTENCY_KEY, TOOL_USE_ID):
        key = meta.get(name)
        if key is not None:
            if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY or encodable(key) != key:
                raise MCPError(types.INVALID_PARAMS, f"{name} must be text of 1 to {LONGEST_KEY} characters")
            return key
    return None
