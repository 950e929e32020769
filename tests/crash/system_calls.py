"""A program that is killed, or given an error, at its n-th system call of a kind. Owns tracing it.

The program runs in a child process under `ptrace`, which needs nothing installed: Linux on x86-64 only. Every thread is
traced. Of the calls that touch a file of the store, the n-th of a kind is found before it happens. Then the program is
killed, or the call does not happen and gives an error, or the program is killed when the call has happened.

Where programs cannot be traced, the same is done between SQLite and the system (`--untraced`): its writes, syncs,
truncations, deletions and locks are counted by a VFS in the program itself. Locks of our own are not seen then.

As a program it tries every kind at random places, for as long as one likes:

    python -m tests.crash.system_calls --seconds 600
"""

import argparse
import asyncio
import contextlib
import ctypes
import errno
import json
import os
import platform
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from toolwright import Runtime, ToolCall, tool
from toolwright.errors import StoreError
from toolwright.stores.sqlite.admin.maintenance import check
from toolwright.stores.sqlite.core import writer
from toolwright.stores.sqlite.store import SqliteStore

# The numbers of the kernel for x86-64.
CALLS = {
    "write": (1, 18, 20),
    "sync": (74, 75),
    "truncate": (77, 285),
    "open": (257,),
    "lock": (72, 73),
    "unlink": (87, 263),
    "stat": (262, 5),
    "map": (9,),
}
KINDS = {number: kind for kind, numbers in CALLS.items() for number in numbers}
PATHS = {257: 1, 263: 1, 87: 0, 262: 1}
"""Which argument is a path, where the first is no open file."""
ERRORS = {
    "write": ("EIO", "ENOSPC", "EINTR"),
    "sync": ("EIO",),
    "truncate": ("EIO", "ENOSPC"),
    "open": ("EMFILE", "EACCES", "EINTR"),
    "lock": ("ENOLCK", "EINTR"),
    "unlink": ("EIO",),
    "stat": ("EIO",),
    "map": ("ENOMEM",),
}
WHOLE, KILL, KILL_AFTER = "nothing", "kill", "kill after"
_TRACEME, _PEEKUSER, _POKEUSER, _SYSCALL, _SETOPTIONS = 0, 3, 6, 24, 0x4200
_OPTIONS = 1 | 2 | 4 | 8 | 0x100000  # syscalls marked, forks and threads followed, killed with the tracer
_ALL = 0x40000000
_RAX, _ORIG_RAX = 10 * 8, 15 * 8
_ARGUMENTS = tuple(8 * place for place in (14, 13, 12, 7, 9, 8))
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Injection(NamedTuple):
    """What happens at the n-th call of a kind: "kill", "kill after", the name of an error, or "nothing"."""

    kind: str
    nth: int
    what: str


