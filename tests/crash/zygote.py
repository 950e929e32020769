"""Starts programs quickly: an interpreter that has imported everything and forks for each one.

Reads a request a line: `{"program", "folder", "variables"}`, answered with the pid, or `{"wait": pid}`, answered with
how it ended. A program is Python source with an async `main`. Among its names are `note`, which writes to a ledger
outside the store, `say`, which tells the test, `hear`, which waits for it, and `die`, a `kill -9` of itself.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import toolwright
from toolwright import Runtime, ToolCall, ToolContext, tool
from toolwright.errors import StoreError
from toolwright.stores.sqlite import store as _store  # so that no program has to wait for it

__all__ = ["_store"]


def run(program: str, folder: Path, variables: dict[str, Any]) -> None:
    answers = os.open(folder / "answers", os.O_WRONLY)
    words = open(folder / "words")  # noqa: SIM115 - for the life of the process
    ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def say(what: Any) -> None:
        os.write(answers, json.dumps(what).encode() + b"\n")

    def note(what: str) -> None:
        os.write(ledger, what.encode() + b"\n")

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def hear() -> str:
        return (await asyncio.to_thread(words.readline)).strip()

    names: dict[str, Any] = {
        "asyncio": asyncio,
        "os": os,
        "Runtime": Runtime,
        "StoreError": StoreError,
        "ToolCall": ToolCall,
        "ToolContext": ToolContext,
        "tool": tool,
        "toolwright": toolwright,
        "store": folder / "agent.db",
        "say": say,
        "note": note,
        "die": die,
        "hear": hear,
        **variables,
    }
    try:
        exec(compile(program, "<program>", "exec"), names)
        asyncio.run(names["main"]())
    except BaseException:
        say({"error": traceback.format_exc()})
        raise


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            print(status, flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                run(request["program"], Path(request["folder"]), request["variables"])
                code = 0
            finally:
                os._exit(code)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
