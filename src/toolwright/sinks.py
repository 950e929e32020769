"""Events written down. Owns the JSON-lines sink; does not own the events."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from toolwright import jsonx
from toolwright.events import Event, Subscription

log = logging.getLogger("toolwright.events")


class JsonLinesSink:
    """Appends each event of a subscription to a file as one line of JSON, off the event loop's thread."""

    def __init__(self, subscription: Subscription, path: str | Path) -> None:
        self._subscription = subscription
        self._file = Path(path).open("ab")
        self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        async for event in self._subscription:
            lines = [jsonx.encode(event)]
            while (more := self._subscription.take()) is not None:
                lines.append(jsonx.encode(more))
            try:
                await asyncio.to_thread(self._append, b"\n".join(lines) + b"\n")
            except OSError:
                log.exception("Events could not be written to %s", self._file.name)

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()

    async def close(self) -> None:
        """Write what is queued and close the file."""
        self._subscription.close()
        await self._task
        self._file.close()
