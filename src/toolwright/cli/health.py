"""The HTTP endpoints of a worker. Owns /healthz and /metrics, and the thread that serves them; starts no worker."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from toolwright import jsonx
from toolwright.background.worker import Worker
from toolwright.background.worker_metrics import WorkerMetrics
from toolwright.cli.exits import BadInput
from toolwright.errors import StoreError

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

PATIENCE = 5.0
"""Seconds that a loop and a store may take to answer, and a client to ask."""
_TYPE = "application/json"
Start = Callable[[str, list[tuple[str, str]]], Any]


class Health:
    """Listens on a port while it is entered. Until it watches a worker, the worker counts as not ready.

    Raises:
        BadInput: the address cannot be listened on, or the package for metrics is missing.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            import prometheus_client
        except ModuleNotFoundError as error:
            raise BadInput(
                f"--health-port needs {error.name!r}, which is missing; run: pip install 'toolwright[worker]'"
            ) from None
        self._registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self._registry)
        self._metrics: Any = prometheus_client.make_wsgi_app(self._registry, disable_compression=True)
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, _, _, _, address = found[0]
            self._server = _Server(family, (str(address[0]), int(address[1])), self)
        except OSError as error:
            reason = error.strerror or error
            raise BadInput(
                f"Port {port} of {host!r} cannot be listened on ({reason}); use another --health-port or --health-host"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="toolwright-health")

    @property
    def url(self) -> str:
        """Where it answers."""
        host, port = self._server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}"

    def watch(self, worker: Worker) -> None:
        """Report on this worker from now on; to be called on its loop."""
        self._loop = asyncio.get_running_loop()
        self._worker = worker
        self._registry.register(WorkerMetrics(worker))

    def __enter__(self) -> Health:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Answer one request, on a thread of its own."""
        path, method = environ.get("PATH_INFO", ""), environ.get("REQUEST_METHOD", "")
        if method not in ("GET", "HEAD"):
            return _answer(start, "405 Method Not Allowed", {"error": "use GET"}, method)
        if path == "/metrics":
            found: Iterable[bytes] = self._metrics({**environ, "REQUEST_METHOD": "GET"}, start)
            return [] if method == "HEAD" else found
        if path == "/healthz":
            why = self._unwell()
            state = {} if self._worker is None else self._worker.state()
            status = "200 OK" if why is None else "503 Service Unavailable"
            return _answer(start, status, {"healthy": why is None, "why": why, **state}, method)
        return _answer(start, "404 Not Found", {"error": "there are /healthz and /metrics"}, method)

    def _unwell(self) -> str | None:
        """Why the worker does not work, if it does not."""
        worker, loop = self._worker, self._loop
        if worker is None or loop is None:
            return "it is starting"
        if worker.state()["stopping"]:
            return "it is stopping"
        try:
            asked = asyncio.run_coroutine_threadsafe(worker.answers(), loop)
        except RuntimeError:
            return "it has stopped"
        try:
            if asked.result(PATIENCE):
                return None
            return "it is stopping" if worker.state()["stopping"] else "it does not renew its leases"
        except TimeoutError:
            asked.cancel()
            return f"its loop or its store does not answer within {PATIENCE:g} s"
        except StoreError as error:
            return str(error)


def _answer(start: Start, status: str, body: dict[str, Any], method: str) -> list[bytes]:
    data = jsonx.encode(body) + b"\n"
    start(status, [("Content-Type", _TYPE), ("Content-Length", str(len(data))), ("Cache-Control", "no-store")])
    return [] if method == "HEAD" else [data]


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE

    def log_message(self, format: str, *args: object) -> None:
        """A probe every few seconds is not worth a log line."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, family: int, address: tuple[str, int], app: WSGIApplication) -> None:
        self.address_family = family
        super().__init__(address, _Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """Bind without asking the network for the name of the host, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that disconnects is not worth a log line."""
