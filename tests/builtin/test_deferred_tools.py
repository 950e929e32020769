"""Tools that a model sees as stubs until it searched for them."""

import subprocess
import sys
from typing import Annotated

import pytest

from toolwright import Policy, PolicyError, Runtime, Tool, ToolCall, ToolContext, prefixed, tool
from toolwright.builtin import capability
from toolwright.errors import ServiceError
from toolwright.tools.registry import ToolRegistry
from toolwright.wire import anthropic, openai_chat, openai_responses

FEW = Policy(defer_tools_from=3)


@tool
async def send_mail(to: str, subject: Annotated[str, "What it is about"]) -> str:
    """Send a message to a person by electronic mail.

    It cannot be taken back.
    """
    return f"sent to {to}"


@tool
async def book_flight(city: str) -> str:
    """Reserve a seat on a plane to a city."""
    return f"booked {city}"


@tool(deferral="never")
async def say(text: str) -> str:
    """Say something."""
    return text


@tool(deferral="always")
async def rare(secret_ingredient: str) -> str:
    """Cook what is seldom asked for."""
    return secret_ingredient


ALL = (send_mail, book_flight, say)


def full(definitions) -> list[str]:
    """The names of those that are shown with their parameters."""
    return [definition.name for definition in definitions if definition.input_schema.get("properties")]


async def names(session) -> list[str]:
    return [definition.name for definition in await session.offered()]


@pytest.mark.promise("REG-06")
async def test_from_a_set_number_of_tools_on_the_model_sees_stubs_and_a_search(place, open_runtime):
    runtime = await open_runtime(place, *ALL, policy=FEW)
    offered = {definition.name: definition for definition in await runtime.session("s").offered()}
    assert list(offered) == ["book_flight", "say", "send_mail", "tool_search"]
    assert full(offered.values()) == ["say", "tool_search"]
    stub = offered["send_mail"]
    assert stub.description == "Send a message to a person by electronic mail."
    assert stub.input_schema == {"type": "object", "properties": {}}
    assert stub.id == send_mail.definition.id


@pytest.mark.promise("REG-06")
async def test_below_that_number_every_tool_is_shown_in_full_and_there_is_no_search(place, open_runtime):
    runtime = await open_runtime(place, send_mail, book_flight, policy=FEW)
    session = runtime.session("s")
    assert await session.offered() == [book_flight.definition, send_mail.definition]
    assert (await session.call("tool_search", query="mail")).failure.code == "unknown_tool"


async def test_without_a_number_nothing_is_deferred_but_what_always_is(open_runtime):
    session = (await open_runtime(":memory:", *ALL)).session("s")
    assert full(await session.offered()) == ["book_flight", "say", "send_mail"]
    session = (await open_runtime(":memory:", *ALL, rare)).session("s")
    assert full(await session.offered()) == ["book_flight", "say", "send_mail", "tool_search"]
    assert "rare" in await names(session)


@pytest.mark.promise("REG-06")
async def test_a_search_gives_the_full_schemas_of_its_matches_and_reveals_them_from_then_on(place, open_runtime):
    session = (await open_runtime(place, *ALL, policy=FEW)).session("s")
    outcome = await session.call("tool_search", query="reserve seats on planes")
    assert outcome.value == {
        "matches": [
            {
                "name": "book_flight",
                "description": "Reserve a seat on a plane to a city.",
                "input_schema": book_flight.definition.input_schema,
            }
        ],
        "searched": 2,
    }
    assert full(await session.offered()) == ["book_flight", "say", "tool_search"]
    await session.call("tool_search", query="electronic mail")
    assert full(await session.offered()) == ["book_flight", "say", "send_mail", "tool_search"]
    again = await session.call("tool_search", query="planes")
    assert [match["name"] for match in again.value["matches"]] == ["book_flight"]


@pytest.mark.promise("REG-06")
async def test_what_was_revealed_stays_so_after_a_restart_and_in_its_session_only(file, open_runtime):
    first = await open_runtime(file, *ALL, policy=FEW)
    await first.session("s").call("tool_search", query="send_mail")
    await first.close()
    second = await open_runtime(file, *ALL, policy=FEW)
    assert full(await second.session("s").offered()) == ["say", "send_mail", "tool_search"]
    assert full(await second.session("t").offered()) == ["say", "tool_search"]


@pytest.mark.promise("REG-06")
async def test_a_deferred_tool_can_be_called_without_a_search(place, open_runtime):
    session = (await open_runtime(place, *ALL, policy=FEW)).session("s")
    assert (await session.call("book_flight", city="Oslo")).value == "booked Oslo"
    refused = await session.call("book_flight", town="Oslo")
    assert "city" in refused.text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("mail", ["send_mail"]),
        ("MAILS", ["send_mail"]),
        ("messages", ["send_mail"]),
        ("subject", ["send_mail"]),
        ("book_flight", ["book_flight"]),
        ("sendMail and bookFlight", ["book_flight", "send_mail"]),
        ("the of a", []),
        ("xylophone", []),
        ("…!?", []),
        ("πλοίο 🚢", []),
    ],
)
async def test_tools_are_found_by_name_words_and_parameters(open_runtime, query, expected):
    session = (await open_runtime(":memory:", send_mail, book_flight, policy=Policy(defer_tools_from=1))).session("s")
    outcome = await session.call("tool_search", query=query)
    assert sorted(match["name"] for match in outcome.value["matches"]) == expected


