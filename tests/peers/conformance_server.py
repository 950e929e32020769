"""The tools, prompts and resources that the conformance suite of MCP asks a server for, served by toolwright.

Run as `python -m tests.peers.conformance_server`; it prints its address. What a toolwright tool can do is done by one:
results of every kind, progress, logs, errors, questions to a person, tasks. What belongs to the protocol alone, such as
asking the client's model (sampling) or for its roots, is added with handlers of the SDK, as an owner would.
"""

import asyncio
import base64
import json
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from toolwright import (
    App,
    Arguments,
    Attachment,
    Image,
    Policy,
    Success,
    Tool,
    ToolContext,
    ToolError,
    ToolRegistry,
    mcp,
    tool,
)
from toolwright.mcp.tool_server import ToolServer

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
Handler = Callable[[ServerRequestContext[Any, Any], types.CallToolRequestParams], Awaitable[Any]]


# --- results


@tool(readonly=True)
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@tool(readonly=True)
def test_image_content() -> Success:
    """Return an image."""
    return Success(None, text="", images=[Image(PIXEL, "image/png")])


@tool(readonly=True)
def test_audio_content() -> Success:
    """Return a sound."""
    return Success(None, text="", attachments=[Attachment("sound.wav", SOUND, "audio/wav")])


@tool(readonly=True)
def test_embedded_resource() -> Success:
    """Return a file."""
    return Success(None, text="", attachments=[_file("resource.txt", "This is an embedded resource content.")])


@tool(readonly=True)
def test_multiple_content_types() -> Success:
    """Return a text, an image and a file."""
    return Success(
        None,
        text="Multiple content types test:",
        images=[Image(PIXEL, "image/png")],
        attachments=[_file("mixed.json", '{"test":"data","value":123}', "application/json")],
    )


def _file(name: str, text: str, media_type: str = "text/plain") -> Attachment:
    return Attachment(name, base64.b64encode(text.encode()).decode(), media_type)


@tool(readonly=True)
def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


# --- reports


@tool(readonly=True)
async def test_tool_with_logging(ctx: ToolContext) -> str:
    """Send lines to the log."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.output("stdout", line)
        await asyncio.sleep(0.05)
    return "Logged"


@tool(readonly=True)
async def test_logging_tool(ctx: ToolContext) -> str:
    """Send a line to the log."""
    await ctx.output("stdout", "A line")
    return "Logged"


@tool(readonly=True)
async def test_tool_with_progress(ctx: ToolContext) -> str:
    """Report progress."""
    for number in (0, 50, 100):
        await ctx.progress(number, 100)
        await asyncio.sleep(0.05)
    return "Done"


# --- questions


async def _asked(ctx: ToolContext, name: str, message: str, schema: dict[str, Any]) -> str:
    try:
        return f"action=accept, content={json.dumps(await ctx.ask(name, message, schema))}"
    except ToolError as error:
        return f"action=decline, content={{}} ({error})"


@tool(readonly=True)
async def test_elicitation(ctx: ToolContext, message: str) -> str:
    """Ask for a name and an address."""
    field = {"type": "string"}
    fields = {
        "username": {**field, "description": "User's response"},
        "email": {**field, "description": "User's email address"},
    }
    schema = {"type": "object", "properties": fields, "required": ["username", "email"]}
    return f"User response: {await _asked(ctx, 'user', message, schema)}"


@tool(readonly=True)
async def test_elicitation_sep1034_defaults(ctx: ToolContext) -> str:
    """Ask with defaults."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return f"Elicitation completed: {await _asked(ctx, 'person', 'Who?', {'type': 'object', 'properties': fields})}"


@tool(readonly=True)
async def test_elicitation_sep1330_enums(ctx: ToolContext) -> str:
    """Ask with choices."""
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
    fields = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return f"Elicitation completed: {await _asked(ctx, 'choice', 'Which?', {'type': 'object', 'properties': fields})}"


@tool(readonly=True)
async def test_input_required_result_elicitation(ctx: ToolContext) -> str:
    """Ask for a name."""
    return f"Hello, {(await ctx.ask('user_name', 'What is your name?', NAME))['name']}!"


