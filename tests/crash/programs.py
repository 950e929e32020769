"""Programs that a test starts and kills. Owns talking to them; what they do stands in the tests."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PATIENCE = 20.0  # seconds for anything a program is asked for


class Zygote:
    """The process that forks a program in a few milliseconds."""

    def __init__(self) -> None:
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.zygote"],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        assert ready, "The program does not end."
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


class Program:
    """One that runs, and has not been waited for."""

    def __init__(self, zygote: Zygote, source: str, folder: Path, variables: dict[str, Any]) -> None:
        self._zygote = zygote
        for name in ("answers", "words"):
            (folder / name).unlink(missing_ok=True)
            os.mkfifo(folder / name)
        # Open for both ways, so that neither side waits for the other to come.
        self.answers = os.open(folder / "answers", os.O_RDWR)
        self._words = os.open(folder / "words", os.O_RDWR)
        self._unheard = b""
        self.pid = zygote.ask(program=source, folder=str(folder), variables=variables)

    def hear(self) -> Any:
        """The next thing that it says."""
        while b"\n" not in self._unheard:
            ready, _, _ = select.select([self.answers], [], [], PATIENCE)
            assert ready, "The program says nothing."
            self.read()
        line, self._unheard = self._unheard.split(b"\n", 1)
        said = json.loads(line)
        assert not (isinstance(said, dict) and "error" in said), said["error"]
        return said

    def read(self) -> None:
        """Take what it said, for later: a pipe that is full would stop it."""
        while select.select([self.answers], [], [], 0)[0]:
            self._unheard += os.read(self.answers, 1 << 16)

    def tell(self, word: str) -> None:
        os.write(self._words, word.encode() + b"\n")

    def kill(self) -> list[Any]:
        os.kill(self.pid, signal.SIGKILL)
        return self.wait(signal.SIGKILL)

    def wait(self, status: int = 0) -> list[Any]:
        """Wait until it ends, and return all that it said and that nobody heard."""
        ended = self._zygote.ask(wait=self.pid)
        self.read()
        os.close(self.answers)
        os.close(self._words)
        said = [json.loads(line) for line in self._unheard.split(b"\n")[:-1]]
        assert ended == status, said
        return said


class Crashes:
    """A folder with a store and a ledger, and the programs that run there one after the other."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self._zygote = zygote
        self.folder = folder
        self.store = folder / "agent.db"

    def start(self, source: str, **variables: Any) -> Program:
        return Program(self._zygote, source, self.folder, variables)

    def crash(self, source: str, **variables: Any) -> list[Any]:
        """Run a program that kills itself; return what it said."""
        return self.start(source, **variables).wait(signal.SIGKILL)

    @property
    def ledger(self) -> list[str]:
        path = self.folder / "ledger"
        return path.read_text().split() if path.exists() else []

    def owners(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("agent.db-owner-*"))