def can_trace() -> bool:
    """True where programs can be traced: on Linux on x86-64, where the system lets a process trace its child."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    child = os.fork()
    if child == 0:
        os._exit(0 if _libc.ptrace(_TRACEME, 0, None, None) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


class Trace:
    """One child process under `ptrace`, from its start to its end."""

    def __init__(self, child: int, about: str, injection: Injection) -> None:
        self._child = child
        self._about = about
        self._injection = injection
        self._inside: dict[int, tuple[str, bool]] = {}
        self.counts: Counter[str] = Counter()
        self.hit = False

    def follow(self) -> int:
        """Let the child run; the status that it ended with."""
        os.waitpid(self._child, _ALL)
        self._ptrace(_SETOPTIONS, self._child, _OPTIONS)
        self._continue(self._child, 0)
        while True:
            thread, status = os.waitpid(-1, _ALL)
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                if thread == self._child:
                    return status
                continue
            stopped = os.WSTOPSIG(status)
            if stopped == signal.SIGTRAP | 0x80:
                self._at_call(thread)
                stopped = 0
            elif stopped == signal.SIGTRAP or (stopped == signal.SIGSTOP and thread not in self._inside):
                self._inside.setdefault(thread, ("", False))
                stopped = 0  # a new thread or child process
            self._continue(thread, stopped)

    def _at_call(self, thread: int) -> None:
        kind, ours = self._inside.pop(thread, ("", False))
        if ours:  # on its way out
            if self._injection.what == KILL_AFTER:
                os.kill(self._child, signal.SIGKILL)
            elif self._injection.what != KILL:
                self._poke(thread, _RAX, -getattr(errno, self._injection.what))
            self._inside[thread] = ("", False)
            return
        if kind == "out":
            self._inside[thread] = ("", False)
            return
        self._inside[thread] = ("out", False)
        number = self._peek(thread, _ORIG_RAX)
        found = KINDS.get(number)
        if found is None or not self._touches_store(thread, number):
            return
        self.counts[found] += 1
        wanted, nth, what = self._injection
        if found != wanted or self.counts[found] != nth or what == WHOLE:
            return
        self.hit = True
        self._inside[thread] = ("out", True)
        if what == KILL:
            os.kill(self._child, signal.SIGKILL)
        elif what != KILL_AFTER:
            self._poke(thread, _ORIG_RAX, -1)  # There is no such call: the kernel does nothing.

    def _touches_store(self, thread: int, number: int) -> bool:
        with contextlib.suppress(OSError):
            if number in PATHS:
                return self._about in self._text(thread, self._peek(thread, _ARGUMENTS[PATHS[number]]))
            file = self._peek(thread, _ARGUMENTS[4 if number == 9 else 0])
            return file >= 0 and self._about in os.readlink(f"/proc/{self._child}/fd/{file & 0xFFFFFFFF}")
        return False

    def _text(self, thread: int, address: int) -> str:
        memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
        try:
            return os.pread(memory, 256, address).partition(b"\0")[0].decode(errors="replace")
        finally:
            os.close(memory)

    def _peek(self, thread: int, offset: int) -> int:
        return int(_libc.ptrace(_PEEKUSER, thread, offset, None))

    def _poke(self, thread: int, offset: int, value: int) -> None:
        self._ptrace(_POKEUSER, thread, value & 0xFFFFFFFFFFFFFFFF, offset)

    def _ptrace(self, request: int, thread: int, data: int, address: int = 0) -> None:
        if _libc.ptrace(request, thread, address, data) < 0 and ctypes.get_errno() != errno.ESRCH:
            raise OSError(ctypes.get_errno(), "ptrace")

    def _continue(self, thread: int, sent: int) -> None:
        self._ptrace(_SYSCALL, thread, sent)


# --- the program that is traced, and what must hold after it


class CountingVFS(apsw.VFS):
    """SQLite's own way to files, counted; what is injected happens there."""

    def __init__(self, injection: Injection) -> None:
        self._injection = injection
        self.counts: Counter[str] = Counter()
        self.hit = False
        super().__init__("counting", "unix")

    def xOpen(self, name: Any, flags: list[int]) -> "CountingFile":
        return CountingFile(name, flags, self)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        with self.at("unlink"):
            super().xDelete(filename, syncdir)

    @contextlib.contextmanager
    def at(self, kind: str) -> Iterator[None]:
        """Around an operation of a kind."""
        self.counts[kind] += 1
        wanted, nth, what = self._injection
        if kind != wanted or self.counts[kind] != nth or what == WHOLE:
            yield
            return
        self.hit = True
        if what == KILL_AFTER:
            yield
        if what in (KILL, KILL_AFTER):
            os.kill(os.getpid(), signal.SIGKILL)
        raise {"ENOSPC": apsw.FullError, "ENOLCK": apsw.BusyError}.get(what, apsw.IOError)(what)


class CountingFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], vfs: CountingVFS) -> None:
        self._vfs = vfs
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        with self._vfs.at("write"):
            super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        with self._vfs.at("sync"):
            super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:
        with self._vfs.at("truncate"):
            super().xTruncate(newsize)

    def xLock(self, level: int) -> None:
        with self._vfs.at("lock"):
            super().xLock(level)


async def work(folder: Path, vfs: str | None = None) -> None:
    """Open a store and use it in many ways. What it did and what it was told is written down outside the store."""
    ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(*words: Any) -> None:
        os.write(ledger, json.dumps(words).encode() + b"\n")

    pay, look = make_tools(note)
    with contextlib.suppress(StoreError):
        async with Runtime.open(SqliteStore(folder / "agent.db", vfs=vfs), tools=[pay, look]) as runtime:
            session = runtime.session("s")
            for number in range(4):
                names = [f"{number}.{place}" for place in range(3)]
                calls = [
                    ToolCall(id=name, name="look" if name.endswith("2") else "pay", arguments={"name": name})
                    for name in names
                ]
                with contextlib.suppress(StoreError):
                    for outcome in await session.run_batch(calls, scope=str(number)):
                        note("told", outcome.call_id, outcome.status, outcome.value)
                with contextlib.suppress(StoreError):
                    await session.kv.set("count", number)
                    note("kept", number)


def make_tools(note: Any) -> list[Any]:
    @tool
    async def pay(name: str) -> str:
        note("paid", name)
        return f"paid {name} " + "x" * 800

    @tool(readonly=True, on_crash="rerun")
    async def look(name: str) -> str:
        return f"seen {name}"

    return [pay, look]


