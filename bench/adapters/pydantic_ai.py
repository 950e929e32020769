"""Probe: an agent of pydantic-ai whose answer has 100 parallel calls: toolwright's tools beside its own."""

import asyncio
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from bench.adapters.measure import compare
from bench.pairing import Subject
from bench.peers.pydantic_ai_parallel import agent_subject, complete, own_tools
from toolwright import Session
from toolwright.adapters.pydantic_ai import ToolwrightToolset


def our_tools(session: Session) -> Subject[str, Any]:
    """The agent with the tools of a session."""
    return agent_subject(Agent(FunctionModel(complete), toolsets=[ToolwrightToolset(session)]))


if __name__ == "__main__":
    asyncio.run(compare(own_tools, our_tools))
