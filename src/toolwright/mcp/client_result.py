"""Results of a server's tools as results of ours. Owns text, structured content, media, links and failures; does not
own calling."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from toolwright import jsonx
from toolwright.mcp.client_http import NOT_SENT
from toolwright.mcp.tool_names import clean_text
from toolwright.tools.outcome import Attachment, Image, Success, ToolError
from toolwright.tools.raw_schema import OutputCheck, summarise

if TYPE_CHECKING:
    from pydantic import ValidationError

NOT_CONNECTED = "mcp_not_connected"
"""The code of a call that was not sent."""
_NO_SESSION = "Session terminated"
"""How the SDK says that a server of 2025 does not know our session any more: it did nothing with the request."""
LONGEST_MESSAGE = 4_000
"""Characters of an error that a server wrote."""


def read_result(result: CallToolResult, tool: str, check: OutputCheck | None) -> object:
    """The value of a call, with its media beside it: structured content if there is some, else the text.

    Raises:
        ToolError: the tool says that it failed, or its result does not fit its own output schema.
    """
    texts: list[str] = []
    images: list[Image] = []
    attachments: list[Attachment] = []
    links: list[dict[str, Any]] = []
    for block in result.content:
        if isinstance(block, TextContent):
            texts.append(block.text)
        elif isinstance(block, ImageContent):
            images.append(Image(_base64(block.data, tool), _media_type(block.mime_type, "image/png")))
        elif isinstance(block, AudioContent):
            data, media_type = _base64(block.data, tool), _media_type(block.mime_type, "audio/wav")
            attachments.append(Attachment(f"audio-{len(attachments) + 1}", data, media_type))
        elif isinstance(block, EmbeddedResource):
            resource = block.resource
            name = clean_text(str(resource.uri), 2_000)
            if isinstance(resource, BlobResourceContents):
                data, media_type = _base64(resource.blob, tool), "application/octet-stream"
            else:
                texts.append(resource.text)
                data, media_type = _encoded(resource.text), "text/plain"
            attachments.append(Attachment(name, data, _media_type(resource.mime_type, media_type)))
        elif isinstance(block, ResourceLink):
            link = block.model_dump(by_alias=True, mode="json", exclude_none=True)
            links.append(link)
            texts.append(jsonx.encode(link).decode())
            name = clean_text(link.get("title") or link["name"], 2_000)
            attachments.append(Attachment(name, _encoded(f"{link['uri']}\r\n"), "text/uri-list"))
    text = "\n".join(texts)
    if result.is_error:
        raise ToolError(text or f"Tool {tool!r} failed and did not say why", code="mcp_tool_error")
    has_structure = result.structured_content is not None or "structured_content" in result.model_fields_set
    if check is not None:
        if not has_structure:
            raise _breaks_schema(tool, "it returned no structured content")
        problems = check(jsonx.encode(result.structured_content))
        if problems:
            raise _breaks_schema(tool, summarise(problems))
    value = result.structured_content if has_structure else text
    if not images and not attachments and not (has_structure and text):
        return value
    metadata = {"links": links} if links else None
    return _success(value, text if has_structure and text else None, images, attachments, metadata)


def _success(
    value: object,
    text: str | None,
    images: list[Image],
    attachments: list[Attachment],
    metadata: dict[str, Any] | None,
) -> Success:
    return Success(value, text=text, images=images, attachments=attachments, metadata=metadata)


def _breaks_schema(tool: str, why: str) -> ToolError:
    return ToolError(
        f"Tool {tool!r} ran, and its result does not fit the output schema that its server declares: {why}",
        category="external",
        code="mcp_output_schema",
    )


def _base64(data: str, tool: str) -> str:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ToolError(
            f"Tool {tool!r} returned media that is not base64", category="external", code="mcp_bad_answer"
        ) from None
    return data


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "backslashreplace")).decode("ascii")


def _media_type(given: str | None, default: str) -> str:
    return given if given and given.isascii() and given.isprintable() and len(given) <= 200 else default


# --- failures


def not_connected(server: str, tool: str, why: str) -> ToolError:
    """The failure of a call that was not sent."""
    return ToolError(
        f"The MCP server {server!r} is not connected ({why}); the tool {tool!r} was not called",
        category="unavailable",
        code=NOT_CONNECTED,
        retry=True,
    )


def cut_off(server: str, tool: str, why: str, *, repeatable: bool) -> ToolError:
    """The failure of a call that was sent, and whose answer will never come."""
    end = "may be called again" if repeatable else "may have run, and was not called again"
    return ToolError(
        f"The MCP server {server!r} went away while {tool!r} ran ({why}); it {end}",
        category="unavailable" if repeatable else "interrupted",
        code="mcp_connection_lost" if repeatable else "interrupted",
        retry=repeatable,
    )


def read_error(
    error: MCPError,
    server: str,
    tool: str,
    redact: Callable[[str], str],
    *,
    repeatable: bool,
    why: str | None,
    open: bool,
) -> ToolError:
    """The failure that an error of the protocol means. With `open` the connection is known to be there, so that every
    error is the server's own."""
    said = clean_text(redact(error.message), LONGEST_MESSAGE)
    if error.code == NOT_SENT or (error.code == INVALID_REQUEST and error.message == _NO_SESSION):
        return not_connected(server, tool, said)
    # Many servers use this code for errors of their own.
    if error.code == CONNECTION_CLOSED and not open:
        return cut_off(server, tool, why or said, repeatable=repeatable)
    if error.code == PARSE_ERROR:
        return bad_answer(server, tool)
    category, code = "external", "mcp_error"
    if error.code == REQUEST_TIMEOUT:
        category, code = "timeout", "mcp_timeout"
    elif error.code == INVALID_PARAMS:
        category, code = "invalid_arguments", "mcp_invalid_params"
    elif error.code == METHOD_NOT_FOUND:
        category, code = "not_found", "mcp_not_found"
    return ToolError(f"The MCP server {server!r} answered: {said}", category=category, code=code)


def bad_answer(server: str, tool: str, error: ValidationError | None = None) -> ToolError:
    """The failure of a call whose answer cannot be read."""
    return ToolError(
        f"The MCP server {server!r} answered the call of {tool!r} with something that is no result, or is too long; "
        "the tool may have run",
        category="external",
        code="mcp_bad_answer",
        detail=None if error is None else str(error)[:2_000],
    )
