"""Jobs for limited children, good ones and bad ones. They run in the child."""

import ctypes
import os
import resource
import subprocess
import sys
import threading
import time
from typing import Any


def echo(request: Any, link: Any) -> Any:
    return request


def pid(request: Any, link: Any) -> int:
    return os.getpid()


def tell(request: Any, link: Any) -> str:
    for number in range(request):
        link.note(number)
    return "told"


def collect(request: Any, link: Any) -> list[Any]:
    return [link.receive() for _ in range(request)]


def spin(request: Any, link: Any) -> None:
    link.note(os.getpid())
    while True:
        pass


def spin_locked(request: Any, link: Any) -> None:
    """Spin without ever letting go of the interpreter's lock."""
    link.note(os.getpid())
    ctypes.PyDLL(None).sleep(60)


def crash(request: Any, link: Any) -> None:
    ctypes.string_at(0)


def fill(request: Any, link: Any) -> int:
    return len(bytearray(request))


def wrong(request: Any, link: Any) -> None:
    raise ValueError("not this one")


def nest(request: Any, link: Any) -> Any:
    value: Any = []
    for _ in range(request):
        value = [value]
    return value


def long_answer(request: Any, link: Any) -> str:
    return "x" * request


def lie(request: Any, link: Any) -> None:
    """Announce more than would ever be sent."""
    link.socket.sendall((2**32 - 1).to_bytes(4, "big"))
    time.sleep(60)


def no_message(request: Any, link: Any) -> None:
    link.socket.sendall((4).to_bytes(4, "big") + b"\xc1\xc1\xc1\xc1")
    time.sleep(60)


def limits(request: Any, link: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in ("AS", "CORE", "FSIZE", "NOFILE")
    }
    found["environment"] = sorted(os.environ)
    found["leads_its_session"] = os.getsid(0) == os.getpid()
    with open("/proc/self/status", encoding="ascii") as file:
        found["no_new_privileges"] = "NoNewPrivs:\t1" in file.read()
    return found


def write(request: Any, link: Any) -> None:
    with open(request, "w", encoding="ascii") as file:
        file.write("x")


def offspring(request: Any, link: Any) -> None:
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    link.note(started.pid)
    threading.Event().wait()


def grow(request: Any, link: Any) -> int:
    kept.append(bytearray(request))
    return os.getpid()


kept: list[bytearray] = []
