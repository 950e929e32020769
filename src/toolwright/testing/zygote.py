"""Starts programs quickly: an interpreter that has imported toolwright, and forks for each program.

Reads one request per line. A request with a `program` is answered with the pid of its process, `{"wait": pid}` with the
end of that process. Only the crash kit talks to it.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import concurrent.futures.thread
import contextlib
import gc
import importlib
import importlib.resources.readers
import inspect
import json
import os
import pickle
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

import toolwright
from toolwright import Runtime, ToolCall, ToolContext, tool
from toolwright.builtin import capabilities
from toolwright.errors import StoreError
from toolwright.stores.sql.calls import journal
from toolwright.stores.sqlite import scheme
from toolwright.stores.sqlite import store as sqlite_store
from toolwright.testing import crash_points
from toolwright.testing import inside_program as stage

PRELOADED = (capabilities, concurrent.futures.thread, importlib.resources.readers, journal, scheme, sqlite_store)
"""Modules that a program imports when it first needs them; here they are imported before."""

NAMES: dict[str, Any] = {
    "asyncio": asyncio,
    "os": os,
    "Runtime": Runtime,
    "StoreError": StoreError,
    "ToolCall": ToolCall,
    "ToolContext": ToolContext,
    "tool": tool,
    "toolwright": toolwright,
    "crash_point": stage.crash_point,
    "note": stage.note,
    "say": stage.say,
    "hear": stage.hear,
    "die": stage.die,
}
"""The names that a program given as text finds beside `store`."""


def perform(kind: str, program: bytes, given: dict[str, Any], store: str) -> None:
    """Run a program to its end: a function, the text of one with a `main`, or a script."""
    if kind == "script":
        sys.argv = [program.decode()]
        runpy.run_path(program.decode(), init_globals=given, run_name="__main__")
        return
    if kind == "text":
        names = {"__name__": "__program__", **NAMES, "store": Path(store), **given}
        exec(compile(program, "<program>", "exec"), names)
        answer = names["main"]()
    else:
        answer = pickle.loads(program)(**given)
    if inspect.iscoroutine(answer):
        asyncio.run(answer)


def preload(request: dict[str, Any]) -> None:
    """Import the modules that a program names, so that its process and later ones do not have to.

    Of a text these are only our own: what others do on import belongs into the process of the program. An error is
    left to that process, which meets it again and reports it.
    """
    program = base64.b64decode(request["program"])
    with contextlib.suppress(Exception), contextlib.redirect_stdout(sys.stderr):
        if request["kind"] == "function":
            sys.path[:] = request["path"]
            pickle.loads(program)
        elif request["kind"] == "text":
            for node in ast.parse(program).body:
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("toolwright."):
                    importlib.import_module(node.module or "")


def run(request: dict[str, Any]) -> None:
    pipes = Path(request["pipes"])
    output = os.open(pipes / "output", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for theirs, ours in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(theirs, ours)
    sys.path[:] = request["path"]
    os.chdir(request["folder"])
    current = stage.Stage(pipes, Path(request["ledger"]), request["point"], request["nth"], request["freezes"])
    stage.enter(current)
    crash_points.install()
    given = pickle.loads(base64.b64decode(request["given"]))
    perform(request["kind"], base64.b64decode(request["program"]), given, request["store"])
    current.send("passed", current.passed)


@tool
async def first(n: int) -> int:
    """The first tool that is made imports the modules for schemas."""
    return n


def main() -> None:
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            print(status, flush=True)
            continue
        preload(request)
        gc.freeze()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                run(request)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
