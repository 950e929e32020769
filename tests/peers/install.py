"""The peers that the tests of providers, of MCP and of the page ask: their versions, and where they are installed. Run
as `python -m tests.peers.install` to install them ahead; what is there in the right version is left as it is.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.peers import Peer
from bench.peers.install import ENVIRONMENTS, InstallError, environment_python
from tests.peers.browser import AXE, chromium_program
from tests.peers.npm import node, npm_package
from tests.peers.pgbouncer import pgbouncer_program

LLAMA = Peer("llama", "llama.cpp's server", ("xllamacpp==2026.10.11549", "gguf==0.19.0", "numpy==2.4.6"))
AIMOCK = "1.43.0"
OLD_CLIENTS = Peer("mcp1", "mcp 1.x and smolagents", ("mcp==1.30.0", "mcpadapt==0.1.19", "smolagents==1.26.0"))
CONFORMANCE = "0.2.0-alpha.12"
REFERENCE_SERVERS = Peer(
    "mcp-servers",
    "the reference servers of MCP",
    ("mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19", "mcp-server-fetch==2026.10.24"),
)
REFERENCE_NPM = "2026.8.31"
INSPECTOR = "2.12.0"
_INSTALL_SECONDS = 600


def llama_python() -> Path:
    """The interpreter that has llama.cpp.

    Raises:
        InstallError: it could not be installed.
    """
    return environment_python(LLAMA)


def aimock_program() -> list[str]:
    """The command that starts aimock.

    Raises:
        InstallError: it could not be installed, or there is no Node.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise InstallError("The peer aimock needs Node 20 or newer with npm; install it, and run: make test-peers")
    package = ENVIRONMENTS / "aimock" / "node_modules" / "@copilotkit" / "aimock"
    if (
        not (package / "package.json").exists()
        or json.loads((package / "package.json").read_text())["version"] != AIMOCK
    ):
        folder = ENVIRONMENTS / "aimock"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private": true}')
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", f"@copilotkit/aimock@{AIMOCK}"]
        try:
            subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise InstallError(f"aimock: {getattr(error, 'stderr', None) or error}"[-300:]) from error
    return [node, str(package / "dist" / "cli.js")]


def conformance_program() -> list[str]:
    """The command of the conformance suite of MCP.

    Raises:
        InstallError: it could not be installed.
    """
    return [node(), str(npm_package("@modelcontextprotocol/conformance", CONFORMANCE) / "dist" / "index.js")]


def inspector_program() -> list[str]:
    """The command of the MCP inspector.

    Raises:
        InstallError: it could not be installed.
    """
    package = npm_package("@modelcontextprotocol/inspector", INSPECTOR)
    program: str = next(iter(json.loads((package / "package.json").read_text())["bin"].values()))
    return [node(), str(package / program)]


def old_client_python() -> Path:
    """The interpreter that has the official SDK of the first version, and smolagents.

    Raises:
        InstallError: it could not be installed.
    """
    return environment_python(OLD_CLIENTS)


def reference_python() -> Path:
    """The interpreter that has the reference servers of PyPI.

    Raises:
        InstallError: they could not be installed.
    """
    return environment_python(REFERENCE_SERVERS)


def reference_npm(kind: str) -> list[str]:
    """The command of a reference server of npm.

    Raises:
        InstallError: it could not be installed.
    """
    package = npm_package(f"@modelcontextprotocol/server-{kind}", REFERENCE_NPM)
    program: str = next(iter(json.loads((package / "package.json").read_text())["bin"].values()))
    return [node(), str(package / program)]


PEERS: tuple[tuple[str, Callable[[], object]], ...] = (
    ("llama.cpp's server", llama_python),
    ("aimock", aimock_program),
    ("MCP conformance suite", conformance_program),
    ("MCP inspector", inspector_program),
    ("MCP reference servers of PyPI", reference_python),
    ("MCP server everything", partial(reference_npm, "everything")),
    ("MCP server filesystem", partial(reference_npm, "filesystem")),
    ("MCP server memory", partial(reference_npm, "memory")),
    ("MCP clients of the first version", old_client_python),
    ("Chromium", chromium_program),
    ("axe", partial(npm_package, "axe-core", AXE)),
    ("PgBouncer", pgbouncer_program),
)


def main() -> int:
    """Install all of them; the exit code is the number that failed."""
    failures = 0
    for title, install in PEERS:
        try:
            install()
            print(f"{title}: ready")
        except InstallError as error:
            failures += 1
            print(f"{title}: not installed: {error}", file=sys.stderr)
    return failures


if __name__ == "__main__":
    raise SystemExit(main())
