"""Programs in processes of their own. Owns starting them, talking to them, and their end; not the reason for that."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import toolwright
from toolwright.errors import ToolwrightError

PATIENCE = 60.0
"""Seconds for anything a program is asked for."""


class Ended(NamedTuple):
    """How a program ended, and its messages before.

    `said` are the values it gave to `say`, `output` is the text it printed. `passed` counts the crash points it passed,
    if it came to its end; a killed program could not report them.
    """

    killed: bool
    said: list[Any]
    output: str
    passed: dict[str, int]


class Zygote:
    """The process that forks a program in a few milliseconds; several kits may share one.

    `modules` are imported in it before, so that programs which use them start as quickly.
    """

    def __init__(self, *modules: str) -> None:
        # The same toolwright, however this process found it.
        path = [str(Path(toolwright.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "toolwright.testing.zygote", *modules],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self.answers = self._process.stdout

    def ask(self, **request: object) -> None:
        self._requests.write(json.dumps(request).encode() + b"\n")

    def answer(self) -> int:
        line = self.answers.readline()
        if not line:
            raise ToolwrightError("The process that starts programs ended; see what it printed")
        return int(line)

    def close(self) -> None:
        self._process.communicate()


class Running:
    """A program that was started and not waited for."""

    def __init__(self, zygote: Zygote, pipes: Path, request: dict[str, Any]) -> None:
        self._zygote = zygote
        self._pipes = pipes
        for name in ("answers", "words"):
            os.mkfifo(pipes / name)
        # Open for both ways, so that neither side waits for the other to come.
        self._answers = os.open(pipes / "answers", os.O_RDWR)
        self._words = os.open(pipes / "words", os.O_RDWR)
        self._unread = b""
        self._heard: list[Any] = []
        self._passed: dict[str, int] | None = None
        self._ended: Ended | None = None
        zygote.ask(pipes=str(pipes), **request)
        self.pid = zygote.answer()

    def hear(self, patience: float = PATIENCE) -> object:
        """Wait for its next message, for so many seconds.

        Raises:
            AssertionError: no message comes.
        """
        until = time.monotonic() + patience
        while not self._heard:
            if not self._listen(until - time.monotonic()):
                raise AssertionError(f"The program says nothing. It printed:\n{self._output()}")
        return self._heard.pop(0)

    @property
    def output(self) -> str:
        """The text that it has printed so far."""
        return self._ended.output if self._ended is not None else self._output()

    def tell(self, word: str) -> None:
        """Send a word to it, for its `hear`."""
        os.write(self._words, word.encode() + b"\n")

    def listen(self, seconds: float) -> None:
        """Let it run for this long, or to its end."""
        until = time.monotonic() + seconds
        while self._passed is None and (left := until - time.monotonic()) > 0:
            self._listen(left)

    def freeze(self) -> None:
        """Let it stand still, as a machine that sleeps does; to others it looks neither dead nor alive."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue, as if no time had passed."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> Ended:
        """Kill it now, unless it has ended."""
        if self._ended is None and self._passed is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> Ended:
        """Wait until it ends, by itself or by a kill. Messages that were heard before are not repeated.

        Raises:
            AssertionError: it raised an error, or does not end.
        """
        if self._ended is not None:
            return self._ended
        self._zygote.ask(wait=self.pid)
        until = time.monotonic() + PATIENCE
        # It is read all the while: a pipe that is full would stop it.
        while not self._listen(until - time.monotonic(), self._zygote.answers.fileno()):
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
                self._close(self._zygote.answer())
                raise AssertionError(f"The program does not end. It printed:\n{self._output()}")
        status = self._zygote.answer()
        while self._listen(0):
            pass
        return self._close(status)

    def _close(self, status: int) -> Ended:
        os.close(self._answers)
        os.close(self._words)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        self._ended = Ended(killed, self._heard, self._output(), self._passed or {})
        shutil.rmtree(self._pipes)
        if status and not killed:
            raise AssertionError(f"The program failed. It printed:\n{self._ended.output}")
        return self._ended

    def _listen(self, seconds: float, other: int = -1) -> bool:
        """Read its messages. True when there was one or, where another file is given, when that can be read."""
        files = [self._answers] if other < 0 else [self._answers, other]
        ready, _, _ = select.select(files, [], [], max(0.0, seconds))
        if self._answers in ready:
            *lines, self._unread = (self._unread + os.read(self._answers, 1 << 16)).split(b"\n")
            for line in lines:
                kind, what = json.loads(line)
                if kind == "passed":
                    self._passed = what
                else:
                    self._heard.append(what)
        return (other if other >= 0 else self._answers) in ready

    def _output(self) -> str:
        path = self._pipes / "output"
        return path.read_text(errors="replace") if path.exists() else ""
