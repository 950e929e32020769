"""Tools of LangChain as tools of ours. Owns their schema, and what their results and exceptions mean.

Imports what makes tools when one is made, so that the import of the adapter stays light.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack, cast

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException
from langchain_core.utils.pydantic import get_fields, is_basemodel_subclass
from pydantic import BaseModel, ValidationError
from pydantic.v1 import BaseModel as OldBaseModel

from toolwright.errors import ToolDefinitionError, ToolwrightError

if TYPE_CHECKING:
    from toolwright.tools.arguments import Arguments
    from toolwright.tools.context import ToolContext
    from toolwright.tools.options import ToolOptions
    from toolwright.tools.outcome import Image
    from toolwright.tools.tool import Tool

COMMAND = "langgraph_command"
"""The code of the failure of a tool that wants to steer a graph."""


def tools_from(tools: Iterable[BaseTool], **options: Unpack[ToolOptions]) -> list[Tool]:
    """Tools of LangChain as tools of ours, for an app or a session.

    A `ToolException` is a failure that the model reads. The artifact of a result is in the metadata of the outcome.

    Args:
        tools: the tools.
        options: options of `@tool` for all of them, such as `readonly=True`. Without any, a tool is taken to change
            things, runs alone, and is not run again after a crash.

    Raises:
        ToolDefinitionError: one takes the state, store or runtime of a graph, which only a graph has.
    """
    return [_ours(tool, options) for tool in tools]


def _ours(tool: BaseTool, options: ToolOptions) -> Tool:
    from toolwright.tools.outcome import ToolError
    from toolwright.tools.tool import Tool

    if not isinstance(tool, BaseTool):
        raise ToolDefinitionError(f"{tool!r:.200} is not a tool of LangChain; decorate the function with @tool first")
    injected = _injected(tool)
    if injected:
        raise ToolDefinitionError(
            f"Tool {tool.name!r} takes {', '.join(injected)} of a graph, which it does not have outside; "
            "leave it to the graph's own node, or write the tool without"
        )

    async def run(arguments: Arguments, ctx: ToolContext) -> object:
        call = {"type": "tool_call", "name": tool.name, "args": dict(arguments), "id": ctx.call_id}
        try:
            result = await tool.ainvoke(call)
        except ToolException as error:
            raise ToolError(str(error) or f"Tool {tool.name!r} failed") from error
        except ValidationError as error:
            said = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5])
            raise ToolError(
                f"The arguments do not fit: {said}", category="invalid_arguments", code="invalid_arguments"
            ) from error
        return _result(tool.name, result)

    named = cast("ToolOptions", {"id": f"langchain.{tool.name}", **options})
    return Tool.from_schema(
        name=tool.name, description=tool.description, input_schema=_schema(tool), handler=run, **named
    )


def _schema(tool: BaseTool) -> dict[str, Any]:
    """The schema of the arguments that a model gives."""
    schema = tool.tool_call_schema
    if isinstance(schema, dict):
        return schema
    found: dict[str, Any] = schema.schema() if issubclass(schema, OldBaseModel) else schema.model_json_schema()
    return {name: value for name, value in found.items() if name not in ("title", "description")}


def _injected(tool: BaseTool) -> list[str]:
    """The parameters that only a graph can fill."""
    whole, shown = tool.get_input_schema(), tool.tool_call_schema
    if isinstance(shown, dict) or not (is_basemodel_subclass(whole) and issubclass(whole, BaseModel)):
        return []
    fields = get_fields(whole)
    return [
        name
        for name in fields
        if name not in get_fields(shown) and not any(_is_call_id(each) for each in fields[name].metadata)
    ]


def _is_call_id(annotation: object) -> bool:
    return isinstance(annotation, InjectedToolCallId) or annotation is InjectedToolCallId


def _result(name: str, result: object) -> object:
    from toolwright.tools.outcome import Success, ToolError, bounded_json

    if not isinstance(result, ToolMessage):
        raise ToolError(f"Tool {name!r} gave {type(result).__name__}, which only a graph can carry out", code=COMMAND)
    text, images = _content(result.content)
    if result.status == "error":
        raise ToolError(text or f"Tool {name!r} failed")
    metadata = None
    if result.artifact is not None:
        try:
            metadata = {"artifact": bounded_json("The artifact", result.artifact)}
        except ToolwrightError:
            metadata = None  # an object of the program, which has no JSON form
    return Success(text, images=images, metadata=metadata) if images or metadata else text


def _content(content: str | list[str | dict[str, Any]]) -> tuple[str, list[Image]]:
    """The text of a result, and its images, in the forms of this and of earlier versions."""
    if isinstance(content, str):
        return content, []
    texts: list[str] = []
    images: list[Image] = []
    for block in content:
        image = _image(block) if isinstance(block, Mapping) else None
        if image is not None:
            images.append(image)
        elif isinstance(block, str):
            texts.append(block)
        elif isinstance(text := block.get("text"), str):
            texts.append(text)
    return "\n".join(texts), images


def _image(block: Mapping[str, Any]) -> Image | None:
    from toolwright.tools.outcome import Image
    from toolwright.wire.images import from_url

    kind = block.get("type")
    if kind == "image_url":
        where = block.get("image_url")
        url = where.get("url") if isinstance(where, Mapping) else where
        return from_url(url) if isinstance(url, str) else None
    data = block.get("base64") or block.get("data")
    if kind == "image" and isinstance(data, str):
        return Image(data, str(block.get("mime_type") or "image/png"))
    return None
