"""Open questions of served calls, for the person behind a client. Owns approvals and questions of tools as forms of MCP
(elicitation), and the meaning of the answers.

A form that comes back is data of a stranger: an approval needs the plain truth value, an answer must fit the schema of
its question, and whatever else comes back decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from toolwright import jsonx
from toolwright.calls.suspend.approvals import Approval
from toolwright.calls.suspend.questions import Question
from toolwright.errors import KeyRefused, ToolwrightError
from toolwright.mcp.server_forms import answer_in, form_of
from toolwright.session.session import Session
from toolwright.tools.outcome import ToolError

LONGEST_SHOWN = 4_000
"""Characters of arguments that a form shows."""
_APPROVE = "approve"
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,63}")
"""A name without a hyphen, so that it is not taken for the id of something else."""
_APPROVAL_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        _APPROVE: {"type": "boolean", "title": "Approve", "description": "Whether this call may run, once."},
        "reason": {"type": "string", "title": "Reason", "description": "Why not, for the model.", "maxLength": 1000},
    },
    "required": [_APPROVE],
}


class OpenQuestion(Struct, frozen=True, kw_only=True):
    """A question that a call waits for, as a form."""

    id: str
    """Names the question for the client; the same question has the same, and no other."""
    key: str
    message: str
    form: dict[str, Any] | None
    """The schema of the form; None for a question that MCP has no form for."""
    what: str
    """What is waited for, in words."""
    approval: bool
    wrapped: bool = False
    """True where the answer is the one field of the form."""

    @property
    def elicitation(self) -> dict[str, Any]:
        """The request that shows the form, as `InputRequests` has it."""
        params = {"mode": "form", "message": self.message, "requestedSchema": self.form}
        return {"method": "elicitation/create", "params": params}


async def open_questions(session: Session, scope: str, call_id: str) -> list[OpenQuestion]:
    """What the calls of a scope wait for that a person can answer; `call_id` is the served call among them."""
    approvals = [_approval(each) for each in await session.approvals() if each.scope == scope]
    return approvals + [
        _question(each, own=each.call_id == call_id) for each in await session.questions() if each.scope == scope
    ]


async def answer(
    session: Session, question: OpenQuestion, response: Mapping[str, Any], by: str, via: str | None
) -> bool:
    """Take the answer of a client to a question; False where that decides nothing, and the question stays open.

    Raises:
        ToolwrightError: the answer does not fit the question.
    """
    action, content = response.get("action"), response.get("content")
    if action not in ("accept", "decline"):
        return False
    try:
        if question.approval:
            await _decide(session, question, action, content, by, via)
        elif action == "decline":
            await session.decline(question.key, by=by, via=via)
        else:
            await session.answer(question.key, answer_in(content, question.wrapped), by=by, via=via)
    except KeyRefused:  # It was decided elsewhere, or its call has ended: the call knows.
        return True
    except ToolError as error:
        raise ToolwrightError(str(error)) from error
    return True


async def _decide(
    session: Session, question: OpenQuestion, action: str, content: object, by: str, via: str | None
) -> None:
    given = content if isinstance(content, Mapping) else {}
    said = given.get("reason")
    reason = said if isinstance(said, str) and said.strip() else None
    if action == "decline" or given.get(_APPROVE) is False:
        await session.deny(question.key, reason=reason, by=by, via=via)
    elif given.get(_APPROVE) is True:
        await session.approve(question.key, by=by, via=via)
    else:
        raise ToolwrightError("The form of an approval needs approve: true or false; fill it in")


def _approval(approval: Approval) -> OpenQuestion:
    shown = jsonx.encode(approval.arguments).decode()
    shown = shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}… ({len(shown)} characters)"
    why = f" Reason: {approval.reason}." if approval.reason else ""
    crash = " It was cut off by a crash and may have run already." if approval.cause == "crash" else ""
    return OpenQuestion(
        id=_id("approval", approval.key),
        key=approval.key,
        message=f"May the tool {approval.tool!r} run with {shown}?{crash}{why}",
        form=_APPROVAL_FORM,
        what=f"the approval of a person (tool {approval.tool!r})",
        approval=True,
    )


def _question(question: Question, own: bool) -> OpenQuestion:
    form = form_of(question.schema)
    return OpenQuestion(
        # Of the served call itself, its name is enough: a call asks once under a name.
        id=question.name if own and _PLAIN.fullmatch(question.name) else _id("question", question.key),
        key=question.key,
        message=question.message,
        form=None if form is None else form[0],
        what=f"the answer of a person to the question {question.name!r} (tool {question.tool!r})",
        approval=False,
        wrapped=form is not None and form[1],
    )


def _id(kind: str, key: str) -> str:
    """An id that only says what it is about: the key of a question decides it, and stays here."""
    return f"{kind}-{jsonx.digest(key.encode())[:24]}"
