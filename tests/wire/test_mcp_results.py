"""Results of MCP: what a model reads, what programs get, and what servers of all kinds send."""

import json

import pytest

from tests.wire.shapes import dumped
from toolwright import ToolDefinition
from toolwright.errors import ConversionError
from toolwright.tools.outcome import Attachment, Failure, Image, ToolOutcome
from toolwright.wire import mcp

pytestmark = pytest.mark.promise("OUT-08")


def described(output_schema):
    return ToolDefinition(
        name="t", id="t", description="", input_schema={"type": "object"}, output_schema=output_schema
    )


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


def test_requests_and_notifications_between_mcp_results_are_skipped():
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "greet"}}
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    response = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "Hello"}]}}
    [read] = mcp.read_results([request, progress, ping, response])
    assert (read.tool, read.value) == ("greet", "Hello")


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


VALUES = ["text", 3, [1, 2], None, True, {"a": 1}]


@pytest.mark.parametrize("value", VALUES, ids=str)
@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_up_to_2025_11_25_only_an_object_is_structured_content(value, version):
    made = ToolOutcome("c1", "t", "success", json.dumps(value).encode())
    schema = described({"type": "integer"})
    result = mcp.write_result(made, version=version, tool=schema)
    assert ("structuredContent" in result) is isinstance(value, dict)
    assert "outputSchema" not in mcp.write_tools([schema], version=version)[0]
    assert mcp.write_result(made) == mcp.write_result(made, version=version)


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_from_2026_07_28_on_any_value_is_structured_content_where_a_schema_is_listed(value):
    made = ToolOutcome("c1", "t", "success", json.dumps(value).encode())
    anything = described({})
    assert mcp.write_tools([anything], version="2026-07-28")[0]["outputSchema"] == {}
    assert mcp.write_result(made, version="2026-07-28", tool=anything)["structuredContent"] == value
    bare = mcp.write_result(made, version="2026-07-28")
    if value is None or isinstance(value, str):
        assert "structuredContent" not in bare  # the text has all of it
    else:
        assert bare["structuredContent"] == value


def test_a_pending_call_is_no_result_of_a_tool_with_an_output_schema():
    pending, failed = (
        ToolOutcome("c1", "t", "pending"),
        ToolOutcome("c1", "t", "failure", failure=Failure(message="no")),
    )
    listed = described({"type": "object"})
    for version in ("2025-11-25", "2026-07-28"):
        with pytest.raises(
            ConversionError, match=r"'c1' to 't' is pending.*wait for its outcome, or answer with a task"
        ):
            mcp.write_result(pending, version=version, tool=listed)
        assert mcp.write_result(failed, version=version, tool=listed)["isError"] is True
        assert mcp.write_result(pending, version=version)["content"][0]["text"] == '{"status":"pending"}'
    with pytest.raises(ConversionError, match="is pending"):
        mcp.write_results([pending], tools=[listed])
    # Its schema is not listed at this version, so that no client holds anything against it.
    assert mcp.write_result(pending, tool=described({"type": "integer"}))["isError"] is False


@pytest.mark.parametrize("version", ["latest", "", "2026-7-28", None])
def test_a_version_that_is_none_is_refused(version):
    with pytest.raises(ConversionError, match="use a date such as '2025-11-25'"):
        mcp.write_result(ToolOutcome("c1", "t", "success"), version=version)
    with pytest.raises(ConversionError, match="use a date"):
        mcp.write_tools([], version=version)
