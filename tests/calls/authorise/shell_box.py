"""A box in which a real bash runs scripts that nobody has read. Owns the box; the scripts come from elsewhere.

The box is a directory with a copy of bash and of a few programs, which is the root of the file system for everything
in it. Its `rm` is a stub that writes down its arguments. The scripts run there as an unprivileged user, in a network
and a process table of their own, with an empty environment and limits on time, memory and file sizes. So there is no
real `rm` to run and no file outside to write, however a script is spelled.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = (
    "bash dash env xargs find sed awk tar sort split tee touch mkdir cp mv ln install dd truncate timeout nice nohup"
    " setsid cat ls head uniq shuf wc tr rmdir chmod mktemp gzip patch csplit flock seq sleep date id printf true"
)
NOBODY = 54_321
"""A user that runs nothing else: the limit of processes counts all of a user, such as those of a database server."""
SECONDS = 0.7
PATIENCE = 0.1
"""How long a command in the background is waited for."""


@dataclass(frozen=True)
class Seen:
    """What a script did: whether it ran `rm`, and which paths below /etc it changed."""

    ran: bool
    changed: tuple[str, ...]


class ShellBox:
    """A box that runs one script after another, each in the same fresh state."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="toolwright-shell-box-"))
        self._folder.chmod(0o755)
        build(self._folder)
        isolated = ["unshare", "--net", "--pid", "--fork", "--kill-child"]
        if os.getuid() != 0:
            isolated += ["--map-root-user"]
        self._server = subprocess.Popen(
            [*isolated, sys.executable, "-I", __file__, str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._server.stdout is not None
        if not self._server.stdout.readline():
            self.close()
            raise RuntimeError("The box did not start; it needs Linux with namespaces, and the program 'unshare'")

    def run(self, script: str) -> Seen:
        """Run a script, and say what it did."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(script) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return Seen(answer["ran"], tuple(answer["changed"]))

    def close(self) -> None:
        """End the box and remove its files."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with contextlib.suppress(OSError):
            self._server.stdin.close()
        self._server.wait(10)
        self._server.stdout.close()
        shutil.rmtree(self._folder)

    def __enter__(self) -> ShellBox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def build(root: Path) -> None:
    """Make the root of a box: programs with their libraries, and a stub."""
    (root / "bin").mkdir()
    for name in PROGRAMS.split():
        found = shutil.which(name, path="/usr/bin:/bin")
        if found is None:
            continue
        shutil.copy2(os.path.realpath(found), root / "bin" / name)
        for library in libraries(found):
            target = root / library.lstrip("/")
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(os.path.realpath(library), target)
    (root / "bin" / "sh").symlink_to("dash")
    stub = root / "bin" / "rm"
    stub.write_text('#!/bin/dash\necho "rm $*" >> /log/ran\n')
    stub.chmod(0o755)
    (root / "dev").mkdir()
    (root / "dev" / "null").touch()
    (root / "dev" / "null").chmod(0o666)


def libraries(program: str) -> list[str]:
    """The libraries that a program loads."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]


# The other side: in the box's own process table, with the rights to fill it.


def refill(root: Path) -> None:
    """Bring the directories that a script may change into the state in which each script starts."""
    for name in ("work", "etc", "log", "tmp"):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir()
    (root / "dev" / "null").write_text("")
    work, etc = root / "work", root / "etc"
    (work / "f").write_text("a[$(rm x)]\nrm x\n/etc/t\n")
    (work / "x.sh").write_text("rm x\n")
    (work / "to").write_text("/etc/t")
    (work / "d").mkdir()
    (work / "d" / "y").write_text("y\n")
    shutil.copy(root / "a.tar", work / "a.tar")
    (etc / "passwd").write_text("p\n")
    (etc / "sub").mkdir()
    for folder in (work, etc, root / "log", root / "tmp"):
        for path in (folder, *folder.rglob("*")):
            with contextlib.suppress(OSError):  # in a user namespace there is no such user, and no need of one
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def snapshot(folder: Path) -> dict[str, Any]:
    """What can be seen of a directory."""
    found: dict[str, Any] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        state = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found["/etc" + str(path)[len(str(folder)) :]] = (
            state.st_mode,
            state.st_ino,
            state.st_mtime_ns if not path.is_dir() else 0,
            content,
        )
    return found


def confine(root: str) -> None:
    """Give up everything, in the process that will be bash."""
    os.chroot(root)
    os.chdir("/work")
    with contextlib.suppress(OSError):
        os.setgroups([])
    with contextlib.suppress(OSError):
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (64, 64))


def play(root: Path, script: str) -> dict[str, Any]:
    """Run one script, and look at what it left."""
    refill(root)
    before = snapshot(root / "etc")
    process = subprocess.Popen(
        ["/bin/bash", "--norc", "--noprofile", "-c", script],
        env={"PATH": "/bin"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: confine(str(root)),
    )
    try:
        process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    left = time.monotonic() + PATIENCE
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        while time.monotonic() < left:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.005)
        # The first process of a table ends all others in it.
        os.kill(-1, signal.SIGKILL)
        while True:
            os.waitpid(-1, 0)
    after = snapshot(root / "etc")
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    ran = (root / "log" / "ran").exists()
    return {"ran": ran, "changed": changed}


def serve(root: Path) -> None:
    """Run the scripts that come in, one to a line."""
    (root / "passwd").write_text("evil\n")
    subprocess.run(["tar", "cf", str(root / "a.tar"), "-C", str(root), "passwd"], check=True)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(play(root, json.loads(line))), flush=True)


if __name__ == "__main__":
    if os.getuid() != 0 or os.getpid() != 1:
        raise SystemExit("The box needs namespaces of its own")
    serve(Path(sys.argv[1]))
