"""Prompts, resources, and the files of a session as resources."""

import base64

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.mcp.server.conftest import MODES
from tests.support import fail_after
from toolwright import App, Runtime, ToolwrightError, tool
from toolwright.mcp import Prompt, Resource, server


@tool
def nothing() -> None:
    """Do nothing."""


async def test_prompts_and_resources_of_the_owner(revision: str) -> None:
    async def page(name: str) -> str:
        return f"The page {name}."

    served = server(
        App(tools=[nothing]),
        prompts=[
            Prompt(
                name="review",
                description="Review a text",
                arguments={"text": "The text", "tone": "How to say it"},
                optional=["tone"],
                render=lambda text, tone="kindly": f"Review {tone}: {text}",
            )
        ],
        resources=[
            Resource(uri="docs://{name}", read=page, name="Pages", description="The pages"),
            Resource(uri="data://bytes", read=lambda: b"\x00\x01", media_type="application/octet-stream"),
        ],
    )
    async with fail_after(10), Client(served, mode=MODES[revision]) as client:
        (prompt,) = (await client.list_prompts()).prompts
        assert [(each.name, each.required) for each in prompt.arguments or ()] == [("text", True), ("tone", False)]
        (message,) = (await client.get_prompt("review", {"text": "x", "other": "y"})).messages
        assert isinstance(message.content, types.TextContent)
        assert message.content.text == "Review kindly: x"
        for name, arguments in (("review", {}), ("unknown", {})):
            with pytest.raises(MCPError):
                await client.get_prompt(name, arguments)
        assert [each.uri for each in (await client.list_resources()).resources] == ["data://bytes"]
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "docs://{name}"
        (content,) = (await client.read_resource("docs://a%20b")).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text == "The page a b."
        (content,) = (await client.read_resource("data://bytes")).contents
        assert isinstance(content, types.BlobResourceContents)
        assert base64.b64decode(content.blob) == b"\x00\x01"
        with pytest.raises(MCPError, match="Resource not found") as missing:
            await client.read_resource("docs://a/b")
        assert missing.value.error.code == (-32002 if revision == "2025-11-25" else types.INVALID_PARAMS)


async def test_the_files_of_the_session_are_resources_if_the_owner_says_so(revision: str) -> None:
    async with fail_after(10), Runtime.open(tools=[nothing]) as runtime:
        session = runtime.session("s")
        await session.files.write("/notes/a b.txt", "hello")
        await session.files.write("/image", b"\xff\x00")
        await runtime.session("other").files.write("/private", "no")
        async with Client(server(session, files=True), mode=MODES[revision]) as client:
            listed = [each.uri for each in (await client.list_resources()).resources]
            assert listed == ["session:///image", "session:///notes/a%20b.txt"]
            (content,) = (await client.read_resource("session:///notes/a%20b.txt")).contents
            assert isinstance(content, types.TextResourceContents)
            assert content.text == "hello"
            (content,) = (await client.read_resource("session:///image")).contents
            assert isinstance(content, types.BlobResourceContents)
            for wrong in ("session:///private", "session:///notes", "session:///../x", "session:///", "session://%00"):
                with pytest.raises(MCPError, match="Resource not found"):
                    await client.read_resource(wrong)
        async with Client(server(session), mode=MODES[revision]) as client:
            with pytest.raises(MCPError):
                await client.read_resource("session:///image")


def test_options_that_cannot_be_used_are_refused() -> None:
    app = App(tools=[nothing])
    prompt = Prompt(name="a", render=lambda: "")
    for options in (
        {"approvals": "nobody"},
        {"wait": -1},
        {"tools": "nothing"},
        {"session": 7},
        {"prompts": [prompt, prompt]},
    ):
        with pytest.raises(ToolwrightError):
            server(app, **options)  # type: ignore[call-overload]
    with pytest.raises(ToolwrightError, match="cannot be served"):
        server("app")  # type: ignore[arg-type]
