"""Results of MCP: what a model reads, what programs get, and what servers of all kinds send."""

import json

import pytest

from tests.wire.shapes import dumped
from toolwright.tools.outcome import Attachment, Image, ToolOutcome
from toolwright.wire import mcp

pytestmark = pytest.mark.promise("OUT-08")


def test_an_mcp_result_has_text_for_the_model_and_the_value_for_programs():
    made = ToolOutcome(
        call_id="c1",
        tool="t",
        status="success",
        payload=b'{"a": 1}',
        images=(Image("aWNvbg==", "image/png"),),
        attachments=(Attachment("a b/c.pdf", "YQ==", "application/pdf"),),
    )
    result = mcp.write_result(made)
    assert result == {
        "content": [
            {"type": "text", "text": '{"a": 1}'},
            {"type": "image", "data": "aWNvbg==", "mimeType": "image/png"},
            {
                "type": "resource",
                "resource": {
                    "uri": "attachment:///a%20b%2Fc.pdf",
                    "mimeType": "application/pdf",
                    "blob": "YQ==",
                },
            },
        ],
        "structuredContent": {"a": 1},
        "isError": False,
    }
    read = mcp.read_result(dumped(result), call_id="c1", tool="t")
    assert (read.value, read.images, read.attachments) == ({"a": 1}, made.images, made.attachments)


def test_the_value_of_an_mcp_result_is_its_structure_and_the_model_reads_its_text():
    result = {"content": [{"type": "text", "text": "It is sunny."}], "structuredContent": {"sky": "clear"}}
    read = mcp.read_result(result, call_id="c1", tool="t")
    assert (read.status, read.value, read.text) == ("success", {"sky": "clear"}, "It is sunny.")


def test_an_mcp_error_in_any_words_is_a_failure_that_reads_as_json():
    read = mcp.read_result(
        {"content": [{"type": "text", "text": "no such city"}], "isError": True}, call_id="c1", tool="t"
    )
    assert read.failure is not None
    assert read.failure.message == "no such city"
    assert json.loads(read.text) == {"error": "no such city"}


def test_an_mcp_protocol_error_is_a_failure_from_outside():
    [read] = mcp.read_results({"jsonrpc": "2.0", "id": 3, "error": {"code": -32602, "message": "Unknown tool"}})
    assert read.failure is not None
    assert (read.call_id, read.failure.category, read.failure.message) == (
        "jsonrpc-3",
        "external",
        "Unknown tool",
    )


def test_what_else_an_mcp_result_holds_is_not_lost():
    link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
    content = [
        {"type": "text", "text": "one"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "two"}},
        link,
        {"type": "audio", "data": "YQ==", "mimeType": "audio/wav"},
    ]
    read = mcp.read_result({"content": content}, call_id="c1", tool="t")
    first, second, third = read.text.split("\n")
    assert (first, second, json.loads(third)) == ("one", "two", link)
    assert read.attachments == (Attachment("audio-1", "YQ==", "audio/wav"),)
