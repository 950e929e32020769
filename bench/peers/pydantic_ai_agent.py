"""Probe: a turn of pydantic-ai's Agent with its FunctionModel."""

import json
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from bench.pairing import Subject
from bench.peers.contest import compete_in_turns
from bench.workload import FUNCTIONS, TURN_ANSWER, TURN_CALLS, TURN_QUESTION, TURN_STEPS, turn_requests


async def pydantic_ai_agent() -> Subject[str, Any]:
    """Run the agent once a turn."""
    answers: list[list[ToolCallPart]] = [
        [
            ToolCallPart(tool_name=name, args=json.dumps(arguments), tool_call_id=call_id)
            for call_id, name, arguments in step
        ]
        for step in turn_requests()
    ]

    async def complete(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        number = sum(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse(parts=answers[number] if number < len(answers) else [TextPart(TURN_ANSWER)])

    agent = Agent(FunctionModel(complete), tools=[*FUNCTIONS.values()])

    def succeeded(result: Any) -> int:
        parts = [part for message in result.all_messages() for part in message.parts]
        ran = sum(isinstance(part, ToolReturnPart) and isinstance(part.content, dict) for part in parts)
        return ran if result.output == TURN_ANSWER else 0

    return Subject(calls=TURN_STEPS * TURN_CALLS, prepare=lambda: TURN_QUESTION, run=agent.run, count=succeeded)


if __name__ == "__main__":
    compete_in_turns(pydantic_ai_agent)
