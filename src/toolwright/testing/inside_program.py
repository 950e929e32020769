"""Inside a program that may be killed. Owns its messages and counting the points it passes; not starting it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from pathlib import Path
from typing import Literal, NoReturn

from toolwright.errors import ToolwrightError

Kind = Literal["said", "passed"]
FROZEN = "frozen"
"""The message of a program that is about to be frozen at its point."""


class Stage:
    """The crash kit's settings for the program of this process."""

    def __init__(self, pipes: Path, ledger: Path, point: str | None, nth: int, freezes: bool = False) -> None:
        self._answers = os.open(pipes / "answers", os.O_WRONLY)
        self._words = open(pipes / "words")  # noqa: SIM115 - for the life of the process
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._point = point
        self._nth = nth
        self._freezes = freezes
        self._lock = threading.Lock()  # the code of sync tools passes points, too
        self.passed: dict[str, int] = {}

    def reach(self, name: str) -> None:
        with self._lock:
            self.passed[name] = count = self.passed.get(name, 0) + 1
            here = name == self._point and count == self._nth
            if here and not self._freezes:
                die()
        if here:
            # With the lock of a file, it would hold up all others that use it.
            with writing:
                self.send("said", FROZEN)
                # To this thread: if it were sent to the process, another thread would take it while this one continues.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def send(self, kind: Kind, what: object) -> None:
        os.write(self._answers, json.dumps([kind, what]).encode() + b"\n")

    def write(self, text: str) -> None:
        # One write to a file that only grows: it is there whole or not at all, whenever the process is killed.
        os.write(self._ledger, text.encode() + b"\n")

    async def hear(self) -> str:
        return (await asyncio.to_thread(self._words.readline)).strip()


writing = threading.RLock()
"""Held by the thread that is in a transaction."""
_current: Stage | None = None


def enter(stage: Stage) -> None:
    """Make this the stage of the process."""
    global _current
    _current = stage


def crash_point(name: str) -> None:
    """Mark a point at which a test can kill the program. Outside the crash kit nothing happens."""
    if _current is not None:
        _current.reach(name)


def note(text: str) -> None:
    """Add a line to the kit's ledger, a file outside the store, which no crash takes back: it shows the real actions
    of a tool."""
    _stage().write(text)


def say(what: object) -> None:
    """Send a value to the test, as JSON."""
    _stage().send("said", what)


async def hear() -> str:
    """Wait for a word from the test."""
    return await _stage().hear()


def die() -> NoReturn:
    """Kill this process here: nothing is cleaned up, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("A process that was killed went on.")


def _stage() -> Stage:
    if _current is None:
        raise ToolwrightError("The crash kit did not start this process; use note, say and hear in a program it runs")
    return _current
