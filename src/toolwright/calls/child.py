"""The far side of `isolate`: runs in the child process. Owns the loop over jobs; imports little, to start fast."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import queue
import socket
import struct
import sys
import threading
import traceback
from typing import Any

_HEADER = struct.Struct(">Q")


class _Link:
    """The socket to the parent, with its framing."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)

    def receive(self) -> bytes | None:
        header = self._read(_HEADER.size)
        return None if header is None else self._read(_HEADER.unpack(header)[0])

    def _read(self, size: int) -> bytes | None:
        parts: list[bytes] = []
        while size:
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def send(self, *message: Any) -> None:
        try:
            data = pickle.dumps(message)
        except Exception as error:
            data = pickle.dumps(("error", TypeError(f"the tool's result can not leave its process: {error}")))
        self._socket.sendall(_HEADER.pack(len(data)) + data)


class _Services:
    """What a context can do in a child: report. It has no way to run other tools."""

    cancelled = False

    def __init__(self, link: _Link) -> None:
        self._link = link

    def report_progress(self, current: float, total: float | None, label: str | None) -> None:
        self._link.send("progress", current, total, label)

    def report_output(self, stream: str, text: str) -> None:
        self._link.send("output", stream, text)

    def run_nested(self, calls: Any) -> Any:
        raise RuntimeError("a tool with isolation='process' can not call other tools; drop the isolation")


def _run(link: _Link, job: bytes) -> None:
    try:
        function, arguments, context = pickle.loads(job)
        if context is not None:
            from toolwright.tools.context import ToolContext

            context = ToolContext(_Services(link), **context)
        result = function(arguments, context)
        if inspect.isawaitable(result):
            result = asyncio.run(_await(result))
    except BaseException as error:  # the tool's code: whatever it raises is its answer
        link.send("error", _portable(error))
    else:
        link.send("value", result)


async def _await(awaitable: Any) -> Any:
    return await awaitable


def _portable(error: BaseException) -> BaseException:
    """The error itself where it survives the trip, else one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception_only(error)).strip())
    return error


def main() -> None:
    """Serve jobs until the parent closes the socket."""
    link = _Link(int(sys.argv[1]))
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        while (job := link.receive()) is not None:
            jobs.put(job)
        os._exit(0)  # The parent is gone: end now, even in the middle of a job.

    threading.Thread(target=listen, daemon=True).start()
    link.send("ready")
    while True:
        _run(link, jobs.get())


if __name__ == "__main__":
    main()
