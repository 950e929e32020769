"""The peers toolwright is measured beside: what to install for each, and the probe that measures it.

Each peer lives in an environment of its own, so that no peer's dependencies bend another's. Versions are
pinned: figures are only comparable while everyone stands still.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """A library that runs tools: its environment is named `key`, its probe is `bench.peers.<key>`."""

    key: str
    title: str
    requirements: tuple[str, ...]

    @property
    def probe(self) -> str:
        return f"bench.peers.{self.key}"


# The newest langchain-core whose own requirements could all be had when this was pinned.
_LANGGRAPH = ("langgraph==1.2.20", "langgraph-prebuilt==1.1.1", "langchain-core==1.7.2")

PEERS = (
    Peer("pydantic_ai", "pydantic-ai ToolManager", ("pydantic-ai-slim==2.66.0",)),
    Peer(
        "langgraph",
        "LangGraph ToolNode",
        _LANGGRAPH,
    ),
    Peer("openai_agents", "openai-agents function tool", ("openai-agents==0.24.0",)),
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