async def test_the_best_match_comes_first_and_a_named_tool_before_all(open_runtime):
    def made(name: str, description: str) -> Tool:
        return Tool.from_schema(name=name, description=description, handler=lambda arguments: None)

    session = (
        await open_runtime(
            ":memory:",
            made("a", "Talk about files, among other things that have nothing to do with it, such as the sea."),
            made("file_search", "Search files for a text."),
            made("b", "Open a window."),
            made("c", "Search files, and search files, and search files."),
            policy=Policy(defer_tools_from=1),
        )
    ).session("s")
    found = (await session.call("tool_search", query="search in files")).value["matches"]
    assert [match["name"] for match in found][:2] in (["file_search", "c"], ["c", "file_search"])
    assert [match["name"] for match in found][2:] == ["a"]
    found = (await session.call("tool_search", query="b search files")).value["matches"]
    assert found[0]["name"] == "b"
    assert len((await session.call("tool_search", query="search files", limit=1)).value["matches"]) == 1


@pytest.mark.parametrize("arguments", [{"query": ""}, {"query": "x" * 1001}, {"query": "x", "limit": 0}, {}], ids=str)
async def test_a_search_for_nothing_is_refused(open_runtime, arguments):
    session = (await open_runtime(":memory:", *ALL, policy=FEW)).session("s")
    assert (await session.call("tool_search", **arguments)).failure.category == "invalid_arguments"


async def test_searches_of_one_batch_reveal_all_that_they_found(place, open_runtime):
    session = (await open_runtime(place, *ALL, policy=FEW)).session("s")
    await session.run_batch(
        [ToolCall(name="tool_search", arguments={"query": query}) for query in ("mail", "flight", "mail")]
    )
    assert full(await session.offered()) == ["book_flight", "say", "send_mail", "tool_search"]


async def test_a_session_may_have_a_number_of_its_own_and_tools_may_come_later(open_runtime):
    runtime = await open_runtime(":memory:", send_mail, book_flight)
    session = runtime.session("s", policy=FEW)
    assert full(await session.offered()) == ["book_flight", "send_mail"]
    with session.tools.layer([say]):
        assert full(await session.offered()) == ["say", "tool_search"]
        assert (await session.call("tool_search", query="plane")).ok
    assert full(await session.offered()) == ["book_flight", "send_mail"]
    assert full(await runtime.session("t").offered()) == ["book_flight", "send_mail"]


async def test_a_search_that_is_there_is_used_whatever_its_name(open_runtime):
    search = capability("tool_search", matches=1)
    async with Runtime.open(tools=prefixed(ToolRegistry([*ALL, *search.tools]), "x_"), policy=FEW) as runtime:
        session = runtime.session("s")
        assert await names(session) == ["x_book_flight", "x_say", "x_send_mail", "x_tool_search"]
        await session.call("x_tool_search", query="plane mail")
        assert len(full(await session.offered())) == 3


async def test_with_the_capability_there_is_a_search_and_a_prompt(open_runtime):
    runtime = await open_runtime(":memory:", *ALL, capabilities=["tool_search"])
    assert "tool_search" in await names(runtime.session("s"))
    assert "tool_search" in runtime.prompt


@pytest.mark.promise("REG-06")
@pytest.mark.parametrize("shape", [openai_chat, openai_responses, anthropic], ids=lambda shape: shape.__name__)
async def test_what_is_offered_can_be_shown_to_models(open_runtime, shape):
    session = (await open_runtime(":memory:", *ALL, policy=FEW)).session("s")
    assert len(shape.write_tools(await session.offered())) == 4


async def test_a_tool_that_takes_free_text_stays_one(open_runtime):
    free = Tool.from_schema(
        name="free",
        description="Take what is written.\nAs it is.",
        kind="custom",
        input_schema={"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
        handler=lambda arguments: arguments.require("input", str),
    )
    session = (await open_runtime(":memory:", free, policy=Policy(defer_tools_from=1))).session("s")
    offered = {definition.name: definition for definition in await session.offered()}
    assert offered["free"].description == "Take what is written."
    assert [written["type"] for written in openai_chat.write_tools(offered.values())] == ["custom", "function"]


async def test_a_stub_has_one_short_line(open_runtime):
    wordy = Tool.from_schema(name="wordy", description="  \n" + "word " * 100, handler=lambda arguments: None)
    session = (await open_runtime(":memory:", wordy, policy=Policy(defer_tools_from=1))).session("s")
    line = (await session.offered())[1].description
    assert len(line) <= 120
    assert line.endswith("word…")


async def test_a_tool_reads_the_catalogue_of_its_session(place, open_runtime):
    @tool
    async def look(ctx: ToolContext) -> list[str]:
        await ctx.catalogue.reveal(["send_mail", "send_mail"])
        return [definition.name for definition in await ctx.catalogue.list()]

    session = (await open_runtime(place, *ALL, look, policy=FEW)).session("s")
    assert (await session.call("look")).value == ["book_flight", "look", "say", "send_mail", "tool_search"]
    assert full(await session.offered()) == ["say", "send_mail", "tool_search"]
    with pytest.raises(ServiceError, match="no tool 'nothing' to reveal"):
        await session.catalogue.reveal(["nothing"])


@pytest.mark.parametrize("wrong", [0, -1, True, 2.5, "3"])
def test_a_number_that_is_none_is_refused(wrong):
    with pytest.raises(PolicyError, match="defer_tools_from"):
        Policy(defer_tools_from=wrong)


def test_without_its_library_a_search_says_what_to_install():
    program = """
import asyncio, sys
from toolwright import Policy, Runtime, tool

@tool
async def a() -> None: ...

async def main():
    async with Runtime.open(tools=[a], policy=Policy(defer_tools_from=1)) as runtime:
        sys.modules["bm25s"] = None
        print((await runtime.session("s").call("tool_search", query="what")).text)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "pip install 'toolwright[search]'" in done.stdout
