"""Prompts and resources of an MCP server. Owns those that the owner of the server adds, and the files of the session as
resources.
"""

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from msgspec import Struct

from toolwright.errors import ServiceError, ToolwrightError
from toolwright.mcp.server_request import ClientRequest
from toolwright.mcp.server_sessions import ServedSessions

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from toolwright.session.session import Session

FILES = "session://"
"""The start of the addresses of the session's files: `session:///notes/a.txt`."""
MOST_FILES = 1_000
"""How many files of a session are listed."""
LARGEST = 16 * 1024 * 1024
"""Bytes of a resource that is read."""
RESOURCE_NOT_FOUND = -32002
"""The code for a resource that is not there, until 2025-11-25."""
_VARIABLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Prompt(Struct, frozen=True, kw_only=True):
    """A prompt that clients offer to their users."""

    name: str
    render: Callable[..., Any]
    """Called with the arguments by name; returns the text of a message of the user, or a list of messages as MCP has
    them. It may be async."""
    description: str = ""
    arguments: Mapping[str, str] = {}
    """The names of its arguments, each with a description."""
    optional: Sequence[str] = ()
    """The arguments that may be left out."""
    title: str | None = None

    def listed(self) -> dict[str, Any]:
        """The prompt as MCP lists it."""
        listed: dict[str, Any] = {"name": self.name, "description": self.description}
        if self.title is not None:
            listed["title"] = self.title
        if self.arguments:
            listed["arguments"] = [
                {"name": name, "description": text, "required": name not in self.optional}
                for name, text in self.arguments.items()
            ]
        return listed


