"""Waiting for the outcome of a served call. Owns asking the person behind its client meanwhile, in the way of each
revision, and the end of the wait where nobody can be asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from toolwright import jsonx
from toolwright.clock import Clock
from toolwright.log_fields import log_fields
from toolwright.mcp.server_answers import answered, failed
from toolwright.mcp.server_executions import Execution
from toolwright.mcp.server_questions import OpenQuestion, open_questions
from toolwright.mcp.server_request import ClientRequest
from toolwright.session.session import Session
from toolwright.tools.outcome import ToolOutcome

log = logging.getLogger("toolwright.mcp")


@dataclass(eq=False, slots=True)
class Flight:
    """A served call that is on its way in this process."""

    id: str
    """The id of the call, or the key of its run: with it, a client continues the call."""
    keyed: bool
    tool: str
    arguments: Mapping[str, Any]
    execution: Execution
    requests: int = 0
    """How many requests wait for it now."""
    kept: int = 0
    """How often a request has ended without its outcome."""
    asking: bool = False
    """True while a client shows a form of the call."""
    dismissed: bool = False
    """True after a client did not answer a form: the question stays in the inbox, and is not shown again."""

    def is_of(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """True where it is a call of this tool with these arguments."""
        return tool == self.tool and jsonx.canonical(arguments) == jsonx.canonical(self.arguments)


class OutcomeWaits:
    """Waits for the outcomes of calls. `by_client` lets the person behind a client answer; `seconds` is the longest
    wait for a person whom the client cannot ask."""

    def __init__(self, *, by_client: bool, seconds: float) -> None:
        self._by_client = by_client
        self._seconds = seconds

    async def until_ended(
        self,
        request: ClientRequest,
        session: Session,
        flight: Flight,
        params: types.CallToolRequestParams,
        clock: Clock,
    ) -> ToolOutcome | dict[str, Any]:
        """The outcome of a call, or the result that asks its client for something."""
        execution = flight.execution
        outcome = await execution.quiet()
        if outcome is not None:
            return outcome
        responses = _responses(params)
        since: float | None = None
        while True:
            outcome = await execution.quiet()
            if outcome is not None:
                return outcome
            change = execution.change()
            try:
                questions = await open_questions(session, execution.scope, execution.call_id)
                if execution.done:
                    continue
                if not questions:  # It sleeps, or waits for another program.
                    await change
                    continue
                forms = [each for each in questions if each.form is not None] if self._by_client else []
                if not forms or not request.can_answer_forms or flight.asking or flight.dismissed:
                    since = clock.monotonic() if since is None else since
                    if not await _within(clock, change, since + self._seconds - clock.monotonic()):
                        return await self._give_up(flight, questions[0])
                elif not request.modern:
                    flight.dismissed = not await _show(request, session, flight, forms[0], change)
                elif not await _take(session, forms, responses, request):
                    if all(response.get("action") != "cancel" for response in responses.values()):
                        return _input_required(forms, flight.id)
                    flight.dismissed = True
                responses = {}
            finally:
                change.cancel()

    async def _give_up(self, flight: Flight, question: OpenQuestion) -> dict[str, Any]:
        """The result for a client that cannot be asked, when nobody else has answered in time."""
        if flight.keyed:
            return failed(
                f"The call waits for {question.what}, and has not run further. It stays open for the owner of the "
                f"server; make the same call again with the same idempotency key to get its outcome."
            )
        await flight.execution.cancel(f"nobody gave {question.what} within {self._seconds:g} s")
        await flight.execution.settled()
        return failed(
            f"The call was cancelled: it waited for {question.what}, and nobody answered within {self._seconds:g} s. "
            "Ask the owner of the server to look into the inbox, then make the call again."
        )


async def _take(
    session: Session,
    forms: list[OpenQuestion],
    responses: Mapping[str, Mapping[str, Any]],
    request: ClientRequest,
) -> bool:
    """Take the answers that came with a request (2026-07-28); False where none decides anything."""
    taken = False
    for question in forms:
        response = responses.get(question.id)
        if response is not None:
            taken = await answered(session, question, response, request) or taken
    return taken


async def _show(
    request: ClientRequest, session: Session, flight: Flight, question: OpenQuestion, change: asyncio.Future[None]
) -> bool:
    """Let the client show a form (until 2025-11-25), until it is filled in or the call continues by itself; False if
    neither."""
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
            log.warning(
                "A client did not show the form of a question: %s",
                error,
                extra=log_fields("mcp.form_not_shown", session=session.id),
            )
            return False
        return await answered(session, question, response.model_dump(mode="json"), request)
    finally:
        flight.asking = False
        if not shown.done():
            shown.cancel()
            await asyncio.wait({shown})


def _responses(params: types.CallToolRequestParams) -> dict[str, dict[str, Any]]:
    """The filled forms that came with a request, by the question."""
    return {
        name: response.model_dump(mode="json")
        for name, response in (params.input_responses or {}).items()
        if isinstance(response, types.ElicitResult)
    }


def _input_required(forms: list[OpenQuestion], state: str) -> dict[str, Any]:
    """The result that asks the client for its user's answers, and to make the request again with them."""
    return {
        "resultType": "input_required",
        "inputRequests": {each.id: each.elicitation for each in forms},
        "requestState": state,
    }


async def _within(clock: Clock, change: asyncio.Future[None], seconds: float) -> bool:
    """Wait for a change; False where it does not come in time."""
    late = asyncio.ensure_future(clock.sleep(max(0.0, seconds)))
    try:
        await asyncio.wait({change, late}, return_when=asyncio.FIRST_COMPLETED)
        return change.done()
    finally:
        late.cancel()
