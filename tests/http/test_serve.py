"""`toolwright serve`: a real process, real sockets, and signals."""

from __future__ import annotations

import asyncio
import math
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.support import fail_after
from toolwright import App
from toolwright.cli.app import app as command
from toolwright.http import create_app
from toolwright.http.serve import serve

AGENT = '''
import asyncio
from toolwright import App, tool
from toolwright.testing import FunctionModel
from toolwright.tools.model import ModelAnswer


@tool(readonly=True)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def never(request):
    await asyncio.Event().wait()


app = App(tools=[add], model=FunctionModel(never))
'''


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """A server of its own: its URL, the path of the link that it printed, and its process."""
    (folder / "my_agent.py").write_text(AGENT)
    arguments = ["-m", "toolwright.cli", "serve", "--app", "my_agent:app", "--port", "0", *options]
    program = subprocess.Popen([sys.executable, *arguments], cwd=folder, stderr=subprocess.PIPE, text=True)
    with program:
        try:
            said = ""
            assert program.stderr is not None
            for line in program.stderr:
                said += line
                if found := re.search(r"(http://\S+)(/login\S+)", line):
                    yield found[1], found[2], program
                    return
            pytest.fail(f"The server ended before it printed its link: {said}")
        finally:
            program.kill()


@pytest.mark.promise("HTTP-01", "HTTP-03")
def test_a_server_answers_to_tokens_and_one_browser_and_ends_by_sigterm(tmp_path: Path) -> None:
    with (
        served(tmp_path, "--db", "agent.db", "--grace", "1") as (url, link, program),
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        assert http.get("/v1/ready").json()["status"] == "ready"
        assert http.get("/v1/tools").status_code == 401
        made = CliRunner().invoke(
            command, ["tokens", "create", "me", "--scope", "admin", "--db", str(tmp_path / "agent.db")]
        )
        token = {"Authorization": f"Bearer {made.stdout.strip()}"}
        call = {"calls": [{"id": "1", "name": "add", "arguments": {"a": 1, "b": 2}}]}
        answer = http.post("/v1/sessions/s/batches", json=call, headers=token)
        assert [one["value"] for one in answer.json()["results"]] == [3]
        metrics = http.get("/v1/metrics", headers=token).text
        assert 'toolwright_http_requests_total{operation="post_batch",status="200"} 1.0' in metrics
        assert "toolwright_worker_capacity" in metrics
        assert http.get(link).status_code == 303  # the cookie is in the client now
        assert http.get("/v1/login").json()["login"] is True
        assert httpx.get(url + link, timeout=60).status_code == 401  # it works once
        streamed = {**token, "Accept": "text/event-stream"}
        with http.stream("POST", "/v1/sessions/s/turns", json={"message": "?"}, headers=streamed) as stream:
            lines = stream.iter_lines()
            while not next(lines).startswith("event: turn.started"):
                pass
            program.send_signal(signal.SIGTERM)
            for _ in lines:
                pass  # the stream ends, and not by an error
        assert program.wait(60) == 0


@pytest.mark.promise("HTTP-01")
def test_a_port_that_is_taken_and_a_missing_app_are_told(tmp_path: Path) -> None:
    with served(tmp_path) as (url, _, _):
        port = url.rpartition(":")[2]
        taken = CliRunner().invoke(command, ["serve", "--tools", str(tmp_path / "my_agent.py"), "--port", port])
        assert taken.exit_code != 0
        assert "cannot be listened on" in taken.output
    assert CliRunner().invoke(command, ["serve", "--app", "nowhere:app"]).exit_code == 2


@pytest.mark.promise("HTTP-05")
@pytest.mark.parametrize("grace", [0.0, 1e308, math.inf])
async def test_requests_and_runs_may_have_any_time_to_end(grace: float) -> None:
    stop = asyncio.Event()

    async def started(url: str) -> None:
        async with httpx.AsyncClient(base_url=url) as http:
            assert (await http.get("/v1/health")).status_code == 200
        stop.set()

    async with fail_after(20):
        await serve(create_app(App()), port=0, stop=stop, started=started, grace=grace)
