"""Probe: LangGraph tasks with its SQLite checkpointer: one entrypoint that gathers a task for each call.

Twice: with `durability="sync"`, which promises what toolwright promises, and with what LangGraph does unless
told otherwise.
"""

import os

# Before the import: tracing would be measured too, and would look for a server.
os.environ["LANGSMITH_TRACING"] = "false"

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any, Literal

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task

from bench.disk import new_file
from bench.pairing import Effort, Subject, pair
from bench.probe import effort_of, emit, probe_parser
from bench.workload import DURABLE_SIZE, FUNCTIONS, Request, bare_gather, requests

Durability = Literal["sync", "async"]

TASKS = {name: task(function) for name, function in FUNCTIONS.items()}


def langgraph_tasks(saver: AsyncSqliteSaver, durability: Durability) -> Subject[Sequence[Request], list[Any]]:
    """Run the entrypoint once a batch, on a thread of its own."""

    @entrypoint(checkpointer=saver)
    async def gather(calls: Sequence[Request]) -> list[Any]:
        return await asyncio.gather(*[TASKS[name](**arguments) for _, name, arguments in calls])

    async def run(calls: Sequence[Request]) -> list[Any]:
        thread: Any = {"configurable": {"thread_id": uuid.uuid4().hex}}
        results: Any = await gather.ainvoke(calls, thread, durability=durability)
        return results

    calls = requests(DURABLE_SIZE)
    return Subject(calls=DURABLE_SIZE, prepare=lambda: calls, run=run, count=len)


async def measure(effort: Effort) -> dict[str, Any]:
    """One pairing for each way to be durable, each on a file of its own."""
    found = {}
    ways: dict[str, Durability] = {"SQLite, durability sync": "sync", "SQLite as it comes": "async"}
    for name, durability in ways.items():
        with new_file() as file:
            async with AsyncSqliteSaver.from_conn_string(str(file)) as saver:
                subject = langgraph_tasks(saver, durability)
                found[name] = (await pair(bare_gather(DURABLE_SIZE), subject, effort)).to_json()
    return found


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
