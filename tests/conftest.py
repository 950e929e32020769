"""What holds for every test: it leaves nothing running, and the promises it claims to prove exist.

Owns the checks around a test, and the stores and runtimes that most tests open; fixtures of one subject live beside
its tests.
"""

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import settings

from scripts.promises import PROMISES, promises_in
from tests.loop_watch import LoopWatch, slowness, watch_loop
from tests.support import fail_after
from toolwright import Runtime

if TYPE_CHECKING:
    from tests.postgres_server import PostgresServer
    from toolwright.testing import Zygote

# The same examples every time, so that a run that passed passes again; HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with Ctrl-C ignored, and programs inherit that; tests send it to theirs.
    signal.signal(signal.SIGINT, signal.default_int_handler)

PATIENCE = 10.0  # seconds that a thread or child process on its way out is given
LOOP_TURNS = 10  # the same for tasks, in turns of the loop: a cancelled task needs a few, no real time

# Helpers that the interpreter starts once and keeps to its own end.
INTERPRETER_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


class Running(NamedTuple):
    threads: frozenset[threading.Thread]
    children: frozenset[int]


before_test = pytest.StashKey[Running]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the tests against servers that others wrote, unless they are named: `make test-peers` does that."""
    peers = Path(__file__).parent / "peers"
    named = any(peers in (given := Path(arg.partition("::")[0]).resolve(), *given.parents) for arg in config.args)
    return True if collection_path == peers and not named else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is imported or collected is garbage: no collection looks for it, now or later.

    Each process of the test run collects all tests, and the garbage collector took nearly half of that time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = promises_in(PROMISES.read_text(encoding="utf-8"))
    wrong = []
    for item in items:
        for marker in item.iter_markers("promise"):
            if not marker.args or marker.kwargs:
                wrong.append(f"{item.nodeid}: `promise` takes one or more ids, as in promise('RUN-01')")
            wrong += [
                f"{item.nodeid}: no promise {name!r} in docs/promises.md" for name in marker.args if name not in known
            ]
    if wrong:
        raise pytest.UsageError(*wrong)


@pytest.fixture(autouse=True)
def nothing_left_running(request: pytest.FixtureRequest) -> None:
    """Note what runs before the test; the comparison is made once all its other fixtures are closed.

    A fixture and not a setup hook, so that what a module's or session's fixtures started counts as before.
    """
    request.node.stash[before_test] = Running(frozenset(threading.enumerate()), frozenset(child_processes()))
    if request.node.get_closest_marker("asyncio"):
        request.getfixturevalue("no_task_left")


@pytest.fixture
async def no_task_left() -> AsyncIterator[None]:
    """Requested by asynchronous tests only, and first, so that it closes last, inside their loop."""
    yield
    for _ in range(LOOP_TURNS):
        await asyncio.sleep(0)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        pytest.fail(report([f"task {task!r}" for task in tasks]), pytrace=False)


pytest.register_assert_rewrite("toolwright.testing.conformance")  # before any test imports it

OpenRuntime = Callable[..., Coroutine[Any, Any, Runtime]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture(scope="session")
def postgres() -> Iterator["PostgresServer"]:
    """A PostgreSQL server, which lasts as long as the run of the tests."""
    from tests.postgres_server import PostgresServer

    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def zygote() -> Iterator["Zygote"]:
    """Starts programs in milliseconds, for the crash kit: it has imported toolwright, and forks."""
    from toolwright.testing import Zygote

    with closing(Zygote()) as made:
        yield made


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, file: Path) -> str | Path:
    """Every store in turn."""
    return ":memory:" if request.param == "memory" else file


@pytest.fixture
async def open_runtime() -> AsyncIterator[OpenRuntime]:
    """Open runtimes: a store first, where the test names one, then the tools. They are closed at the end."""
    opened: list[Runtime] = []

    async def open_one(*given: Any, **options: Any) -> Runtime:
        named = bool(given) and (isinstance(given[0], (str, Path)) or hasattr(given[0], "journal"))
        store, tools = (given[0], given[1:]) if named else (":memory:", given)
        runtime = await Runtime.open(store, tools=tools, **options)
        opened.append(runtime)
        return runtime

    yield open_one
    async with fail_after(10):
        await asyncio.gather(*(runtime.close() for runtime in opened))


@pytest.fixture
async def loop_watch() -> AsyncIterator[LoopWatch]:
    """Fail the test when the event loop did not turn for longer than `watch.most`, whatever else the machine does.

    On a core that is slower than usual at the time, the limit is longer by as much.
    """
    slow = slowness()
    gc.collect()
    gc.freeze()  # or a collection would go through everything that other tests left in memory
    with watch_loop() as watch:
        yield watch
    if watch.longest > watch.most * max(slow, slowness()):
        pytest.fail(f"The event loop did not turn for {watch.longest:.3f} s; it was at\n{watch.place}", pytrace=False)


_LOG = logging.getLogger("toolwright")
_LOG_AT_FIRST = (list(_LOG.handlers), _LOG.propagate, _LOG.level)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    # After the yield even the event loop is closed, and with it the threads of its executor.
    try:
        yield
        # A command that ran in this process sets the log up for the rest of it.
        _LOG.handlers[:], _LOG.propagate = _LOG_AT_FIRST[:2]
        _LOG.setLevel(_LOG_AT_FIRST[2])
    except BaseException as error:
        if left := left_running(item):
            error.add_note(report(left))
        raise
    if left := left_running(item):
        pytest.fail(report(left), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    # What tests log may have no form in UTF-8, and what a test process reports travels to another.
    result = yield
    result.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in result.sections]
    return result


def report(left: list[str]) -> str:
    return "\n  ".join(["The test left running:", *sorted(left)])


def left_running(item: pytest.Item) -> list[str]:
    """What started during the test and did not end in time. Child processes are killed, to spare the next."""
    before = item.stash.get(before_test, None)
    if before is None:  # the setup failed before our fixture
        return []
    deadline = time.monotonic() + PATIENCE
    # A thread that C code started looks alive for ever, and can't be joined.
    threads = [
        thread
        for thread in threading.enumerate()
        if thread not in before.threads and not isinstance(thread, threading._DummyThread)
    ]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    left = [f"thread {thread.name!r} {position(thread)}" for thread in threads if thread.is_alive()]

    children = new_children(before.children)
    pause = threading.Event()
    while children and time.monotonic() < deadline:
        pause.wait(0.01)
        children = new_children(before.children)
    for pid, command in children.items():
        left.append(f"child process {pid}: {command}")
        kill(pid)
    return left


def position(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return f"at {frame.f_code.co_filename}:{frame.f_lineno}" if frame else "not started"


def new_children(before: frozenset[int]) -> dict[int, str]:
    return {pid: command for pid, command in child_processes().items() if pid not in before}


def child_processes() -> dict[int, str]:
    """Every descendant by pid, with its command line. One that ended and was not waited for counts.

    Twice for each test, so only what is needed is read.
    """
    multiprocessing.active_children()  # waits for its own that ended, as it would at the next start
    if hasattr(os, "waitid"):
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return {}  # the common case, for one system call

    table = process_table()
    family = {os.getpid()}
    found: dict[int, str] = {}
    grown = True
    while grown:
        grown = False
        for pid, (parent, name) in table.items():
            if parent in family and pid not in family:
                family.add(pid)
                grown = True
                command = command_line(pid, name)
                if not any(helper in command for helper in INTERPRETER_HELPERS):
                    found[pid] = command
    return found


def command_line(pid: int, name: str) -> str:
    """The command line of a process, or its name where it has none, as one that ended and was not waited for."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip() or name
    except OSError:
        return name


def process_table() -> dict[int, tuple[int, str]]:
    """Parent and name of every process that can be seen.

    From `/proc/*/stat`: the shorter way over `/proc/self/task/*/children` is missing from some kernels, and
    may skip a child while another one exits.
    """
    table: dict[int, tuple[int, str]] = {}
    if os.path.exists("/proc/self/stat"):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
                    stat = file.read(4096).decode(errors="replace")
            except OSError:
                continue  # ended while we looked
            name, _, fields = stat.partition("(")[2].rpartition(")")
            state, parent = fields.split(maxsplit=2)[:2]
            table[int(pid)] = (int(parent), name + (" (ended, not waited for)" if state == "Z" else ""))
        return table

    with subprocess.Popen(["ps", "-A", "-o", "pid=,ppid=,args="], stdout=subprocess.PIPE, text=True) as ps:
        for line in ps.communicate()[0].splitlines():
            pid, parent, command = line.split(maxsplit=2)
            if int(pid) != ps.pid:
                table[int(pid)] = (int(parent), command)
    return table


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # gone by itself, or a grandchild, which is not ours to wait for
