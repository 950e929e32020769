"""What a running tool may ask for. Owns the far side of `ToolContext`; does not own the run itself."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolwright import jsonx
from toolwright.events import CallOutput, CallProgress, Event
from toolwright.tools.call import ToolCall
from toolwright.tools.context import ToolContext
from toolwright.tools.outcome import ToolOutcome

if TYPE_CHECKING:
    from toolwright.calls.execute import CallRun


def describe(run: CallRun) -> dict[str, Any]:
    """The plain facts of a call, as its context shows them; they can travel to another process."""
    prepared, owner, host = run.prepared, run.owner, run.host
    return {
        "session_id": host.session_id,
        "batch_id": owner.id,
        "call_id": prepared.call_id,
        "tool": prepared.name,
        "attempt": run.attempt,
        "max_attempts": run.tool.definition.retry.attempts,
        "idempotency_key": idempotency_key(host.session_id, owner.scope, prepared.call_id),
        "source": prepared.source,
        "parent_call_id": prepared.parent,
        "prepared": prepared.payload,
    }


def idempotency_key(session: str, scope: str, call_id: str) -> str:
    """The same for every attempt and every replay of a call, in every process."""
    return jsonx.digest(jsonx.encode([session, scope, call_id]))


def make_context(run: CallRun) -> ToolContext:
    """The context of a call's current attempt."""
    return ToolContext(RunServices(run), **describe(run))


class RunServices:
    """`CallServices` over a run in this process. Reports may come from any thread."""

    __slots__ = ("_run",)

    def __init__(self, run: CallRun) -> None:
        self._run = run

    @property
    def cancelled(self) -> bool:
        return self._run.stopping

    def report_progress(self, current: float, total: float | None, label: str | None) -> None:
        self._publish(CallProgress(**about(self._run), current=current, total=total, label=label))

    def report_output(self, stream: str, text: str) -> None:
        self._publish(CallOutput(**about(self._run), stream=stream, text=text))

    def run_nested(self, calls: Iterable[ToolCall | Mapping[str, Any]]) -> Awaitable[list[ToolOutcome]]:
        return self._run.host.run_nested(self._run, calls)

    def _publish(self, event: Event) -> None:
        host = self._run.host
        if threading.get_ident() == host.thread_id:
            self._publish_here(event)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody watches any more
                host.loop.call_soon_threadsafe(self._publish_here, event)

    def _publish_here(self, event: Event) -> None:
        if not self._run.concluded:
            self._run.host.hub.publish(event)


def about(run: CallRun) -> dict[str, Any]:
    """The fields every event of a call has."""
    return {
        "session": run.host.session_id,
        "batch": run.owner.id,
        "at": run.host.clock.now(),
        "call_id": run.prepared.call_id,
        "tool": run.prepared.name,
    }
