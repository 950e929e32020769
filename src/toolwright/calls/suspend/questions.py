"""A question of a running tool to a person. Owns its request, its wait, the check of an answer, and the meaning of the
answer for the call; does not own taking the answer (`session/inbox.py`).

A question is stored like any wait, so that it survives a restart, and the first answer decides. Its text and its schema
may come from somebody whom nobody trusts, such as another server: both are bounded, and so is the work of a check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, structs

from toolwright import jsonx
from toolwright.calls.active_call import ActiveCall
from toolwright.calls.redact import off_loop
from toolwright.calls.redactor import Redactor
from toolwright.calls.suspend.steps import effects_of, outside, recording, require_name, require_seconds, tool_error
from toolwright.calls.suspend.suspend import enter
from toolwright.effects.effect import Effect
from toolwright.effects.wait_keys import failure_of
from toolwright.errors import ToolDefinitionError, ToolwrightError
from toolwright.plain_data import plain_data
from toolwright.stores.contracts.waits import Resolution, Wait, WaitKey
from toolwright.tools.checking_cost import CheckingCost, parts_tried
from toolwright.tools.outcome import Decision, Failure, Verdict, encodable
from toolwright.tools.raw_schema import BY_NAME, compile_output_schema, summarise

MOST_MESSAGE = 16 * 1024
"""Characters of the text of a question, and of the reason for declining one."""
MOST_SCHEMA = 64 * 1024
"""Bytes of the JSON of its schema."""
MOST_PARTS = 1_000
"""Parts of its schema, with references followed."""
MOST_ANSWER = 64 * 1024
"""Bytes of the JSON of an answer."""
MOST_CHECKED = 20_000
"""Attempts that the check of an answer may take: each problem that is found costs some 50 microseconds."""
MOST_QUESTIONS = 1_000
"""Questions that one call may ask in one process."""

_VERDICTS: dict[str, Verdict] = {
    "ok": "answered",
    "error": "declined",
    "expired": "expired",
    "cancelled": "cancelled",
}


class Question(Struct, frozen=True, kw_only=True):
    """A question of a call to a person. `key` is used to answer or decline it; instants are seconds since the epoch.

    `message` and `schema` come from the tool, and perhaps from somebody outside: show them as text, and trust neither.
    """

    key: str
    session: str
    scope: str
    call_id: str
    tool: str
    name: str
    """The name that the tool gave it."""
    message: str
    schema: dict[str, Any] | None
    """The JSON Schema that an answer must fit; None where any JSON does."""
    asked_at: float
    deadline: float | None
    decision: Decision | None = None
    """Who answered or declined it, and when; None while it waits."""
    answer: Any = None
    """The answer, without the secrets of the session."""
    number: int | None = None
    """Its place among the decisions of the store: `runtime.questions(decided=True, before=number)` gives older ones."""

    def to_json(self) -> dict[str, Any]:
        """The question as plain data; instants are RFC 3339 text."""
        return plain_data(self)


class Posed(Struct):
    """The parts of a question, as it is stored."""

    tool: str
    message: str
    schema: dict[str, Any] | None = None


def to_question(wait: Wait, key: str, number: int | None = None) -> Question:
    """A wait as the inbox shows it; with its answer and number, where it is decided."""
    posed, call, resolution = jsonx.decode(wait.detail, type=Posed), wait.key.call, wait.resolution
    decision = answer = None
    if resolution is not None:
        decision = Decision(
            _VERDICTS[resolution.status], resolution.at, resolution.by, resolution.reason, via=resolution.via
        )
        answer = jsonx.decode(resolution.payload) if resolution.status == "ok" else None
    return Question(
        key=key,
        session=call.session,
        scope=call.scope,
        call_id=call.call_id,
        tool=posed.tool,
        name=wait.key.name,
        message=posed.message,
        schema=posed.schema,
        asked_at=wait.opened_at or 0.0,
        deadline=wait.deadline,
        decision=decision,
        answer=answer,
        number=number,
    )


# --- asking


async def ask(
    call: ActiveCall, name: str, message: str, schema: Mapping[str, Any] | None, deadline: float | None
) -> object:
    """Ask a person, and wait for the answer."""
    env, policy = call.env, call.owner.policy
    given = posed_json(name, message, schema)
    answer_check(name, jsonx.decode(given, type=Posed).schema)
    if deadline is not None:
        require_seconds(f"The deadline of question {name!r}", deadline)
    effects, suspension = effects_of(call), enter(call)
    shown = given if env.redactor is None else await off_loop(len(given), _without_secrets, env.redactor, name, given)
    posed = jsonx.decode(shown, type=Posed)
    key = WaitKey(suspension.key, "question", name)
    if policy.on_ask == "deny" and not await _is_answered(call, key):
        raise tool_error(_declined(name, "nobody can be asked here"))
    suspension.questions += 1
    if suspension.questions > MOST_QUESTIONS:
        raise ToolwrightError(
            f"The call {call.call_id!r} asked {MOST_QUESTIONS} questions; ask for several things in one question"
        )
    seconds, now = policy.approval_timeout if deadline is None else deadline, env.clock.now()
    posed.tool = call.name
    wait = Wait(key, now, None if seconds is None else now + seconds, jsonx.encode(posed))
    async with recording(call), outside(call, "question", name) as opened:
        resolution = await effects.ask(Effect(suspension.key, "question", name, shown, given), wait, opened)
    return taken(name, resolution)


async def _is_answered(call: ActiveCall, key: WaitKey) -> bool:
    async with recording(call):
        waits = await call.env.effects.waits.waits_of(key.call, "question")
    return any(wait.key == key and wait.resolution is not None for wait in waits)


def taken(name: str, resolution: Resolution) -> object:
    """The answer to a question.

    Raises:
        ToolError: it was declined or cancelled, or nobody answered in time.
    """
    if resolution.status == "ok":
        return jsonx.decode(resolution.payload)
    if resolution.status == "error":
        raise tool_error(_declined(name, resolution.reason))
    raise tool_error(failure_of(resolution, f"an answer to question {name!r}"))


def _declined(name: str, reason: str | None) -> Failure:
    return Failure(
        category="permission_denied",
        code="declined",
        message=f"The question {name!r} was not answered: {reason or 'a person declined it'}",
        source="runtime",
    )


def posed_json(name: str, message: object, schema: object) -> bytes:
    """The canonical JSON of a question that can be asked.

    Raises:
        ToolwrightError: its name, its text or its schema is not usable.
    """
    require_name("question", name)
    if not isinstance(message, str) or not message.strip() or len(message) > MOST_MESSAGE:
        found = f"{len(message)} characters" if isinstance(message, str) else f"{message!r:.200}"
        raise ToolwrightError(
            f"The question {name!r} has {found} for its text; use 1 to {MOST_MESSAGE}, and put more in a file"
        )
    if schema is not None and not isinstance(schema, Mapping):
        raise ToolwrightError(
            f"The question {name!r} has the schema {schema!r:.200}; use JSON Schema as a dict, such as "
            "{'type': 'string'}, or None"
        )
    try:
        written = jsonx.canonical(None if schema is None else dict(schema))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ToolwrightError(f"The schema of question {name!r} has no JSON form: {error}") from error
    if len(written) > MOST_SCHEMA:
        raise ToolwrightError(
            f"The schema of question {name!r} has {len(written)} bytes and may have {MOST_SCHEMA}; ask for less at once"
        )
    return jsonx.canonical({"tool": "", "message": encodable(message), "schema": jsonx.decode(written)})


def _without_secrets(redactor: Redactor, name: str, given: bytes) -> bytes:
    """The JSON of a question whose text and schema show no secret, and whose schema still checks the same.

    Raises:
        ToolwrightError: a secret is in what an answer is checked by.
    """
    posed = jsonx.decode(given, type=Posed)
    posed.message = redactor.text(posed.message)
    if posed.schema is not None:
        shown = jsonx.decode(redactor.json(jsonx.encode(posed.schema)))
        if _checking(shown) != _checking(posed.schema):
            # An answer that fits the schema as it is shown would not fit the schema of the tool.
            raise ToolwrightError(
                f"The schema of question {name!r} has a secret of the session in what an answer is checked by; leave "
                "it out, and look at the answer in the tool"
            )
        posed.schema = shown
    return jsonx.canonical(structs.asdict(posed))


_NOTES = frozenset(("title", "description", "default", "examples", "$comment"))
"""The keywords of a schema that no answer is checked by."""


def _checking(part: object, names: bool = False) -> object:
    """A part of a schema without its notes; `names` for an object of schemas, under names that are no keywords."""
    if isinstance(part, list):
        return [_checking(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {
        key: value if key in ("const", "enum") and not names else _checking(value, not names and key in BY_NAME)
        for key, value in part.items()
        if names or key not in _NOTES
    }


# --- answering


def answer_check(name: str, schema: dict[str, Any] | None) -> Callable[[bytes], str | None]:
    """A function that tells why the JSON of an answer cannot be taken; None where it can.

    Raises:
        ToolwrightError: the schema is not JSON Schema, or it would take too long to check a value with it.
    """
    parts = parts_tried(schema)
    if parts is None or parts > MOST_PARTS:
        raise ToolwrightError(
            f"The schema of question {name!r} has more than {MOST_PARTS} parts, with references followed, or forms "
            "that contain themselves; ask for a simpler value"
        )
    try:
        check = compile_output_schema(schema, owner=name)
    except ToolDefinitionError as error:
        raise ToolwrightError(f"The question {name!r} cannot be asked: {error}") from None
    cost = CheckingCost(forms=parts)

    def problem(raw: bytes) -> str | None:
        if len(raw) > MOST_ANSWER:
            return f"it has {len(raw)} bytes and may have {MOST_ANSWER}"
        if schema is None:
            return None
        if not cost.fits(raw, MOST_CHECKED):
            return "it has too many parts to be checked with the schema of the question"
        problems = check(raw)
        return f"it does not fit its schema:\n{summarise(problems)}" if problems else None

    return problem
