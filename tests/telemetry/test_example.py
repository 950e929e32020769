"""The example sends its spans to a backend by OTLP."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

EXAMPLE = Path(__file__).parents[2] / "examples" / "telemetry.py"


@pytest.fixture
def backend() -> Iterator[tuple[str, list[Any]]]:
    """A receiver of OTLP over HTTP, and the spans that it got."""
    got: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent = ExportTraceServiceRequest.FromString(body)
            got.extend(span for one in sent.resource_spans for scope in one.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", got
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.promise("OBS-01")
def test_the_example_sends_one_trace_to_a_backend(backend, tmp_path, monkeypatch):
    url, got = backend
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout == "Rain in Bergen, and 8 degrees on average.\n"
    names = {span.span_id: span.name for span in got}
    tree = {(names.get(span.parent_span_id), span.name) for span in got}
    assert tree == {
        (None, "POST /ask"),
        ("POST /ask", "invoke_agent weather"),
        ("invoke_agent weather", "chat script"),
        ("invoke_agent weather", "execute_tool forecast"),
        ("invoke_agent weather", "execute_tool average"),
        ("execute_tool forecast", "GET /forecast"),
    }
    assert len({span.trace_id for span in got}) == 1
