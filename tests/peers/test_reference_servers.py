"""The reference servers of MCP, of PyPI and npm: each of their tools called, killed in the middle, and called again."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.peers.install import reference_npm, reference_python
from tests.support import fail_after, until
from toolwright import App, Policy, Runtime
from toolwright.mcp import McpServer

PLAIN: dict[str, Any] = {"string": "text", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """A page on this machine, for the server that fetches pages."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_text("<h1>Hello</h1>")
    (tmp_path / "web" / "robots.txt").write_text("User-agent: *\nAllow: /\n")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "web")))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A git repository with a file."""
    made = tmp_path / "work"
    made.mkdir()
    (made / "a.txt").write_text("one\ntwo\n")
    subprocess.run(["git", "init", "-q", "-b", "main", str(made)], check=True)
    return made


def settings(kind: str, folder: Path) -> McpServer:
    options: Any = {"connect_timeout": 60.0, "timeout": 20.0}
    if kind in ("git", "time", "fetch"):
        more = ["--allow-private-ips"] if kind == "fetch" else []
        return McpServer.stdio(kind, str(reference_python()), ["-m", f"mcp_server_{kind}", *more], **options)
    command, *words = reference_npm(kind)
    more = {"filesystem": [str(folder)], "everything": ["stdio"]}.get(kind, [])
    env = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    return McpServer.stdio(kind, command, [*words, *more], env=env, **options)


def arguments(schema: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Arguments that fit a schema, with what a parameter of this name needs to mean."""
    made = {}
    for name, field in schema.get("properties", {}).items():
        if name in known:
            made[name] = known[name]
        elif name in schema.get("required", []):
            made[name] = field["enum"][0] if "enum" in field else PLAIN.get(field.get("type", "string"), "text")
    return made


def children() -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(path.parent.name))
    return found


async def answer(runtime: Runtime) -> None:
    while True:
        for question in await runtime.questions():
            with contextlib.suppress(Exception):
                await runtime.decline(question.key)
        await asyncio.sleep(0.05)


@pytest.mark.promise("MCP-01", "MCP-03")
@pytest.mark.parametrize(
    ("kind", "least"), [("git", 10), ("time", 2), ("fetch", 1), ("everything", 10), ("filesystem", 10), ("memory", 9)]
)
async def test_every_tool_of_a_reference_server_answers_before_and_after_a_kill(
    kind: str, least: int, folder: Path, web: str
):
    known = {
        "repo_path": str(folder),
        "path": str(folder / "a.txt") if kind == "filesystem" else str(folder),
        "paths": [str(folder / "a.txt")],
        "source": str(folder / "a.txt"),
        "destination": str(folder / "b.txt"),
        "timezone": "UTC",
        "source_timezone": "UTC",
        "target_timezone": "Europe/Berlin",
        "time": "12:30",
        "url": web,
        "files": ["a.txt"],
        "pattern": "*.txt",
        "duration": 0.1,
        "steps": 2,
    }
    before = children()
    async with App(tools=[settings(kind, folder)], policy=Policy(approval_timeout=5.0)).open() as runtime:
        answering = asyncio.create_task(answer(runtime))
        [status] = runtime.servers()
        assert status.state == "connected", status
        assert len(status.tools) >= least
        session = runtime.session("s")

        async def call_each() -> dict[str, Any]:
            found = {}
            for definition in runtime.tools.definitions():
                made = {"name": definition.name, "arguments": arguments(definition.input_schema, known)}
                async with fail_after(60):
                    [found[definition.name]] = await session.run_batch([made])
            return found

        first = await call_each()
        for name, outcome in first.items():
            # What a tool thinks of our arguments is its own affair; that it answers is ours.
            assert outcome.ok or outcome.failure.code in ("mcp_tool_error", "mcp_error", "mcp_invalid_params"), (
                name,
                outcome,
            )
        assert sum(outcome.ok for outcome in first.values()) >= len(first) / 3

        name = next(name for name, outcome in first.items() if outcome.ok)
        made = {"name": name, "arguments": arguments(runtime.tools.get(name).definition.input_schema, known)}
        batch = session.start_batch([made])
        for pid in children() - before:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        async with fail_after(60):
            [outcome] = await batch
        assert outcome.ok or outcome.failure.category in ("interrupted", "unavailable")
        await until(lambda: runtime.servers()[0].connected >= 2, 60)
        async with fail_after(60):
            [outcome] = await session.run_batch([made])
        assert outcome.ok, outcome
        answering.cancel()
