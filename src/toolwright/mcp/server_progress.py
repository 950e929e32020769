"""The reports of running calls, for the clients that made them. Owns progress and log notifications of a call.

One subscription a session serves all of its calls. A client that reads slowly loses the oldest reports, and never makes
a tool wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, get_args

import mcp_types as types

from toolwright.events import AnyEvent, CallNote, CallOutput, CallProgress, CallStatus, CallWarning
from toolwright.mcp.server_request import ClientRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from toolwright.event_bus import Subscription
    from toolwright.session.session import Session

MOST_REPORTS = 256
"""How many reports of a call wait for its client; an older one is dropped."""
LONGEST_TEXT = 4_000
"""Characters of the text of one report."""
_LEVELS: tuple[str, ...] = get_args(types.LoggingLevel)


class CallReports:
    """The reports of one call on their way to its client."""

    def __init__(self, request: ClientRequest, call_id: str) -> None:
        self._request = request
        self._call_id = call_id
        self._waiting: deque[CallNote] = deque(maxlen=MOST_REPORTS)
        self._more = asyncio.Event()
        self._ended = False
        self._sent: float | None = None
        self._counts = True
        level = request.log_level
        self._least = _LEVELS.index(level) if level in _LEVELS else len(_LEVELS)

    def take(self, event: CallNote) -> None:
        """Queue a report of the call."""
        if event.call_id == self._call_id:
            self._waiting.append(event)
            self._more.set()

    def end(self) -> None:
        """Let `send_all` return, once it has sent what waits."""
        self._ended = True
        self._more.set()

    async def send_all(self) -> None:
        """Send reports as they come, until the last."""
        while not self._ended:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                await self._send(self._waiting.popleft())

    async def _send(self, event: CallNote) -> None:
        if isinstance(event, CallProgress):
            await self._send_progress(event.current, event.total, event.label or event.unit)
        elif isinstance(event, CallStatus):
            await self._send_progress(None, None, event.text)
            await self._log("info", event.text, "status")
        elif isinstance(event, CallOutput):
            await self._log("info", event.text, event.stream)
        elif isinstance(event, CallWarning):
            await self._log("warning", event.message, event.code)

    async def _send_progress(self, current: float | None, total: float | None, label: str | None) -> None:
        if not self._request.wants_progress:
            return
        if current is not None:
            self._counts = False
        elif self._counts:  # A tool that says no numbers: the reports are counted, for each must be more than the last.
            current = 0.0 if self._sent is None else self._sent + 1
        if current is None or (self._sent is not None and current <= self._sent):
            return
        self._sent = current
        text = None if label is None else label[:LONGEST_TEXT]
        await self._request.context.session.report_progress(current, total, text)

    async def _log(self, level: types.LoggingLevel, text: str, logger: str) -> None:
        if _LEVELS.index(level) >= self._least:
            said = types.LoggingMessageNotificationParams(level=level, data=text[:LONGEST_TEXT], logger=logger)
            request = self._request.context
            await request.session.send_notification(
                types.LoggingMessageNotification(params=said), related_request_id=request.request_id
            )


class SessionReports:
    """Gives the events of one session to the calls that they belong to, by the scope of the call."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._listening: dict[str, list[CallReports]] = {}
        self._subscription: Subscription | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """True where no call wants reports."""
        return not self._listening

    def listen(self, scope: str, reports: CallReports) -> None:
        """Give the events of a scope to the reports of a call."""
        self._listening.setdefault(scope, []).append(reports)
        if self._subscription is None:
            self._subscription = subscription = self._session.subscribe()
            self._reader = asyncio.ensure_future(self._read(subscription))

    def unlisten(self, scope: str, reports: CallReports) -> None:
        """Give it no more events."""
        listening = self._listening.get(scope, [])
        if reports in listening:
            listening.remove(reports)
        if not listening:
            self._listening.pop(scope, None)
        if not self._listening and self._subscription is not None:
            self._subscription.close()
            self._subscription = self._reader = None

    def deliver_queued(self) -> None:
        """Give the events that wait to their calls now, so that none comes after the result of its call."""
        while self._subscription is not None and (event := self._subscription.take()) is not None:
            self._deliver(event)

    async def _read(self, subscription: Subscription) -> None:
        async for event in subscription:
            self._deliver(event)

    def _deliver(self, event: AnyEvent) -> None:
        if isinstance(event, CallNote):
            for reports in self._listening.get(event.scope, ()):
                reports.take(event)


class Reports:
    """The reports of all sessions of a server."""

    def __init__(self) -> None:
        self._sessions: dict[str, SessionReports] = {}

    def wanted(self, request: ClientRequest) -> bool:
        """True where the client wants any reports of its call."""
        return request.wants_progress or request.log_level is not None

    @asynccontextmanager
    async def following(
        self, request: ClientRequest, session: Session, scope: str, call_id: str
    ) -> AsyncIterator[None]:
        """Send the reports of a call to its client while the block lasts, all of them before it ends."""
        reports = CallReports(request, call_id)
        of_session = self._sessions.get(session.id)
        if of_session is None:
            of_session = self._sessions[session.id] = SessionReports(session)
        of_session.listen(scope, reports)
        sending = asyncio.ensure_future(reports.send_all())
        try:
            yield
            of_session.deliver_queued()
            reports.end()
            await sending
        finally:
            sending.cancel()
            of_session.unlisten(scope, reports)
            if of_session.idle:
                self._sessions.pop(session.id, None)
