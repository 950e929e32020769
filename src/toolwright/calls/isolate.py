"""Tools in a process of their own. Owns the child processes and the talk with them; does not own timeouts.

A child is a fresh interpreter, so nothing of the parent's threads or locks comes along. Functions travel by
cloudpickle, so tools of `__main__` and of other functions work too. Children are kept for the next call; one that was
killed, with everything it started, is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from toolwright.errors import ToolwrightError

HEADER = struct.Struct(">Q")
_MOST_IDLE = 4


class ChildDied(ToolwrightError):
    """The child process ended without an answer."""


class Child:
    """One child process: takes a job, answers with messages."""

    def __init__(self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls) -> Child:
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            process = subprocess.Popen(
                [sys.executable, "-m", "toolwright.calls.child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        child = cls(process, *await asyncio.open_connection(sock=ours))
        try:
            await child.receive()  # It says that it is ready: starting up is not the tool's time.
        except BaseException:
            child.kill()
            raise
        return child

    async def send(self, message: bytes) -> None:
        self._writer.write(HEADER.pack(len(message)) + message)
        await self._writer.drain()

    async def receive(self) -> Any:
        try:
            (size,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            return pickle.loads(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            code = self._process.wait()
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise ChildDied(f"the tool's process ended without an answer ({how})") from error

    def terminate(self) -> None:
        """Ask the child, and everything it started, to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the child and everything it started, now."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._writer.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class ProcessPool:
    """Children for isolated tools."""

    def __init__(self) -> None:
        self._idle: list[Child] = []
        self._busy: set[Child] = set()

    async def run(
        self,
        function: Callable[..., Any],
        arguments: Mapping[str, Any],
        context: Mapping[str, Any] | None,
        hear: Callable[[str, tuple[Any, ...]], None],
        hold: Callable[[Child], None],
    ) -> Any:
        """Run `function` in a child and return what it returns, or raise what it raises.

        `hear` gets the progress and output it reports; `hold` gets the child, so that a timeout can kill it.
        """
        import cloudpickle

        job = cloudpickle.dumps((function, dict(arguments), context))
        child = self._idle.pop() if self._idle else await Child.start()
        self._busy.add(child)
        hold(child)
        healthy = False
        try:
            await child.send(job)
            while True:
                kind, *content = await child.receive()
                if kind == "value":
                    healthy = True
                    return content[0]
                if kind == "error":
                    healthy = True
                    raise content[0]
                hear(kind, tuple(content))
        finally:
            self._busy.discard(child)
            if healthy and len(self._idle) < _MOST_IDLE:
                self._idle.append(child)
            else:
                child.kill()

    def close(self) -> None:
        """Kill every child."""
        for child in (*self._idle, *self._busy):
            child.kill()
        self._idle.clear()
