"""`tools/call` of an MCP server. Owns the identity of a served call, waiting for its outcome, and its result.

A call is known by the key that its client gives with it; the same key again is the same call, in this process and after
a restart. A request that ends early because its connection is lost leaves its call running: the client gives the key
again, and gets the outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from toolwright import jsonx
from toolwright.calls.batch import Batch
from toolwright.calls.policy import Policy
from toolwright.errors import ReplayMismatch, ToolwrightError
from toolwright.ids import new_id
from toolwright.mcp.server_progress import Reports
from toolwright.mcp.server_questions import OpenQuestion, answer, open_questions
from toolwright.mcp.server_request import ClientRequest
from toolwright.mcp.server_sessions import NoSession, ServedSessions
from toolwright.mcp.server_tools import OfferedTools
from toolwright.runtime.runtime import Runtime
from toolwright.session.session import Session
from toolwright.tools.call import ToolCall
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import ToolOutcome, encodable
from toolwright.wire.mcp import write_result

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

log = logging.getLogger("toolwright.mcp")

IDEMPOTENCY_KEY = "dev.toolwright/idempotency-key"
"""The field of `_meta` in which a client names a call: the same name again is the same call."""
TOOL_USE_ID = "claudecode/toolUseId"
"""The field in which Claude Code gives the id of a call, which is used as its key."""
LONGEST_KEY = 256
"""Characters of a key."""
SCOPE = "mcp:"
"""The start of the scope of a served call; its id follows, so that everything of the call is found by its scope."""


@dataclass(eq=False, slots=True)
class Flight:
    """A served call that is on its way in this process."""

    id: str
    keyed: bool
    content: str
    batch: Batch
    asking: bool = False
    """True while a client shows a form of the call."""
    dismissed: bool = False
    """True after a client did not answer a form: the question stays in the inbox, and is not shown again."""


class ServedCalls:
    """Runs the calls of clients, each under the policy for clients."""

    def __init__(
        self,
        sessions: ServedSessions,
        tools: OfferedTools,
        *,
        policy: Policy | None,
        by_client: bool,
        wait: float,
    ) -> None:
        self._sessions = sessions
        self._tools = tools
        self._policy = policy
        self._by_client = by_client
        self._wait = wait
        self._reports = Reports()
        self._flights: dict[tuple[str, str], Flight] = {}
        self._watching: set[asyncio.Task[None]] = set()

    async def call(
        self, context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> dict[str, Any]:
        """Run the call of a request, or continue with it, and return its result."""
        request = ClientRequest(context)
        try:
            session = self._sessions.session_of(lambda: request.client)
            return await self._call(request, session, params)
        except (MCPError, ValidationError):
            raise
        except ReplayMismatch as error:
            said = f"The idempotency key was given with another call before: {error}"
            raise MCPError(types.INVALID_PARAMS, said) from error
        except NoSession as error:
            raise MCPError(types.INVALID_REQUEST, str(error)) from error
        except Exception as error:  # the edge: what went wrong here is for the log, and not for a client
            log.exception("A served call failed")
            raise MCPError(types.INTERNAL_ERROR, "The server failed; its log says why") from error

    async def _call(
        self, request: ClientRequest, session: Session, params: types.CallToolRequestParams
    ) -> dict[str, Any]:
        runtime = self._sessions.runtime
        tool = self.offered(session, params.name)
        flight = self._flight(request, session, tool, params)
        scope = SCOPE + flight.id
        try:
            async with self._reports.following(request, session, scope, flight.id):
                ended = await self._until_ended(request, runtime, session, flight, params)
        except asyncio.CancelledError:
            if request.was_cancelled:
                flight.batch.cancel("the client cancelled the request")
            self._keep(session, flight)
            raise
        if isinstance(ended, ToolOutcome):
            self._flights.pop((session.id, flight.id), None)
            return result_of(ended, tool, modern=request.modern)
        self._keep(session, flight)
        return ended

    def offered(self, session: Session, name: str) -> ToolDefinition:
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

    # --- the identity of a call

    def _flight(
        self, request: ClientRequest, session: Session, tool: ToolDefinition, params: types.CallToolRequestParams
    ) -> Flight:
        id = params.request_state or key_of(request.meta)
        arguments = params.arguments or {}
        if id is None:
            id, keyed = new_id("call"), False
        else:
            keyed = True
            content = _content(params.name, arguments)
            known = self._flights.get((session.id, id))
            if known is not None and known.content == content and not known.batch.done:
                return known
        batch = session.start_batch(
            [ToolCall(name=tool.name, arguments=arguments, id=id)], scope=SCOPE + id, under=self._policy
        )
        flight = Flight(id, keyed, content if keyed else "", batch)
        if keyed and not batch.done:
            self._flights[session.id, id] = flight
        return flight

    def _keep(self, session: Session, flight: Flight) -> None:
        """Keep a call that continues without its request, until it ends."""
        if flight.batch.done:
            self._flights.pop((session.id, flight.id), None)
            return
        self._flights[session.id, flight.id] = flight
        watching = asyncio.ensure_future(self._forget(session.id, flight))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)

    async def _forget(self, session: str, flight: Flight) -> None:
        await flight.batch.settled()
        if self._flights.get((session, flight.id)) is flight:
            del self._flights[session, flight.id]

    # --- waiting for the outcome

    async def _until_ended(
        self,
        request: ClientRequest,
        runtime: Runtime,
        session: Session,
        flight: Flight,
        params: types.CallToolRequestParams,
    ) -> ToolOutcome | dict[str, Any]:
        """The outcome of a call, or the result that asks its client for something."""
        batch = flight.batch
        responses = _responses(params)
        waited_since: float | None = None
        while True:
            (outcome,) = await batch.quiet()
            if outcome.status != "pending" or batch.done:
                (outcome,) = await batch.wait()
                return outcome
            change = batch.next_change()
            questions = await open_questions(session, SCOPE + flight.id)
            if batch.done:
                continue
            if not questions:  # It sleeps, or waits for another program.
                await change
                continue
            forms = [each for each in questions if each.form is not None] if self._by_client else []
            if forms and request.can_answer_forms and not (flight.asking or flight.dismissed):
                if request.modern:
                    if not await self._take(session, forms, responses, request):
                        if any(response.get("action") == "cancel" for response in responses.values()):
                            flight.dismissed = True
                            continue
                        return _input_required(forms, flight.id)
                elif not await self._show(request, session, flight, forms[0], change):
                    flight.dismissed = True
                    continue
                responses = {}
                waited_since = None
                await change
                continue
            now = runtime.clock.monotonic()
            waited_since = now if waited_since is None else waited_since
            if not await _within(runtime, change, self._wait - (now - waited_since)):
                return await self._give_up(flight, questions[0])

    async def _take(
        self,
        session: Session,
        forms: list[OpenQuestion],
        responses: Mapping[str, Mapping[str, Any]],
        request: ClientRequest,
    ) -> bool:
        """Take the answers that came with a request; False where none decides anything."""
        taken = False
        for question in forms:
            response = responses.get(question.id)
            if response is not None:
                taken = await _answered(session, question, response, request) or taken
        return taken

    async def _show(
        self,
        request: ClientRequest,
        session: Session,
        flight: Flight,
        question: OpenQuestion,
        change: asyncio.Future[None],
    ) -> bool:
        """Let the client show a form, until it is filled in or the call continues by itself; False if neither."""
        context = request.context
        flight.asking = True
        shown = asyncio.ensure_future(
            context.session.elicit_form(question.message, question.form or {}, related_request_id=context.request_id)
        )
        try:
            either: set[asyncio.Future[Any]] = {shown, change}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not shown.done():
                return True
            try:
                response = shown.result()
            except (MCPError, ValidationError) as error:
                log.warning("A client did not show the form of a question: %s", error)
                return False
            return await _answered(session, question, response.model_dump(mode="json"), request)
        finally:
            flight.asking = False
            if not shown.done():
                shown.cancel()
                await asyncio.wait({shown})

    async def _give_up(self, flight: Flight, question: OpenQuestion) -> dict[str, Any]:
        """The result for a client that cannot be asked, when nobody else has answered in time."""
        if flight.keyed:
            return failed(
                f"The call waits for {question.what}, and has not run further. It stays open for the owner of the "
                f"server; make the same call again with the same idempotency key to get its outcome."
            )
        flight.batch.cancel(f"nobody gave {question.what} within {self._wait:g} s")
        await flight.batch.settled()
        return failed(
            f"The call was cancelled: it waited for {question.what}, and nobody answered within {self._wait:g} s. "
            "Ask the owner of the server to look into the inbox, then make the call again."
        )


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


def result_of(outcome: ToolOutcome, tool: ToolDefinition, *, modern: bool) -> dict[str, Any]:
    """The result of a call, as the revision of its client has it."""
    result = write_result(outcome)
    if modern:
        result["resultType"] = "complete"
        if outcome.ok and tool.output_schema is not None:
            result["structuredContent"] = outcome.value
    return result


def failed(text: str) -> dict[str, Any]:
    """The result of a call that failed, with the reason for the model."""
    return {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}


def _content(name: str, arguments: Mapping[str, Any]) -> str:
    return jsonx.digest(jsonx.canonical([name, arguments]))


def _responses(params: types.CallToolRequestParams) -> dict[str, dict[str, Any]]:
    """The filled forms that came with a request, by the question."""
    return {
        name: response.model_dump(mode="json")
        for name, response in (params.input_responses or {}).items()
        if isinstance(response, types.ElicitResult)
    }


async def _answered(
    session: Session, question: OpenQuestion, response: Mapping[str, Any], request: ClientRequest
) -> bool:
    client = request.client
    try:
        return await answer(session, question, response, by=f"mcp:{client.principal or client.name or 'client'}")
    except ToolwrightError as error:
        log.warning("The answer of a client was not usable: %s", error)
        return False


def _input_required(forms: list[OpenQuestion], state: str) -> dict[str, Any]:
    """The result that asks the client for its user's answers, and to make the request again with them."""
    return {
        "resultType": "input_required",
        "inputRequests": {each.id: {"method": "elicitation/create", "params": each.elicitation} for each in forms},
        "requestState": state,
    }


async def _within(runtime: Runtime, change: asyncio.Future[None], seconds: float) -> bool:
    """Wait for a change; False where it does not come in time."""
    late = asyncio.ensure_future(runtime.clock.sleep(max(0.0, seconds)))
    try:
        await asyncio.wait({change, late}, return_when=asyncio.FIRST_COMPLETED)
        return change.done()
    finally:
        late.cancel()
