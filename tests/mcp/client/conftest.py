"""Servers of the tests, as real processes: over stdio and HTTP, in both revisions of the protocol."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio._backends._asyncio  # noqa: F401 - else the first connection imports it, which tests that watch the loop see
import pytest

import toolwright.mcp.connection  # noqa: F401 - the same
from tests.crash.conftest import Crashes
from tests.support import fail_after, until
from tests.warm_programs import WarmPrograms
from toolwright import App, Runtime
from toolwright.mcp import McpServer
from toolwright.testing import Zygote

PROGRAM = Path(__file__).with_name("plain_server.py")
RAW = Path(__file__).with_name("raw_server.py")
MODERN, HANDSHAKE = "2026-07-28", "2025-11-25"


python = [sys.executable]
"""The words that start the server of the tests, which would import the SDK for most of a second."""


@pytest.fixture(scope="session", autouse=True)
def warm() -> Iterator[None]:
    """Let the server of the tests be forked by a process that has imported the SDK."""
    before = list(python)
    with contextlib.closing(WarmPrograms("mcp.server.stdio", "mcp.server.lowlevel.server", "uvicorn")) as programs:
        python[:] = programs.command
        yield
        python[:] = before


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the server writes what its tools did."""
    made = tmp_path / "server"
    made.mkdir()
    return made


def lines(path: Path) -> list[str]:
    """The lines of a file that a server writes; none while there is no file."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().splitlines()
    return []


def stdio(folder: Path, *, program: Path = PROGRAM, name: str = "plain", args: tuple[str, ...] = (), **options: Any):
    """The server of the tests over stdio."""
    options = {"connect_timeout": 20.0, "exit_grace": 1.0, **options}
    command, *words = python if program == PROGRAM else [sys.executable]
    return McpServer.stdio(name, command, [*words, str(program), str(folder), *args], **options)


def raw(folder: Path, behaviour: str, *, name: str = "plain", **options: Any) -> McpServer:
    """The server without the SDK, with one of its behaviours."""
    return stdio(folder, program=RAW, name=name, args=(behaviour,), **options)


class HttpServer:
    """A server over HTTP that can be killed and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *args: str) -> None:
        command = [*python, str(PROGRAM), str(self.folder), "--http", str(self.port), *args]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)  # it ends when this is closed

    async def started(self, *args: str) -> None:
        self.start(*args)
        await until(self.answers)

    def answers(self) -> bool:
        with socket.socket() as trying:
            return trying.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGUSR1)  # its launcher kills it
            self.process.communicate()
            self.process = None


@pytest.fixture
def http_server(folder: Path) -> Iterator[HttpServer]:
    server = HttpServer(folder)
    yield server
    server.kill()


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[MODERN, HANDSHAKE])
def revision(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def plain(transport: str, revision: str, folder: Path, http_server: HttpServer) -> Callable[..., McpServer]:
    """Makes the settings of the server, over each transport and in each revision."""
    if transport == "http":
        await http_server.started()

    def made(**options: Any) -> McpServer:
        if transport == "http":
            options = {"connect_timeout": 20.0, **options}
            return McpServer.http("plain", http_server.url, protocol=revision, **options)
        return stdio(folder, protocol=revision, **options)

    return made


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Starts programs that connect to servers; the SDK is imported once for all of them."""
    with contextlib.closing(Zygote("toolwright.mcp.connection")) as made:
        yield made


@pytest.fixture
def crashes(zygote: Zygote, tmp_path: Path) -> Iterator[Crashes]:
    with Crashes(tmp_path, zygote=zygote) as kit:
        yield kit


Opened = Callable[..., Any]


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    """Open an app with servers; its runtime is closed at the end."""
    runtimes: list[Runtime] = []

    async def open_one(*servers: Any, store: Any = ":memory:", **options: Any) -> Runtime:
        opening = {name: options.pop(name) for name in ("clock", "recover") if name in options}
        runtimes.append(await App(tools=servers, **options).open(store, **opening))
        return runtimes[-1]

    yield open_one
    async with fail_after(20):
        await asyncio.gather(*(runtime.close() for runtime in runtimes))


async def call(runtime: Runtime, name: str, id: str | None = None, session: str = "s", **arguments: Any) -> Any:
    """The outcome of one call of a tool of the server."""
    made = {"name": f"plain__{name}", "arguments": arguments, **({} if id is None else {"id": id})}
    async with fail_after(30):
        [outcome] = await runtime.session(session).run_batch([made])
    return outcome


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that ended and was not waited for yet is not alive.
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True
