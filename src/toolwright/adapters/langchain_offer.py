"""Our tools as a chat model of LangChain is offered them. Owns the form of a definition; runs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from langchain_core.tools import StructuredTool

from toolwright.errors import ToolwrightError

if TYPE_CHECKING:
    from toolwright.tools.definition import ToolDefinition


class SessionTool(StructuredTool):
    """A tool of a session, as a chat model is given it. It does not run itself: its calls go to the session."""


def to_tool(definition: ToolDefinition) -> SessionTool:
    """The definition as a tool that a chat model can be given."""
    from toolwright.tools.names import wire_name

    name = wire_name(definition.name)
    refuse = _refusing(name)
    schema = dict(definition.input_schema)
    schema.setdefault("properties", {})
    return SessionTool(
        name=name,
        description=definition.description or name,
        args_schema=schema,
        func=refuse,
        coroutine=_refusing_async(refuse),
    )


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(**arguments: object) -> NoReturn:
        raise ToolwrightError(
            f"Tool {name!r} was called outside of its session; "
            "give the agent ToolwrightMiddleware(session), or the graph ToolwrightNode(session)"
        )

    return refuse


def _refusing_async(refuse: Callable[..., NoReturn]) -> Callable[..., Any]:
    async def refuse_async(**arguments: object) -> NoReturn:
        refuse()

    return refuse_async


class OfferedTools:
    """Definitions as tools of LangChain, each made once."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[ToolDefinition, SessionTool]] = {}

    def tool(self, definition: ToolDefinition) -> SessionTool:
        """The tool of a definition."""
        known = self._made.get(definition.name)
        if known is None or (known[0] is not definition and known[0] != definition):
            known = self._made[definition.name] = definition, to_tool(definition)
        return known[1]
