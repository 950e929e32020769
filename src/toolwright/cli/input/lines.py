"""Text that a person or a program writes to stdin. Owns reading its lines while the event loop continues."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from contextlib import suppress

_PIECE = 64 * 1024


def read_text() -> str:
    """All of stdin. What is not UTF-8 in it is replaced, as in each of the `Lines`."""
    return sys.stdin.buffer.read().decode("utf-8", "replace")


class Lines:
    """The lines of stdin, in order. Cancelling `next` loses nothing that was read."""

    def __init__(self) -> None:
        self._read_so_far = b""
        self._ended = False
        self._descriptor: int | None = None
        with suppress(OSError, ValueError):  # a stdin that is not a file
            self._descriptor = sys.stdin.fileno()

    @property
    def of_person(self) -> bool:
        """True when they come from a terminal."""
        return self._descriptor is not None and os.isatty(self._descriptor)

    async def next(self) -> str | None:
        """The next line, without its end; None when there is no more."""
        while b"\n" not in self._read_so_far and not self._ended:
            piece = await self._piece()
            self._ended = not piece
            self._read_so_far += piece
        line, end, self._read_so_far = self._read_so_far.partition(b"\n")
        return line.decode("utf-8", "replace") if line or end else None

    def forget(self) -> None:
        """Drop what was typed until now: it cannot be the answer to a question that was not asked yet."""
        self._read_so_far = b""
        if self._descriptor is not None and self.of_person:
            termios.tcflush(self._descriptor, termios.TCIFLUSH)

    async def _piece(self) -> bytes:
        descriptor = self._descriptor
        if descriptor is None:
            line: str = await asyncio.to_thread(sys.stdin.readline)
            return line.encode("utf-8", "replace")
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(descriptor, readable.set)
        except OSError:  # a plain file, which can always be read
            return os.read(descriptor, _PIECE)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(descriptor)
        return os.read(descriptor, _PIECE)
