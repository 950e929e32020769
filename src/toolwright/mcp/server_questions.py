"""Open questions of served calls, for the person behind a client. Owns approvals as forms of MCP (elicitation), and the
meaning of the answers.

A form that comes back is data of a stranger: an approval needs the plain truth value, and whatever else comes back
decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from toolwright import jsonx
from toolwright.calls.suspend.approvals import Approval
from toolwright.errors import KeyRefused, ToolwrightError
from toolwright.session.session import Session

LONGEST_SHOWN = 4_000
"""Characters of arguments that a form shows."""
_APPROVE = "approve"
_APPROVAL_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        _APPROVE: {"type": "boolean", "title": "Approve", "description": "Whether this call may run, once."},
        "reason": {"type": "string", "title": "Reason", "description": "Why not, for the model.", "maxLength": 1000},
    },
    "required": [_APPROVE],
}


class OpenQuestion(Struct, frozen=True):
    """A question that a call waits for, as a form."""

    id: str
    """Names the question for the client; the same question has the same, and no other."""
    key: str
    message: str
    form: dict[str, Any] | None
    """The schema of the form; None for a question that MCP has no form for."""
    what: str
    """What is waited for, in words."""

    @property
    def elicitation(self) -> dict[str, Any]:
        """The request that shows the form, as `elicitation/create` has it."""
        return {"mode": "form", "message": self.message, "requestedSchema": self.form}


async def open_questions(session: Session, scope: str) -> list[OpenQuestion]:
    """What the calls of a scope wait for that a person can answer."""
    return [_approval(each) for each in await session.approvals() if each.scope == scope]


async def answer(session: Session, question: OpenQuestion, response: Mapping[str, Any], by: str) -> bool:
    """Take the answer of a client to a question; False where that decides nothing, and the question stays open.

    Raises:
        ToolwrightError: the answer does not fit the question.
    """
    action, content = response.get("action"), response.get("content")
    given = content if isinstance(content, Mapping) else {}
    reason = given.get("reason")
    reason = reason if isinstance(reason, str) and reason.strip() else None
    try:
        if action == "decline" or (action == "accept" and given.get(_APPROVE) is False):
            await session.deny(question.key, reason=reason, by=by)
        elif action == "accept" and given.get(_APPROVE) is True:
            await session.approve(question.key, by=by)
        elif action == "accept":
            raise ToolwrightError("The form of an approval needs approve: true or false; fill it in")
        else:
            return False
    except KeyRefused:  # It was decided elsewhere, or its call has ended: the call knows.
        return True
    return True


def _approval(approval: Approval) -> OpenQuestion:
    shown = jsonx.encode(approval.arguments).decode()
    shown = shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}… ({len(shown)} characters)"
    why = f" Reason: {approval.reason}." if approval.reason else ""
    crash = " It was cut off by a crash and may have run already." if approval.cause == "crash" else ""
    return OpenQuestion(
        id=_id(approval.key),
        key=approval.key,
        message=f"May the tool {approval.tool!r} run with {shown}?{crash}{why}",
        form=_APPROVAL_FORM,
        what=f"the approval of a person (tool {approval.tool!r})",
    )


def _id(key: str) -> str:
    """An id that says nothing: the key of a question decides it, and stays here."""
    return f"question-{jsonx.digest(key.encode())[:24]}"
