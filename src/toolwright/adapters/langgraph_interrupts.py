"""Interrupts of LangGraph for calls that wait. Owns their values and answers, in the form of HumanInTheLoopMiddleware,
and which answer belongs to which wait; does not own running calls.

After an interrupt a task starts again, and LangGraph gives it its earlier answers again, by number; it may even give an
answer that was meant for an earlier interrupt. An answer must never decide about something else than it was asked for.
So the session remembers what each interrupt asked, before it is shown, and an answer counts for that only.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from toolwright import jsonx
from toolwright.adapters.langgraph_answers import OpenAnswer
from toolwright.calls.suspend.approvals import Approval
from toolwright.calls.suspend.questions import Question
from toolwright.errors import ToolwrightError
from toolwright.session.open_waits import OpenWait
from toolwright.session.session import Session

ASKED = "toolwright:langgraph/"
"""Before the digest of a task and the number of an interrupt, it makes the key by which the session remembers it."""
_DECISIONS = ["approve", "edit", "reject"]
_HOW = (
    'use {"type": "approve"}, {"type": "edit", "edited_action": {"name": ..., "args": {...}}} or '
    '{"type": "reject", "message": ...}'
)


class Interrupts:
    """The interrupts of one task in one execution of it, one after the other.

    `task` names the task within the scope: by the id of its call, or "" for a task that runs all of them.
    """

    def __init__(self, session: Session, answer: OpenAnswer, task: str) -> None:
        self._session = session
        self._answer = answer
        self._together = task == ""
        self._prefix = f"{ASKED}{jsonx.digest(jsonx.encode([answer.scope, task]))[:32]}/"
        self._number = 0
        # The keys of what the interrupt of this number asked when it was shown, and of what it would ask now.
        self._asked: list[str] = []
        self._shown: list[str] = []
        self._open: dict[str, OpenWait] = {}
        self._approvals: dict[str, Approval] = {}
        self._questions: dict[str, Question] = {}
        self._problems: list[str] = []

    async def request(self, waits: Sequence[OpenWait], names: Mapping[str, str]) -> dict[str, Any]:
        """The value of the next interrupt, about these waits; `names` are the names of the tools by call id."""
        self._open = {wait.key: wait for wait in waits}
        self._approvals = {each.key: each for each in await self._session.approvals()}
        if any(wait.kind == "question" for wait in waits):
            self._questions = {each.key: each for each in await self._session.questions()}
        self._asked = await self._session.kv.get(f"{self._prefix}{self._number}") or []
        # What was shown before keeps its place: somebody may be about to answer it.
        kept = self._asked if any(key in self._open for key in self._asked) else []
        self._shown = [*kept, *(key for key in self._open if key not in kept)]
        if self._together:
            listed = [self._entry(self._open.get(each), names) for each in self._shown]
            value: dict[str, Any] = {
                "action_requests": [{name: each[name] for name in ("name", "args", "description")} for each in listed],
                "review_configs": [
                    {"action_name": each["name"], "allowed_decisions": each["allowed_decisions"]} for each in listed
                ],
                "tool_call_ids": [each["tool_call_id"] for each in listed],
            }
        else:
            value = self._entry(next(iter(waits), None), names)
        if self._problems:
            value["problems"], self._problems = self._problems, []
        return value

    async def shown(self) -> None:
        """The interrupt is shown to somebody, as there is no answer to it yet."""
        if self._shown and self._shown != self._asked:
            await self._session.kv.set(f"{self._prefix}{self._number}", self._shown)

    async def take(self, given: object) -> None:
        """Apply the answer to the interrupt that was asked last. What it does not decide is asked for again."""
        asked = [self._open.get(key) for key in self._asked]
        self._number, self._shown = self._number + 1, []
        decisions: Sequence[object] = [given] * len(asked)
        if self._together:
            listed = given.get("decisions") if isinstance(given, Mapping) else None
            if not isinstance(listed, list) or len(listed) != len(asked):
                if any(wait is not None for wait in asked):
                    self._problems.append(f'The answer has no list "decisions" with {len(asked)} decisions')
                return
            decisions = listed
        elif isinstance(given, Mapping) and isinstance(listed := given.get("decisions"), list) and len(listed) == 1:
            decisions = listed * len(asked)  # the form in which several are answered is good for one, too
        for wait, decision in zip(asked, decisions, strict=True):
            if wait is not None:  # else it was decided before: by this answer, or elsewhere
                try:
                    await self._decide(wait, decision)
                except ToolwrightError as error:
                    self._problems.append(str(error))

    async def forget(self) -> None:
        """The call, or all calls, have their outcomes: nothing is asked any more."""
        for info in await self._session.kv.list(self._prefix):
            await self._session.kv.delete(info.key)

    def _entry(self, wait: OpenWait | None, names: Mapping[str, str]) -> dict[str, Any]:
        if wait is None:
            said = "This call was decided about already; any decision will do"
            return {
                "type": "tool_wait",
                "tool_call_id": None,
                "name": "",
                "args": {},
                "description": said,
                "allowed_decisions": _DECISIONS,
            }
        approval, question = self._approvals.get(wait.key), self._questions.get(wait.key)
        if question is not None:
            return {
                "type": "tool_question",
                "tool_call_id": wait.call_id,
                "name": question.tool,
                "args": {},
                "description": question.message,
                "allowed_decisions": ["respond", "reject"],
                "schema": question.schema,
                "key": wait.key,
            }
        if approval is None:
            name = names.get(wait.call_id, "")
            what = f"{wait.kind} {wait.name!r}" if wait.name else wait.kind
            return {
                "type": "tool_wait",
                "tool_call_id": wait.call_id,
                "name": name,
                "args": {},
                "description": f"The call of tool {name!r} waits for its {what}",
                "allowed_decisions": ["respond"] if wait.kind in ("completion", "event") else [],
                "waits_for": wait.kind,
                "key": wait.key,
            }
        reason = f": {approval.reason}" if approval.reason else ""
        return {
            "type": "tool_approval",
            "tool_call_id": wait.call_id,
            "name": approval.tool,
            "args": approval.arguments,
            "description": f"Tool {approval.tool!r} needs approval by rule {approval.rule!r}{reason}",
            "allowed_decisions": _DECISIONS,
            "cause": approval.cause,
            "key": wait.key,
        }

    async def _decide(self, wait: OpenWait, decision: object) -> None:
        session, settle = self._session, self._answer.settle
        approval = self._approvals.get(wait.key)
        said: Mapping[str, Any] = decision if isinstance(decision, Mapping) else {}
        kind = said.get("type")
        if wait.key in self._questions:
            if kind == "respond":
                await settle(functools.partial(session.answer, wait.key, said.get("message")))
            elif kind == "reject":
                await settle(functools.partial(session.decline, wait.key, _message(said)))
            else:
                raise ToolwrightError(
                    f"The answer {decision!r:.200} does not answer question {wait.name!r} of call {wait.call_id!r}; "
                    'use {"type": "respond", "message": ...} or {"type": "reject"}'
                )
        elif approval is None:
            if kind == "respond" and wait.kind in ("completion", "event"):
                await settle(functools.partial(session.resolve, wait.key, said.get("message")))
        elif kind == "approve":
            await settle(functools.partial(session.approve, wait.key))
        elif kind == "edit":
            arguments = _edited(said.get("edited_action"), approval)
            await settle(functools.partial(session.approve, wait.key, arguments=arguments))
        elif kind == "reject":
            await settle(functools.partial(session.deny, wait.key, reason=_message(said)))
        else:
            raise ToolwrightError(f"The answer {decision!r:.200} decides nothing about call {wait.call_id!r}; {_HOW}")


def _message(said: Mapping[str, Any]) -> str | None:
    message = said.get("message")
    return message if isinstance(message, str) and message else None


def _edited(action: object, approval: Approval) -> Mapping[str, Any]:
    if isinstance(action, Mapping) and isinstance(arguments := action.get("args"), Mapping):
        if action.get("name", approval.tool) == approval.tool:
            return arguments
        raise ToolwrightError(
            f"The edit of call {approval.call_id!r} names the tool {action.get('name')!r:.200}; "
            f"use {approval.tool!r}, or reject the call"
        )
    raise ToolwrightError(f"The edit of call {approval.call_id!r} has no arguments; {_HOW}")
