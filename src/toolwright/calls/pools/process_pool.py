"""Tools in a process of their own. Owns the child processes and the talk with them; does not own timeouts.

A child is a fresh interpreter, so it shares no threads or locks with the parent. Tools of a module are sent by name,
those of `__main__` and of other functions by cloudpickle. The result is data: JSON of a bounded size, which is never
unpickled. Children are reused for the next call; a child that was asked to end, wrote something else than an answer, or
was killed with all its programs, is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

from toolwright.calls.pools import process_child as far_side
from toolwright.calls.pools.process_messages import (
    LARGEST_MESSAGE,
    LONGEST_NAME,
    LONGEST_TEXT,
    MOST_NAMES,
    Failed,
    NoMessage,
    Raised,
    Report,
    Unconnected,
    Value,
    Waits,
    bounded,
    read_message,
    too_long,
)
from toolwright.calls.returned_json import Encoded
from toolwright.errors import MachineError, ToolwrightError
from toolwright.tools.outcome import ConnectionRequired, Failure, Pending, bounded_json

HEADER = struct.Struct(">Q")
READY = b"ready"
"""The first message of a child, before it has any job."""
PAUSES = (0.05, 0.1, 0.2, 0.4)
"""Seconds to wait before each further attempt to start a child, when the machine has none to give."""
_MOST_IDLE = 4


class ChildFailed(ToolwrightError):
    """The child process gave no answer that can be used."""

    code = "process_died"

    def failure(self, name: str) -> Failure:
        """The failure of the call that it ran."""
        return Failure(category="execution", code=self.code, message=f"Tool {name!r} failed: {self}", source="tool")


class ChildDied(ChildFailed):
    """The child process ended without an answer."""


class ChildBroke(ChildFailed):
    """The child process wrote something that is not an answer."""

    code = "process_broke"


class ChildWroteTooMuch(ChildFailed):
    """The child process announced a message that is longer than any may be."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the tool's process announced a message of {size} bytes")
        self._size = size

    def failure(self, name: str) -> Failure:
        """The failure of the call that it ran."""
        return too_long(self._size)


class RaisedInChild(Exception):
    """An exception of a tool's code in a child, as it was told: `classes` are the names of its class and its bases."""

    classes: frozenset[str] = frozenset()
    failure: Failure | None = None


class ChildTraceback(Exception):
    """Where in the child an error came from; the cause of that error in the parent."""


