"""Stands for a program that `tests/warm_programs.py` forks: has its input and output, its signals, and its end.

Run as `python -I -S warm_launcher.py SOCKET SCRIPT …`, or with `-m MODULE`, so that it starts in milliseconds. SIGUSR1
kills the program; where the launcher itself is killed, the program lives a moment longer.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    link = socket.socket(socket.AF_UNIX)
    link.connect(sys.argv[1])
    request = json.dumps({"argv": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}).encode()
    socket.send_fds(link, [len(request).to_bytes(4, "big")], [0, 1, 2])
    link.sendall(request)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: link.send(bytes([got])))
    signal.signal(signal.SIGUSR1, lambda *_: link.send(bytes([signal.SIGKILL])))
    for descriptor in (0, 1, 2):
        os.close(descriptor)  # or who reads what the program writes would not see its end
    status = b""
    while piece := link.recv(16):
        status += piece
    code = os.waitstatus_to_exitcode(int(status or signal.SIGKILL))
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
