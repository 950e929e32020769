"""Starts Python scripts and modules quickly: a process that has imported what they need forks for each of them.

For tests whose code under test starts a program by its command, so that the crash kit cannot: the command is that of
`tests/warm_launcher.py`, which looks like the script to whoever started it. Where that is not possible, as on another
system than Linux, the command is that of the interpreter.
"""

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

LAUNCHER = Path(__file__).with_name("warm_launcher.py")


class WarmPrograms:
    """The process that forks, and the words of the command that starts a script."""

    def __init__(self, *modules: str) -> None:
        self.command = [sys.executable]
        self._process: subprocess.Popen[bytes] | None = None
        if sys.platform != "linux":
            return
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        place = str(Path(self._folder.name) / "socket")
        self._process = subprocess.Popen(
            [sys.executable, __file__, place, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        self.command = [sys.executable, "-I", "-S", str(LAUNCHER), place]

    def close(self) -> None:
        """End it. Programs that still run are not ended."""
        if self._process is not None:
            self._process.communicate()
            self._folder.cleanup()


def serve(place: str) -> None:
    """Fork a process for each connection, until stdin is closed. It returns in the process of a script, at its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that look after the scripts
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(64)
        os.write(1, b"ready\n")
        while 0 not in select.select([0, listening.fileno()], [], [])[0]:
            link, _ = listening.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listening.close()
                if look_after(link):
                    return
                os._exit(0)
            link.close()


def look_after(link: socket.socket) -> bool:
    """Fork the script of a connection, pass signals on to it, and tell its end. True in the process of the script."""
    length, descriptors, _, _ = socket.recv_fds(link, 4, 3)
    request = b""
    while len(request) < int.from_bytes(length, "big"):
        request += link.recv(1 << 16)
    script = os.fork()
    if script == 0:
        link.close()
        run(json.loads(request), descriptors)
        return True
    for descriptor in (*descriptors, 0, 1, 2):
        os.close(descriptor)
    ended = os.pidfd_open(script)
    while ended not in select.select([link.fileno(), ended], [], [])[0]:
        number = link.recv(1)
        os.kill(script, number[0] if number else signal.SIGKILL)  # its launcher was killed
        if not number:
            break
    _, status = os.waitpid(script, 0)
    with contextlib.suppress(BrokenPipeError):  # nobody is left to be told
        link.sendall(str(status).encode())
    return False


def run(request: dict, descriptors: list[int]) -> None:
    """Be the script that was asked for."""
    for ours, theirs in enumerate(descriptors):
        os.dup2(theirs, ours)
        os.close(theirs)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["argv"]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        sys.path.insert(0, request["folder"])
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(sys.argv[0]).parent))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    del sys.path[0]  # that of this file; a script brings its own
    for module in sys.argv[2:]:
        importlib.import_module(module)
    serve(sys.argv[1])