@tool(readonly=True)
async def test_input_required_result_request_state(ctx: ToolContext) -> str:
    """Ask for a confirmation."""
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    await ctx.ask("confirm", "Please confirm", schema)
    return "state-ok"


@tool(readonly=True)
async def test_input_required_result_tampered_state(ctx: ToolContext) -> str:
    """Ask for a confirmation, under a state that the client cannot change."""
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    await ctx.ask("confirm", "Please confirm", schema)
    return "state-ok"


@tool(readonly=True)
async def test_input_required_result_multi_round(ctx: ToolContext) -> str:
    """Ask twice."""
    name = (await ctx.ask("step1", "Step 1: What is your name?", NAME))["name"]
    schema = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    return f"{name} likes {(await ctx.ask('step2', 'Step 2: What is your favorite color?', schema))['color']}"


# --- schemas

SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
HEADERS: dict[str, Any] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": {"type": "string"}},
    "required": ["region", "query"],
}


async def _nothing(arguments: Arguments) -> str:
    return "Done"


SCHEMA_TOOLS = [
    Tool.from_schema(
        handler=_nothing,
        readonly=True,
        name="json_schema_2020_12_tool",
        description="Tool with JSON Schema 2020-12 features",
        input_schema=SCHEMA_2020_12,
    ),
    Tool.from_schema(
        handler=_nothing, name="test_x_mcp_header", description="Has a header", input_schema=HEADERS, readonly=True
    ),
]


# --- tasks


@tool(readonly=True)
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@tool(supports_background=True, readonly=True)
async def slow_compute(ctx: ToolContext, seconds: float = 1, label: str = "") -> str:
    """Take some time."""
    await ctx.progress(0, seconds, label=label)
    await asyncio.sleep(seconds)
    return f"computed {label}"


@tool(supports_background=True, readonly=True)
async def failing_job() -> str:
    """Fail after a while."""
    await asyncio.sleep(1)
    raise ToolError("The job failed")


@tool(supports_background=True, readonly=True)
async def protocol_error_job() -> str:
    """Break."""
    raise ToolError("It broke inside", category="internal", code="broken")


@tool(supports_background=True)
async def confirm_delete(ctx: ToolContext, filename: str) -> str:
    """Delete a file once somebody confirms that."""
    schema = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}
    answer = await ctx.ask("confirm", f"Delete {filename}?", schema)
    return f"{'deleted' if answer['confirm'] else 'kept'} {filename}"


@tool(supports_background=True)
async def multi_input(ctx: ToolContext) -> str:
    """Ask two questions at once."""
    schema = {"type": "object", "properties": {"value": {"type": "string"}}}
    one, two = await asyncio.gather(ctx.ask("first", "First?", schema), ctx.ask("second", "Second?", schema))
    return f"{one} {two}"


@tool(supports_background=True, readonly=True)
async def test_tool_with_task(name: str) -> str:
    """Work for somebody whose name was asked for first."""
    return f"worked for {name}"


# --- what the protocol has beside tools: asked for with the SDK


@tool(readonly=True)
def test_sampling(prompt: str) -> str:
    """Ask the model of the client."""
    raise ToolError("The client has no model")


@tool(readonly=True)
def test_input_required_result_sampling() -> str:
    """Ask the model of the client."""
    raise ToolError("The client has no model")


@tool(readonly=True)
def test_input_required_result_list_roots() -> str:
    """Ask the client for its roots."""
    raise ToolError("The client has no roots")


@tool(readonly=True)
def test_input_required_result_multiple_inputs() -> str:
    """Ask the client for several things."""
    raise ToolError("The client has nothing")


@tool(readonly=True)
def test_input_required_result_capabilities() -> str:
    """Ask the client for what it can give."""
    raise ToolError("The client can give nothing")


@tool(readonly=True)
def test_missing_capability() -> str:
    """Need a capability that the client has not declared."""
    raise ToolError("The client has no model")


@tool(readonly=True)
async def test_reconnection() -> str:
    """Close the stream of the request in the middle."""
    return "Reconnected"


@tool(readonly=True)
async def test_streaming_elicitation(ctx: ToolContext) -> str:
    """Ask for a name, with reports before."""
    await ctx.progress(1, 2)
    return f"Hello, {(await ctx.ask('user_name', 'What is your name?', NAME))['name']}!"


