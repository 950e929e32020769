"""Environments for the peers, made once and kept under `.bench/` until a pin changes.

Run as `python -m bench.peers.install` to make them all ahead of a benchmark. Uses uv when it is on the PATH,
and `venv` with pip otherwise or when uv cannot resolve from where pip can.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers import DURABLE_PEERS, PEERS, PYDANTIC_AI_DBOS, TURN_PEERS, Peer
from bench.probe import ROOT

ENVIRONMENTS = ROOT / ".bench"
INSTALL_SECONDS = 600


class InstallError(Exception):
    """A peer's environment could not be made; the message is the installer's last words."""


def environment_python(peer: Peer) -> Path:
    """The interpreter of the peer's environment, which is made first when it is missing or outdated.

    Raises:
        InstallError: the environment could not be made.
    """
    folder = ENVIRONMENTS / peer.environment
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    stamp = folder / "requirements.txt"
    pins = _pins(peer)
    if not (python.exists() and stamp.exists() and stamp.read_text() == pins):
        _make(folder, python, peer)
        # Written last: an interrupted install has no stamp and is made again.
        stamp.write_text(pins)
    return python


def _pins(peer: Peer) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return "\n".join([f"# python {version}", *peer.requirements, ""])


def _make(folder: Path, python: Path, peer: Peer) -> None:
    ENVIRONMENTS.mkdir(exist_ok=True)
    (ENVIRONMENTS / ".gitignore").write_text("*\n")
    if uv := shutil.which("uv"):
        try:
            shutil.rmtree(folder, ignore_errors=True)
            _run(uv, "venv", "--quiet", "--python", sys.executable, str(folder))
            _run(uv, "pip", "install", "--quiet", "--python", str(python), *peer.requirements)
            return
        except InstallError:
            # uv and pip read different configuration; an index only pip knows of is worth a second try.
            pass
    shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(folder))
    _run(str(python), "-m", "pip", "install", "--quiet", *peer.requirements)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=True)
    except subprocess.CalledProcessError as error:
        raise InstallError((error.stderr or error.stdout).strip()[-300:]) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(str(error)) from error


def main() -> int:
    """Make every environment; the exit code is the number that failed."""
    failures = 0
    for peer in (*PEERS, *DURABLE_PEERS, *TURN_PEERS, PYDANTIC_AI_DBOS):
        try:
            environment_python(peer)
            print(f"{peer.title}: ready ({', '.join(peer.requirements)})")
        except InstallError as error:
            failures += 1
            print(f"{peer.title}: not installed: {error}", file=sys.stderr)
    return failures


if __name__ == "__main__":
    raise SystemExit(main())
