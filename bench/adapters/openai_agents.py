"""Probe: an agent of the OpenAI Agents SDK whose answer has 100 parallel calls: its own tools, and toolwright's."""

import os

# Before the import: tracing would be measured too, and would look for a server.
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import asyncio
import itertools
import json
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from bench.adapters.measure import compare
from bench.pairing import Subject
from bench.workload import FUNCTIONS, PARALLEL_CALLS, TURN_ANSWER, requests
from toolwright import Session
from toolwright.adapters.openai_agents import function_tools

RUNS = itertools.count()


class KnownAnswers(Model):
    """A model that asks for all calls, and then answers."""

    async def get_response(self, system_instructions: Any, input: Any, *given: Any, **options: Any) -> ModelResponse:
        """One answer."""
        if not isinstance(input, str) and any(item.get("type") == "function_call" for item in input):
            text = ResponseOutputText(annotations=[], text=TURN_ANSWER, type="output_text")
            end = ResponseOutputMessage(id="end", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[end], usage=Usage(), response_id=None)
        run = next(RUNS)
        calls: list[Any] = [
            ResponseFunctionToolCall(
                arguments=json.dumps(arguments), call_id=f"{call_id}.{run}", name=name, type="function_call"
            )
            for call_id, name, arguments in requests(PARALLEL_CALLS)
        ]
        return ModelResponse(output=calls, usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **options: Any) -> Any:
        """Not used."""
        raise NotImplementedError("No stream is asked for.")


def succeeded(result: Any) -> int:
    """The calls whose result is that of the function."""
    outputs = [item["output"] for item in result.to_input_list() if item.get("type") == "function_call_output"]
    return sum("echo" in output or "sum" in output for output in outputs)


def subject_of(tools: list[Any]) -> Subject[str, Any]:
    """One run of an agent with these tools."""
    agent = Agent(name="bench", model=KnownAnswers(), tools=tools)

    async def run(question: str) -> Any:
        return await Runner.run(agent, question)

    return Subject(calls=PARALLEL_CALLS, prepare=lambda: "go", run=run, count=succeeded)


def own_tools() -> Subject[str, Any]:
    """The agent with its own tools."""
    return subject_of([function_tool(function) for function in FUNCTIONS.values()])


def our_tools(session: Session) -> Subject[str, Any]:
    """The agent with the tools of a session."""
    return subject_of([*function_tools(session)])


if __name__ == "__main__":
    asyncio.run(compare(own_tools, our_tools))
