"""PgBouncer, the pooler that many put before PostgreSQL. Owns installing it from Debian, and running it."""

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.install import ENVIRONMENTS, InstallError
from tests.postgres_server import PostgresServer

PACKAGES = ("pgbouncer", "libc-ares2", "libevent-2.1-7")
_INSTALL_SECONDS = 300
_CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
query_wait_timeout = 10
ignore_startup_parameters = extra_float_digits
"""


def pgbouncer_program() -> Path:
    """The program, of this machine or of Debian's package.

    Raises:
        InstallError: it could not be installed.
    """
    if found := shutil.which("pgbouncer"):
        return Path(found)
    folder = ENVIRONMENTS / "pgbouncer"
    program = folder / "usr" / "sbin" / "pgbouncer"
    if not program.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            for command in (["apt-get", "download", *PACKAGES], ["sh", "-c", "for d in *.deb; do dpkg -x $d .; done"]):
                subprocess.run(
                    command, cwd=folder, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=True
                )
        except (OSError, subprocess.SubprocessError) as error:
            told = getattr(error, "stderr", None) or error
            raise InstallError(f"pgbouncer: {told}; install it by hand"[-300:]) from error
    return program


@contextmanager
def pooled(server: PostgresServer, mode: str, size: int = 20) -> Iterator[str]:
    """The URL of a server behind PgBouncer in this mode."""
    program = pgbouncer_program()
    with PostgresServer.folder() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        (folder / "pgbouncer.ini").write_text(
            _CONFIGURATION.format(server=server.port, port=port, mode=mode, size=size)
        )
        given = {"PATH": os.environ.get("PATH", "")}
        user = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None  # it refuses to be root's
        # A user may not be able to read the folder of the project.
        shutil.copy(program, folder / "pgbouncer")
        copied = [shutil.copy(each, folder) for each in (ENVIRONMENTS / "pgbouncer").rglob("lib*.so.*")]
        if copied:
            given["LD_LIBRARY_PATH"] = str(folder)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [folder / "pgbouncer", folder / "pgbouncer.ini"], stdout=log, stderr=log, env=given, user=user
            )
        try:
            _wait(port, process, folder / "log")
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            process.kill()
            process.wait()


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        else:
            return
