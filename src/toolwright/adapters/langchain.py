"""Toolwright inside LangChain and LangGraph: middleware for `create_agent`, a node for graphs, and their tools as ours.

Owns the two faces. The extra is `langchain`. What runs calls is imported when a face is made: a program has it by then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from toolwright.errors import MissingRequirement, ToolwrightError
from toolwright.extras import how_to_install, missing_libraries

if missing := missing_libraries("langchain"):
    raise MissingRequirement(
        f"toolwright.adapters.langchain needs libraries that are not installed ({', '.join(missing)}); "
        f"run: {how_to_install(['langchain'])}"
    )

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import get_runtime
from langgraph.types import Command

from toolwright.adapters.langchain_offer import OfferedTools, SessionTool, to_tool
from toolwright.adapters.langchain_tools import tools_from

if TYPE_CHECKING:
    from toolwright.blocking_types import BlockingRuntime, BlockingSession
    from toolwright.runtime.runtime import Runtime
    from toolwright.session.session import Session
    from toolwright.tools.definition import ToolDefinition

__all__ = ["ToolwrightMiddleware", "ToolwrightNode", "session_tools", "tools_from"]


class ToolwrightMiddleware(AgentMiddleware[Any, Any, Any]):
    """Middleware for `create_agent` whose tools are those of a session, run by the session.

    Calls of one answer are one batch. A call that was run before a crash has its recorded outcome, one that needs an
    approval is an interrupt, and cancelling the agent cancels its calls. Other tools of the agent stay with it.

    Args:
        session: the session; or the runtime, then the session of each thread is the one of its `thread_id`. With one of
            `Runtime.open_blocking`, `invoke` works anywhere.
    """

    def __init__(self, session: Session | BlockingSession | Runtime | BlockingRuntime) -> None:
        from toolwright.adapters.langgraph_calls import SessionCalls

        super().__init__()
        self._calls = calls = SessionCalls(session)
        self._offered = OfferedTools()
        self.tools = [] if calls.session is None else [self._offered.tool(each) for each in calls.session.definitions()]

    # --- what the model is offered

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Offer the model the tools that the session has now, deferred ones as stubs."""
        info = getattr(request.runtime, "execution_info", None)
        return handler(self._offer(request, self._calls.loop.run_blocking(lambda: self._calls.offered(info))))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """The same for an agent that is run by `ainvoke` or `astream`."""
        info = getattr(request.runtime, "execution_info", None)
        return await handler(self._offer(request, await self._calls.loop.run(lambda: self._calls.offered(info))))

    def _offer(self, request: ModelRequest[Any], definitions: Sequence[ToolDefinition]) -> ModelRequest[Any]:
        ours = [self._offered.tool(each) for each in definitions]
        # Where another middleware has chosen among our tools, only these are offered.
        kept = [each.name for each in request.tools if isinstance(each, SessionTool)]
        if kept and len(kept) < len(self.tools):
            ours = [each for each in ours if each.name in kept]
        return request.override(tools=[*(each for each in request.tools if not isinstance(each, SessionTool)), *ours])

    # --- calls

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Run a call in the session, together with the others of its answer."""
        if not _is_ours(request):
            return handler(request)
        return self._calls.run(self._calls.call(request))[0]

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """The same for an agent that is run by `ainvoke` or `astream`."""
        if not _is_ours(request):
            return await handler(request)
        return (await self._calls.arun(self._calls.call(request)))[0]


def _is_ours(request: ToolCallRequest) -> bool:
    """False for a tool that the agent has itself; a tool that nobody has is answered by the session."""
    return request.tool is None or isinstance(request.tool, SessionTool)


class ToolwrightNode(Runnable[Any, Any]):
    """A node for a graph, in place of `ToolNode`: runs the calls of the last answer as one batch of a session.

    Takes a state with messages, or the list of messages, and gives the results in the same form. All approvals of an
    answer are one interrupt, in the form of `HumanInTheLoopMiddleware`.

    Args:
        session: as for `ToolwrightMiddleware`.
        messages_key: the key of the messages in the state.
        name: the name of the node.
    """

    def __init__(
        self,
        session: Session | BlockingSession | Runtime | BlockingRuntime,
        *,
        messages_key: str = "messages",
        name: str = "tools",
    ) -> None:
        from toolwright.adapters.langgraph_calls import SessionCalls

        self.name = name
        self._messages_key = messages_key
        self._calls = SessionCalls(session)

    @property
    def tools(self) -> list[BaseTool]:
        """The tools of the session, for `model.bind_tools(node.tools)`.

        Raises:
            ToolwrightError: the node has a runtime, whose sessions may have different tools.
        """
        if self._calls.session is None:
            raise ToolwrightError(
                "The tools depend on the session of the thread; use session_tools(runtime.session(thread_id))"
            )
        return session_tools(self._calls.session)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:
        """Run the calls of the last answer, and block until each has its outcome."""
        task = self._calls.answer(input, self._messages_key, get_runtime().execution_info)
        return self._written(input, self._calls.run(task))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:
        """Run the calls of the last answer."""
        task = self._calls.answer(input, self._messages_key, get_runtime().execution_info)
        return self._written(input, await self._calls.arun(task))

    def _written(self, input: object, messages: list[ToolMessage]) -> Any:
        return messages if isinstance(input, list) else {self._messages_key: messages}


def session_tools(session: Session | BlockingSession) -> list[BaseTool]:
    """The tools of a session as a chat model is given them: `model.bind_tools(session_tools(session))`.

    They do not run themselves: their calls go to a `ToolwrightNode` or `ToolwrightMiddleware` of the session.
    """
    from toolwright.adapters.session_loop import session_of

    return [to_tool(each) for each in session_of(session).definitions()]
