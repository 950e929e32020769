"""Many clients of the event stream: how long an event takes to reach all of them, and the memory of each.

The server is a process of its own over a file. The calls run in another process on the same file, so that each event
goes through the store. The clock starts when the outcome of the call is committed.
"""

import asyncio
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.disk import new_file
from bench.probe import ROOT, ProbeError, child_environment, emit, probe_parser, run_probe
from bench.report import Line, Report, Target

CLIENTS = 1_000
LIMIT_SECONDS = 1.0
LIMIT_KIB = 100
EVENTS = 30
QUICK_CLIENTS, QUICK_EVENTS = 200, 10


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure one server with all clients on one session."""
    about = f"{QUICK_CLIENTS if quick else CLIENTS:,} clients of one session's events, from another process"
    try:
        found = run_probe("bench.sections.event_streams", quick=quick)
    except ProbeError as error:
        return Report("event_streams", about, [Line("event_streams", error=str(error))])
    lines = [
        Line(
            "until an event is with all clients, the slowest of all",
            max(found["seconds"]),
            "s",
            target=Target("value", LIMIT_SECONDS, " s"),
            detail={"samples": found["seconds"]},
        ),
        Line("until an event is with all clients, the median", statistics.median(found["seconds"]), "s"),
        Line(
            "memory of the server for each client",
            found["kib"],
            "KiB",
            target=Target("value", LIMIT_KIB, " KiB", strict=True),
        ),
    ]
    return Report("event_streams", about, lines)


class Client(asyncio.Protocol):
    """Counts the events it was sent. A test of every byte would measure the client."""

    def __init__(self, all_have: "Arrivals") -> None:
        self._all = all_have
        self._count = 0
        self._began = False

    def data_received(self, data: bytes) -> None:
        if not self._began and b"id: " in data:
            self._began = True
            self._all.joined()
        found = data.count(b'"kind":"call.finished"')
        if found:
            self._count += found
            self._all.arrived(self._count)


class Arrivals:
    """How many clients have how many events."""

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._have: dict[int, int] = {}
        self._joined = 0
        self.began = asyncio.Event()
        self._waiting: dict[int, asyncio.Event] = {}

    def joined(self) -> None:
        self._joined += 1
        if self._joined == self._clients:
            self.began.set()

    def arrived(self, count: int) -> None:
        self._have[count] = self._have.get(count, 0) + 1
        if self._have[count] == self._clients:
            self.all_have(count).set()

    def all_have(self, count: int) -> asyncio.Event:
        return self._waiting.setdefault(count, asyncio.Event())


SERVER = """
import asyncio, sys, uvicorn
from toolwright import App
from toolwright.http import create_app
from toolwright.http.access.caller import Caller

async def authenticate(connection):
    return Caller("bench", frozenset({"read"}))

service = create_app(App(), sys.argv[1], authenticate=authenticate)
uvicorn.run(service, port=0, log_level="info", access_log=False, backlog=4096)
"""


async def measure(store: Path, clients: int, events: int) -> dict[str, Any]:
    """Start the server, connect the clients, and run calls one after the other."""
    from toolwright import Runtime, ToolCall, tool

    @tool(readonly=True)
    async def look(city: str) -> str:
        """Look at a city."""
        return f"seen {city}"

    seconds: list[float] = []
    async with Runtime.open(store, tools=[look]) as runtime:
        session = runtime.session("s")
        await session.run_batch([ToolCall(id="first", name="look", arguments={"city": "Rome"})])
        server = subprocess.Popen(  # noqa: ASYNC220 (nothing else runs yet)
            [sys.executable, "-c", SERVER, str(store)],
            cwd=ROOT,
            env=child_environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            port = await asyncio.to_thread(_port, server)
            await _connect(port, 1, Arrivals(1))  # whatever the first one costs is not the cost of one more
            before = _resident(server.pid)
            arrivals = Arrivals(clients)
            transports = await _connect(port, clients, arrivals)
            for number in range(events):
                call = ToolCall(id=f"c{number}", name="look", arguments={"city": "Rome"})
                await session.run_batch([call], scope=str(number))
                began = time.perf_counter()
                await asyncio.wait_for(arrivals.all_have(number + 1).wait(), 60)
                seconds.append(time.perf_counter() - began)
            kib = (_resident(server.pid) - before) / clients
            for transport in transports:
                transport.close()
        finally:
            server.kill()
            server.wait()
    return {"seconds": seconds, "kib": kib}


async def _connect(port: int, count: int, arrivals: Arrivals) -> list[asyncio.Transport]:
    loop = asyncio.get_running_loop()
    transports: list[asyncio.Transport] = []
    for _ in range(count):
        transport, _ = await loop.create_connection(lambda: Client(arrivals), "127.0.0.1", port)
        transport.write(
            b"GET /v1/events?session=s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: text/event-stream\r\n\r\n" % port
        )
        transports.append(transport)
    await asyncio.wait_for(arrivals.began.wait(), 120)
    return transports


def _port(server: "subprocess.Popen[str]") -> int:
    assert server.stderr is not None
    for line in server.stderr:
        found = re.search(r"running on http://127\.0\.0\.1:(\d+)", line)
        if found:
            return int(found[1])
    raise SystemExit("the server did not start")


def _resident(pid: int) -> float:
    """KiB that the system gave a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1])
    raise SystemExit("the memory of the server cannot be read")


def main() -> None:
    """The probe."""
    options = probe_parser(__doc__).parse_args()
    clients, events = (QUICK_CLIENTS, QUICK_EVENTS) if options.quick else (CLIENTS, EVENTS)
    with new_file() as path:
        emit(asyncio.run(measure(path, clients, events)))
    os._exit(0)  # a thousand transports need not be closed one by one


if __name__ == "__main__":
    main()
