"""The far side of a limited child: runs in the child process. Owns its limits and the loop over requests.

It is run as a file, and imports little, to start fast. The parent is trusted; the data of a job is not.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

HEADER = struct.Struct(">I")
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_SIGKILL = 9


class Link:
    """The socket to the parent. A message is a length and a value in MessagePack: plain data, never code."""

    def __init__(self, end: socket.socket, most_bytes: int) -> None:
        from msgspec import msgpack

        self.socket = end
        self._most = most_bytes
        self._encode = msgpack.Encoder().encode
        self._decode = msgpack.Decoder().decode
        self._lock = threading.Lock()
        self._held = b""

    def receive(self) -> Any:
        """The next message. Ends the process when the parent has closed the pipe."""
        return self._decode(self._read(HEADER.unpack(self._read(HEADER.size))[0]))

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            count = self.socket.recv_into(view[at:])
            if not count:
                os._exit(0)
            at += count
        return bytes(data)

    def note(self, value: object, *, hold: bool = False) -> None:
        """Send a message to the parent while the job runs. Any thread may. `hold` sends it together with the next
        message."""
        self.send(["note", value], hold=hold)

    def send(self, message: list[Any], *, hold: bool = False) -> None:
        """Send a message, or an error when it is too long."""
        data = self._encode(message)
        if len(data) > self._most:
            data = self._encode(["error", "too_large", f"the answer has {len(data)} bytes, more than {self._most}"])
        with self._lock:
            self._held += HEADER.pack(len(data)) + data
            if not hold:
                data, self._held = self._held, b""
                self.socket.sendall(data)


def main() -> None:
    """Serve requests until the parent closes the socket."""
    end = socket.socket(fileno=int(sys.argv[1]))
    _end_with_parent(end, int(sys.argv[2]))
    setup = _first(end)
    if setup is None:
        return
    sys.path[:] = setup["path"]
    link = Link(end, setup["most_bytes"])
    _limit("RLIMIT_CORE", 0)
    _limit("RLIMIT_FSIZE", 0)
    _limit("RLIMIT_NOFILE", setup["open_files"])
    job = _load(setup["job"])
    # Memory used until now belongs to the interpreter and its libraries; the rest is for requests.
    _limit("RLIMIT_AS", _address_space() + setup["memory"])
    link.send(["ready"])
    while True:
        request = link.receive()
        _limit_processor(setup["seconds"])
        answer: list[Any] | None = None
        try:
            answer = ["value", job(request, link)]
            link.send(answer)
            continue
        except MemoryError:
            failure = ["error", "memory", "it needs more memory than it may have"]
        except RecursionError:
            failure = ["error", "depth", "it is nested too deeply"]
        except BaseException as error:  # the edge of the process: the parent gets the error, and decides
            failure = ["error", type(error).__name__, str(error)[:2_000]]
        finally:
            del request, answer
        link.send(failure)


def _first(end: socket.socket) -> dict[str, Any] | None:
    """The first message, which is JSON: where other packages are is not known yet."""
    import json

    with end.makefile("rb", buffering=0) as file:
        line = bytearray()
        while not line.endswith(b"\n"):
            byte = file.read(1)
            if not byte:
                return None
            line += byte
    setup: dict[str, Any] = json.loads(line)
    return setup


def _load(name: str) -> Callable[[Any, Link], Any]:
    place, _, function = name.rpartition(":")
    if place.endswith(".py"):  # without the packages around it, to start fast
        spec = importlib.util.spec_from_file_location("job", place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    job: Callable[[Any, Link], Any] = getattr(module, function)
    return job


def _end_with_parent(end: socket.socket, parent: int) -> None:
    """Die when the parent does, also in the middle of a job; and gain no rights that the parent has not."""
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
        prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)  # It died before we asked to be told.

    def watch() -> None:
        poll = select.poll()
        poll.register(end.fileno(), 0)  # only the hang-up
        poll.poll()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _limit(name: str, most: int) -> None:
    with suppress(ImportError, AttributeError, OSError, ValueError):  # where the system has no such limit
        import resource

        number = getattr(resource, name)
        _, hard = resource.getrlimit(number)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (most, most))


def _limit_processor(seconds: float) -> None:
    """Let the next request use this much processor time; time used before does not count."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = int(used.ru_utime + used.ru_stime + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _address_space() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 1024 * 1024 * 1024  # not on this system, which seldom enforces the limit either


if __name__ == "__main__":
    main()
