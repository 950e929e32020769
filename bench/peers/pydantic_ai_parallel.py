"""An agent of pydantic-ai whose one answer has 100 parallel calls. Owns the fake model and the subject; no probe."""

import itertools
import json
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from bench.pairing import Subject
from bench.workload import FUNCTIONS, PARALLEL_CALLS, TURN_ANSWER, requests

RUNS = itertools.count()


async def complete(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask for all calls, each time with new ids, and then answer."""
    if any(isinstance(message, ModelResponse) for message in messages):
        return ModelResponse(parts=[TextPart(TURN_ANSWER)])
    run = next(RUNS)
    parts = [
        ToolCallPart(tool_name=name, args=json.dumps(arguments), tool_call_id=f"{call_id}.{run}")
        for call_id, name, arguments in requests(PARALLEL_CALLS)
    ]
    return ModelResponse(parts=parts)


def succeeded(result: Any) -> int:
    """The calls whose result is that of the function."""
    parts = [part for message in result.all_messages() for part in message.parts]
    return sum(isinstance(part, ToolReturnPart) and isinstance(part.content, dict) for part in parts)


def agent_subject(agent: Any) -> Subject[str, Any]:
    """One run of an agent."""
    return Subject(calls=PARALLEL_CALLS, prepare=lambda: "go", run=agent.run, count=succeeded)


def own_tools() -> Subject[str, Any]:
    """The agent with its own tools, in memory."""
    return agent_subject(Agent(FunctionModel(complete), tools=[*FUNCTIONS.values()]))
