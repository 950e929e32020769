"""Probe: a turn of LangGraph's prebuilt agent with a chat model that knows its answers; no checkpointer."""

import os

# Before the import: tracing would be measured too, and would look for a server.
os.environ["LANGSMITH_TRACING"] = "false"

import warnings
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent

from bench.pairing import Subject
from bench.peers.contest import compete_in_turns
from bench.workload import FUNCTIONS, TURN_ANSWER, TURN_CALLS, TURN_QUESTION, TURN_STEPS, turn_requests


class KnownAnswers(BaseChatModel):  # type: ignore[misc]
    """A chat model that gives one prepared list of calls after the other, and then text."""

    steps: list[list[dict[str, Any]]]

    @property
    def _llm_type(self) -> str:
        return "known-answers"

    def bind_tools(self, tools: Any, **options: Any) -> "KnownAnswers":
        return self

    def _generate(self, messages: list[BaseMessage], *given: Any, **options: Any) -> ChatResult:
        number = sum(isinstance(message, AIMessage) for message in messages)
        if number < len(self.steps):
            answer = AIMessage(content="", tool_calls=self.steps[number])
        else:
            answer = AIMessage(content=TURN_ANSWER)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    async def _agenerate(self, messages: list[BaseMessage], *given: Any, **options: Any) -> ChatResult:
        return self._generate(messages)


async def langgraph_agent() -> Subject[dict[str, Any], dict[str, Any]]:
    """Invoke the agent once a turn."""
    steps = [
        [{"id": id, "name": name, "args": arguments, "type": "tool_call"} for id, name, arguments in step]
        for step in turn_requests()
    ]
    with warnings.catch_warnings():
        # It asks for a package of another name, which has the same agent.
        warnings.simplefilter("ignore")
        agent = create_react_agent(KnownAnswers(steps=steps), [tool(function) for function in FUNCTIONS.values()])

    async def run(state: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await agent.ainvoke(state, {"recursion_limit": 100})
        return found

    def succeeded(state: dict[str, Any]) -> int:
        messages = state["messages"]
        ran = sum(isinstance(message, ToolMessage) and message.status == "success" for message in messages)
        return ran if messages[-1].content == TURN_ANSWER else 0

    question = {"messages": [("user", TURN_QUESTION)]}
    return Subject(calls=TURN_STEPS * TURN_CALLS, prepare=lambda: question, run=run, count=succeeded)


if __name__ == "__main__":
    compete_in_turns(langgraph_agent)