class Resource(Struct, frozen=True, kw_only=True):
    """Data that clients can read, at an address or at every address of a template such as `docs://{page}`."""

    uri: str
    read: Callable[..., Any]
    """Called with the variables of the template by name; returns text or bytes. It may be async."""
    name: str = ""
    description: str = ""
    media_type: str = "text/plain"

    @property
    def is_template(self) -> bool:
        """True where the address has variables."""
        return _VARIABLE.search(self.uri) is not None

    def listed(self) -> dict[str, Any]:
        """The resource, or the template, as MCP lists it."""
        listed = {"name": self.name or self.uri, "description": self.description, "mimeType": self.media_type}
        return {("uriTemplate" if self.is_template else "uri"): self.uri, **listed}

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables of an address of the template; None for another address."""
        pattern, end = "", 0
        for variable in _VARIABLE.finditer(self.uri):
            pattern += re.escape(self.uri[end : variable.start()]) + f"(?P<{variable.group(1)}>[^/]+)"
            end = variable.end()
        found = re.fullmatch(pattern + re.escape(self.uri[end:]), uri)
        return None if found is None else {name: unquote(value) for name, value in found.groupdict().items()}


class ServedResources:
    """The prompts and resources of a server."""

    def __init__(
        self, sessions: ServedSessions, *, prompts: Sequence[Prompt], resources: Sequence[Resource], files: bool
    ) -> None:
        self._sessions = sessions
        self._prompts = {prompt.name: prompt for prompt in prompts}
        self._resources = tuple(resources)
        self._files = files
        if len(self._prompts) != len(prompts):
            raise ToolwrightError("Two prompts have the same name; give one of them another")

    def add_to(self, server: Server[Any]) -> None:
        """Add the handlers of the methods that the server has something for."""
        if self._prompts:
            server.add_request_handler("prompts/list", types.PaginatedRequestParams, self._list_prompts)
            server.add_request_handler("prompts/get", types.GetPromptRequestParams, self._get_prompt)
        if self._resources or self._files:
            server.add_request_handler("resources/list", types.PaginatedRequestParams, self._list_resources)
            server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, self._list_templates)
            server.add_request_handler("resources/read", types.ReadResourceRequestParams, self._read)

    async def _list_prompts(self, context: ServerRequestContext[Any, Any], params: object) -> types.ListPromptsResult:
        return types.ListPromptsResult.model_validate({"prompts": [one.listed() for one in self._prompts.values()]})

    async def _get_prompt(
        self, context: ServerRequestContext[Any, Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        prompt = self._prompts.get(params.name)
        if prompt is None:
            raise MCPError(
                types.INVALID_PARAMS, f"There is no prompt {params.name[:200]!r}; list them to see the names"
            )
        given = {name: value for name, value in (params.arguments or {}).items() if name in prompt.arguments}
        missing = [name for name in prompt.arguments if name not in given and name not in prompt.optional]
        if missing:
            raise MCPError(types.INVALID_PARAMS, f"The prompt {prompt.name!r} needs the argument {missing[0]!r}")
        said = await _called(prompt.render, given)
        messages = [{"role": "user", "content": {"type": "text", "text": said}}] if isinstance(said, str) else said
        return types.GetPromptResult.model_validate({"description": prompt.description, "messages": messages})

    async def _list_resources(
        self, context: ServerRequestContext[Any, Any], params: object
    ) -> types.ListResourcesResult:
        listed = [one.listed() for one in self._resources if not one.is_template]
        if self._files:
            listed += await _list_files(self._session(context))
        return types.ListResourcesResult.model_validate({"resources": listed})

    async def _list_templates(
        self, context: ServerRequestContext[Any, Any], params: object
    ) -> types.ListResourceTemplatesResult:
        listed = [one.listed() for one in self._resources if one.is_template]
        return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": listed})

    async def _read(
        self, context: ServerRequestContext[Any, Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = params.uri
        for resource in self._resources:
            variables = resource.match(uri)
            if variables is not None:
                return _read_result(uri, resource.media_type, await _called(resource.read, variables))
        if self._files and uri.startswith(f"{FILES}/"):
            found = await _read_file(self._session(context), unquote(uri.removeprefix(FILES)))
            if found is not None:
                return _read_result(uri, "text/plain" if isinstance(found, str) else _BINARY, found)
        code = types.INVALID_PARAMS if ClientRequest(context).modern else RESOURCE_NOT_FOUND
        raise MCPError(code, "Resource not found", {"uri": uri[:2_000]})

    def _session(self, context: ServerRequestContext[Any, Any]) -> Session:
        return self._sessions.session_of(ClientRequest(context))


_BINARY = "application/octet-stream"


async def _list_files(session: Session) -> list[dict[str, Any]]:
    """The files of a session, the first of them, in the order of their folders."""
    found: list[dict[str, Any]] = []
    folders = ["/"]
    while folders and len(found) < MOST_FILES:
        for entry in await session.files.list(folders.pop(0)):
            if entry.directory:
                folders.append(entry.path)
            elif len(found) < MOST_FILES:
                found.append({"uri": FILES + quote(entry.path), "name": entry.path, "size": entry.size})
    return found


async def _read_file(session: Session, path: str) -> str | bytes | None:
    """The content of a file of the session; None where there is none."""
    try:
        entry = await session.files.stat(path)
        if entry is None or entry.directory:
            return None
        if entry.size > LARGEST:
            raise MCPError(types.INVALID_PARAMS, f"The file {path!r:.200} is too large to be read as a resource")
        content = await session.files.read_bytes(path)
    except ServiceError:  # a path that cannot be one, or a file that was removed meanwhile
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _read_result(uri: str, media_type: str, content: object) -> types.ReadResourceResult:
    if isinstance(content, str):
        described: dict[str, Any] = {"text": content}
    elif isinstance(content, bytes):
        described = {"blob": base64.b64encode(content).decode()}
    else:
        raise ToolwrightError(f"The resource {uri!r:.200} is of type {type(content).__name__!r}; use text or bytes")
    return types.ReadResourceResult.model_validate({"contents": [{"uri": uri, "mimeType": media_type, **described}]})


async def _called(function: Callable[..., Any], given: Mapping[str, str]) -> object:
    returned = function(**given)
    return await cast("Any", returned) if inspect.isawaitable(returned) else returned
