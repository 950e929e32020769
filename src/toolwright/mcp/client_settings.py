"""The settings of an MCP server that tools are taken from. Owns their names, their types and refusing wrong ones; does
not own connecting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from toolwright.errors import ToolwrightError
from toolwright.mcp.tool_names import require_server_name
from toolwright.tools.options import ToolOptions

if TYPE_CHECKING:
    import httpx2

LARGEST_MESSAGE = 16 * 1024 * 1024
"""Bytes of one message of a server, unless it is allowed more."""
_URL = re.compile(r"https?://\S+|\$\{\S+", re.IGNORECASE)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How much a server may ask of the session's model, in each call of one of its tools."""

    requests: int = 5
    """How often it may ask."""
    max_tokens: int = 4_000
    """How many tokens each answer may have; a server that asks for more gets as many."""

    def __post_init__(self) -> None:
        for name in ("requests", "max_tokens"):
            value: Any = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ToolwrightError(f"Sampling {name}={value!r} is not usable; use a whole number of at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """Authorisation of a server by OAuth, through the provider of the SDK. Tokens are stored among the secrets of the
    session "mcp".

    With `client_id` and `client_secret` alone, the client is authorised by its credentials, and nobody is asked.
    Otherwise a person is sent to a page: `redirect` gets its URL, and `callback` returns the URL that the person was
    sent back to.
    """

    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None
    """The address of the authorisation server that the client's credentials are for; they are sent to no other."""
    scope: str | None = None
    client_name: str = "toolwright"
    client_metadata_url: str | None = None
    """The URL of the client's own description, for servers that register nobody."""
    redirect_uri: str = "http://127.0.0.1:33418/callback"
    redirect: Any = None
    """An async function of the URL that a person opens."""
    callback: Any = None
    """An async function that returns the URL the person came back to."""


class ServerOptions(TypedDict, total=False):
    """The options of `McpServer.stdio` and `McpServer.http`."""

    trusted: bool
    """Whether the server's own statements about its tools are believed: which of them change nothing, and which may be
    repeated. By default they are not, and no call is sent twice."""
    only: Iterable[str]
    """The names of the tools that are taken, as the server has them; all by default."""
    tools: Mapping[str, ToolOptions]
    """Options of `@tool` for single tools, by the server's names: the owner's word, which wins over the server's."""
    pins: Mapping[str, str]
    """Hashes of tools, as `toolwright mcp test --pin` writes them: a tool that is not exactly as it was pinned is left
    out."""
    protocol: Literal["auto", "2025-11-25", "2026-07-28"]
    """The revision of the protocol; by default the newest that both sides know."""
    timeout: float | None
    """Seconds for each call; by default those of the policy."""
    connect_timeout: float
    """Seconds for connecting, for opening the app without the server, and for a call that waits for it; 10 by
    default."""
    elicitation: bool
    """Whether the server may ask questions, which a person answers in the inbox; True by default."""
    one_at_a_time: bool
    """Whether calls of the server run one after the other. A server of the protocol of 2025 does not say which call a
    question belongs to: one that asks during several calls needs this."""
    sampling: Sampling | None
    """How much the server may ask of the session's model; by default nothing."""
    roots: Sequence[str]
    """Directories, as `file://` URLs, that the server is told of when it asks."""
    largest_message: int
    """Bytes of one message of the server; 16 MiB by default."""
    exit_grace: float
    """Seconds that a process may take to end by itself, and again after SIGTERM; 2 by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of one server, checked. `McpServer` makes and explains them."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | Path | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: str | OAuth | httpx2.Auth | None = field(default=None, repr=False)
    trusted: bool = False
    only: frozenset[str] | None = None
    tools: Mapping[str, ToolOptions] = field(default_factory=dict)
    pins: Mapping[str, str] | None = None
    protocol: Literal["auto", "2025-11-25", "2026-07-28"] = "auto"
    timeout: float | None = None
    connect_timeout: float = 10.0
    elicitation: bool = True
    one_at_a_time: bool = False
    sampling: Sampling | None = None
    roots: tuple[str, ...] = ()
    largest_message: int = LARGEST_MESSAGE
    exit_grace: float = 2.0

    def __post_init__(self) -> None:
        require_server_name(self.name)
        if (self.command is None) is (self.url is None):
            raise self._wrong("command and url", (self.command, self.url), "one of the two")
        if self.command is not None and (not isinstance(self.command, str) or not self.command):
            raise self._wrong("command", self.command, "the name or path of a program")
        if self.url is not None and (not isinstance(self.url, str) or not _URL.fullmatch(self.url)):
            raise self._wrong("url", self.url, "an http or https URL")
        if self.url is not None and "@" in self.url.partition("://")[2].partition("/")[0]:
            # Not the URL, which may have a password.
            raise ToolwrightError(
                f"The MCP server {self.name!r} has a user or password in its url, which logs would show; give them by "
                "auth= or headers="
            )
        for option in ("env", "headers"):
            given: Any = getattr(self, option)
            if not isinstance(given, Mapping) or not all(
                isinstance(item, str) for pair in given.items() for item in pair
            ):
                # Not the values, which may be secrets.
                raise ToolwrightError(
                    f"The MCP server {self.name!r} has {option} that are not texts; use a dict of texts"
                )
        for header, value in self.headers.items():
            if not _HEADER.fullmatch(header) or not _HEADER_VALUE.fullmatch(value):
                raise ToolwrightError(
                    f"The MCP server {self.name!r} has the header {header!r:.100}, whose name or value cannot be sent; "
                    "use printable characters in one line"
                )
        if not all(isinstance(item, str) for item in self.args):
            raise self._wrong("args", self.args, "a list of texts")
        if self.cwd is not None and not isinstance(self.cwd, (str, Path)):
            raise self._wrong("cwd", self.cwd, "the path of a directory")
        if not isinstance(self.tools, Mapping) or not all(isinstance(each, Mapping) for each in self.tools.values()):
            raise self._wrong("tools", self.tools, "a dict of options by the names of tools")
        if self.pins is not None and not isinstance(self.pins, Mapping):
            raise self._wrong("pins", self.pins, "a dict of hashes by the names of tools")
        for option in ("trusted", "elicitation", "one_at_a_time"):
            if not isinstance(getattr(self, option), bool):
                raise self._wrong(option, getattr(self, option), "True or False")
        if self.protocol not in ("auto", "2025-11-25", "2026-07-28"):
            raise self._wrong("protocol", self.protocol, "'auto', '2025-11-25' or '2026-07-28'")
        for option in ("connect_timeout", "exit_grace", "timeout"):
            seconds: Any = getattr(self, option)
            if not (option == "timeout" and seconds is None) and (
                isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0
            ):
                raise self._wrong(option, seconds, "a number of seconds above 0")
        if (
            isinstance(self.largest_message, bool)
            or not isinstance(self.largest_message, int)
            or self.largest_message < 1
        ):
            raise self._wrong("largest_message", self.largest_message, "a number of bytes")
        if self.sampling is not None and not isinstance(self.sampling, Sampling):
            raise self._wrong("sampling", self.sampling, "Sampling(requests=..., max_tokens=...)")

    @property
    def transport(self) -> Literal["stdio", "http"]:
        """How the server is reached."""
        return "stdio" if self.url is None else "http"

    def _wrong(self, option: str, given: object, use: str) -> ToolwrightError:
        return ToolwrightError(f"The MCP server {self.name!r} has {option}={given!r:.200}; use {use}")
