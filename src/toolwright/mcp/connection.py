"""The connection of a runtime to one MCP server. Owns connecting, again and again if it must, and which tools of the
server are registered; does not own single calls.

One task enters and leaves the client of the SDK, as anyio demands; calls come from any task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import mcp_types
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import ToolsListChanged
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from toolwright.errors import RegistryError, ToolDefinitionError, ToolwrightError
from toolwright.log_fields import log_fields
from toolwright.mcp.client_calls import LiveServer, call_in_rounds
from toolwright.mcp.client_http import http_transport
from toolwright.mcp.client_input import CallInput, InputAnswers
from toolwright.mcp.client_oauth import authorisation
from toolwright.mcp.client_redaction import ServerSecrets
from toolwright.mcp.client_result import not_connected, read_result
from toolwright.mcp.client_settings import OAuth, ServerSettings
from toolwright.mcp.client_stdio import Ended, Launch, ServerExit, stdio_transport
from toolwright.mcp.client_variables import SESSION, Variables
from toolwright.mcp.log_limit import LogLimit
from toolwright.mcp.pins import changed, pin_of
from toolwright.mcp.tool_names import clean_line, clean_text, tool_names
from toolwright.mcp.tool_of_server import ServerTool, make_tool
from toolwright.tools.context import ToolContext
from toolwright.tools.outcome import ToolError
from toolwright.tools.remote_tools import RemoteHost, RemoteStatus
from toolwright.tools.tool import Tool

if TYPE_CHECKING:
    from mcp.client._transport import Transport

log = logging.getLogger("toolwright.mcp")

MOST_TOOLS = 1_000
"""How many tools of one server are taken."""
_MOST_PAGES = 100
_FIRST_DELAY = 0.5
"""Seconds before the second attempt to connect; each delay is twice the one before."""
_LONGEST_DELAY = 60.0
_PERSON = 600.0
"""Seconds that a person may take to authorise."""
_STEADY = 30.0
"""Seconds after which a connection counts as good, so that the next delay is the first one again."""
_LIST_EVERY = 1.0
"""Seconds between two readings of the list; each one that follows at once is put off twice as long."""
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
}
_LONGEST_LOG = 4_000
_PIN_KEY = "pins."


class Connection:
    """A server of an opened runtime: `OpenRemoteTools`."""

    def __init__(self, settings: ServerSettings, host: RemoteHost) -> None:
        self._settings = settings
        self._host = host
        self._secrets = ServerSecrets()
        self._log_limit = LogLimit(host.clock.monotonic)
        self._answers = InputAnswers(settings, self._secrets)
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()  # the first attempt succeeded or failed
        self._connected = asyncio.Event()
        self._wake = asyncio.Event()
        self._closing = False
        self._waiting: asyncio.Timeout | None = None  # of what the connection waits for, which closing ends
        self._stale = False
        self._live: LiveServer | None = None
        self._one = asyncio.Lock()
        self._state: Literal["connecting", "connected", "waiting", "closed"] = "connecting"
        self._error: str | None = None
        self._tools: dict[str, tuple[str, Tool]] = {}  # by our names, each with its pin
        self._pins: dict[str, str] = {}
        self._listed_pins: dict[str, str] = {}
        self._changed: set[str] = set()
        self._left_out: dict[str, str] = {}
        self._connections = 0

    # --- for the runtime

    def start(self) -> None:
        """Begin to connect."""
        self._task = asyncio.create_task(self._run(), name=f"mcp-{self._settings.name}")

    @property
    def status(self) -> RemoteStatus:
        """How it stands."""
        live = self._live
        return RemoteStatus(
            name=self._settings.name,
            state=self._state,
            error=self._error,
            protocol=None if live is None else live.client.protocol_version,
            tools=tuple(sorted(self._tools)),
            left_out=dict(self._left_out),
            changed=tuple(sorted(self._changed)),
            pins=dict(self._listed_pins),
            connected=self._connections,
        )

    async def ready(self) -> None:
        """Wait for the first attempt to connect, but no longer than connecting may take."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.connect_timeout):
                await self._tried.wait()

    async def close(self) -> None:
        """End the connection, and a process that was started for it."""
        self._closing = True
        self._wake.set()
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())
        if self._task is not None:
            await asyncio.wait([self._task])
        self._state = "closed"
        for name in list(self._tools):
            self._forget(name)

    # --- for its tools

    async def call(self, tool: ServerTool, arguments: dict[str, Any], ctx: ToolContext[Any]) -> object:
        """Call a tool of the server."""
        if not self._settings.one_at_a_time:
            return await self._call(tool, arguments, ctx)
        async with self._one:
            return await self._call(tool, arguments, ctx)

    async def _call(self, tool: ServerTool, arguments: dict[str, Any], ctx: ToolContext[Any]) -> object:
        used: LiveServer | None = None

        async def live(unreached: LiveServer | None) -> LiveServer:
            nonlocal used
            if unreached is not None:
                self._doubt(unreached)
            used = await self._usable(tool)
            return used

        call = CallInput(ctx)
        try:
            result = await call_in_rounds(
                live,
                tool.own_name,
                arguments,
                call,
                self._answers,
                repeatable=tool.repeatable,
                step_policy=tool.step_policy,
            )
        except ToolError as error:
            if used is not None and error.failure.category in ("unavailable", "interrupted"):
                # A call that came now would be cut off with the connection, and nobody could tell whether it ran.
                self._doubt(used)
            raise
        return read_result(result, tool.own_name, tool.check_output)

    async def _usable(self, tool: ServerTool) -> LiveServer:
        """The server, once it is connected."""
        live = self._live
        if live is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.connect_timeout):
                    await self._connected.wait()
            live = self._live
        if live is None:
            raise not_connected(self._settings.name, tool.own_name, self._error or "it does not answer")
        return live

    def _doubt(self, live: LiveServer) -> None:
        """Let calls wait until the server has answered again, or there is a new connection."""
        if self._live is live:
            self._live = None
            self._connected.clear()
            self._look_again()

    def _look_again(self) -> None:
        """Read the list soon: if the server is gone, that finds out."""
        self._stale = True
        self._wake.set()

    # --- the task

    async def _run(self) -> None:
        delay = _FIRST_DELAY
        while not self._closing:
            began = self._host.clock.monotonic()
            try:
                await self._stay_connected()
            except Exception as error:  # the edge to another program: whatever it does, it is tried again
                self._failed(error)
            finally:
                self._live = None
                self._connected.clear()
                self._tried.set()
            if self._closing:
                return
            if self._host.clock.monotonic() - began >= _STEADY:
                delay = _FIRST_DELAY
            self._state = "waiting"
            await self._pause(delay * random.uniform(0.8, 1.2))
            delay = min(delay * 2, _LONGEST_DELAY)

    async def _stay_connected(self) -> None:
        """Connect, and stay so until the connection is lost or closed."""
        exit = ServerExit()
        try:
            await self._connect_and_follow(exit)
        except Exception as error:
            if (told := exit.told()) is None:
                raise
            raise ToolwrightError(told) from error  # to the SDK, a process that ended is a connection that closed

    async def _connect_and_follow(self, exit: ServerExit) -> None:
        self._state = "connecting"
        settings = self._settings
        lost: list[str] = []
        live: LiveServer | None = None

        def ended(reason: str) -> None:
            lost.append(reason)
            if live is not None:
                live.ended = live.ended or reason
            # At once: a call that comes now is not sent, and waits for the next connection.
            self._live = None
            self._connected.clear()
            self._wake.set()

        async with AsyncExitStack() as stack:
            try:
                async with self._no_longer_than(self._connect_seconds()):
                    transport = await self._transport(ended, exit)
                    client = await stack.enter_async_context(self._client(transport))
                    self._require_protocol(client)
                    live = LiveServer(settings, client, self._secrets, self._host.clock, self._list_now)
                    listed = await self._read_list(client)
            except TimeoutError:
                if self._closing:
                    return
                raise ToolwrightError(f"it did not answer within {self._connect_seconds():g} seconds") from None
            await self._take(listed, live)
            if lost:
                raise ToolwrightError(lost[0])
            self._live = live
            self._connections += 1
            self._state, self._error = "connected", None
            log.info(
                "The MCP server %r is connected (%s), with %d tools",
                settings.name,
                client.protocol_version,
                len(self._tools),
                extra=log_fields("mcp.connected"),
            )
            self._connected.set()
            self._tried.set()
            async with self._following(live):
                await self._follow_list(live, lost)
        if lost and not self._closing:
            raise ToolwrightError(lost[0])

    async def _follow_list(self, live: LiveServer, lost: list[str]) -> None:
        """Read the list of tools whenever it may have changed, at a limited rate, until the connection ends."""
        pause = _LIST_EVERY
        last = self._host.clock.monotonic()
        while not self._closing and not lost:
            await self._wake.wait()
            self._wake.clear()
            if self._closing or lost or not self._stale:
                continue
            now = self._host.clock.monotonic()
            pause = min(pause * 2, _LONGEST_DELAY) if now - last < 2 * pause else _LIST_EVERY
            if last + pause > now and self._connections:
                await self._pause(last + pause - now, unless=lost)
                if self._closing or lost:
                    continue
            self._stale = False
            last = self._host.clock.monotonic()
            try:
                async with self._no_longer_than(self._settings.connect_timeout):
                    await self._take(await self._read_list(live.client), live)
            except TimeoutError:
                if self._closing:
                    return
                raise
            if not lost:
                self._live = live
                self._connected.set()

    @asynccontextmanager
    async def _no_longer_than(self, seconds: float) -> AsyncIterator[None]:
        """Wait for the server so long, or until the connection is closed."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                self._waiting = limit
                yield
        finally:
            self._waiting = None

    async def _list_now(self) -> None:
        live = self._live
        if live is not None:
            await self._take(await self._read_list(live.client), live)

    @asynccontextmanager
    async def _following(self, live: LiveServer) -> AsyncIterator[None]:
        """Hear of changes of the list for as long as the block runs, where the server tells of them by a stream."""
        if not live.modern:
            yield
            return
        listening = asyncio.create_task(self._listen(live.client), name=f"mcp-{self._settings.name}-listen")
        try:
            yield
        finally:
            listening.cancel()
            await asyncio.wait([listening])

    async def _listen(self, client: Client) -> None:
        try:
            async with client.listen(tools_list_changed=True) as subscription:
                async for event in subscription:
                    if isinstance(event, ToolsListChanged):
                        self._look_again()
        except (MCPError, RuntimeError, TimeoutError) as error:
            # Many servers have no such stream; their lists do not change, or are read when a call fails.
            log.debug(
                "The MCP server %r tells of no changes: %s",
                self._settings.name,
                self._secrets.text(str(error)),
                extra=log_fields("mcp.no_changes"),
            )

    async def _pause(self, seconds: float, unless: list[str] | None = None) -> None:
        """Wait, unless the connection is closed or lost meanwhile."""
        sleeping = asyncio.ensure_future(self._host.clock.sleep(seconds))
        try:
            while not sleeping.done() and not self._closing and not unless:
                waking = asyncio.ensure_future(self._wake.wait())
                try:
                    await asyncio.wait([sleeping, waking], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waking.cancel()
                self._wake.clear()
        finally:
            sleeping.cancel()

    def _failed(self, error: BaseException) -> None:
        while isinstance(error, BaseExceptionGroup) and error.exceptions:
            error = error.exceptions[0]
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            error = ToolwrightError(f"it answered with something that is no {error.title}: {place}: {first['msg']}")
        said = clean_line(self._secrets.text(str(error) or type(error).__name__), 1_000)
        if said != self._error:  # once, not at each attempt
            log.warning(
                "The MCP server %r is not connected: %s",
                self._settings.name,
                said,
                extra=log_fields("mcp.not_connected"),
            )
        self._error = said

    # --- connecting

    async def _transport(self, ended: Ended, exit: ServerExit) -> Transport:
        settings = self._settings
        variables = Variables(settings.name, self._host, self._secrets)
        if settings.command is not None:
            launch = Launch(
                server=settings.name,
                command=await variables.fill(settings.command),
                args=[await variables.fill(item) for item in settings.args],
                env=await variables.fill_all(settings.env),
                cwd=settings.cwd,
                largest_message=settings.largest_message,
                exit_grace=settings.exit_grace,
            )
            return stdio_transport(launch, ended, exit, self._secrets.text)
        assert settings.url is not None
        url = await variables.fill(settings.url)
        headers = await variables.fill_all(settings.headers)
        auth = await authorisation(settings, url, variables, self._host, self._secrets)
        if isinstance(auth, str):
            headers["Authorization"] = f"Bearer {auth}"
            auth = None
        return http_transport(url, headers, auth, settings.largest_message)

    def _client(self, transport: Transport) -> Client:
        settings = self._settings
        return Client(
            transport,
            cache=None,
            mode="legacy" if settings.protocol == "2025-11-25" else "auto",
            client_info=mcp_types.Implementation(name="toolwright", version=version("toolwright")),
            message_handler=self._heard,
            logging_callback=self._log,
            log_level="info",
            elicitation_callback=self._elicit if settings.elicitation else None,
            sampling_callback=self._sample if settings.sampling is not None else None,
            list_roots_callback=self._roots if settings.roots else None,
        )

    def _connect_seconds(self) -> float:
        """How long connecting may take: a person who is sent to a page takes longer than a server."""
        auth, seconds = self._settings.auth, self._settings.connect_timeout
        return max(seconds, _PERSON) if isinstance(auth, OAuth) and auth.redirect is not None else seconds

    def _require_protocol(self, client: Client) -> None:
        wanted, agreed = self._settings.protocol, client.protocol_version
        if wanted == "2026-07-28" and agreed != wanted:
            raise ToolwrightError(f"it speaks the protocol of {agreed}, and protocol={wanted!r} is demanded")

    # --- what the server says by itself

    async def _heard(self, message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._look_again()

    async def _log(self, params: mcp_types.LoggingMessageNotificationParams) -> None:
        data = params.data if isinstance(params.data, str) else repr(params.data)
        text = clean_text(self._secrets.text(data[: 4 * _LONGEST_LOG]), _LONGEST_LOG)
        before = self._log_limit.take()
        if before is None:
            return
        level, more = _LEVELS.get(params.level, logging.ERROR), f" ({before} before it are left out)" if before else ""
        line = clean_line(text, _LONGEST_LOG)
        log.log(level, "MCP server %r: %s%s", self._settings.name, line, more, extra=log_fields("mcp.log"))
        call = None if self._live is None else self._live.asking_call()
        if call is not None:
            call.ctx.output("log", f"{text}\n")

    async def _elicit(
        self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        call = self._asking("an answer")
        return call if isinstance(call, mcp_types.ErrorData) else await self._answers.elicit(call, params)

    async def _sample(
        self, context: ClientRequestContext, params: mcp_types.CreateMessageRequestParams
    ) -> mcp_types.CreateMessageResult | mcp_types.ErrorData:
        call = self._asking("the model")
        return call if isinstance(call, mcp_types.ErrorData) else await self._answers.sample(call, params)

    async def _roots(self, context: ClientRequestContext) -> mcp_types.ListRootsResult:
        return self._answers.roots()

    def _asking(self, what: str) -> CallInput | mcp_types.ErrorData:
        call = None if self._live is None else self._live.asking_call()
        if call is not None:
            return call
        log.warning(
            "The MCP server %r asks for %s while no call, or more than one, is on its way; it is refused, for it "
            "cannot be known which one asks. Give the server one_at_a_time=True",
            self._settings.name,
            what,
            extra=log_fields("mcp.question_refused"),
        )
        return mcp_types.ErrorData(
            code=mcp_types.INVALID_REQUEST, message="It is not known which call asks; call one tool at a time"
        )

    # --- the tools

    async def _read_list(self, client: Client) -> list[mcp_types.Tool]:
        if client.server_capabilities.tools is None:
            return []
        tools: list[mcp_types.Tool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            params = None if cursor is None else mcp_types.PaginatedRequestParams(cursor=cursor)
            page = await client.session.list_tools(params=params)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None or len(tools) > MOST_TOOLS:
                return tools
        log.warning(
            "The MCP server %r lists its tools on more than %d pages; the rest is left out",
            self._settings.name,
            _MOST_PAGES,
            extra=log_fields("mcp.list_too_long"),
        )
        return tools

    async def _take(self, listed: list[mcp_types.Tool], live: LiveServer) -> None:
        """Make the tools of the registry those of the list."""
        settings = self._settings
        left_out: dict[str, str] = {}
        wanted: dict[str, mcp_types.Tool] = {}
        too_many: list[str] = []
        for tool in listed:
            if settings.only is not None and tool.name not in settings.only:
                continue
            if tool.name in wanted:
                left_out[tool.name] = "the server lists it twice, and the first one is taken"
            elif len(wanted) >= MOST_TOOLS:
                too_many.append(tool.name)
            else:
                wanted[tool.name] = tool
        if too_many:  # told once, however many there are
            others = f", and so are {len(too_many) - 1} others" if len(too_many) > 1 else ""
            left_out[too_many[0]] = f"the server has more than {MOST_TOOLS} tools{others}"
        for own in sorted({*settings.tools, *(settings.only or ())} - {tool.name for tool in listed}):
            left_out[own] = "the server has no such tool, and tools= or only= names it; check its name"
        pins = {name: pin_of(tool) for name, tool in wanted.items()}
        await self._compare(pins)
        self._listed_pins = pins
        names = tool_names(settings.name, wanted)
        kept: set[str] = set()
        for own, tool in wanted.items():
            name = names[own]
            why = self._add(tool, name, pins[own], live)
            if why is None:
                kept.add(name)
            else:
                left_out[own] = why
        for name in self._tools.keys() - kept:
            self._forget(name)
        for own, why in left_out.items():
            if self._left_out.get(own) != why:
                log.warning(
                    "The tool %r of the MCP server %r is left out: %s",
                    clean_line(own),
                    settings.name,
                    why,
                    extra=log_fields("mcp.tool_left_out"),
                )
        self._left_out = left_out

    def _add(self, listed: mcp_types.Tool, name: str, pin: str, live: LiveServer) -> str | None:
        """Register a tool, unless it is there as it is; return why it cannot be."""
        settings = self._settings
        if settings.pins is not None and settings.pins.get(listed.name) != pin:
            state = "is not pinned" if listed.name not in settings.pins else "is not what it was when it was pinned"
            return f"it {state}; look at it, and pin it with: toolwright mcp test {settings.name} --pin"
        asks = settings.elicitation or settings.sampling is not None or bool(settings.roots)
        # A server of 2025 that asks keeps its call open, and ends with it: only a result that asks can be continued.
        in_steps = self._host.durable and live.modern and asks
        key = f"{pin}{in_steps}"
        mine = self._tools.get(name)
        there = self._host.registry.snapshot().get(name)
        if mine is not None and mine[0] == key and there is mine[1]:
            return None
        if there is not None and (mine is None or there is not mine[1]):
            return f"another tool is called {name!r}"
        try:
            made = make_tool(listed, name, settings, self._secrets, self.call, in_steps=in_steps)
            self._host.registry.register(made, replace=mine is not None)
        except (ToolDefinitionError, RegistryError) as error:
            return clean_line(str(error), 1_000)
        self._tools[name] = key, made
        return None

    def _forget(self, name: str) -> None:
        _, tool = self._tools.pop(name)
        if self._host.registry.snapshot().get(name) is tool:
            self._host.registry.unregister(name)

    async def _compare(self, pins: dict[str, str]) -> None:
        """Tell the owner of tools that are not what they were, in this process or the last one with this store."""
        settings, host = self._settings, self._host
        before = dict(self._pins)
        if not before and host.durable:
            stored = await host.key_values(SESSION).get(f"{_PIN_KEY}{settings.name}")
            if isinstance(stored, dict):
                before = {str(name): str(pin) for name, pin in stored.items()}
        different = changed(before, pins)
        for name in different:
            log.warning(
                "The tool %r of the MCP server %r has changed: its description, schema or hints are not what they were",
                clean_line(name),
                settings.name,
                extra=log_fields("mcp.tool_changed"),
            )
        self._changed.update(different)
        if host.durable and {**before, **pins} != before:
            await host.key_values(SESSION).set(f"{_PIN_KEY}{settings.name}", {**before, **pins})
        self._pins = {**before, **pins}