async def judge(folder: Path) -> list[str]:
    """What does not hold after the program: nothing that was told is lost, and nothing was paid twice."""
    problems = []
    lines = [json.loads(line) for line in _read(folder / "ledger")]
    told = {line[1]: line[2:] for line in lines if line[0] == "told"}
    kept = [line[1] for line in lines if line[0] == "kept"]

    def note(*words: Any) -> None:
        lines.append(list(words))

    async with Runtime.open(folder / "agent.db", tools=make_tools(note)) as runtime:
        session = runtime.session("s")
        await runtime.recover()
        for number in range(4):
            for place in range(3):
                name = f"{number}.{place}"
                call = ToolCall(id=name, name="look" if place == 2 else "pay", arguments={"name": name})
                (outcome,) = await session.run_batch([call], scope=str(number))
                if name in told and told[name][0] != "cancelled" and [outcome.status, outcome.value] != told[name]:
                    problems.append(f"{name} was told as {told[name]}, and is {outcome.status} {outcome.value!r:.60}")
        count = await session.kv.get("count")
        if kept and (count is None or count < kept[-1]):
            problems.append(f"{kept[-1]} was kept, and {count} is there")
    paid = Counter(line[1] for line in lines if line[0] == "paid")
    problems += [f"{name} was paid {times} times" for name, times in paid.items() if times > 1]
    return problems + await check(folder / "agent.db")


def _read(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def run(folder: Path, injection: Injection) -> Trace:
    """Run the program once in a new folder, with an injection."""
    child = os.fork()
    if child == 0:
        try:
            os.chdir(folder)
            _libc.ptrace(_TRACEME, 0, None, None)
            os.kill(os.getpid(), signal.SIGSTOP)
            asyncio.run(work(folder))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    trace = Trace(child, "agent.db", injection)
    status = trace.follow()
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise AssertionError(f"The program failed with {injection}")
    return trace


def run_untraced(folder: Path, injection: Injection) -> CountingVFS:
    """The same without tracing: what was counted is told through a file, unless the program is killed."""
    child = os.fork()
    if child == 0:
        vfs = CountingVFS(injection)
        try:
            asyncio.run(work(folder, "counting"))
            (folder / "counts").write_text(json.dumps([vfs.counts, vfs.hit]))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise AssertionError(f"The program failed with {injection}")
    seen = CountingVFS(injection)
    if (folder / "counts").exists():
        counts, seen.hit = json.loads((folder / "counts").read_text())
        seen.counts.update(counts)
    else:
        seen.hit = True
    seen.unregister()
    return seen


def run_and_judge(injection: Injection, *, traced: bool) -> tuple[Trace | CountingVFS, list[str]]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        seen = run(folder, injection) if traced else run_untraced(folder, injection)
        problems = asyncio.run(judge(folder))
    return seen, problems


def main() -> None:
    """Try injections, and print one line of JSON for each: what it was, whether it was reached, and what was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--most", type=int, default=10**9)
    parser.add_argument("--untraced", action="store_true")
    parser.add_argument("--at", nargs=3, action="append", default=[], metavar=("KIND", "NTH", "WHAT"))
    asked = parser.parse_args()
    traced = not asked.untraced and can_trace()
    writer.CHECKPOINT = 20  # so that a short program moves its log into the file, too
    seed = random.SystemRandom().randrange(10**9) if asked.seed is None else asked.seed
    chance = random.Random(seed)
    whole, problems = run_and_judge(Injection("write", 0, WHOLE), traced=traced)
    print(json.dumps({"seed": seed, "traced": traced, "counts": whole.counts, "problems": problems}), flush=True)
    until = time.monotonic() + asked.seconds
    ways = [(kind, what) for kind in sorted(whole.counts) for what in (KILL, KILL_AFTER, *ERRORS[kind])]
    chance.shuffle(ways)
    chosen = [Injection(kind, int(nth), what) for kind, nth, what in asked.at]
    tried, most = 0, len(chosen) or asked.most
    while time.monotonic() < until and tried < most:
        kind, what = ways[tried % len(ways)]
        injection = chosen[tried] if chosen else Injection(kind, chance.randint(1, whole.counts[kind]), what)
        seen, problems = run_and_judge(injection, traced=traced)
        tried += 1
        print(json.dumps({"injection": injection, "hit": seen.hit, "problems": problems}), flush=True)
        if problems:
            sys.exit(1)


if __name__ == "__main__":
    main()
