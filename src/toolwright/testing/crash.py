"""Kill a program, start it again, and check its work. Owns the folder where that happens.

The processes and the kills are real: nothing of the program survives but its files.
"""

from __future__ import annotations

import base64
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import apsw
import cloudpickle

from toolwright.errors import ToolwrightError
from toolwright.testing.inside_program import FROZEN
from toolwright.testing.programs import Ended, Running, Zygote

Program = Callable[..., Any] | str | Path
"""An async or plain function, the text of a module with a function `main`, or the path of a script."""


class StoredCall(NamedTuple):
    """A call as the store has it. `state` is "intended", "begun", or the status of its outcome."""

    session: str
    scope: str
    call_id: str
    tool: str
    state: str


class CrashKit:
    """A folder with a store and a ledger, and the programs that run there one after the other, or together.

    A program is an async function, or a plain one; the objects it refers to are copied to its process, and it is called
    with the values in `given`. It may be the text of a module with a function `main`, or the path of a script, too;
    these find the given values among their names. While it runs, the folder is its working directory.

    Use it with `with`, or close it; kits that share a zygote leave that open.
    """

    def __init__(self, folder: str | Path, *, zygote: Zygote | None = None) -> None:
        self.folder = Path(folder).absolute()
        self.store = self.folder / "agent.db"
        self._ledger = self.folder / "ledger"
        self._own = Zygote() if zygote is None else None
        self._zygote = zygote or self._own
        self._started: list[Running] = []

    def run(self, program: Program, **given: object) -> Ended:
        """Run a program to its end.

        Raises:
            AssertionError: it failed, was killed, or does not end.
        """
        ended = self.start(program, **given).wait()
        if ended.killed:
            raise AssertionError(f"The program was killed. It printed:\n{ended.output}")
        return ended

    def kill_at(self, point: str, program: Program, *, nth: int = 1, **given: object) -> Ended:
        """Run a program and kill it when it reaches a crash point for the n-th time.

        Raises:
            AssertionError: it never reached it.
        """
        ended = self._start(program, given, point, nth).wait()
        if not ended.killed:
            passed = ", ".join(f"{name!r} {count} x" for name, count in ended.passed.items()) or "none"
            raise AssertionError(f"The program ended before it passed {point!r} {nth} x; it passed {passed}")
        return ended

    def kill_after(self, seconds: float, program: Program, **given: object) -> Ended:
        """Run a program and kill it after this time, wherever it is; `killed` is False when it had ended."""
        running = self.start(program, **given)
        running.listen(seconds)
        return running.kill()

    def start(self, program: Program, **given: object) -> Running:
        """Start a program: read its messages, send it words, kill it, or wait for it."""
        return self._start(program, given, None, 1)

    def start_doomed(self, point: str, program: Program, *, nth: int = 1, **given: object) -> Running:
        """Start a program that is killed when it reaches a crash point for the n-th time, while other programs
        continue."""
        return self._start(program, given, point, nth)

    def start_frozen(self, point: str, program: Program, *, nth: int = 1, **given: object) -> Running:
        """Start a program and return when it is stopped at a crash point; it continues when it is thawed.

        Its earlier messages are available.

        Raises:
            AssertionError: it never reached it.
        """
        running = self._start(program, given, point, nth, freezes=True)
        while running.hear() != FROZEN:
            pass
        return running

    def points(self, program: Program, **given: object) -> list[tuple[str, int]]:
        """Run a program to its end, here, and list the points it passed: each name with 1, 2, … as often as passed."""
        passed = self.run(program, **given).passed
        return [(name, nth) for name, count in passed.items() for nth in range(1, count + 1)]

    @property
    def ledger(self) -> list[str]:
        """The lines that programs noted, in the order in which they did."""
        return self._ledger.read_text().splitlines() if self._ledger.exists() else []

    def calls(self) -> list[StoredCall]:
        """The records of each call in the SQLite store of the folder, oldest first."""
        with self.look() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'every_call'").fetchall():
                return []  # it was killed before it had made the store
            rows = connection.execute(
                "SELECT session, scope, call_id, tool, coalesce(status, iif(started_at IS NULL, 'intended', 'begun'))"
                " FROM every_call ORDER BY queued_at, position"
            )
            return [StoredCall(*row) for row in rows]

    @contextmanager
    def look(self) -> Iterator[apsw.Connection]:
        """Open a copy of the SQLite store of the folder: looking changes nothing."""
        with tempfile.TemporaryDirectory(prefix="toolwright-look-") as aside:
            # Writes and rollbacks that a killed process had not finished are done in the copy.
            for name in ("", "-wal", "-journal"):
                part = self.store.with_name(self.store.name + name)
                if part.exists():
                    shutil.copy(part, aside)
            connection = apsw.Connection(str(Path(aside) / self.store.name))
            try:
                connection.execute("PRAGMA synchronous = off")
                yield connection
            finally:
                connection.close()

    def close(self) -> None:
        """Kill the programs that still run, and end."""
        for running in self._started:
            running.kill()
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _start(
        self, program: Program, given: dict[str, Any], point: str | None, nth: int, freezes: bool = False
    ) -> Running:
        assert self._zygote is not None
        kind, packed = _packed(program)
        request = {
            "kind": kind,
            "program": base64.b64encode(packed).decode(),
            "given": base64.b64encode(cloudpickle.dumps(given)).decode(),
            "path": [path or os.getcwd() for path in sys.path],
            "folder": str(self.folder),
            "store": str(self.store),
            "ledger": str(self._ledger),
            "point": point,
            "nth": nth,
            "freezes": freezes,
        }
        running = Running(self._zygote, Path(tempfile.mkdtemp(prefix="toolwright-crash-")), request)
        self._started.append(running)
        return running


def _packed(program: Program) -> tuple[str, bytes]:
    if isinstance(program, Path):
        return "script", os.fsencode(program.absolute())
    if isinstance(program, str):
        return "text", program.encode()
    module = sys.modules.get(program.__module__)
    by_value = module is not None and module.__name__ != "__main__"
    if by_value:
        # Another process often cannot import a module of tests.
        cloudpickle.register_pickle_by_value(module)
    try:
        return "function", cloudpickle.dumps(program)
    except (pickle.PicklingError, TypeError) as error:
        raise ToolwrightError(f"The program {program!r} cannot be copied to a process: {error}") from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
