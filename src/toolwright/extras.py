"""The extras of the package. Owns the libraries of each, and the error for a missing one."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from toolwright.errors import MissingRequirement

EXTRAS: dict[str, tuple[str, ...]] = {
    "anthropic": ("anthropic",),
    "bash": ("bashkit",),
    "claude-agent": ("claude_agent_sdk", "mcp"),
    "cli": ("rich", "typer"),
    "files": ("re2",),
    "http": ("prometheus_client", "starlette", "uvicorn"),
    "langchain": ("langchain", "langgraph"),
    "mcp": ("mcp",),
    "openai": ("openai",),
    "openai-agents": ("agents",),
    "otel": ("opentelemetry",),
    "postgres": ("psycopg",),
    "pydantic-ai": ("pydantic_ai",),
    "search": ("bm25s",),
    "secrets": ("ahocorasick_rs", "cryptography"),
    "temporal": ("temporalio",),
    "web": ("httpcore", "httpx", "markdownify"),
    "worker": ("prometheus_client",),
}
"""The modules of each extra, by its name."""


def missing_libraries(extra: str) -> list[str]:
    """The modules of an extra that are not installed."""
    return [library for library in EXTRAS[extra] if importlib.util.find_spec(library) is None]


def how_to_install(extras: Iterable[str]) -> str:
    """The command that installs extras."""
    return f"pip install 'toolwright[{','.join(sorted(extras))}]'"


def require_extra(extra: str, what: str) -> None:
    """Refuse to go on without the libraries of an extra; `what` needs them.

    Raises:
        MissingRequirement: one is not installed.
    """
    if missing := missing_libraries(extra):
        raise MissingRequirement(
            f"{what} needs libraries that are not installed ({', '.join(missing)}); run: {how_to_install([extra])}"
        )
