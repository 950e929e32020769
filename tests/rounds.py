"""Rounds that many tests look at. Owns playing each once, also where several processes of a test run share them."""

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def play_once(
    folders: pytest.TempPathFactory, kind: str, name: str, play: Callable[[Path], dict[str, Any]]
) -> dict[str, Any]:
    """What a round saw: `play` is called in a folder of its own by the first process that asks.

    Raises:
        AssertionError: it went wrong, here or there.
    """
    shared = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / f"{kind}-{name.replace(' ', '-')}"
    stage, found = folder / "stage", folder / "seen.json"
    stage.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any]
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            try:
                told = {"seen": play(stage)}
            except (AssertionError, pytest.fail.Exception) as error:
                told = {"wrong": str(error)}
            found.write_text(json.dumps(told))
    told = json.loads(found.read_text())
    assert "wrong" not in told, told["wrong"]
    seen: dict[str, Any] = told["seen"]
    return seen
