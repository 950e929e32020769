"""Whatever a server sends, or does not send, the call ends in time, with what there was room for or a clear failure."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable

import pytest

from tests.builtin.web.sites import PATIENCE, Exchange, Web, response
from tests.support import fail_after
from toolwright import Image
from toolwright.testing import FakeClock

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100


async def fetch_page(web: Web, answer: bytes | Callable[[Exchange], Awaitable[None]], **options):
    site = await web.serve(answer)
    return await web.fetch(f"http://pages.example:{site.port}/", **options)


@pytest.mark.promise("BLT-03")
async def test_a_body_is_read_up_to_the_limit_of_the_call_and_of_the_owner(web: Web):
    page = response(b"0123456789")
    whole = await fetch_page(web, page, arguments={"max_bytes": 10})
    assert (whole.value["content"], whole.value["truncated"], whole.value["bytes"]) == ("0123456789", False, 10)
    cut = await fetch_page(web, page, arguments={"max_bytes": 9})
    assert (cut.value["content"], cut.value["truncated"], cut.value["bytes"]) == ("012345678", True, 9)
    owner = await fetch_page(web, page, arguments={"max_bytes": 10}, max_bytes=4)
    assert (owner.value["content"], owner.value["truncated"]) == ("0123", True)


@pytest.mark.promise("BLT-03")
@pytest.mark.parametrize(
    "head", [HEAD + b"Content-Length: 9999999999999\r\n\r\n", HEAD + b"\r\n"], ids=["huge", "none"]
)
async def test_an_endless_body_is_cut_and_its_connection_closed(web: Web, head: bytes):
    ended = asyncio.Event()

    async def endless(exchange: Exchange) -> None:
        await exchange.send(head)
        try:
            while True:
                await exchange.send(b"x" * 65_536)
        finally:
            ended.set()

    outcome = await fetch_page(web, endless, arguments={"max_bytes": 1_000})
    assert (outcome.value["bytes"], outcome.value["truncated"]) == (1_000, True)
    async with fail_after(PATIENCE):
        await ended.wait()


@pytest.mark.promise("BLT-03")
async def test_a_small_body_that_unpacks_to_a_huge_one_is_cut(web: Web):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(b"0" * 1_000_000) for _ in range(100)) + packer.flush()
    assert len(bomb) < 200_000
    tracemalloc.start()
    try:
        outcome = await fetch_page(web, response(bomb, Content_Encoding="gzip"), arguments={"max_bytes": 500_000})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (outcome.value["bytes"], outcome.value["truncated"]) == (500_000, True)
    assert peak < 20_000_000  # one chunk of the wire would unpack to three times that


async def test_packed_data_that_unpacks_to_nothing_ends_as_well(web: Web):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packer.compress(b"hello") + packer.flush(zlib.Z_FULL_FLUSH)

    async def endless(exchange: Exchange) -> None:
        await exchange.send(HEAD + b"Content-Encoding: gzip\r\n\r\n" + head)
        while True:
            await exchange.send(b"\x00\x00\x00\xff\xff" * 10_000)  # empty blocks

    outcome = await fetch_page(web, endless, arguments={"max_bytes": 100_000})
    assert (outcome.value["content"], outcome.value["truncated"]) == ("hello", True)


async def test_a_packed_page_is_unpacked(web: Web):
    packed = gzip.compress(b"hello")
    outcome = await fetch_page(web, response(packed, Content_Encoding="gzip"))
    assert (outcome.value["content"], outcome.value["bytes"], outcome.value["truncated"]) == ("hello", 5, False)
    cut = await fetch_page(web, response(packed[:-4], Content_Encoding="gzip"))
    assert (cut.value["content"], cut.value["truncated"]) == ("hello", True)


@pytest.mark.promise("BLT-03")
@pytest.mark.parametrize("piece", [1, 7, 1_000])
@pytest.mark.parametrize(
    ("after", "truncated"),
    [(b"", False), (b"\0" * 50, False), (gzip.compress(b"?")[:-4], True), (b"\x1f", False)],
    ids=["nothing", "zeros", "half a member", "a byte"],
)
async def test_a_page_that_is_packed_in_several_members_is_unpacked_whole(
    web: Web, piece: int, after: bytes, truncated: bool
):
    page = "a" * 1_000 + "b" * 1_000
    packed = b"".join(map(gzip.compress, (b"a" * 1_000, b"", b"b" * 1_000))) + after

    async def send(exchange: Exchange) -> None:
        await exchange.send(HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed))
        for start in range(0, len(packed), piece):
            await exchange.send(packed[start : start + piece])

    outcome = await fetch_page(web, send)
    assert outcome.value["content"] == page + "?" * truncated
    assert outcome.value["truncated"] is truncated
    cut = await fetch_page(web, send, arguments={"max_bytes": 1_500})
    assert (cut.value["content"], cut.value["truncated"]) == (page[:1_500], True)


@pytest.mark.parametrize("packing", ["br", "gzip, gzip", "deflate", "zstd", "nonsense"])
async def test_a_packing_that_was_not_asked_for_is_a_failure(web: Web, packing: str):
    outcome = await fetch_page(web, response(gzip.compress(gzip.compress(b"x")), Content_Encoding=packing))
    assert outcome.failure.code == "bad_encoding"


async def test_damaged_packed_data_is_a_failure(web: Web):
    outcome = await fetch_page(web, response(b"this is no gzip", Content_Encoding="gzip"))
    assert outcome.failure.code == "bad_encoding"


async def silence(exchange: Exchange) -> None:
    await exchange.gone()


async def half_a_head(exchange: Exchange) -> None:
    await exchange.send(HEAD)
    await exchange.gone()


@pytest.mark.promise("BLT-03")
@pytest.mark.parametrize("handler", [silence, half_a_head])
async def test_a_server_that_does_not_answer_is_given_up(web: Web, handler):
    clock = FakeClock()
    site = await web.serve(handler)
    runtime = await web.open(clock=clock, first_byte=10, total=1_000)
    call = {"name": "web_fetch", "arguments": {"url": f"http://pages.example:{site.port}/"}}
    batch = runtime.session("s").start_batch([call])
    async with fail_after(PATIENCE):
        await site.asked.wait()
        await clock.advance(9.9)
        assert not batch.done
        await clock.advance(0.1)
        (outcome,) = await batch
    assert (outcome.failure.category, outcome.failure.retry) == ("timeout", True)
    assert "did not answer in 10 s" in outcome.failure.message


async def until_done(batch, clock: FakeClock) -> None:
    """Let time pass, in small steps, for as long as the batch runs."""
    async with fail_after(PATIENCE):
        while not batch.done:
            await clock.advance(0.5)


@pytest.mark.promise("BLT-03")
@pytest.mark.parametrize("start", [b"", HEAD + b"\r\n", CHUNKED, b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_a_server_that_sends_byte_by_byte_is_given_up(web: Web, start: bytes):
    clock = FakeClock()

    async def drip(exchange: Exchange) -> None:
        await exchange.send(start)
        while True:
            await clock.sleep(1)
            await exchange.send(b"0")

    site = await web.serve(drip)
    runtime = await web.open(clock=clock, first_byte=29, total=30)
    call = {"name": "web_fetch", "arguments": {"url": f"http://pages.example:{site.port}/"}}
    batch = runtime.session("s").start_batch([call])
    async with fail_after(PATIENCE):
        await site.asked.wait()
    await until_done(batch, clock)
    (outcome,) = await batch
    assert outcome.failure.category == "timeout"
    while not site.left.is_set():  # the server, too, lives by the clock
        await clock.advance(1)


async def test_an_endless_row_of_first_answers_is_given_up(web: Web):
    async def polite(exchange: Exchange) -> None:
        while True:
            await exchange.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100)

    outcome = await fetch_page(web, polite, first_byte=0.1)
    assert outcome.failure.category == "timeout"


async def test_a_resolver_that_does_not_answer_is_given_up(web: Web):
    clock = FakeClock()
    asked = asyncio.Event()

    async def resolve(host: str, port: int) -> list[str]:
        asked.set()
        await asyncio.Event().wait()
        return []

    runtime = await web.open(clock=clock, resolve=resolve, first_byte=10, total=1_000)
    batch = runtime.session("s").start_batch([{"name": "web_fetch", "arguments": {"url": "http://pages.example/"}}])
    async with fail_after(PATIENCE):
        await asked.wait()
        await clock.advance(10)
        (outcome,) = await batch
    assert "was not found in 10 s" in outcome.failure.message


async def test_a_cancelled_call_closes_its_connection(web: Web):
    site = await web.serve(silence)
    runtime = await web.open()
    call = {"name": "web_fetch", "arguments": {"url": f"http://pages.example:{site.port}/"}}
    batch = runtime.session("s").start_batch([call])
    async with fail_after(PATIENCE):
        await site.asked.wait()
        batch.cancel()
        (outcome,) = await batch
        await site.left.wait()
    assert outcome.status == "cancelled"


async def header_flood(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await exchange.send(b"".join(b"X-%d: %s\r\n" % (number, b"y" * 1_000) for number in range(100)))


async def endless_header(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        await exchange.send(b"y" * 65_536)


async def endless_chunk_size(exchange: Exchange) -> None:
    await exchange.send(CHUNKED)
    while True:
        await exchange.send(b"0" * 65_536)


async def reset_at_once(exchange: Exchange) -> None:
    exchange.reset()


async def reset_in_the_body(exchange: Exchange) -> None:
    await exchange.send(HEAD + b"Content-Length: 100\r\n\r\nabc")
    exchange.reset()


@pytest.mark.promise("BLT-03")
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(header_flood, id="header flood"),
        pytest.param(endless_header, id="endless header"),
        pytest.param(endless_chunk_size, id="endless chunk size"),
        pytest.param(reset_at_once, id="reset at once"),
        pytest.param(reset_in_the_body, id="reset in the body"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\0" * 1_000, id="NULs"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="ssh"),
        pytest.param(b"HTTP/x 200 OK\r\n\r\n", id="version"),
        pytest.param(b"HTTP/1.1 99999 OK\r\n\r\n", id="status"),
        pytest.param(HEAD + b"Content-Length: -1\r\n\r\nabc", id="negative length"),
        pytest.param(HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nabc", id="two lengths"),
        pytest.param(HEAD + b"Content-Length: 100\r\n\r\nabc", id="too short"),
        pytest.param(HEAD + b"Bad Header\r\n\r\n", id="bad header"),
        pytest.param(CHUNKED + b"zz\r\nabc\r\n", id="chunk size of letters"),
        pytest.param(CHUNKED + b"-1\r\nabc\r\n", id="negative chunk"),
        pytest.param(CHUNKED + b"5\r\nabc", id="half a chunk"),
        pytest.param(CHUNKED + b"3\r\nabc\r\n", id="no last chunk"),
        pytest.param(CHUNKED + b"3\r\nabcdef\r\n0\r\n\r\n", id="chunk too long"),
        pytest.param(CHUNKED + b"ffffffffffffffffffffff\r\nabc", id="chunk size beyond all bounds"),
        pytest.param(HEAD + b"Transfer-Encoding: gzip\r\n\r\nabc", id="transfer encoding"),
        pytest.param(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", id="upgrade"),
    ],
)
async def test_a_broken_answer_is_a_clear_failure(web: Web, answer):
    outcome = await fetch_page(web, answer)
    assert (outcome.failure.category, outcome.failure.source) == ("external", "tool")
    assert "'pages.example'" in outcome.failure.message


async def test_an_unusual_answer_is_still_an_answer(web: Web):
    chunks = CHUNKED + b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n"
    assert (await fetch_page(web, chunks)).value["content"] == "abcde"
    old = b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nold"
    assert (await fetch_page(web, old)).value["content"] == "old"
    lost = response(b"no such page", status="404 Not Found")
    assert (await fetch_page(web, lost)).value["status"] == 404


@pytest.mark.parametrize(
    ("body", "type", "text"),
    [
        ("grüße €".encode(), "text/plain; charset=utf-8", "grüße €"),
        ("grüße €".encode(), "text/plain", "grüße €"),
        ("grüße €".encode("cp1252"), "text/plain", "grüße €"),
        ("grüße €".encode("cp1252"), "text/plain; charset=iso-8859-1", "grüße €"),
        ("grüße €".encode("cp1252"), 'text/plain; charset="windows-1252"', "grüße €"),
        ("grüße €".encode("utf-16"), "text/plain", "grüße €"),
        ("grüße €".encode("utf-16-le"), "text/plain; charset=utf-16", "grüße €"),
        ("grüße €".encode("utf-16-be"), "text/plain; charset=utf-16be", "grüße €"),
        ("grüße €".encode("utf-8-sig"), "text/plain; charset=latin-1", "grüße €"),
        ("привет".encode("koi8-r"), "text/plain; charset=KOI8-R", "привет"),
        ("こんにちは".encode("shift_jis"), "text/plain; charset=Shift_JIS", "こんにちは"),
        ("你好".encode("gb2312"), "text/plain; charset=gb2312", "你好"),
        (b"abc\xff", "text/plain; charset=utf-8", "abc\ufffd"),
        (b"abc", "text/plain; charset=punycode", "abc"),
        (b"abc", "text/plain; charset=idna", "abc"),
        (rb"\u0041", "text/plain; charset=unicode_escape", r"\u0041"),
        (b"+AEE-", "text/plain; charset=utf-7", "+AEE-"),
        (b"abc", "text/plain; charset=base64", "abc"),
        (b"abc", "text/plain; charset=nonsense", "abc"),
        (b"abc", "text/plain; charset=" + "x" * 500, "abc"),
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"<a/>", "application/atom+xml", "<a/>"),
        (b"plain", None, "plain"),
        (b"plain", "nonsense", "plain"),
        (b"plain", "application/octet-stream", "plain"),
    ],
)
async def test_text_is_read_in_its_own_encoding(web: Web, body: bytes, type: str | None, text: str):
    assert (await fetch_page(web, response(body, type=type))).value["content"] == text


async def test_a_page_may_name_its_own_encoding(web: Web):
    body = '<meta charset="windows-1251"><p>привет</p>'.encode("cp1251")
    outcome = await fetch_page(web, response(body, type="text/html"), arguments={"format": "text"})
    assert outcome.value["content"] == "привет"


async def test_where_a_text_is_cut_no_half_character_is_left(web: Web):
    outcome = await fetch_page(web, response("€€".encode()), arguments={"max_bytes": 5})
    assert (outcome.value["content"], outcome.value["bytes"]) == ("€", 5)


@pytest.mark.parametrize(
    ("body", "type"),
    [
        (b"%PDF-1.7 \x00\x01", "application/pdf"),
        (b"a\0b" * 100, "text/plain"),
        (b"\xfe\xfd\x80" * 100, None),
        (b"not a picture", "image/png"),
        (b"RIFF....WAVE", "image/webp"),
        (b"PK\x03\x04", "application/zip"),
        (b"sound", "audio/mpeg"),
    ],
)
async def test_what_is_not_text_is_described_and_not_dumped(web: Web, body: bytes, type: str | None):
    outcome = await fetch_page(web, response(body, type=type))
    assert outcome.value["format"] == "binary"
    assert outcome.value["content"] == f"(not text: {type or 'unknown type'}, {len(body)} bytes)"
    assert not outcome.images


async def test_a_picture_is_seen_natively_unless_it_is_too_large(web: Web):
    outcome = await fetch_page(web, response(PNG, type="image/png"), arguments={"max_bytes": 1})
    assert outcome.images == (Image.from_bytes(PNG, "image/png"),)
    assert outcome.value["content"] == "(a picture, image/png, 108 bytes)"
    outcome = await fetch_page(web, response(PNG, type="image/png"), image_bytes=100)
    assert not outcome.images
    assert outcome.value["content"] == "(not text: image/png, more than 100 bytes)"
