"""An MCP server of toolwright's tools, on the low-level server of the official SDK. Owns its options and its handlers;
its transports are the SDK's, and `serve` runs it over stdio or HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import AESGCMRequestStateCodec, RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)

import toolwright
from toolwright.app import App
from toolwright.argument_checks import require_seconds
from toolwright.calls.policy import Policy
from toolwright.errors import ToolwrightError
from toolwright.mcp.sdk_internals import connection_of
from toolwright.mcp.server_calls import ServedCalls
from toolwright.mcp.server_request import TASKS, ClientRequest
from toolwright.mcp.server_resources import Prompt, Resource, ServedResources
from toolwright.mcp.server_sessions import ChooseSession, ServedSessions
from toolwright.mcp.server_tools import OfferedTools
from toolwright.mcp.server_waiting import OutcomeWaits
from toolwright.mcp.tasks import ServedTasks, TaskParams, UpdateTaskParams
from toolwright.runtime.runtime import Runtime
from toolwright.session.session import Session
from toolwright.stores.contracts.store import Store
from toolwright.tools.registry import ToolSource

_CHANGES: dict[str, Callable[[], ServerEvent]] = {
    "tools": ToolsListChanged,
    "prompts": PromptsListChanged,
    "resources": ResourcesListChanged,
}
STATE_SECONDS = 7 * 86_400.0
"""Seconds in which a client may come back with the answer to a question (`requestState`)."""


def server(
    target: App | Runtime | Session,
    *,
    store: str | Path | Store = ":memory:",
    session: str | ChooseSession | None = None,
    policy: Policy | None = None,
    name: str = "toolwright",
    version: str = toolwright.__version__,
    title: str | None = None,
    instructions: str | None = None,
    tools: Sequence[str] | None = None,
    automatic_tools: bool = False,
    only_as_tasks: Sequence[str] = (),
    prompts: Sequence[Prompt] = (),
    resources: Sequence[Resource] = (),
    files: bool = False,
    approvals: str = "client",
    wait: float = 50.0,
) -> ToolServer:
    """An MCP server of the tools of an app, a runtime or one session: the SDK's low-level `Server`, to run or mount.

    `await server.run(...)` serves one connection, `server.streamable_http_app()` is an ASGI app for many, and handlers
    can be added as to any server of the SDK.

    Args:
        target: an app, which is opened over `store` while the server runs; a runtime that is open; or a session of one.
        store: the store of an app, as for `App.open`.
        session: the id of the session for the calls of all clients, or a function that gives one for a `Client`. By
            default `per_principal`: one session for all clients that no token tells apart. See also `per_connection`.
        policy: the bounds of what clients may do: a call runs only where this policy and that of the session let it.
        name: the name of the server, for its clients; and `version`, `title`, `instructions`.
        tools: the names of the tools to offer, or patterns such as "git_*"; by default all. A client cannot call
            another.
        automatic_tools: whether to offer also the tools that capabilities bring by themselves, such as those to wait
            for background runs.
        only_as_tasks: names or patterns of background tools that are only run as tasks: a client without the extension
            for tasks is refused. By default it waits for their results.
        prompts: prompts that clients offer to their users.
        resources: data that clients can read.
        files: whether clients can read the files of their session, as resources at `session:///path`.
        approvals: "client" to let the person behind the client approve calls, where the client can show a form;
            "inbox" to leave that to the inbox alone.
        wait: seconds that a call waits for the answer of a person whom the client cannot ask. After that a call with an
            idempotency key stays open, and another is cancelled.

    Raises:
        ToolwrightError: an option is not usable.
    """
    if approvals not in ("client", "inbox"):
        raise ToolwrightError(f'approvals={approvals!r:.100} is not usable; use "client" or "inbox"')
    if require_seconds("wait", wait) < 0:
        raise ToolwrightError(f"wait={wait!r} is not usable; use seconds, 0 or more")
    sessions = ServedSessions(target, session, store)
    if isinstance(tools, str):
        raise ToolwrightError(f"tools={tools!r:.100} is one of them; give a list")
    offered = OfferedTools(only=tools, automatic=automatic_tools)
    by_client = approvals == "client"
    tasks = ServedTasks(sessions, policy=policy, by_client=by_client, required=tuple(only_as_tasks))
    waits = OutcomeWaits(by_client=by_client, seconds=wait)
    calls = ServedCalls(sessions, offered, tasks, waits, policy)
    made = ToolServer(
        sessions, offered, calls, tasks, name=name, version=version, title=title, instructions=instructions
    )
    ServedResources(sessions, prompts=prompts, resources=resources, files=files).add_to(made)
    return made


class ToolServer(Server[dict[str, Any]]):
    """The SDK's low-level server with the handlers of tools. `server` makes one."""

    def __init__(
        self,
        sessions: ServedSessions,
        tools: OfferedTools,
        calls: ServedCalls,
        tasks: ServedTasks,
        *,
        name: str,
        version: str,
        title: str | None,
        instructions: str | None,
    ) -> None:
        self._sessions = sessions
        self._tools = tools
        self._calls = calls
        self._bus = InMemorySubscriptionBus()
        self._connections: WeakSet[Connection] = WeakSet()
        self._state = _StateCodec()
        self._users = 0
        self._unsubscribe: Callable[[], None] = lambda: None
        self._telling: asyncio.Task[None] | None = None
        self._told: dict[tuple[Connection, str], asyncio.Task[None]] = {}
        """The clients that are being told of a change: one that does not read holds up no other."""
        self._told_again: set[tuple[Connection, str]] = set()
        super().__init__(
            name,
            version=version,
            title=title,
            instructions=instructions,
            lifespan=self._opened,
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.add_request_handler("tools/call", types.CallToolRequestParams, calls.call)
        self.add_request_handler("tasks/get", TaskParams, tasks.get)
        self.add_request_handler("tasks/update", UpdateTaskParams, tasks.update)
        self.add_request_handler("tasks/cancel", TaskParams, tasks.cancel)
        self.extensions[TASKS] = {}
        self.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _set_log_level)
        self.add_notification_handler("notifications/initialized", types.NotificationParams, self._initialized)
        security = RequestStateSecurity(codec=self._state, ttl=STATE_SECONDS)
        self.middleware.append(RequestStateBoundary(security, default_audience=name))

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """As the SDK's, with the news that the list of tools may change."""
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)

    def _tell_changed(self) -> None:
        """Tell the clients soon, once for all changes until then."""
        if self._telling is None or self._telling.done():
            self._telling = asyncio.ensure_future(self._send_changed())

    async def _send_changed(self) -> None:
        await asyncio.sleep(0)
        self._telling = None  # what changes from here on is told once more
        await self.tell_changed("tools")

    async def tell_changed(self, what: Literal["tools", "prompts", "resources"]) -> None:
        """Tell every client that a list has changed. Changes of the tools are told without this."""
        await self._bus.publish(_CHANGES[what]())
        for connection in list(self._connections):
            one = connection, f"notifications/{what}/list_changed"
            if one in self._told:
                self._told_again.add(one)
            else:
                self._told[one] = asyncio.ensure_future(self._notify(*one))

    async def _notify(self, connection: Connection, method: str) -> None:
        one = connection, method
        try:
            await connection.notify(method, None)
            while one in self._told_again:
                self._told_again.discard(one)
                await connection.notify(method, None)
        finally:
            self._told_again.discard(one)
            del self._told[one]

    @asynccontextmanager
    async def _opened(self, _: Server[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        runtime = await self._sessions.enter()
        self._users += 1
        if self._users == 1:
            loop, session = asyncio.get_running_loop(), self._sessions.any_session
            self._unsubscribe = _follow(
                runtime.tools if session is None else session.tools,
                lambda: loop.call_soon_threadsafe(self._tell_changed),
            )
        try:
            self._state.use(runtime.derive_key("mcp request state"))
            yield {}
        finally:
            self._users -= 1
            if self._users == 0:
                self._unsubscribe()
                for telling in self._told.values():
                    telling.cancel()
                await self._calls.close()
            await self._sessions.leave()

    async def _list_tools(
        self, context: ServerRequestContext[dict[str, Any]], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        request = ClientRequest(context)
        session = self._sessions.session_of(request)
        listed = self._tools.listing(self._sessions.runtime, session, request.revision)
        return types.ListToolsResult.model_validate({"tools": listed})

    def _input_schema(self, name: str) -> dict[str, Any] | None:
        tool = (self._sessions.any_session or self._sessions.runtime).tools.snapshot().get(name)
        return None if tool is None else tool.definition.input_schema

    async def _initialized(
        self, context: ServerRequestContext[dict[str, Any]], params: types.NotificationParams
    ) -> None:
        self._connections.add(connection_of(context))


def _follow(tools: ToolSource, changed: Callable[[], object]) -> Callable[[], None]:
    """Call a function when the tools of a source change; return a function that ends this."""
    on_change: Callable[[Callable[[], object]], Callable[[], None]] | None = getattr(tools, "on_change", None)
    return (lambda: None) if on_change is None else on_change(changed)


class _StateCodec:
    """Seals `requestState` with a key of the store, so that it is known after a restart."""

    def __init__(self) -> None:
        self._codec: AESGCMRequestStateCodec | None = None

    def use(self, key: bytes) -> None:
        """Seal with a key from now on."""
        self._codec = AESGCMRequestStateCodec([key])

    def seal(self, payload: bytes) -> str:
        """A token that only this server reads and makes."""
        assert self._codec is not None
        return self._codec.seal(payload)

    def unseal(self, token: str) -> bytes:
        """The payload of a token."""
        assert self._codec is not None
        return self._codec.unseal(token)


async def _set_log_level(
    context: ServerRequestContext[dict[str, Any]], params: types.SetLevelRequestParams
) -> types.EmptyResult:
    connection_of(context).state["log_level"] = params.level
    return types.EmptyResult()
