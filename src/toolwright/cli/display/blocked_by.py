"""Why a call waits. Owns naming the earlier calls it conflicts with; the schedule owns the waiting itself.

A record says why a call waited only once it is finished. A live table shows it now, with the remaining reasons.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from toolwright.calls.record import CallRecord
from toolwright.calls.schedule.claim_index import overlap
from toolwright.tools.claims import Claim
from toolwright.tools.registry import Snapshot


class Waits:
    """The conflicts among the calls of one batch, from the records that it opened."""

    def __init__(self, records: Iterable[CallRecord], tools: Snapshot) -> None:
        self._claims: dict[str, tuple[Claim, ...]] = {}
        self._conflicts: dict[str, tuple[str, ...]] = {}
        for record in records:
            tool, arguments = tools.get(record.tool), record.arguments
            if tool is not None and record.finished_at is None and isinstance(arguments, dict):
                self._claims.setdefault(record.call_id, tool.claims_of(arguments))

    def left(self, call_id: str, unfinished: Collection[str]) -> list[str]:
        """The calls that this one still waits for; none when it only waits for a slot."""
        return [other for other in self._before(call_id) if other in unfinished]

    def _before(self, call_id: str) -> tuple[str, ...]:
        # Claims never change, so that each call is compared with the earlier ones only once.
        known = self._conflicts.get(call_id)
        if known is None:
            known = self._conflicts[call_id] = tuple(self._compare(call_id))
        return known

    def _compare(self, call_id: str) -> Iterable[str]:
        ours = self._claims.get(call_id)
        for other, theirs in self._claims.items():
            if other == call_id or ours is None:
                return
            if overlap(ours, theirs):
                yield other
