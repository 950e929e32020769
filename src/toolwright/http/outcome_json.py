"""Outcomes as JSON, fast. Owns writing the value of a tool as the bytes it already is; the form is that of
`ToolOutcome.to_json`."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, Raw, Struct, UnsetType

from toolwright import jsonx
from toolwright.tools.outcome import ToolOutcome


class _Plain(Struct, gc=False):
    """A success that has nothing but its value."""

    call_id: str
    tool: str
    status: str
    value: Raw
    decided_by: str | UnsetType
    attempts: int
    replayed: bool
    text: str


def outcome_json(outcome: ToolOutcome) -> object:
    """An outcome as a value that encodes to the JSON of its `to_json`."""
    if (
        outcome.status == "success"
        and outcome.raw_output is None
        and not outcome.images
        and not outcome.attachments
        and outcome.decision is None
        and outcome.metadata is None
        and outcome.given_text is None
        and outcome.spilled_to is None
    ):
        return _Plain(
            outcome.call_id,
            outcome.tool,
            "success",
            Raw(outcome.payload),
            UNSET if outcome.decided_by is None else outcome.decided_by,
            outcome.attempts,
            outcome.replayed,
            outcome.text,
        )
    return outcome.to_json()


def outcomes_json(outcomes: Iterable[ToolOutcome]) -> list[object]:
    """The same for several."""
    return [outcome_json(outcome) for outcome in outcomes]


def encoded(value: object) -> bytes:
    """The JSON of an answer that has outcomes in it."""
    return jsonx.encode_unchecked(value)
