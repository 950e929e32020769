"""Content that travels with messages and outcomes."""

import base64
import hashlib

import apsw
import pytest

from toolwright import Image, Success, ToolCall, ToolContext, tool
from toolwright.errors import ConversionError, ServiceError
from toolwright.stores.contracts.sessions import Quota, Quotas
from toolwright.testing import FakeClock
from toolwright.wire import anthropic, mcp, openai_chat, openai_responses, plain

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
ENCODED = base64.b64encode(PNG).decode()


@pytest.mark.promise("SES-04")
@pytest.mark.parametrize("size", [0, 1, 1024 * 1024, 1024 * 1024 + 1, 2_500_000])
async def test_content_is_kept_under_its_hash_whatever_its_size(place, open_runtime, size):
    attachments = (await open_runtime(place)).session("s").attachments
    content = bytes(number % 251 for number in range(size))
    info = await attachments.put(content, name="a.bin", media_type="application/octet-stream")
    assert (info.hash, info.size) == (hashlib.sha256(content).hexdigest(), size)
    assert await attachments.get(info.hash) == content
    assert await attachments.list() == [info]


@pytest.mark.promise("SES-04")
async def test_the_same_content_is_kept_once_and_gets_the_later_name(place, open_runtime):
    clock = FakeClock()
    attachments = (await open_runtime(place, clock=clock)).session("s").attachments
    first = await attachments.put(PNG, name="a.png", media_type="image/png")
    await clock.advance(5)
    other = await attachments.put(b"other", name="o", media_type="text/plain")
    again = await attachments.put(PNG, name="b.png", media_type="image/x-png")
    assert (again.hash, again.name, again.media_type, again.at) == (first.hash, "b.png", "image/x-png", first.at)
    assert await attachments.list() == [again, other]
    assert (await attachments.delete(again.hash), await attachments.delete(again.hash)) == (True, False)
    assert await attachments.get(again.hash) is None


@pytest.mark.promise("SES-04", "SES-06")
async def test_content_of_two_sessions_is_stored_once_and_goes_with_the_last(file, open_runtime):
    runtime = await open_runtime(file)
    one, other = runtime.session("s").attachments, runtime.session("t").attachments
    info = await one.put(PNG, name="a.png", media_type="image/png")
    assert await other.get(info.hash) is None
    assert not await other.delete(info.hash)
    await other.put(PNG, name="b.png", media_type="image/png")

    def pieces():
        with apsw.Connection(str(file)) as connection:
            return connection.execute("SELECT count(*) FROM blobs").fetchall()

    assert pieces() == [(1,)]
    await one.delete(info.hash)
    assert await other.get(info.hash) == PNG
    await other.delete(info.hash)
    assert pieces() == [(0,)]


@pytest.mark.parametrize(
    "wrong",
    [{"content": "text"}, {"name": ""}, {"name": "a\0"}, {"media_type": "png"}, {"media_type": "image/png; x=\n"}],
    ids=repr,
)
async def test_an_attachment_that_is_not_usable_is_refused(place, open_runtime, wrong):
    attachments = (await open_runtime(place)).session("s").attachments
    given = {"content": b"x", "name": "a", "media_type": "image/png"} | wrong
    with pytest.raises(ServiceError):
        await attachments.put(**given)
    for hash in ("", "abc", "G" * 64, None):
        with pytest.raises(ServiceError, match="64 hexadecimal"):
            await attachments.get(hash)
    assert await attachments.list() == []


async def test_a_session_may_not_have_more_attachments_than_its_quota(place, open_runtime):
    attachments = (await open_runtime(place, quotas=Quotas(attachments=Quota(2, 100)))).session("s").attachments
    with pytest.raises(ServiceError, match="100 bytes") as refused:
        await attachments.put(b"x" * 101, name="a", media_type="a/b")
    assert refused.value.code == "quota"
    await attachments.put(b"x" * 60, name="a", media_type="a/b")
    with pytest.raises(ServiceError, match="100 bytes"):
        await attachments.put(b"y" * 60, name="a", media_type="a/b")
    await attachments.put(b"z", name="a", media_type="a/b")
    with pytest.raises(ServiceError, match="2 attachments"):
        await attachments.put(b"w", name="a", media_type="a/b")
    assert len(await attachments.list()) == 2


@tool
async def draw(ctx: ToolContext, how: str) -> Success:
    """Draw a picture, and write a note."""
    picture = await ctx.attachments.put(PNG, name="a.png", media_type="image/png")
    note = await ctx.attachments.put(b"note", name="a.txt", media_type="text/plain")
    if how == "image":
        return Success("drawn", images=[Image.from_attachment(picture)], attachments=[note])
    if how == "info":
        return Success("drawn", images=[picture], attachments=[note])
    return Success("drawn", attachments=[picture, note])


@pytest.mark.promise("SES-04")
@pytest.mark.parametrize("how", ["image", "info", "attachment"])
async def test_a_picture_given_by_its_hash_reaches_each_provider_as_a_picture(place, open_runtime, how):
    session = (await open_runtime(place, draw)).session("s")
    outcomes = await session.run_batch([ToolCall(id="c1", name="draw", arguments={"how": how})])
    assert (outcomes[0].images[0].data, outcomes[0].attachments[0].data) == ("", "")
    assert plain.read_results(plain.write_results(outcomes))[0].images == outcomes[0].images
    for shape in (anthropic, mcp, openai_chat, openai_responses):
        with pytest.raises(ConversionError, match="fill_in"):
            shape.write_results(outcomes)
    filled = await session.attachments.fill_in(outcomes)
    for shape in (anthropic, mcp, openai_chat, openai_responses):
        assert ENCODED in str(shape.write_results(filled))
    assert filled[0].attachments[0].data == base64.b64encode(b"note").decode()


@pytest.mark.promise("SES-04", "SES-06")
async def test_a_picture_that_is_gone_or_anothers_is_said_to_be(place, open_runtime):
    runtime = await open_runtime(place, draw)
    outcomes = await runtime.session("s").run_batch([ToolCall(id="c1", name="draw", arguments={"how": "info"})])
    filled = await runtime.session("t").attachments.fill_in(outcomes)
    for shape in (anthropic, mcp, openai_chat, openai_responses):
        written = str(shape.write_results(filled))
        assert "no longer has it" in written
        assert ENCODED not in written
