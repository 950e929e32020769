"""A server as a child process. Owns starting it with an environment of its own, the messages over its pipes, and ending
it with everything it started; does not own restarting it.

The transport of the SDK reads lines of any length, and passes on more of our environment than a server was given.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from toolwright import jsonx
from toolwright.log_fields import log_fields
from toolwright.mcp.log_limit import LogLimit
from toolwright.mcp.tool_names import clean_line

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    Streams = tuple[MemoryObjectReceiveStream["SessionMessage | Exception"], MemoryObjectSendStream["SessionMessage"]]

log = logging.getLogger("toolwright.mcp")

INHERITED = ("PATH", "HOME")
"""The only variables of our environment that a server gets, unless they are given to it."""
_CHUNK = 256 * 1024
_LONGEST_STDERR_LINE = 4_000
_MOST_NOTICES = 200
"""Notices of progress and log messages a second that are read; the rest is dropped before it costs anything."""
_NOTICES = re.compile(rb'"notifications/(?:progress|message)"')
_MOST_RUBBISH = 5
"""Log lines about rubbish in each period; a server that prints a lot prints it all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a server is started, and how long it may take to end."""

    server: str
    command: str
    args: Sequence[str]
    env: Mapping[str, str]
    cwd: str | Path | None
    largest_message: int
    exit_grace: float
    """Seconds after the end of its input, and again after SIGTERM."""

    def environment(self) -> dict[str, str]:
        """The environment of the process: the given variables, and PATH and HOME."""
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        return {**inherited, **self.env}


Ended = Callable[[str], None]
"""Takes the reason, as soon as the server cannot answer any more."""


@dataclass(slots=True)
class ServerExit:
    """How a server ended by itself, before it was stopped."""

    stopping: bool = False
    reason: str | None = None
    status: int | None = None

    def told(self) -> str | None:
        """The end in words; None for a server that was stopped."""
        if self.reason is None or self.status is None:
            return self.reason
        how = f"with status {self.status}" if self.status >= 0 else f"by signal {-self.status}"
        return f"{self.reason}, and its process ended {how}; the log of 'toolwright.mcp' (INFO) has what it wrote"


@asynccontextmanager
async def stdio_transport(
    launch: Launch, ended: Ended, exit: ServerExit, redact: Callable[[str], str]
) -> AsyncIterator[Streams]:
    """A transport for `mcp.Client`: the server runs for as long as the block does.

    Raises:
        OSError: it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        launch.command,
        *launch.args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=launch.environment(),
        cwd=launch.cwd,
        start_new_session=True,  # a process group of its own, which is ended as a whole
        limit=_CHUNK,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    to_session, from_server = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    to_server, from_session = anyio.create_memory_object_stream["SessionMessage"](0)

    def tell(reason: str) -> None:
        if exit.reason is None and not exit.stopping:
            exit.reason = reason
        ended(reason)

    tasks = [
        asyncio.create_task(_read(launch, process.stdout, to_session, tell), name=f"mcp-{launch.server}-read"),
        asyncio.create_task(_write(process.stdin, from_session, tell), name=f"mcp-{launch.server}-write"),
        asyncio.create_task(_log(launch.server, process.stderr, redact), name=f"mcp-{launch.server}-stderr"),
    ]
    try:
        yield from_server, to_server
    finally:
        exit.stopping = True
        stopping = asyncio.ensure_future(_stop(process, launch, tasks, exit))
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await asyncio.wait([stopping])  # bounded; a server never outlives its connection
            raise
        finally:
            for stream in (to_session, from_server, to_server, from_session):
                stream.close()


async def _read(
    launch: Launch,
    stdout: asyncio.StreamReader,
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    ended: Ended,
) -> None:
    """Pass on the messages of the server, a line each, until it ends or writes a line that is too long."""
    reason = "it closed its output"
    loop = asyncio.get_running_loop()
    second, notices = 0.0, 0
    rubbish = LogLimit(loop.time, _MOST_RUBBISH)
    buffer = bytearray()
    try:
        while chunk := await stdout.read(_CHUNK):
            searched = len(buffer)
            buffer += chunk
            start = 0
            while (end := buffer.find(b"\n", max(start, searched))) >= 0:
                line = bytes(buffer[start:end])
                start = end + 1
                if _NOTICES.search(line, 0, 200):
                    now = loop.time()
                    if now - second >= 1:
                        second, notices = now, 0
                    notices += 1
                    if notices > _MOST_NOTICES:
                        await asyncio.sleep(0)
                        continue
                if message := _parsed(launch.server, line, rubbish):
                    await to_session.send(message)
                else:
                    await asyncio.sleep(0)  # a server that prints a lot does not hold up everything else
            del buffer[:start]
            if len(buffer) > launch.largest_message:
                reason = (
                    f"it sent a message of more than {launch.largest_message} bytes; allow more with largest_message=, "
                    "or ask it for less"
                )
                break
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        reason = "the connection was closed"
    except OSError as error:
        reason = f"its output cannot be read: {error}"
    finally:
        ended(reason)
        to_session.close()  # every call that waits learns that the connection is closed
    while await stdout.read(_CHUNK):
        pass  # a server that is stuck in writing could not end


