"""`--log json`: what a server and a worker tell, as one object a line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from toolwright.cli.app import app as command

AGENT = '''
import logging
from toolwright import App, ToolContext, tool
from toolwright.telemetry import Telemetry


@tool
async def wait(ctx: ToolContext) -> object:
    """Wait."""
    return await ctx.wait(ctx.event_key("paid"))


@tool
async def fail(pin: str) -> None:
    """Fail."""
    logging.getLogger("shop").warning("the pin is %s", "correct horse")
    raise ZeroDivisionError("of correct horse")


@tool(supports_background=True)
async def film() -> str:
    """Film."""
    return "done"


app = App(tools=[wait, fail, film], telemetry=Telemetry())
'''
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
REQUIRED = {"time", "level", "logger", "message"}


class Told:
    """The lines of a program."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self.program = program
        self.lines: list[dict[str, Any]] = []

    def until(self, action: str, **fields: object) -> dict[str, Any]:
        """The next line of an action with these fields."""
        assert self.program.stderr is not None
        for line in self.program.stderr:
            found = json.loads(line)
            assert found.keys() >= REQUIRED
            self.lines.append(found)
            if found.get("action") == action and fields.items() <= found.items():
                return found
        pytest.fail(f"The program ended without {action}: {self.lines}")

    def end(self) -> None:
        """Stop it, and read the rest."""
        self.program.send_signal(signal.SIGTERM)
        assert self.program.stderr is not None
        self.lines += [json.loads(line) for line in self.program.stderr]
        assert self.program.wait(60) == 0


@contextmanager
def running(folder: Path, name: str, *options: str) -> Iterator[Told]:
    """A server or a worker of its own, which logs JSON."""
    (folder / "my_agent.py").write_text(AGENT)
    arguments = ["-m", "toolwright.cli", name, "--app", "my_agent:app", "--db", "agent.db", "--log", "json", *options]
    with subprocess.Popen([sys.executable, *arguments], cwd=folder, stderr=subprocess.PIPE, text=True) as program:
        try:
            yield Told(program)
        finally:
            program.kill()


def test_a_server_logs_requests_as_json_without_secrets_and_with_trace_ids(tmp_path: Path) -> None:
    with running(tmp_path, "serve", "--port", "0") as told:
        url = told.until("http.started")["message"].rpartition(" at ")[2]
        made = CliRunner().invoke(
            command, ["tokens", "create", "me", "--scope", "admin", "--db", str(tmp_path / "agent.db")]
        )
        token = made.stdout.strip()
        with httpx.Client(base_url=url, timeout=60, headers={"Authorization": f"Bearer {token}"}) as http:
            assert http.put("/v1/sessions/s1/secrets/pin", json={"value": "correct horse"}).is_success
            line = told.until("http.request", method="PUT")
            assert line["route"] == "/v1/sessions/{session}/secrets/{name}"
            assert (line["status"], line["session"], line["caller"]) == (line["status"], "s1", "me")
            assert 200 <= line["status"] < 300
            assert 0 < line["seconds"] < 60
            assert line["address"] == "127.0.0.1"
            assert line["logger"] == "toolwright.http.access"

            calls = {"calls": [{"id": "c1", "name": "fail", "arguments": {"pin": "[secret:pin]"}}]}
            traced = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
            assert http.post("/v1/sessions/s1/batches", json=calls, headers=traced).status_code == 200
            failed = told.until("call.raised")
            assert (failed["session"], failed["call_id"], failed["tool"]) == ("s1", "c1", "fail")
            assert failed["trace_id"] == TRACE
            assert "ZeroDivisionError" in failed["error"]
            assert told.until("http.request", method="POST")["trace_id"] == TRACE

            waiting = {"calls": [{"id": "c2", "name": "wait"}]}
            assert http.post("/v1/sessions/s1/batches", json=waiting).status_code == 202
            told.until("http.request", method="POST")
            assert http.post("/v1/waits/the-key-of-a-wait", json={"value": 1}).status_code == 404
            assert told.until("http.request", status=404)["route"] == "/v1/waits/{key}"
            assert http.get("/login?link=the-secret-of-a-link").status_code == 401
            assert told.until("http.request", status=401).keys() >= {"route"}
            assert http.get("/v1/nowhere/the-key-of-a-wait").status_code == 404
            assert told.until("http.request", status=404)["route"] == "none"
            assert http.get("/v1/health", headers={"Host": "evil.example"}).status_code == 403
            assert told.until("http.request", status=403)["route"] == "none"
        told.end()
        assert told.lines[-1]["action"] == "http.stopped"
    everything = json.dumps(told.lines)
    for secret in (token, "correct horse", "the-key-of-a-wait", "the-secret-of-a-link", "/login?link="):
        assert secret not in everything
    assert any(line["logger"] == "shop" and line["message"] == "the pin is [secret:pin]" for line in told.lines)


def test_a_worker_logs_its_runs_as_json(tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(AGENT)
    with running(tmp_path, "worker") as told:
        told.until("worker.started")
        spawned = [sys.executable, "-m", "toolwright.cli", "spawn", "film", "--app", "my_agent:app"]
        id = subprocess.run(
            [*spawned, "--db", "agent.db", "--session", "s1"], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()
        assert told.until("run.completed") == {**told.lines[-1], "run_id": id, "tool": "film", "session": "s1"}
        told.end()
        assert told.lines[-1]["action"] == "worker.stopped"


def test_the_error_that_ends_a_server_is_a_line_too(tmp_path: Path) -> None:
    with running(tmp_path, "serve", "--port", "0", "--timeout", "-1") as told:
        line = told.until("command.bad_input")
        assert line["level"] == "error"
        assert told.program.wait(60) == 2


def test_text_has_no_line_for_each_request(tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(AGENT)
    arguments = ["-m", "toolwright.cli", "serve", "--app", "my_agent:app", "--port", "0"]
    with subprocess.Popen([sys.executable, *arguments], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stderr is not None
            url = program.stderr.readline().rpartition(" at ")[2].strip()
            assert httpx.get(f"{url}/v1/health", timeout=60).status_code == 200
            program.send_signal(signal.SIGTERM)
            assert "/v1/health" not in program.stderr.read()
        finally:
            program.kill()
