"""Results of served calls, and the decisions that clients send back. Owns both on the wire, and no waiting."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from toolwright.errors import ToolwrightError
from toolwright.log_fields import log_fields
from toolwright.mcp.server_questions import OpenQuestion, answer
from toolwright.mcp.server_request import ClientRequest
from toolwright.session.session import Session
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import ToolOutcome
from toolwright.wire.mcp import write_result

log = logging.getLogger("toolwright.mcp")


async def result_of(
    session: Session, outcome: ToolOutcome, tool: ToolDefinition | None, revision: str
) -> dict[str, Any]:
    """The result of a call, as the revision of its client has it, with the content of its attachments."""
    if outcome.images or outcome.attachments:
        (outcome,) = await session.attachments.fill_in([outcome])
    return {**write_result(outcome, version=revision, tool=tool), "resultType": "complete"}


def failed(text: str) -> dict[str, Any]:
    """The result of a call that failed, with the reason for the model."""
    return {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}


async def answered(
    session: Session, question: OpenQuestion, response: Mapping[str, Any], request: ClientRequest
) -> bool:
    """Take the answer of a client; False where it decides nothing."""
    if not request.may_decide:
        return False
    by, via = request.decider
    try:
        return await answer(session, question, response, by=by, via=via)
    except ToolwrightError as error:
        log.warning(
            "The answer of a client was not usable: %s",
            error,
            extra=log_fields("mcp.answer_refused", session=session.id),
        )
        return False
