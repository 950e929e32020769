"""Events in a file. Owns writing them as lines of JSON; does not own the events."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

from toolwright import jsonx
from toolwright.event_bus import Subscription
from toolwright.events import AnyEvent
from toolwright.log_fields import log_fields
from toolwright.private_files import append_private

log = logging.getLogger("toolwright.events")


class EventFile:
    """Appends each event of a subscription to a file as one line of JSON, off the event loop's thread."""

    def __init__(self, subscription: Subscription, path: str | Path) -> None:
        self._file = append_private(Path(path))
        self._subscription = subscription
        self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        async for event in self._subscription:
            data = _line(event)
            while (more := self._subscription.take()) is not None:
                data += _line(more)
            try:
                await asyncio.to_thread(self._append, data)
            except OSError:
                log.exception(
                    "Events could not be written to %s",
                    self._file.name,
                    extra=log_fields("events.not_written", path=str(self._file.name)),
                )

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()

    async def close(self) -> None:
        """Write the queued events and close the file."""
        self._subscription.close()
        try:
            await self._task
        finally:
            try:
                self._file.close()
            except OSError:
                log.exception(
                    "Events could not be written to %s",
                    self._file.name,
                    extra=log_fields("events.not_written", path=str(self._file.name)),
                )


def _line(event: AnyEvent) -> bytes:
    """One event as a line; nothing for an event that has no JSON form at all, because later events matter too."""
    try:
        return jsonx.encode(event.to_json()) + b"\n"
    except Exception:  # the value comes from a tool: encoding it ran the tool's code
        pass
    try:
        # Text that is not valid Unicode is escaped, and a value without a JSON form is shown as its `repr`.
        return json.dumps(event.to_json(), default=repr).encode("ascii") + b"\n"
    except Exception:
        log.exception(
            "An event of kind %r could not be written down",
            event.kind,
            extra=log_fields("events.not_encoded", session=event.session),
        )
        return b""
