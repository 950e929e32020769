"""The peers toolwright is measured beside: what to install for each, and the probe that measures it.

Each peer lives in an environment of its own, so that no peer's dependencies bend another's. Versions are
pinned: figures are only comparable while everyone stands still.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """A library that runs tools: its probe is `bench.peers.<key>`, and its environment has this name too, unless it
    shares the `environment` of another one with the same requirements."""

    key: str
    title: str
    requirements: tuple[str, ...]
    shares: str = ""

    @property
    def environment(self) -> str:
        return self.shares or self.key

    @property
    def probe(self) -> str:
        return f"bench.peers.{self.key}"


_PYDANTIC_AI = ("pydantic-ai-slim==2.66.0",)
_OPENAI_AGENTS = ("openai-agents==0.24.0",)
# The newest langchain-core whose own requirements could all be had when this was pinned.
_LANGGRAPH = ("langgraph==1.2.20", "langgraph-prebuilt==1.1.1", "langchain-core==1.7.2")

PEERS = (
    Peer("pydantic_ai", "pydantic-ai ToolManager", _PYDANTIC_AI),
    Peer(
        "langgraph",
        "LangGraph ToolNode",
        _LANGGRAPH,
    ),
    Peer("openai_agents", "openai-agents function tool", _OPENAI_AGENTS),
    Peer("mcp", "MCP SDK server call", ("mcp==2.3.0",)),
)

DURABLE_PEERS = (
    Peer("dbos", "DBOS", ("dbos==3.3.0",)),
    Peer(
        "langgraph_tasks",
        "LangGraph tasks",
        (*_LANGGRAPH, "langgraph-checkpoint-sqlite==3.1.2"),
    ),
)
"""Those that keep what their steps gave, in a file."""

NOT_DURABLE = PEERS[0]
"""The one whose calls in memory should still cost more than durable ones here."""

TURN_PEERS = (
    Peer("pydantic_ai_agent", "pydantic-ai Agent", _PYDANTIC_AI, shares="pydantic_ai"),
    Peer("langgraph_agent", "LangGraph agent", _LANGGRAPH, shares="langgraph"),
    Peer("openai_agents_runner", "openai-agents Runner", _OPENAI_AGENTS, shares="openai_agents"),
)
"""Those that have a loop of model calls and tools."""

PYDANTIC_AI_DBOS = Peer("pydantic_ai_dbos", "pydantic-ai with DBOS", (*_PYDANTIC_AI, "dbos==3.3.0"))
"""An agent whose tools are durable steps of DBOS."""
