"""Probe: a turn of openai-agents' Runner with a model that knows its answers."""

import os

# Before the import: tracing would be measured too, and would look for a server.
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import json
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, ToolCallOutputItem, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from bench.pairing import Subject
from bench.peers.contest import compete_in_turns
from bench.workload import FUNCTIONS, TURN_ANSWER, TURN_CALLS, TURN_QUESTION, TURN_STEPS, turn_requests


class KnownAnswers(Model):  # type: ignore[misc]
    """A model that gives one prepared list of calls after the other, and then text."""

    def __init__(self) -> None:
        self._steps = [
            [
                ResponseFunctionToolCall(
                    arguments=json.dumps(arguments), call_id=call_id, name=name, type="function_call"
                )
                for call_id, name, arguments in step
            ]
            for step in turn_requests()
        ]
        text = ResponseOutputText(annotations=[], text=TURN_ANSWER, type="output_text")
        self._end = ResponseOutputMessage(
            id="end", content=[text], role="assistant", status="completed", type="message"
        )

    async def get_response(self, system_instructions: Any, input: Any, *given: Any, **options: Any) -> ModelResponse:
        called = 0 if isinstance(input, str) else sum(item.get("type") == "function_call" for item in input)
        number = called // TURN_CALLS
        output: list[Any] = self._steps[number] if number < len(self._steps) else [self._end]
        return ModelResponse(output=[*output], usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **options: Any) -> Any:
        raise NotImplementedError("No stream is asked for.")


async def openai_agents_runner() -> Subject[str, Any]:
    """Run the agent once a turn."""
    tools: list[Any] = [function_tool(function) for function in FUNCTIONS.values()]
    agent = Agent(name="bench", model=KnownAnswers(), tools=tools)

    async def run(question: str) -> Any:
        return await Runner.run(agent, question, max_turns=TURN_STEPS + 1)

    def succeeded(result: Any) -> int:
        # A failed call gives a text for the model in place of the function's own value.
        ran = sum(isinstance(item, ToolCallOutputItem) and isinstance(item.output, dict) for item in result.new_items)
        return ran if result.final_output == TURN_ANSWER else 0

    return Subject(calls=TURN_STEPS * TURN_CALLS, prepare=lambda: TURN_QUESTION, run=run, count=succeeded)


if __name__ == "__main__":
    compete_in_turns(openai_agents_runner)
