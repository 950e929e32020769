"""Servers that break off, hang, lie or send garbage: a clear error, and never more than is bounded."""

import asyncio
import json
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.providers.conftest import asked
from tests.providers.dialects import CHAT, DIALECTS, MESSAGES, events
from tests.providers.loopback import Loopback, Reply, streamed, whole
from tests.support import fail_after
from toolwright import ToolCall
from toolwright.providers.event_stream import EventReader
from toolwright.tools.model import ModelAnswer, ModelError, ModelRequest, TextDelta, UserMessage

HELLO = ModelRequest("s1", [UserMessage("Hello")])
LONG = ModelAnswer(text="word " * 20, calls=(ToolCall("w", '{"a": 1}', "call_a"),), stop="calls")


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.9])
async def test_a_connection_that_breaks_off_is_an_error_to_retry(model, dialect, server, part):
    said = dialect.stream(LONG)
    server.will(streamed(said[: int(len(said) * part)], size=50, cut=True))
    with pytest.raises(ModelError) as told:
        await asked(model, HELLO)
    assert (told.value.code, told.value.retry) == ("unavailable", True)


@pytest.mark.promise("TURN-02")
async def test_a_stream_that_ends_early_is_not_an_answer(model, dialect, server):
    said = dialect.stream(LONG).split(b"\n\n")
    server.will(streamed(b"\n\n".join(said[: len(said) // 2]) + b"\n\n"))
    with pytest.raises(ModelError, match="broke off before its end; ask again") as told:
        await asked(model, HELLO)
    assert told.value.retry


async def test_a_last_event_without_its_empty_line_counts(model, dialect, server):
    server.will(streamed(dialect.stream(ModelAnswer(text="Hi")).rstrip(b"\n")))
    assert (await asked(model, HELLO))[1].text == "Hi"


@pytest.mark.promise("TURN-02")
async def test_closing_the_iterator_ends_the_request(model, dialect, server):
    said = dialect.stream(LONG)
    server.will(streamed(said[: len(said) // 2], hang=True))
    async with fail_after(10):
        async with aclosing(model.stream(HELLO)) as pieces:
            async for piece in pieces:
                if isinstance(piece, TextDelta):
                    break
        await server.broken_off.wait()


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize("how", ["stream", "complete"])
async def test_cancelling_ends_a_request_that_has_no_end(model, dialect, server, how):
    server.will(Reply([], hang=True))
    asking = model.complete(HELLO) if how == "complete" else anext(model.stream(HELLO))
    async with fail_after(10):
        task = asyncio.ensure_future(asking)
        await server.waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.broken_off.wait()


async def test_a_server_that_sends_nothing_is_a_timeout(dialect, open_model_of, server):
    # Long enough to connect on a busy machine, which has the same limit.
    model = await open_model_of(dialect, timeout=0.6)
    server.will(Reply([], hang=True))
    for asking in (model.complete(HELLO), anext(model.stream(HELLO))):
        with pytest.raises(ModelError, match=r"sent nothing for 0\.6 s") as told:
            async with fail_after(10):
                await asking
        assert (told.value.code, told.value.retry) == ("timeout", True)


async def test_slow_bytes_are_an_answer_and_each_delta_comes_at_once(model, dialect, server):
    said = dialect.stream(ModelAnswer(text="one two three"))
    at = said.index(b'"two') if b'"two' in said else len(said) * 2 // 3
    go_on = asyncio.Event()
    server.will(Reply([said[:at], go_on, *(said[i : i + 1] for i in range(at, len(said)))]))
    async with fail_after(10), aclosing(model.stream(HELLO)) as pieces:
        first = await anext(pieces)
        assert isinstance(first, TextDelta)  # while the rest is not sent yet
        go_on.set()
        rest = [piece async for piece in pieces]
    assert rest[-1].text == "one two three"


async def test_a_server_that_cannot_be_reached_is_unavailable(dialect):
    stopped = Loopback()
    stopped.address = "http://127.0.0.1:1"
    with pytest.raises(ModelError, match=r"cannot be reached at 127\.0\.0\.1:1") as told:
        await dialect.model(stopped).complete(HELLO)
    assert (told.value.code, told.value.retry) == ("unavailable", True)


async def test_an_answer_that_is_too_large_is_refused(dialect, open_model_of, server):
    model = await open_model_of(dialect, max_answer_bytes=20_000)
    line = b"data: " + b"x" * 65_000  # an event without an end
    for reply in (Reply([line] * 50), Reply([line] * 50, kind="application/json")):
        server.will(reply)
        for asking in (asked(model, HELLO), model.complete(HELLO)):
            with pytest.raises(ModelError, match="has more than 20000 bytes; give the model a larger") as told:
                await asking
            assert (told.value.code, told.value.retry) == ("bad_answer", False)


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize("event", ["not json", "[", "null", "[1]", '"text"', "3", '{"a": NaN}', "[" * 500, '"\\ud800"'])
async def test_an_event_that_is_none_of_the_protocol_is_a_bad_answer(model, server, event):
    server.will(streamed(events(event)))
    with pytest.raises(ModelError) as told:
        await asked(model, HELLO)
    assert told.value.code in ("bad_answer", "unavailable")


@pytest.mark.parametrize("body", [b"", b"<html>gateway</html>", b"null", b"[]", b'"hello"', b"{}", b'{"choices": [3]}'])
async def test_a_body_that_is_no_response_is_a_bad_answer(model, server, body):
    server.will(Reply([body], kind="application/json"))
    for asking in (asked(model, HELLO), model.complete(HELLO)):
        with pytest.raises(ModelError) as told:
            await asking
        assert told.value.code == "bad_answer"


@pytest.mark.promise("TURN-02")
async def test_a_page_in_place_of_a_stream_is_told_as_the_wrong_server_and_not_asked_for_again(model, server):
    server.will(Reply([b"<html>Welcome</html>"], kind="text/html; charset=utf-8"))
    with pytest.raises(
        ModelError, match=r"gave b'<html>Welcome</html>', which is not JSON; check that 127\.0\.0\.1"
    ) as told:
        await asked(model, HELLO)
    assert (told.value.code, told.value.retry) == ("bad_answer", False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def spoiled(value, spoil, at):
    """A value with one part replaced: the one that is reached after `at` steps."""
    if at[0] == 0:
        at[0] -= 1
        return spoil
    at[0] -= 1
    if isinstance(value, dict):
        return {name: spoiled(item, spoil, at) for name, item in value.items()}
    if isinstance(value, list):
        return [spoiled(item, spoil, at) for item in value]
    return value


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize("dialect", DIALECTS, ids=repr)
@given(event=st.integers(0, 40), place=st.integers(0, 30), spoil=JSON)
def test_no_part_of_an_event_can_crash_the_reader(dialect, event, place, spoil):
    stopped = Loopback()
    stopped.address = "http://127.0.0.1:1"
    model = dialect.model(stopped)
    reader = model._reader(HELLO)
    said = EventReader().feed(
        dialect.stream(ModelAnswer(text="Hi there", reasoning="Hm", calls=LONG.calls, stop="calls"))
    )
    at = event % len(said)
    try:
        for number, each in enumerate(said):
            data = each.data
            if number == at and data != b"[DONE]":
                data = json.dumps(spoiled(json.loads(data), spoil, [place])).encode()
            reader.take(each.name, data)
        answer = model._answer(reader)
    except ModelError:
        return
    assert isinstance(answer, ModelAnswer)
    json.dumps(answer.native)
    model._body(ModelRequest("s1", [UserMessage("a"), answer]), True)


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize("dialect", DIALECTS, ids=repr)
@given(place=st.integers(0, 60), spoil=JSON)
def test_no_part_of_a_whole_response_can_crash_the_reader(dialect, place, spoil):
    stopped = Loopback()
    stopped.address = "http://127.0.0.1:1"
    model = dialect.model(stopped)
    reader = model._reader(HELLO)
    response = dialect.response(ModelAnswer(text="Hi", reasoning="Hm", calls=LONG.calls, stop="calls"))
    try:
        reader.whole(spoiled(response, spoil, [place]))
        answer = model._answer(reader)
    except ModelError:
        return
    assert isinstance(answer, ModelAnswer)
    json.dumps(answer.native)


@given(cuts=st.lists(st.integers(1, 200), max_size=40), end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_events_are_the_same_in_whatever_pieces_their_bytes_come(cuts, end):
    said = events({"type": "a", "text": "Grüße ☂"}, {"type": "b"}, "[DONE]", named=True)
    said = b": a comment\n\nid: 3\nretry: 5\n" + said + b"data: one\ndata:two\n\nevent: empty\n\n"
    data = said.decode().replace("\n", end).encode()
    reader, found, at = EventReader(), [], 0
    for cut in [*cuts, len(data)]:
        found += reader.feed(data[at : at + cut])
        at += cut
    found += reader.end()
    assert found == [
        ("a", json.dumps({"type": "a", "text": "Grüße ☂"}).encode()),
        ("b", b'{"type": "b"}'),
        ("", b"[DONE]"),
        ("", b"one\ntwo"),
    ]


@pytest.mark.parametrize("size", range(1, 12))
def test_lines_may_end_in_different_ways(size):
    data = b"data: one\r\n\ndata: two\n\r\ndata: three\r\rdata: four\r\n\r\n"
    reader, found = EventReader(), []
    for at in range(0, len(data), size):
        found += reader.feed(data[at : at + size])
    assert [event.data for event in found] == [b"one", b"two", b"three", b"four"]


async def test_a_piece_of_a_block_that_never_began_is_a_bad_answer(open_model_of, server):
    said = events(
        {"type": "message_start", "message": {"id": "m"}},
        {"type": "content_block_delta", "index": 4, "delta": {"type": "text_delta", "text": "x"}},
        named=True,
    )
    server.will(streamed(said))
    with pytest.raises(ModelError, match="gave a piece of no block") as told:
        await asked(await open_model_of(MESSAGES), HELLO)
    assert told.value.code == "bad_answer"


@pytest.mark.promise("TURN-09")
@pytest.mark.parametrize("items", [[5], ["text"], [None], [{}, 5], {"role": "assistant"}])
async def test_parts_that_no_provider_gave_do_not_end_a_conversation(model, dialect, server, items):
    server.will(streamed(dialect.stream(LONG)))
    native = {"format": model.format, "server": model.server, "items": items}
    said = [UserMessage("a"), ModelAnswer(text="Told before.", native=native), UserMessage("b")]
    assert (await asked(model, ModelRequest("s1", said)))[1].text == LONG.text
    assert "Told before." in json.dumps(model._body(ModelRequest("s1", said), True))


async def test_a_conversation_that_has_no_json_form_is_a_bad_request(model, dialect, server):
    server.will(dialect.reply(ModelAnswer(text="x")))
    for options in ({"metadata": object()}, {"stream": False}, {"n": 2}):
        with pytest.raises(ModelError) as told:
            await model.complete(ModelRequest("s1", [{"role": "user", "content": "x"}], options))
        assert told.value.code == "bad_request"
    assert server.asked == []


async def test_text_that_is_no_unicode_is_sent_as_far_as_it_is(model, dialect, server):
    server.will(dialect.reply(ModelAnswer(text="x")))
    await model.complete(ModelRequest("s1", [UserMessage("a \ud800 b")], instructions="\udfff"))
    assert "a \\\\ud800 b" in json.dumps(server.asked[0].body)


async def test_a_whole_answer_of_a_server_that_was_told_not_to_stream(open_model_of, server):
    model = await open_model_of(CHAT, streaming=False)
    server.will(whole(CHAT.response(LONG)))
    deltas, answer = await asked(model, HELLO)
    assert "stream" not in server.asked[0].body
    assert answer.text == "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