@tool(readonly=True)
def test_trigger_tool_change() -> str:
    """Add a tool to the list, or remove it."""
    if REGISTRY.unregister("test_added_tool") is None:
        REGISTRY.register(test_added_tool)
    return "Changed"


@tool(readonly=True)
def test_added_tool() -> str:
    """Come and go."""
    return "Here"


@tool(readonly=True)
def test_trigger_prompt_change() -> str:
    """Change the list of prompts."""
    return "Changed"


PROTOCOL_TOOLS = [
    test_trigger_tool_change,
    test_trigger_prompt_change,
    test_sampling,
    test_input_required_result_sampling,
    test_input_required_result_list_roots,
    test_input_required_result_multiple_inputs,
    test_input_required_result_capabilities,
    test_missing_capability,
    test_reconnection,
    test_streaming_elicitation,
]

TOOLS = [
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_error_handling,
    test_tool_with_logging,
    test_logging_tool,
    test_tool_with_progress,
    test_elicitation,
    test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums,
    test_input_required_result_elicitation,
    test_input_required_result_request_state,
    test_input_required_result_tampered_state,
    test_input_required_result_multi_round,
    *SCHEMA_TOOLS,
    greet,
    slow_compute,
    failing_job,
    protocol_error_job,
    confirm_delete,
    multi_input,
    test_tool_with_task,
    *PROTOCOL_TOOLS,
]


REGISTRY = ToolRegistry(TOOLS)


def sampling(text: str, tokens: int = 100) -> dict[str, Any]:
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}}


def elicitation(message: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


ROOTS: dict[str, Any] = {"method": "roots/list", "params": {}}


def content(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "resultType": "complete"}


def needed(requests: dict[str, Any]) -> dict[str, Any]:
    return {"resultType": "input_required", "inputRequests": requests, "requestState": "waiting"}


async def asking_the_client(context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams) -> Any:
    """Tools that ask the client's model or for its roots; None for another tool."""
    modern = context.protocol_version == "2026-07-28"
    answers = params.input_responses or {}
    can = context.session.client_capabilities or types.ClientCapabilities()
    match params.name:
        case "test_sampling" if can.sampling is not None:
            message = types.SamplingMessage(
                role="user", content=types.TextContent(type="text", text=str((params.arguments or {})["prompt"]))
            )
            said = await context.session.create_message(
                [message], max_tokens=100, related_request_id=context.request_id
            )
            return content(f"LLM response: {getattr(said.content, 'text', '')}")
        case "test_missing_capability" if modern and can.sampling is None:
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                "This needs sampling",
                {"requiredCapabilities": {"sampling": {}}},
            )
        case "test_missing_capability":
            return content("The client has a model")
        case "test_input_required_result_sampling":
            asked = {"capital_question": sampling("What is the capital of France?")}
        case "test_input_required_result_list_roots":
            asked = {"client_roots": ROOTS}
        case "test_input_required_result_multiple_inputs":
            asked = {
                "user_name": elicitation("What is your name?", NAME),
                "greeting": sampling("Generate a greeting", 50),
                "client_roots": ROOTS,
            }
        case "test_input_required_result_capabilities":
            asked = {} if can.sampling is None else {"question": sampling("What is the capital of France?")}
            if can.elicitation is not None:
                asked["name"] = elicitation("What is your name?", NAME)
            if not asked:
                return content("The client can give nothing")
        case "test_tool_with_task" if not (params.arguments or {}):
            answer = answers.get("user_name")
            if not isinstance(answer, types.ElicitResult) or not answer.content:
                return needed({"user_name": elicitation("What is your name?", NAME)})
            params.arguments, params.request_state = {"name": str(answer.content["name"])}, None
            return None
        case "test_reconnection":
            if context.close_sse_stream is not None:
                await context.close_sse_stream()
            await asyncio.sleep(0.3)
            return content("Reconnected")
        case _:
            return None
    if not asked.keys() <= answers.keys():
        return needed(asked)
    return content(json.dumps({name: answers[name].model_dump(mode="json") for name in asked}))


async def complete(context: ServerRequestContext[Any, Any], params: types.CompleteRequestParams) -> dict[str, Any]:
    """Complete nothing."""
    return {"completion": {"values": [], "total": 0, "hasMore": False}, "resultType": "complete"}