def _parsed(server: str, line: bytes, rubbish: LogLimit) -> SessionMessage | None:
    if not line.strip():
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        # What a server prints beside its messages is not ours to read; it may hold anything.
        before = rubbish.take()
        if before is not None:
            log.warning(
                "The MCP server %r wrote a line of %d bytes that is no message; it is left out%s",
                server,
                len(line),
                f", and so were {before} before it" if before else "",
                extra=log_fields("mcp.not_a_message"),
            )
        return _rubbish(line)


def _rubbish(line: bytes) -> SessionMessage | None:
    """The end of a request whose answer cannot be read; None for a line that names no request."""
    try:
        found = jsonx.decode(line)
    except (ValueError, RecursionError):
        return None
    id = found.get("id") if isinstance(found, dict) and "method" not in found else None
    if not isinstance(id, (str, int)) or isinstance(id, bool):
        return None
    error = ErrorData(code=PARSE_ERROR, message="the answer cannot be read")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id, error=error))


async def _write(
    stdin: asyncio.StreamWriter, from_session: MemoryObjectReceiveStream[SessionMessage], ended: Ended
) -> None:
    try:
        async for message in from_session:
            stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()
    except (OSError, anyio.ClosedResourceError) as error:
        ended(f"its input cannot be written: {error}")
    finally:
        from_session.close()


async def _log(server: str, stderr: asyncio.StreamReader, redact: Callable[[str], str]) -> None:
    """Log what the server writes to its standard error, a line each. Of a line that is long, its beginning."""
    limit = LogLimit(asyncio.get_running_loop().time)
    rest, cut = b"", False
    with contextlib.suppress(OSError):
        while chunk := await stderr.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            if lines and cut:
                lines[0], cut = b"", False
            if cut or len(rest) > _CHUNK:
                lines, rest, cut = [*lines, b"" if cut else rest], b"", True
            for line in lines:
                _log_line(server, line, limit, redact)
    _log_line(server, b"" if cut else rest, limit, redact)


def _log_line(server: str, line: bytes, limit: LogLimit, redact: Callable[[str], str]) -> None:
    # Before anything costs time: a server may write a line again and again.
    before = limit.take() if line.strip() else None
    if before is None:
        return
    # Cut at last: the beginning of a secret is not known for one.
    text = clean_line(redact(clean_line(line.decode("utf-8", "replace"), _CHUNK)), _LONGEST_STDERR_LINE)
    if text:
        more = f" ({before} lines before it are left out)" if before else ""
        log.info("MCP server %r: %s%s", server, text, more, extra=log_fields("mcp.stderr"))


async def _stop(
    process: asyncio.subprocess.Process, launch: Launch, tasks: list[asyncio.Task[None]], exit: ServerExit
) -> None:
    """End the server: the end of its input first, then SIGTERM and SIGKILL to everything in its process group."""
    stdin = process.stdin
    assert stdin is not None
    writer = tasks[1]
    if not writer.done():
        await asyncio.wait([writer], timeout=0.2)  # what was accepted is written
        writer.cancel()
    with contextlib.suppress(OSError):
        stdin.close()
    if await _exits(process, launch.exit_grace):
        exit.status = process.returncode
        await asyncio.wait([tasks[2]], timeout=0.2)  # its last words
    else:
        _signal(process.pid, signal.SIGTERM)
        if not await _exits(process, launch.exit_grace):
            log.warning(
                "The MCP server %r does not end at SIGTERM; it is killed",
                launch.server,
                extra=log_fields("mcp.killed"),
            )
    # Also when the server itself has ended: it may have left processes in its group.
    _signal(process.pid, signal.SIGKILL)
    await _exits(process, launch.exit_grace)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    # A process of another group may hold the pipes open; they are closed on our side.
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


async def _exits(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Wait until the process has ended; not until its pipes are closed, which a child of it may hold open."""
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + seconds, 0.001
    while process.returncode is None:
        if loop.time() >= until:
            return False
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.05)
    return True


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
