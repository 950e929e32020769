"""The far side of `isolate`: runs in the child process. Owns the loop over jobs; imports little, to start fast.

It is run as a file, so that the package itself is imported only by the tools that need it.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, NoReturn

_HEADER = struct.Struct(">Q")
_LONGEST = 2_000_000
"""The most characters of a text in a report: as JSON it is still shorter than a message may be."""


class _Link:
    """The socket to the parent, with its framing. Only one thread may send at a time."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)  # Programs that the tool starts must not have it.
        self._socket = socket.socket(fileno=fd)
        self._sending = False
        self._exit_code: int | None = None

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

    def send(self, data: bytes) -> None:
        frame = _HEADER.pack(len(data)) + data
        if threading.current_thread() is not threading.main_thread():
            self._socket.sendall(frame)
            return
        self._sending = True
        try:
            self._socket.sendall(frame)
        finally:
            self._sending = False
        if self._exit_code is not None:
            code, self._exit_code = self._exit_code, None
            sys.exit(code)

    def exit(self, code: int) -> None:
        """Leave the main thread's code, but not in the middle of a message. For signal handlers, which run there."""
        if not self._sending:
            sys.exit(code)
        self._exit_code = code


class _Services:
    """The services of a context in a child: reports only. It cannot run other tools."""

    completion_key: str

    def __init__(self, link: _Link) -> None:
        self.job = 0
        self._link = link
        self._lock = threading.Lock()  # Any thread of the tool may report.
        self._over = False
        self.cancelled = False

    @property
    def deps(self) -> NoReturn:
        raise RuntimeError("a tool with isolation='process' has no deps of its app; drop the isolation")

    def now(self) -> float:
        return time.time()

    def report_progress(self, current: float | None, total: float | None, label: str | None, unit: str | None) -> None:
        from toolwright.calls.pools.process_messages import Progress

        self._report(Progress(self.job, current, total, _written(label), _written(unit)))

    def report_status(self, text: str) -> None:
        from toolwright.calls.pools.process_messages import Status

        self._report(Status(self.job, _written(text)))

    def report_output(self, stream: str, text: str) -> None:
        from toolwright.calls.pools.process_messages import Output

        # In pieces, none of which is longer than a message may be.
        for start in range(0, max(len(text), 1), _LONGEST):
            self._report(Output(self.job, _written(stream), _written(text[start : start + _LONGEST])))

    def run_nested(self, calls: object) -> NoReturn:
        raise RuntimeError("a tool with isolation='process' cannot call other tools; drop the isolation")

    def service(self, name: str) -> NoReturn:
        raise RuntimeError(f"a tool with isolation='process' has no {name} of its session; drop the isolation")

    @property
    def limited_children(self) -> NoReturn:
        raise RuntimeError("a tool with isolation='process' has no children of its own; drop the isolation")

    def shell_rules(self) -> NoReturn:
        raise RuntimeError("a tool with isolation='process' does not see the policy's rules; drop the isolation")

    def refused_by(self, rule: str) -> None:
        raise RuntimeError("a tool with isolation='process' does not see the policy's rules; drop the isolation")

    def open_child(self, name: str) -> NoReturn:
        raise RuntimeError("a tool with isolation='process' cannot open sessions; drop the isolation")

    async def ask_agent(self, *args: object) -> NoReturn:
        raise RuntimeError("a tool with isolation='process' cannot run a sub-agent; drop the isolation")

    async def complete(self, *args: object) -> NoReturn:
        raise RuntimeError("a tool with isolation='process' cannot ask the model; drop the isolation")

    def wait_key(self, kind: str, name: str) -> str:
        if kind != "completion":
            raise RuntimeError(f"a tool with isolation='process' has no {kind}s of its own; drop the isolation")
        from toolwright.calls.pools.process_messages import Key

        self._report(Key(self.job))
        return self.completion_key

    async def step(self, *args: object) -> NoReturn:
        raise RuntimeError(
            "a tool with isolation='process' has no steps, sleeps, waits, questions or events; drop the isolation"
        )

    sleep = wait = receive = ask = emit = step

    def _report(self, message: object) -> None:
        from toolwright import jsonx

        data = jsonx.encode(message)
        with self._lock:
            if not self._over:
                self._link.send(data)

    def end(self) -> None:
        """The job is finished: later reports of its threads would be taken for the next job's."""
        with self._lock:
            self._over = True


class _Jobs:
    """Runs one job after the other on the main thread."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._idle = True
        self._running: _Services | None = None

    def run(self, job: bytes) -> None:
        self._idle = False
        services = _Services(self._link)
        # Before each job, for a tool may have set a handler of its own.
        signal.signal(signal.SIGTERM, self._stop)
        number, name, code = pickle.loads(job)
        services.job = number
        from toolwright.calls.pools.process_messages import write_error, write_result

        try:
            self._running = services
            try:
                result = _result_of(code, services)
            finally:
                self._running = None
            answer = write_result(number, result)
        except BaseException as error:  # the tool's code: whatever it raises is its answer
            answer = write_error(number, name, error)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()  # The child may be killed without warning, and its output must not be lost.
        services.end()
        self._link.send(answer)
        self._idle = True

    def _stop(self, number: int, frame: object) -> None:
        """The parent asks to end: the tool's code sees an exit, and may clean up while its grace lasts."""
        if self._running is not None:
            self._running.cancelled = True
            self._link.exit(128 + number)
        elif self._idle:
            os._exit(128 + number)
        # Else the answer is on its way, and the parent waits for it.


def _result_of(code: bytes, services: _Services) -> object:
    function, arguments, facts = pickle.loads(code)
    context = None
    if facts is not None:
        from toolwright.tools.context import ToolContext

        services.completion_key = facts.pop("completion_key")
        context = ToolContext(services, **facts)
    result = function(arguments, context)
    if hasattr(result, "__await__"):
        import asyncio

        return asyncio.run(_await(result))
    return result


def _written(text: object) -> Any:
    """A text of a report in a form that has a place in JSON."""
    return text if text is None else str(text)[:_LONGEST].encode("utf-8", "backslashreplace").decode()


async def _await(awaitable: Awaitable[object]) -> object:
    return await awaitable


def wrapped(module: str, name: str) -> object:
    """The function beneath a tool of a module; jobs refer to it."""
    import importlib

    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found.__wrapped__


def main() -> None:
    """Serve jobs until the parent closes the socket."""
    link = _Link(int(sys.argv[1]))
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        with suppress(OSError):
            while (job := link.receive()) is not None:
                jobs.put(job)
        # The parent is gone: end now, even in the middle of a job, and end the programs that the tool started.
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(0)

    path = link.receive()
    if path is None:
        return
    sys.path[:] = pickle.loads(path)
    threading.Thread(target=listen, daemon=True).start()
    link.send(b"ready")
    runner = _Jobs(link)
    while True:
        runner.run(jobs.get())


if __name__ == "__main__":
    main()
