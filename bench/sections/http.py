"""What a request costs: a batch of one call beside the empty JSON route of the same server, and a batch of 100 calls
beside the same batch by the API and one request.

The server is a process of its own, in memory, with tokens. The client writes requests and reads answers as bytes over
one connection, so that the times are those of the server.
"""

import argparse
import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bench.pairing import Effort, Pairing, Subject, pair
from bench.probe import ROOT, ProbeError, child_environment, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report

LIMIT_POST = 2.0
LIMIT_BATCH = 1.5
MANY = 100
ROUNDS = 10


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure against one server."""
    about = "requests over loopback to a server of its own, in memory, with a token"
    try:
        found = run_probe("bench.sections.http", quick=quick)
    except ProbeError as error:
        return Report("http", about, [Line("http", error=str(error))])
    return Report("http", about, list(lines_of(found)))


def lines_of(found: Mapping[str, Any]) -> Iterator[Line]:
    yield Line("GET of the empty JSON route", found["post"]["baseline"]["median"], "µs/request")
    yield Line.paired(
        "POST of a one-call batch", Pairing.from_json(found["post"]), target=LIMIT_POST, unit="µs/request"
    )
    yield Line.paired(
        f"a batch of {MANY} calls by HTTP, less one request, beside the API",
        Pairing.from_json(found["batch"]),
        target=LIMIT_BATCH,
        unit="µs/batch",
    )


class Connection:
    """One connection that is kept, and asks for one thing after the other."""

    def __init__(self, address: tuple[str, int], token: str) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host = f"{address[0]}:{address[1]}"
        self._token = token

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The bytes of a request."""
        token = f"Authorization: Bearer {self._token}\r\n" if body else ""
        sized = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        return f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\n{token}{sized}\r\n".encode() + body

    def ask(self, request: bytes) -> bytes:
        """The body of the answer, which has a length."""
        self._socket.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._socket.recv(1 << 20)
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += self._socket.recv(1 << 20)
        return body


def add_tool() -> Any:
    from toolwright import tool

    @tool(readonly=True)
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return add


async def measure(effort: Effort) -> dict[str, Any]:
    """Start the server, and measure both."""
    from toolwright import Runtime

    server = subprocess.Popen(  # noqa: ASYNC220 - nothing else waits for this loop
        [sys.executable, "-m", "bench.sections.http", "--serve"],
        cwd=ROOT,
        env=child_environment(),
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        host, port, token = json.loads(server.stdout.readline())
        connection = Connection((host, port), token)
        empty = connection.request("GET", "/v1/health")
        one = connection.request(
            "POST",
            "/v1/sessions/s/batches",
            json.dumps({"calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}).encode(),
        )
        calls = [{"name": "add", "arguments": {"a": 1, "b": number}} for number in range(MANY)]
        many = connection.request("POST", "/v1/sessions/s/batches", json.dumps({"calls": calls}).encode())

        def asked(request: bytes, times: int, sign: bytes, each: int) -> Subject[None, bytes]:
            async def run(_: None) -> bytes:
                for _number in range(times):
                    body = connection.ask(request)
                return body

            return Subject(times, lambda: None, run, lambda body: times if body.count(sign) == each else 0)

        post = await pair(asked(empty, ROUNDS, b'"ok"', 1), asked(one, ROUNDS, b'"success"', 1), effort)
        async with Runtime.open(tools=[add_tool()]) as runtime:
            session = runtime.session("s")

            async def by_api(_: None) -> list[Any]:
                return await session.run_batch(calls)

            api = Subject(1, lambda: None, by_api, lambda outcomes: int(all(outcome.ok for outcome in outcomes)))
            batch = await pair_less(api, asked(many, 1, b'"success"', MANY), asked(empty, 1, b'"ok"', 1), effort)
        return {"post": post.to_json(), "batch": batch.to_json()}
    finally:
        server.kill()
        server.wait()


async def pair_less(
    baseline: Subject[Any, Any], variant: Subject[Any, Any], request: Subject[Any, Any], effort: Effort
) -> Pairing:
    """Pair a variant without the time of one request, which is measured beside each sample."""
    spare = await pair(baseline, request, effort)
    whole = await pair(baseline, variant, effort)
    ratio = whole.ratio
    less = spare.ratio.median
    return replace(
        whole,
        ratio=replace(ratio, median=ratio.median - less, lower=ratio.lower - less, upper=ratio.upper - less),
    )


async def serve() -> None:
    """The server: it prints its address and a token, and serves until its input ends."""
    from toolwright import App
    from toolwright.http import create_app
    from toolwright.http.access.limits import Limits
    from toolwright.http.serve import serve as serve_http

    limits = Limits(requests_per_second=1e9, requests_at_once=10**9)
    service = create_app(App(tools=[add_tool()]), limits=limits)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)

    async def started(url: str) -> None:
        tokens = await service.sign_in.tokens()
        made = await tokens.create("bench", ["admin"])
        host, _, port = url.removeprefix("http://").rpartition(":")
        print(json.dumps([host, int(port), made.value]), flush=True)

    await serve_http(service, port=0, stop=stop, started=started, grace=1)


def main() -> None:
    parser: argparse.ArgumentParser = probe_parser(__doc__)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
    else:
        emit(asyncio.run(measure(effort_of(options))))


if __name__ == "__main__":
    main()