async def accept(context: ServerRequestContext[Any, Any], params: object) -> types.EmptyResult:
    """Accept a subscription to a resource, which never changes."""
    return types.EmptyResult()


async def asking_prompt(context: ServerRequestContext[Any, Any], params: types.GetPromptRequestParams) -> Any:
    """A prompt that asks the user first."""
    answer = (params.input_responses or {}).get("user_context")
    if not isinstance(answer, types.ElicitResult):
        schema = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
        return needed({"user_context": elicitation("What context should the prompt use?", schema)})
    text = f"Use this context: {answer.content}"
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "resultType": "complete"}


def message(kind: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": {"type": kind, **fields}}


PROMPTS = [
    mcp.Prompt(name="test_simple_prompt", description="Simple", render=lambda: "This is a simple prompt for testing."),
    mcp.Prompt(
        name="test_prompt_with_arguments",
        description="With arguments",
        arguments={"arg1": "First test argument", "arg2": "Second test argument"},
        render=lambda arg1, arg2: f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'",
    ),
    mcp.Prompt(
        name="test_prompt_with_embedded_resource",
        description="With a resource",
        arguments={"resourceUri": "URI of the resource to embed"},
        render=lambda resourceUri: [
            message(
                "resource",
                resource={
                    "uri": resourceUri,
                    "mimeType": "text/plain",
                    "text": "Embedded resource content for testing.",
                },
            ),
            message("text", text="Please process the embedded resource above."),
        ],
    ),
    mcp.Prompt(
        name="test_prompt_with_image",
        description="With an image",
        render=lambda: [
            message("image", data=PIXEL, mimeType="image/png"),
            message("text", text="Please analyze the image above."),
        ],
    ),
    mcp.Prompt(name="test_input_required_result_prompt", description="Asks first", render=lambda: ""),
]
RESOURCES = [
    mcp.Resource(
        uri="test://static-text",
        name="Text",
        description="A text",
        read=lambda: "This is the content of the static text resource.",
    ),
    mcp.Resource(
        uri="test://static-binary",
        name="Image",
        description="An image",
        media_type="image/png",
        read=lambda: base64.b64decode(PIXEL),
    ),
    mcp.Resource(
        uri="test://template/{id}/data",
        name="Data",
        description="Data of an id",
        media_type="application/json",
        read=lambda id: json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"}),
    ),
    mcp.Resource(uri="test://watched-resource", name="Watched", description="Never changes", read=lambda: "still"),
]


class KeptEvents(EventStore):
    """The messages of each stream, for clients that connect again."""

    def __init__(self) -> None:
        self._events: list[tuple[StreamId, Any]] = []

    async def store_event(self, stream_id: StreamId, message: Any) -> EventId:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        at = int(last_event_id)
        stream = self._events[at - 1][0]
        for number, (of, message) in enumerate(self._events[at:], at + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def conformance_server() -> ToolServer:
    """The server that the suite asks."""
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    app = App(tools=REGISTRY, policy=Policy(on_background_limit="queue"))
    server = mcp.server(app, prompts=PROMPTS, resources=RESOURCES, only_as_tasks=["failing_job"])
    entry = server.get_request_handler("tools/call")
    prompts = server.get_request_handler("prompts/get")
    assert entry is not None
    assert prompts is not None

    async def call(context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams) -> Any:
        answered = await asking_the_client(context, params)
        if params.name == "test_trigger_prompt_change":
            await server.tell_changed("prompts")
        return await entry.handler(context, params) if answered is None else answered

    async def prompt(context: ServerRequestContext[Any, Any], params: types.GetPromptRequestParams) -> Any:
        asks = params.name == "test_input_required_result_prompt"
        return await (asking_prompt if asks else prompts.handler)(context, params)

    server.add_request_handler("tools/call", types.CallToolRequestParams, call)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, prompt)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, accept)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, accept)
    return server


async def main() -> None:
    """Serve until this process is ended."""
    from toolwright.mcp.serve import serve_http

    await serve_http(
        conformance_server(),
        "127.0.0.1:0",
        lambda url: print(url, flush=True),
        event_store=KeptEvents(),
        retry_interval=100,
    )


if __name__ == "__main__":
    asyncio.run(main())
