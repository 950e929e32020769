"""Probes: modules that measure something in a fresh interpreter and print one JSON document.

A fresh interpreter per probe keeps one measurement's heap, imports, and caches out of the next one's. Owns
starting a probe and passing its document back; what is in the document is between the section and its probe.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.pairing import QUICK, THOROUGH, Effort

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_SECONDS = 900


class ProbeError(Exception):
    """A probe ended without a document; the message is the last thing it said."""


def run_probe(
    module: str,
    *arguments: str,
    quick: bool = False,
    python: str | Path = sys.executable,
    isolated: bool = False,
) -> Any:
    """Run `python -m module` from the repository root and return what it printed, parsed.

    `isolated` hides this process's own PYTHONPATH, for an interpreter of another environment.

    Raises:
        ProbeError: it failed, printed something else, or took too long.
    """
    command = [str(python), "-m", module, *arguments, *(["--quick"] if quick else [])]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=child_environment(isolated=isolated),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProbeError(f"{module} did not run: {error}") from error
    if done.returncode != 0:
        raise ProbeError(f"{module} failed: {_last_line(done.stderr)}")
    try:
        return json.loads(_last_line(done.stdout))
    except ValueError as error:
        raise ProbeError(f"{module} printed no JSON document; its last line must be one.") from error


def emit(document: object) -> None:
    """Print the probe's document, last and on one line."""
    print(json.dumps(document), flush=True)


def effort_of(arguments: argparse.Namespace) -> Effort:
    """The effort a probe was asked for."""
    return QUICK if arguments.quick else THOROUGH


def probe_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options every probe takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples")
    return parser


def child_environment(*, isolated: bool = False) -> Mapping[str, str]:
    # Without cached bytecode every probe would compile its libraries first, and an import could not be timed.
    hidden = {"PYTHONDONTWRITEBYTECODE"} | ({"PYTHONPATH", "PYTHONHOME"} if isolated else set())
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "(no output)"
