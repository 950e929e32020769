"""Tables of what waits for a person, and of what was decided. Owns their columns; their texts may be anybody's."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from toolwright import jsonx
from toolwright.calls.suspend.approvals import Approval
from toolwright.calls.suspend.questions import Question
from toolwright.cli.display.styles import Name, new_table, place, plain
from toolwright.cli.display.time_format import moment, until
from toolwright.tools.outcome import Decision

Request = Approval | Question


def request_table(requests: Sequence[Request], now: float) -> Table:
    """A numbered line for each request, with its arguments or the schema of its answer below."""
    table = new_table(expand=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("call", no_wrap=True)
    table.add_column("session", no_wrap=True)
    table.add_column("tool", no_wrap=True, style="cyan")
    table.add_column("what it asks for", ratio=1, overflow="fold")
    table.add_column("deadline", no_wrap=True)
    for number, request in enumerate(requests, start=1):
        table.add_row(
            str(number),
            Name(request.call_id),
            place(request.session, request.scope),
            Name(request.tool),
            _about_question(request) if isinstance(request, Question) else _about_approval(request),
            until(request.deadline, now),
        )
    return table


def _about_approval(request: Approval) -> Text:
    why = [request.reason] if request.cause == "crash" else [request.rule, request.reason]
    arguments = plain(jsonx.encode(request.arguments).decode())
    return Text.assemble(plain(": ".join(filter(None, why))), "\n", *_subject(request), (arguments, "dim"))


def _about_question(request: Question) -> Text:
    # The text is the tool's, or that of somebody outside: the name and the sign before it are ours.
    return Text.assemble(
        (f"? {plain(request.name)}: ", "magenta"), plain(request.message), "\n", (wanted_answer(request), "dim")
    )


def wanted_answer(request: Question) -> str:
    """What an answer to a question must be, in one line."""
    schema = request.schema
    if schema is None:
        return "answer: any JSON"
    options = schema.get("enum")
    if isinstance(options, list):
        return plain("answer: one of " + ", ".join(jsonx.encode(option).decode() for option in options))
    if set(schema) <= {"type", "title", "description"} and isinstance(schema.get("type"), str):
        return plain(f"answer: {schema['type']}")
    return plain(f"answer: {jsonx.encode(schema).decode()}")


def _subject(request: Approval) -> list[str]:
    """A line with the command or the resources of the call, where that is more than its tool."""
    subject = request.subject
    if subject is None or subject.text == request.tool:
        return []
    place = "" if subject.directory is None else f" in {subject.directory}"
    text = " ".join(subject.text.split())
    return [plain(f"{subject.kind}{place}: {text}"), "\n"]


def decision_table(requests: Sequence[Request]) -> Table:
    """A line for each decision, with what was asked about, and what a person gave instead or answered."""
    table = new_table(expand=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("call", no_wrap=True)
    table.add_column("session", no_wrap=True)
    table.add_column("tool", no_wrap=True, style="cyan")
    table.add_column("decision", ratio=1, overflow="fold")
    table.add_column("by", no_wrap=True)
    table.add_column("when", no_wrap=True)
    for request in requests:
        decision = request.decision
        assert decision is not None
        table.add_row(
            str(request.number),
            Name(request.call_id),
            place(request.session, request.scope),
            Name(request.tool),
            _decided(request, decision),
            _decided_by(decision),
            moment(decision.at),
        )
    return table


def _decided_by(decision: Decision) -> Text:
    """Who decided, and from where."""
    who = plain(decision.by or "-")
    return Text.assemble(who) if decision.via is None else Text.assemble(who, "\n", (plain(decision.via), "dim"))


def _decided(request: Request, decision: Decision) -> Text:
    words = [decision.verdict, "edited" if decision.edited else None, "always" if decision.always else None]
    said = ", ".join(word for word in words if word)
    if isinstance(request, Question):
        asked = f"{request.name}: {request.message}"
        if decision.verdict == "answered":
            asked += f" → {jsonx.encode(request.answer).decode()}"
    else:
        asked = jsonx.encode(request.arguments).decode()
        if decision.edited:
            asked += f" → {jsonx.encode(decision.arguments).decode()}"
    return Text.assemble(
        plain(said if decision.reason is None else f"{said}: {decision.reason}"), "\n", (plain(asked), "dim")
    )
