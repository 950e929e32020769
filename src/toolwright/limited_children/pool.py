"""The parent's side of limited children. Owns the processes, their number, and the time each request may take."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from msgspec import Struct

from toolwright.errors import MachineError, ToolwrightError
from toolwright.limited_children import far_side

MOST_CHILDREN = 32
"""How many may work at once in one runtime. More than any usual number of cores: a busy child is not in the way."""
_MOST_IDLE = 4
_MOST_REQUESTS = 200
"""A child is replaced after this many requests, whatever its memory use."""
_LEAST_GROWTH = 64 * 1024 * 1024
"""How much memory a child may retain from requests before it is replaced; half of that if it may use more."""
_IDLE_SECONDS = 60.0
_START_SECONDS = 30.0
_PAUSES = (0.05, 0.1, 0.2, 0.4)
"""Seconds before each further attempt to start a child, when the machine has none to give."""
_BUFFER = 1024 * 1024
_TOGETHER = 64 * 1024
# The variables that an interpreter needs to start. A child gets no other part of our environment.
_KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class ChildFailed(ToolwrightError):
    """The child gave no answer. `code` is a word for why: "died", "memory", "too_large", or an error's class."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class ChildTimeout(ChildFailed):
    """The child took longer than it may, and was killed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it took longer than {seconds:g} s and was killed", "timeout")


class ChildJob(Struct, frozen=True):
    """The function that a child runs, and its limits. Sizes in bytes, times in seconds.

    `function` is "module:name", or "path/to/file.py:name" where the packages around it are not needed: a function of
    our own that takes a request and a `Link`. `memory` is the memory for requests, beyond the needs of the interpreter.
    `seconds` of processor time are for each request. `most_bytes` bounds each message that the child sends.
    """

    function: str
    memory: int = 256 * 1024 * 1024
    seconds: float = 30.0
    most_bytes: int = 64 * 1024 * 1024
    open_files: int = 64


class _Child:
    """One process: takes a request at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.requests = 0
        self.most_memory = 0
        self.expiry: asyncio.TimerHandle | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self._most = 0

    async def connect(self, ours: socket.socket, job: ChildJob) -> None:
        self._most = job.most_bytes
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=_BUFFER)
        setup = {
            "path": [path or os.getcwd() for path in sys.path],
            "job": job.function,
            "memory": job.memory,
            "seconds": job.seconds,
            "most_bytes": job.most_bytes,
            "open_files": job.open_files,
        }
        self._writer.write(json.dumps(setup).encode() + b"\n")
        async with asyncio.timeout(_START_SECONDS):
            await self.receive()
        self.most_memory = self.memory() + max(_LEAST_GROWTH, job.memory // 2)

    async def send(self, message: object, feed: AsyncIterable[Any] | None) -> None:
        """Send a request, and after it the messages of its feed. Short messages are sent together, to wake the child
        once."""
        assert self._writer is not None
        waiting = bytearray()
        _append(waiting, message)
        if feed is not None:
            async for piece in feed:
                if len(waiting) > _TOGETHER:
                    self._writer.write(waiting)
                    waiting = bytearray()
                    await self._writer.drain()
                _append(waiting, piece)
        self._writer.write(waiting)
        await self._writer.drain()

    async def receive(self) -> list[Any]:
        (size,) = far_side.HEADER.unpack(await self._reader.readexactly(far_side.HEADER.size))
        if size > self._most:
            raise ChildFailed(f"it announced an answer of {size} bytes, more than {self._most}", "too_large")
        return msgspec.msgpack.decode(await self._reader.readexactly(size), type=list[Any])

    @property
    def usable(self) -> bool:
        """True when it can take another request."""
        return not self._reader.at_eof() and self.process.returncode is None

    @property
    def worn(self) -> bool:
        """True when it should be replaced."""
        return self.requests >= _MOST_REQUESTS or self.memory() > self.most_memory

    def memory(self) -> int:
        """The bytes that it holds in memory, 0 where the system does not say."""
        try:
            with open(f"/proc/{self.process.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return 0

    def kill(self) -> None:
        """End it and everything it started, now. `reap` must follow."""
        if self.expiry is not None:
            self.expiry.cancel()
        if self._writer is not None:
            self._writer.close()
        _kill(self.process)


class ChildPool:
    """The limited children of one runtime, reused between requests.

    Processes are started and waited for on one thread of the pool's own, which lives as long as the pool: the
    operating system kills a child when the thread that started it ends.
    """

    def __init__(self, most: int = MOST_CHILDREN) -> None:
        self._slots = asyncio.Semaphore(most)
        self._idle: dict[ChildJob, list[_Child]] = {}
        self._children: set[_Child] = set()
        self._keeper: ThreadPoolExecutor | None = None
        self._closed = False

    async def run(
        self,
        job: ChildJob,
        request: object,
        *,
        seconds: float,
        feed: AsyncIterable[Any] | None = None,
        hear: Callable[[Any], None] | None = None,
    ) -> object:
        """Let a child do a job, and return its answer.

        `seconds` begin when the child has everything it needs: the request, and after it each message of `feed`. `hear`
        gets the notes that the job sends while it runs. The request and the answer are plain data.

        Raises:
            ChildTimeout: it took too long, and was killed.
            ChildFailed: it died, or took or said more than it may.
            MachineError: no process could be started; nothing ran.
        """
        async with self._slots:
            child = await self._take(job)
            answered = False
            try:
                child.requests += 1
                await child.send(request, feed)
                answer = await _answer(child, seconds, hear)
                answered = answer[:1] == ["value"]  # A job that failed may not have taken all that it was fed.
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise await self._died(child) from error
            except (msgspec.DecodeError, RecursionError) as error:
                raise ChildFailed("its answer is not a message", "died") from error
            finally:
                self._give_back(job, child, answered)
        match answer:
            case ["value", value]:
                return value
            case ["error", str(code), str(message)]:
                raise ChildFailed(message, code)
        raise ChildFailed("its answer is not a message", "died")

    async def close(self) -> None:
        """Kill every child, and wait until they are gone."""
        self._closed = True
        for child in self._children:
            child.kill()
        left = [child.process for child in self._children]
        self._children.clear()
        self._idle.clear()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await asyncio.get_running_loop().run_in_executor(keeper, _reap_all, left)
            keeper.shutdown()

    async def _take(self, job: ChildJob) -> _Child:
        idle = self._idle.get(job, [])
        while idle:
            child = idle.pop()
            if child.expiry is not None:
                child.expiry.cancel()
                child.expiry = None
            if child.usable:
                return child
            self._end(child)
        return await self._start(job)

    async def _start(self, job: ChildJob) -> _Child:
        for pause in (*_PAUSES, None):
            try:
                return await self._try_to_start(job)
            except (OSError, MemoryError, RuntimeError, ChildFailed) as error:
                if self._closed:
                    raise ChildFailed("the runtime is closed", "died") from error
                if pause is None:
                    raise MachineError(
                        f"No limited child process could be started: {type(error).__name__}: {error}; nothing ran. See "
                        "that the machine has file descriptors, processes and memory left, and run the call again"
                    ) from error
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _try_to_start(self, job: ChildJob) -> _Child:
        loop = asyncio.get_running_loop()
        if self._closed:
            raise ChildFailed("the runtime is closed", "died")
        if self._keeper is None:
            self._keeper = ThreadPoolExecutor(1, "toolwright-children")
        starting = loop.run_in_executor(self._keeper, _spawn)
        try:
            process, ours = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_discard)
            raise
        child = _Child(process)
        self._children.add(child)
        try:
            if self._closed:
                raise ChildFailed("the runtime was closed while it started", "died")
            await child.connect(ours, job)
        except BaseException as error:
            ours.close()
            if isinstance(error, (asyncio.IncompleteReadError, ConnectionError, TimeoutError)):
                raise await self._died(child, "before it was ready") from error
            self._end(child)
            raise
        return child

    def _give_back(self, job: ChildJob, child: _Child, answered: bool) -> None:
        idle = self._idle.setdefault(job, [])
        if not answered or self._closed or not child.usable or child.worn or len(idle) >= _MOST_IDLE:
            self._end(child)
            return
        idle.append(child)
        child.expiry = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._expire, idle, child)

    def _expire(self, idle: list[_Child], child: _Child) -> None:
        if child in idle:
            idle.remove(child)
            self._end(child)

    def _end(self, child: _Child) -> None:
        child.kill()
        self._children.discard(child)
        if self._keeper is not None:
            self._keeper.submit(child.process.wait)
        else:
            child.process.wait()  # The pool is closed. It was killed, so the wait is short.

    async def _died(self, child: _Child, when: str = "without an answer") -> ChildFailed:
        """How a child ended that closed its side."""
        child.kill()
        self._children.discard(child)
        if self._keeper is not None:
            await asyncio.get_running_loop().run_in_executor(self._keeper, child.process.wait)
        code = child.process.wait()
        if code >= 0:
            return ChildFailed(f"its process ended {when} (exit code {code})", "died")
        try:
            how = signal.Signals(-code).name
        except ValueError:
            how = str(-code)
        return ChildFailed(f"its process ended {when} (signal {how})", "died")


def _append(waiting: bytearray, message: object) -> None:
    data = msgspec.msgpack.encode(message)
    waiting += far_side.HEADER.pack(len(data))
    waiting += data


async def _answer(child: _Child, seconds: float, hear: Callable[[Any], None] | None) -> list[Any]:
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await child.receive()
                if not message or message[0] != "note":
                    return message
                if hear is not None:
                    hear(message[1] if len(message) > 1 else None)
                # Messages that are there already are read without a pause: a flood of them must not hold up the loop.
                await asyncio.sleep(0)
    except TimeoutError:
        raise ChildTimeout(seconds) from None


def _spawn() -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment["MALLOC_ARENA_MAX"] = "2"  # each arena of glibc takes 64 MiB of addresses
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", far_side.__file__, str(theirs.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


def _discard(starting: asyncio.Future[tuple[subprocess.Popen[bytes], socket.socket]]) -> None:
    """Discard a child whose answer is no longer needed. It was killed before it did anything, so the wait is short."""
    if not starting.cancelled() and starting.exception() is None:
        process, ours = starting.result()
        ours.close()
        _kill(process)
        process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    # The group first, while the child, even a dead one, still holds the number that the group goes by.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _reap_all(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.wait()
