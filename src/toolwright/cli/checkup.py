"""What may be wrong around an app and its store. Owns looking at versions, libraries, the app, the store, its file, its
keys, the clock and the limits of the system; changes nothing, and says a remedy for each problem."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
import time
import zoneinfo
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import toolwright
from toolwright.app import App
from toolwright.cli.exits import is_damage
from toolwright.cli.input.stores import opened
from toolwright.errors import StoreError, ToolwrightError
from toolwright.extras import EXTRAS, how_to_install, missing_libraries
from toolwright.session.secrets.master_keys import VARIABLE, EnvironmentKeys, KeyFile
from toolwright.stores.opening import inspect_store
from toolwright.tools.function import tool

State = Literal["ok", "note", "problem", "damage"]
LEAST_FREE = 256 * 1024 * 1024
"""Bytes that should be free on the disk of a store."""
LONGEST_LOG = 256 * 1024 * 1024
"""Bytes of the log beside a store that are usual at most."""
LEAST_FILES = 4_096
"""Files and connections that a server should be able to have open."""
FUTURE = 60.0
"""Seconds that a record may be ahead of the clock."""
EARLIEST = 1_767_225_600.0
"""No machine that runs this has a clock before 2026."""
SHARED_DISKS = ("nfs", "cifs", "smb", "9p", "afs", "fuse.sshfs", "ceph", "glusterfs", "lustre")
"""Beginnings of the names of file systems whose locks are not those of one machine."""


class Finding(NamedTuple):
    """What was looked at, and what was found. A problem has a remedy."""

    what: str
    state: State
    says: str
    remedy: str = ""


async def check_up(app: App | None, app_error: str | None, store: str | None) -> AsyncIterator[Finding]:
    """Look at everything; each finding is given when it is known."""
    for finding in _system():
        yield finding
    for finding in _extras():
        yield finding
    if app_error is not None:
        yield Finding("app", "problem", app_error, "correct what it names")
    elif app is not None:
        yield _app(app)
    if store is None:
        yield Finding("store", "note", "No store is named", "name one with --db, or in pyproject.toml")
    else:
        async for finding in _store(store):
            yield finding


# --- the machine


def _system() -> Iterator[Finding]:
    import apsw

    yield Finding(
        "versions",
        "ok",
        f"toolwright {toolwright.__version__}, Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}",
    )
    yield from _clock()
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        few = soft != resource.RLIM_INFINITY and soft < LEAST_FILES
        yield Finding(
            "open files",
            "note" if few else "ok",
            f"A process may have {soft:,} files and connections open",
            f"for a server with many clients, raise it with ulimit -n {min(hard, 65_536)}, or LimitNOFILE= of its unit"
            if few
            else "",
        )


def _clock() -> Iterator[Finding]:
    if time.time() < EARLIEST:
        yield Finding("clock", "problem", "The clock of this machine is years behind", "set it, by NTP for example")
        return
    try:
        zoneinfo.ZoneInfo("Europe/Paris")
    except (zoneinfo.ZoneInfoNotFoundError, OSError):
        yield Finding(
            "clock", "problem", "There are no time zones, which schedules need", "run: pip install --upgrade tzdata"
        )
        return
    yield Finding("clock", "ok", time.strftime("It is %Y-%m-%d %H:%M:%S %z here, and time zones are there"))


def _extras() -> Iterator[Finding]:
    missing = {extra: libraries for extra in sorted(EXTRAS) if (libraries := missing_libraries(extra))}
    there = [extra for extra in sorted(EXTRAS) if extra not in missing]
    yield Finding("extras", "ok", f"Installed: {', '.join(there) or 'none'}")
    if missing:
        yield Finding("extras", "note", f"Not installed: {', '.join(missing)}", f"if needed, {how_to_install(missing)}")


def _app(app: App) -> Finding:
    try:
        app.open()  # looks at its requirements; nothing is opened unless it is awaited
    except ToolwrightError as error:
        return Finding("app", "problem", str(error), "correct what it names")
    model = "without a model" if app.model is None else "with a model"
    return Finding("app", "ok", f"It can be opened, {model}")


# --- the store


async def _store(store: str) -> AsyncIterator[Finding]:
    inspector = inspect_store(store)
    try:
        if not await inspector.exists():
            yield Finding("store", "note", f"There is no store {store!r} yet", "it is made when the app first runs")
            return
        for finding in _file(Path(store)):
            yield finding
        version = await inspector.version()
        stats = await inspector.stats()
        problems = await inspector.check()
    except StoreError as error:
        state: State = "damage" if is_damage(error) else "problem"
        yield Finding("store", state, str(error), "restore a copy" if state == "damage" else "see the message")
        return
    for problem in problems:
        yield Finding("store", "damage", problem, "restore a copy of the store, or report it with the copy")
    if not problems:
        calls = sum(stats.calls.values())
        yield Finding(
            "store", "ok", f"{store} is sound: version {version}, {calls:,} calls, {stats.sessions:,} sessions"
        )
    async for finding in _content(store, stats):
        yield finding
    async for finding in _keys(store):
        yield finding


async def _content(store: str, stats: Any) -> AsyncIterator[Finding]:
    """What waits in a store for somebody who does not come."""
    inspector = inspect_store(store)
    left = stats.calls.get("cut off", 0) + stats.turns.get("cut off", 0)
    if left:
        yield Finding(
            "store",
            "note",
            f"{left} calls or turns were cut off by the end of their process",
            "run: toolwright recover",
        )
    workers = await inspector.workers()
    waiting = stats.runs.get("queued", 0)
    if waiting and not workers:
        yield Finding(
            "workers",
            "problem",
            f"{waiting} background runs wait, and no worker is alive",
            "start one: toolwright worker, or toolwright serve",
        )
    else:
        yield Finding("workers", "ok", f"Alive: {len(workers)}; background runs that wait: {waiting}")
    latest = await inspector.batches(limit=1)
    if latest and latest[0].first_at > time.time() + FUTURE:
        yield Finding(
            "clock",
            "problem",
            "The newest records of the store are in the future: the clock was set back, or differs between machines",
            "set the clock, by NTP for example; schedules and deadlines go by it",
        )


def _file(path: Path) -> Iterator[Finding]:
    if not path.is_file():
        return  # the store is not a file
    directory = path.resolve().parent
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if sys.platform != "win32":
        if not os.access(path, os.R_OK | os.W_OK) or not os.access(directory, os.W_OK):
            yield Finding(
                "permissions",
                "problem",
                f"This user may not write {str(path)!r} or make files beside it",
                f"run: chown {os.environ.get('USER', 'USER')} {directory}, or use the user of the service",
            )
        elif mode & 0o007:
            yield Finding(
                "permissions", "problem", f"Others may read {str(path)!r} (mode {mode:04o})", f"run: chmod 600 {path}"
            )
        else:
            yield Finding("permissions", "ok", f"Only its owner reads the file (mode {mode:04o})")
    free = shutil.disk_usage(directory).free
    if free < LEAST_FREE:
        yield Finding("disk", "problem", f"Only {free // 2**20:,} MiB are free", "free some space, or prune the store")
    else:
        yield Finding("disk", "ok", f"{free // 2**20:,} MiB are free")
    kind = _file_system(directory)
    if kind is not None and kind.startswith(SHARED_DISKS):
        yield Finding(
            "disk",
            "problem",
            f"The store is on {kind}: locks of processes are not safe there",
            "move it to a disk of this machine",
        )
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size > LONGEST_LOG:
        yield Finding(
            "disk",
            "note",
            f"The log beside the store has {log.stat().st_size // 2**20:,} MiB",
            "end a program that reads the store for long",
        )


def _file_system(directory: Path) -> str | None:
    """The kind of the file system that a directory is on; None where that is not known."""
    try:
        mounts = Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    best, kind = "", None
    for line in mounts:
        fields = line.split(" ")
        point = fields[1].replace("\\040", " ")
        if len(point) >= len(best) and Path(point) in (directory, *directory.parents):
            best, kind = point, fields[2]
    return kind


async def _keys(store: str) -> AsyncIterator[Finding]:
    """The master key, without making one."""
    path = Path(store)
    try:
        if os.environ.get(VARIABLE, "").strip():
            EnvironmentKeys().current()
            where = f"The environment's {VARIABLE} is usable"
        elif path.with_name(f"{path.name}.key").exists():
            KeyFile(path.with_name(f"{path.name}.key")).key("")
            where = f"The key file {path.name}.key is usable; keep a copy of it elsewhere"
        else:
            where = "There is none yet: it is made with the first secret"

        @tool
        async def nothing() -> None:
            """Do nothing."""

        # An app with a tool is not opened over secrets that it could not read.
        async with opened(store, App(tools=[nothing]), worker=False):
            pass
    except ToolwrightError as error:
        yield Finding("master key", "problem", str(error), "see the message")
    else:
        yield Finding("master key", "ok", where)