class Child:
    """One child process: takes a job, answers with messages."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._dismissed = False

    @classmethod
    async def start(cls) -> Child:
        """Start a child and wait until it is ready.

        Raises:
            MachineError: the machine has no child to give. Nothing ran.
        """
        for pause in PAUSES:
            try:
                return await cls._start()
            except (OSError, MemoryError, ChildFailed):
                await asyncio.sleep(pause)
        try:
            return await cls._start()
        except (OSError, MemoryError, ChildFailed) as error:
            raise _no_child(error) from error

    @classmethod
    async def _start(cls) -> Child:
        process, ours = _spawn()
        try:
            child = cls(process, *await asyncio.open_connection(sock=ours))
        except BaseException:
            ours.close()
            _end(process)
            raise
        try:
            await child.send(pickle.dumps([path or os.getcwd() for path in sys.path]))
            # It reports that it is ready: starting up is not the tool's time.
            if await child.receive(len(READY)) != READY:
                raise ChildBroke("the tool's process did not report that it is ready")
        except BaseException:
            child.kill()
            raise
        return child

    async def send(self, message: bytes) -> None:
        """Write a message.

        Raises:
            ChildDied: the child does not read any more.
        """
        try:
            self._writer.write(HEADER.pack(len(message)) + message)
            await self._writer.drain()
        except ConnectionError as error:
            raise self._died() from error

    async def receive(self, limit: int = LARGEST_MESSAGE) -> bytes:
        """Read the next message.

        Raises:
            ChildDied: there is none.
            ChildWroteTooMuch: it is said to be longer than `limit`, and is not read.
        """
        try:
            (size,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            if size > limit:
                raise ChildWroteTooMuch(size)
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise self._died() from error

    def _died(self) -> ChildDied:
        code = _end(self._process)
        if code >= 0:
            return ChildDied(f"the tool's process ended without an answer (exit code {code})")
        try:
            how = signal.Signals(-code).name
        except ValueError:
            how = str(-code)
        return ChildDied(f"the tool's process ended without an answer (signal {how})")

    @property
    def usable(self) -> bool:
        """True when the child can take another job."""
        return not self._dismissed and not self._reader.at_eof()

    def terminate(self) -> None:
        """Ask the child, and everything it started, to end. It takes no other job, even if it answers this one."""
        self._dismissed = True
        if self._process.returncode is None:
            _signal(self._process, signal.SIGTERM)

    def kill(self) -> None:
        """End the child and everything it started, now."""
        _end(self._process)
        self._writer.close()


def _no_child(error: BaseException) -> MachineError:
    return MachineError(
        f"No child process could be started for a tool: {type(error).__name__}: {error}; nothing ran. See that the "
        "machine has file descriptors, processes and memory left, and run the call again"
    )


def _spawn() -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        process = subprocess.Popen(
            # -P: neither our own folder nor the working directory belongs on the path, which the parent sends.
            [sys.executable, "-P", far_side.__file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


def _as_raised(told: Raised) -> RaisedInChild:
    """An exception that stands for one in the child, and has its name."""
    # A child's message is bounded here again: it need not follow our rules.
    classes = [name[:LONGEST_NAME] for name in told.classes[:MOST_NAMES]]
    module, _, name = (classes[0] if classes else "").rpartition(".")
    kind = type(name if name.isidentifier() else "Exception", (RaisedInChild,), {"__module__": module or "child"})
    error: RaisedInChild = kind(told.text[:LONGEST_TEXT])
    error.classes = frozenset(classes)
    error.failure = None if told.failure is None else bounded(told.failure)
    error.__cause__ = ChildTraceback(f"\n{told.trace[-LONGEST_TEXT:]}")
    return error


def _end(process: subprocess.Popen[bytes]) -> int:
    """Kill a child with its whole group, unless that was done, and return how it ended.

    The group first, while the child, even a dead one, still holds the number that the group goes by.
    """
    if process.returncode is None:
        _signal(process, signal.SIGKILL)
    return process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


class ProcessPool:
    """Children for isolated tools."""

    def __init__(self) -> None:
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._closed = False
        self._jobs = 0

    async def run(
        self,
        function: Callable[..., Any],
        arguments: Mapping[str, Any],
        context: Mapping[str, Any] | None,
        hear: Callable[[Report], None],
        hold: Callable[[Child], None],
        *,
        name: str,
    ) -> object:
        """Run `function` in a child and return its result in its JSON form, or raise its exception.

        `hear` gets the reports of the tool; `hold` gets the child, so that a timeout can kill it.

        Raises:
            ChildFailed: the child gave no answer that can be used.
            MachineError: the machine has no child to give. Nothing ran.
        """
        self._jobs = number = self._jobs + 1
        try:
            _pickler()
        except OSError as error:  # at its import
            raise _no_child(error) from error
        job = pickle.dumps((number, name, _dump((function, dict(arguments), context))))
        child = await self._take()
        hold(child)
        answered = False
        try:
            await child.send(job)
            while True:
                try:
                    message = read_message(await child.receive())
                except NoMessage as error:
                    raise ChildBroke(str(error)) from error
                if message.job != number:
                    raise ChildBroke("the tool's process answered a call that it was not given")
                if isinstance(message, Report):
                    hear(message)
                    continue
                answered = True
                return _result(message)
        finally:
            self._busy.discard(child)
            if answered and child.usable and not self._closed and len(self._idle) < _MOST_IDLE:
                self._idle.append(child)
            else:
                child.kill()

    async def _take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.usable:
                self._busy.add(child)
                return child
            child.kill()
        child = await Child.start()
        if self._closed:
            child.kill()
            raise MachineError("The runtime was closed while the tool's process started; nothing ran. Open it again")
        self._busy.add(child)
        return child

    def close(self) -> None:
        """Kill every child."""
        self._closed = True
        for child in (*self._idle, *self._busy):
            child.kill()
        self._idle.clear()


def _result(message: Value | Failed | Waits | Unconnected | Raised) -> object:
    if isinstance(message, Value):
        metadata = None if message.metadata is None else bounded_json("Success metadata", message.metadata)
        return Encoded(
            bytes(message.payload), message.raw_output, message.images, message.attachments, metadata, message.text
        )
    if isinstance(message, Failed):
        return bounded(message.failure)
    if isinstance(message, Waits):
        return Pending(message.deadline)
    if isinstance(message, Unconnected):
        return ConnectionRequired(message.provider[:LONGEST_NAME])
    raise _as_raised(message)


def pickled(thing: object) -> bytes | Exception:
    """Something of the host as a child process can read it, or why it cannot be sent there."""
    try:
        return _dump(thing)
    except Exception as error:  # it may have code of its own for that
        return error


def _dump(job: object) -> bytes:
    buffer = io.BytesIO()
    _pickler()(buffer).dump(job)
    return buffer.getvalue()


@functools.cache
def _pickler() -> type[pickle.Pickler]:
    if TYPE_CHECKING:
        from pickle import Pickler  # cloudpickle, whose class extends this one, has no types
    else:
        from cloudpickle import Pickler

    class JobPickler(Pickler):
        """Cloudpickle, but the function of a decorated tool goes by the tool's name.

        Under its own name there is the tool, so cloudpickle would copy the function, and with it every global it
        uses: connections and locks that can't be copied, and data that should not be.
        """

        def reducer_override(self, thing: object) -> Any:
            if isinstance(thing, FunctionType) and (place := _place_of(thing)) is not None:
                return far_side.wrapped, place
            return super().reducer_override(thing)

    return JobPickler


def _place_of(function: FunctionType) -> tuple[str, str] | None:
    """The module and name of the tool that was made of a function, where a child can find it too."""
    if function.__module__ in ("__main__", None) or "<locals>" in function.__qualname__:
        return None
    found: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is function or getattr(found, "__wrapped__", None) is not function:
        return None
    return function.__module__, function.__qualname__
