"""An MCP server whose tools are tools of an app. Owns how it is written down; `connection.py` connects to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from toolwright.app_options import require_known
from toolwright.errors import MissingRequirement, ToolwrightError
from toolwright.extras import how_to_install, missing_libraries
from toolwright.mcp.client_settings import OAuth, ServerOptions, ServerSettings
from toolwright.tools.remote_tools import RemoteHost

if TYPE_CHECKING:
    import httpx2

    from toolwright.mcp.connection import Connection

_OPTIONS = frozenset(ServerOptions.__annotations__)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer(ServerSettings):
    """An MCP server, among the tools of an app: `App(tools=[McpServer.stdio("git", "uvx", ["mcp-server-git"])])`.

    The runtime connects to it when it is opened, and its tools are called `server__tool`. A server that cannot be
    reached does not prevent the opening: its tools come when it does. `${NAME}` in a command, its arguments and
    variables, a URL, headers or a token stands for a variable of the environment, or a secret of the session "mcp".
    """

    @classmethod
    def stdio(
        cls,
        name: str,
        command: str,
        args: Iterable[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        **options: Unpack[ServerOptions],
    ) -> McpServer:
        """A server that is a program of this machine, which is started and ended with the runtime.

        Its environment has only PATH, HOME, and the variables of `env`. It runs in a process group of its own, is
        started again when it ends, and is ended with everything it started.

        Raises:
            ToolwrightError: a setting is not usable.
            MissingRequirement: the extra `mcp` is not installed.
        """
        if isinstance(args, str):
            raise ToolwrightError(
                f"The MCP server {name!r} has args={args!r:.200}, which is one text; use a list of texts"
            )
        return cls._made(name, options, command=command, args=tuple(args), env=dict(env or {}), cwd=cwd)

    @classmethod
    def http(
        cls,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: str | OAuth | httpx2.Auth | None = None,
        **options: Unpack[ServerOptions],
    ) -> McpServer:
        """A server over streamable HTTP.

        Args:
            name: its name among our servers.
            url: its address, such as "https://example.com/mcp".
            headers: headers of every request.
            auth: a bearer token, `OAuth(...)`, or another authorisation of httpx2.
            options: see `ServerOptions`.

        Raises:
            ToolwrightError: a setting is not usable.
            MissingRequirement: the extra `mcp` is not installed.
        """
        return cls._made(name, options, url=url, headers=dict(headers or {}), auth=auth)

    @classmethod
    def from_file(cls, path: str | Path, **options: Unpack[ServerOptions]) -> list[McpServer]:
        """The servers of an `mcpServers` file, as other programs have it: `*McpServer.from_file("mcp.json")`.

        Options are those of each server, where the file has none under "toolwright".

        Raises:
            ToolwrightError: the file cannot be read, or a server in it is not usable.
        """
        from toolwright.mcp.servers_file import ServersFile, is_disabled

        servers = ServersFile.read(path).servers
        return [cls.from_entry(name, entry, **options) for name, entry in servers.items() if not is_disabled(entry)]

    @classmethod
    def from_entry(cls, name: str, entry: Mapping[str, Any], **options: Unpack[ServerOptions]) -> McpServer:
        """A server of an `mcpServers` object.

        Raises:
            ToolwrightError: it is not usable.
        """
        from toolwright.mcp.servers_file import read_entry

        settings, own = read_entry(name, entry)
        return cls._made(name, {**options, **own}, **settings)

    def open_tools(self, host: RemoteHost) -> Connection:
        """For the runtime: begin to connect."""
        from toolwright.mcp.connection import Connection

        connection = Connection(self, host)
        connection.start()
        return connection

    @classmethod
    def _made(cls, name: str, options: ServerOptions, **settings: Any) -> McpServer:
        require_known("McpServer", options, _OPTIONS)
        if missing_libraries("mcp"):
            raise MissingRequirement(
                f"The MCP server {name!r} needs a library that is not installed ('mcp'); run: {how_to_install(['mcp'])}"
            )
        given: dict[str, Any] = dict(options)
        if given.get("only") is not None:
            given["only"] = frozenset(_texts(name, "only", given["only"]))
        if "roots" in given:
            given["roots"] = tuple(_texts(name, "roots", given["roots"]))
        return cls(name=name, **settings, **given)


def _texts(server: str, option: str, given: object) -> list[str]:
    """The texts of an option. One text is no list: each of its letters would be taken for one."""
    found = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [None]
    if not all(isinstance(each, str) for each in found):
        raise ToolwrightError(f"The MCP server {server!r} has {option}={given!r:.200}; use a list of texts")
    return cast("list[str]", found)
