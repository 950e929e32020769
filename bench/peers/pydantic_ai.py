"""Probe: pydantic-ai's ToolManager, which validates JSON arguments and calls the tool."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage

from bench.pairing import Subject
from bench.peers.contest import SubjectOf, compete
from bench.workload import FUNCTIONS, requests


async def pydantic_ai() -> SubjectOf:
    """Gather `ToolManager.handle_call` over the calls of a batch."""
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage(), prompt=None, messages=[], run_step=1)
    manager = await ToolManager(FunctionToolset([*FUNCTIONS.values()])).for_run_step(context)

    async def run(calls: Sequence[ToolCallPart]) -> list[Any]:
        return await asyncio.gather(*[manager.handle_call(call) for call in calls])

    def subject(count: int) -> Subject[Sequence[ToolCallPart], list[Any]]:
        calls = [
            ToolCallPart(tool_name=name, args=json.dumps(arguments), tool_call_id=call_id)
            for call_id, name, arguments in requests(count)
        ]
        return Subject(calls=count, prepare=lambda: calls, run=run, count=len)

    return subject


if __name__ == "__main__":
    compete(pydantic_ai)
