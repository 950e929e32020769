"""What may keep an app from working here: versions, extras, the store, its keys, permissions and clock. Owns looking at
each of them, and the remedy for what it finds. It changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from msgspec import Struct

import toolwright
from toolwright.app import App
from toolwright.cli.exits import is_damage
from toolwright.errors import MissingRequirement, SecretsError, StoreError, ToolwrightError
from toolwright.extras import EXTRAS, how_to_install, missing_libraries
from toolwright.private_files import private_mode
from toolwright.session.secrets.master_keys import VARIABLE, EnvironmentKeys, KeyFile
from toolwright.stores.contracts.inspection import StoreInspector
from toolwright.stores.contracts.scheme import file_of, without_password
from toolwright.stores.opening import inspect_store

State = Literal["ok", "advice", "problem", "damage"]
EARLIEST = 1_735_689_600.0
"""The beginning of 2025: a clock that shows less was never set."""
MOST_SKEW = 5.0
"""Seconds that the clocks of this machine and of the file system may differ."""
FUTURE = 60.0
"""Seconds by which records may be newer than the clock."""
LEAST_SPACE = 100 * 1024 * 1024
"""Bytes that should be free on the disk of the store."""
LONGEST_LOG = 64 * 1024 * 1024
"""Bytes that the log beside a store should not have: writers shorten it long before, unless a reader prevents it."""
LIBRARIES = ("apsw", "msgspec", "pydantic", "mcp", "openai", "anthropic", "starlette", "opentelemetry-api")


class Finding(Struct, frozen=True):
    """One thing that was looked at. A problem keeps something from working; advice does not."""

    subject: str
    state: State
    said: str
    remedy: str = ""


async def examine(store: str | None, app: App | ToolwrightError | None) -> list[Finding]:
    """Look at everything; `store` and `app` where there are any, or why the app cannot be loaded."""
    found = [_versions(), *_extras(), _clock()]
    if isinstance(app, ToolwrightError):
        said, _, remedy = str(app).rpartition("; ")
        found.append(Finding("app", "problem", said or remedy, remedy if said else ""))
    elif app is not None:
        found.append(_app(app))
    if store is None:
        said = "No store is named, so that everything would be in memory"
        return [*found, Finding("store", "advice", said, "name one with --db FILE, to look at it, too")]
    try:
        inspector, path = inspect_store(store), file_of(store)
        if path is None:
            return [*found, *await _store(inspector, store)]
        found += _file(path, await _is_ours(inspector))
        closed = any(finding.subject == "permissions" and finding.state == "problem" for finding in found)
        return [*found, *await _store(inspector, store, is_closed=closed)]
    except StoreError as error:
        return [*found, _refused(error)]


async def _is_ours(inspector: StoreInspector) -> bool:
    """True for a store that is there, and that this program can read."""
    try:
        return await inspector.exists() and await inspector.version() > 0
    except StoreError:
        return False


def _versions() -> Finding:
    shown = [f"toolwright {toolwright.__version__}", f"Python {platform.python_version()}"]
    for name in LIBRARIES:
        try:
            shown.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return Finding("versions", "ok", ", ".join(shown) + f", {platform.system()} {platform.release()}")


def _extras() -> list[Finding]:
    missing = {extra: libraries for extra in sorted(EXTRAS) if (libraries := missing_libraries(extra))}
    installed = sorted(EXTRAS.keys() - missing.keys())
    found = [Finding("extras", "ok", f"Installed: {', '.join(installed) or 'none'}")]
    if missing:
        said = "; ".join(f"{extra} ({', '.join(libraries)})" for extra, libraries in missing.items())
        remedy = f"where one is needed: {how_to_install(['NAME'])}"
        found.append(Finding("extras", "advice", f"Not installed: {said}", remedy))
    return found


def _clock() -> Finding:
    now = time.time()
    if now < EARLIEST:
        remedy = "set it, and let it be kept by NTP: schedules, leases and tokens depend on it"
        return Finding("clock", "problem", f"The clock of this machine shows {_shown(now)}", remedy)
    return Finding("clock", "ok", f"It is {_shown(now)}")


def _app(app: App) -> Finding:
    try:
        app.open()  # it is checked before anything is opened, and never entered
    except MissingRequirement as error:
        said, _, remedy = str(error).rpartition("; ")
        return Finding("app", "problem", said or remedy, remedy if said else "")
    except ToolwrightError as error:
        return Finding("app", "problem", str(error))
    return Finding("app", "ok", f"{app!r} has all that its tools need")


def _file(path: Path, is_ours: bool) -> list[Finding]:
    """Look at what is around a store, and at its modes where the file is ours: others keep theirs."""
    found = _directory(path)
    if is_ours:
        found += _permissions(path)
    if is_ours or not os.path.lexists(path):
        found.append(_keys(path))
    return found


def _directory(path: Path) -> list[Finding]:
    folder = path.absolute().parent
    if not folder.is_dir():
        return [Finding("permissions", "problem", f"There is no directory {str(folder)!r}", f"run: mkdir -p {folder}")]
    found: list[Finding] = []
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".toolwright-doctor-") as probe:
            os.utime(probe.name)
            skew = os.stat(probe.name).st_mtime - time.time()
    except OSError as error:
        remedy = f"give this user ({_user()}) the right to write there: SQLite makes files beside the store"
        found.append(
            Finding("permissions", "problem", f"{str(folder)!r} cannot be written to ({error.strerror})", remedy)
        )
    else:
        found.append(Finding("permissions", "ok", f"{str(folder)!r} can be written to"))
        if abs(skew) > MOST_SKEW:
            said = f"The clock of the file system differs by {skew:.0f} seconds from that of this machine"
            remedy = "let both be kept by NTP; a store on a network file system is not safe, use a local disk"
            found.append(Finding("clock", "problem", said, remedy))
    free = shutil.disk_usage(folder).free
    if free < LEAST_SPACE:
        said = f"Only {free / 1024**2:.0f} MiB are free on the disk of {str(folder)!r}"
        remedy = "make room for the store, which writes also to remove old records (toolwright db prune)"
        found.append(Finding("store", "problem", said, remedy))
    return found


def _permissions(path: Path) -> list[Finding]:
    found: list[Finding] = []
    for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        try:
            status = each.stat()
        except OSError:
            continue
        mode = stat.S_IMODE(status.st_mode)
        if os.name != "nt" and mode != private_mode(mode):
            said = f"{str(each)!r} may be read by other users (mode {mode:04o})"
            found.append(Finding("permissions", "problem", said, f"run: chmod {private_mode(mode):o} {each}"))
        if not os.access(each, os.R_OK | os.W_OK):
            remedy = f"run as its owner, or: chown {_user()} {each}"
            said = f"{str(each)!r} cannot be read and written by this user ({_user()})"
            found.append(Finding("permissions", "problem", said, remedy))
    return found


def _keys(path: Path) -> Finding:
    file = KeyFile(path.with_name(path.name + ".key"))
    try:
        if os.environ.get(VARIABLE, "").strip():
            return Finding("keys", "ok", f"The master key {EnvironmentKeys().current()!r} is that of {VARIABLE}")
        if os.path.exists(file.path):  # False, and no error, for a name that is too long
            said = f"The master key {file.current()!r} is in {str(file.path)!r}"
            return Finding("keys", "ok", said + "; keep a copy of it apart from copies of the store")
    except SecretsError as error:
        said, _, remedy = str(error).rpartition("; ")
        return Finding("keys", "problem", said or remedy, remedy if said else "")
    return Finding("keys", "ok", f"No master key yet: {str(file.path)!r} is made with the first secret")


async def _store(inspector: StoreInspector, store: str, *, is_closed: bool = False) -> list[Finding]:
    """Look at the store itself; `is_closed` where it was found already that this user may not open it."""
    try:
        if not is_closed:
            await inspector.check_access()
        shown = without_password(store)
        if not await inspector.exists():
            said = f"There is no store {shown!r} yet"
            return [] if is_closed else [Finding("store", "advice", said, "it is made when it is first opened")]
        number = await inspector.version()
        problems = await inspector.check()
        found = [
            Finding("store", "damage", line, "restore it from a copy; `toolwright db check` has details")
            for line in problems
        ]
        return found or [Finding("store", "ok", f"{shown} is sound, at version {number}"), *await _work(inspector)]
    except StoreError as error:
        return [_refused(error)]


def _refused(error: StoreError) -> Finding:
    said, _, remedy = str(error).rpartition("; ")
    state: State = "damage" if is_damage(error) else "problem"
    return Finding("store", state, said or remedy, remedy if said else "")


async def _work(inspector: StoreInspector) -> list[Finding]:
    found: list[Finding] = []
    counted, now = await inspector.stats(), time.time()
    cut_off = counted.calls.get("cut off", 0)
    if cut_off:
        said = f"{cut_off} call{'s were' if cut_off > 1 else ' was'} cut off when their program ended"
        found.append(Finding("store", "advice", said, "finish them: toolwright recover"))
    queued = counted.runs.get("queued", 0)
    if queued and not await inspector.workers():
        said = f"{queued} background run{'s wait' if queued > 1 else ' waits'}, and no worker is alive"
        found.append(Finding("store", "advice", said, "start one: toolwright worker"))
    if counted.log_bytes > LONGEST_LOG:
        said = f"The log beside the store has {counted.log_bytes / 1024**2:.0f} MiB: a program reads an old state of it"
        remedy = "end what has been reading for long, such as an export or a database shell; the log is then shortened"
        found.append(Finding("store", "advice", said, remedy))
    newest = await inspector.batches(limit=1)
    if newest and newest[0].last_at > now + FUTURE:
        said = f"The store has records of {_shown(newest[0].last_at)}, and it is {_shown(now)}"
        found.append(Finding("clock", "problem", said, "the clock was put back, or was wrong; let it be kept by NTP"))
    return found


def _shown(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def _user() -> str:
    return str(os.geteuid()) if sys.platform != "win32" else "this one"
