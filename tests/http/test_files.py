"""Files, key-values and secrets over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from tests.http.client import everyone, opened
from tests.http.live import served
from tests.support import fail_after
from toolwright import App
from toolwright.http import create_app
from toolwright.stores import SqliteStore
from toolwright.stores.sql.sessions.files import SqlFilesStore
from toolwright.tools.service_protocols import FileInfo

FILES = "/v1/sessions/s/files"


@pytest.mark.promise("HTTP-01")
async def test_a_file_is_written_read_and_removed(place) -> None:
    async with opened(store=place) as client:
        made = await client.request("PUT", f"{FILES}/notes/a.txt", content=b"hello")
        assert (made.status_code, made.json()["path"], made.json()["size"]) == (201, "/notes/a.txt", 5)
        tag = f'"{hashlib.sha256(b"hello").hexdigest()}"'
        assert made.headers["etag"] == tag
        read = await client.get(f"{FILES}/notes/a.txt")
        assert (read.content, read.headers["etag"], read.headers["content-length"]) == (b"hello", tag, "5")
        assert read.headers["content-type"] == "text/plain; charset=utf-8"
        again = await client.request("PUT", f"{FILES}/notes/a.txt", content=b"hello!")
        assert again.status_code == 200
        listed = (await client.get(FILES)).json()["items"]
        assert [(one["path"], one["directory"]) for one in listed] == [("/notes", True), ("/notes/a.txt", False)]
        assert (await client.delete(f"{FILES}/notes")).json()["code"] == "not_empty"
        assert (await client.delete(f"{FILES}/notes?recursive=true")).status_code == 204
        assert (await client.get(f"{FILES}/notes/a.txt")).status_code == 404
        assert (await client.delete(f"{FILES}/notes")).status_code == 404


@pytest.mark.promise("HTTP-01")
async def test_a_file_is_replaced_only_by_who_read_it(place) -> None:
    async with opened(store=place) as client:
        url = f"{FILES}/a.txt"
        first = await client.request("PUT", url, content=b"one", headers={"If-None-Match": "*"})
        taken = await client.request("PUT", url, content=b"two", headers={"If-None-Match": "*"})
        assert (first.status_code, taken.status_code, taken.json()["code"]) == (201, 409, "conflict")
        assert taken.json()["stands"]["hash"] == hashlib.sha256(b"one").hexdigest()
        tag = first.headers["etag"]
        second = await client.request("PUT", url, content=b"two", headers={"If-Match": tag})
        assert second.status_code == 200
        late = await client.request("PUT", url, content=b"three", headers={"If-Match": tag})
        assert (late.status_code, late.json()["stands"]["hash"]) == (409, hashlib.sha256(b"two").hexdigest())
        removed = await client.delete(url, headers={"If-Match": tag})
        assert removed.status_code == 409
        assert (await client.get(url, headers={"If-None-Match": second.headers["etag"]})).status_code == 304
        assert (await client.get(url, headers={"If-None-Match": tag})).content == b"two"
        nothing = await client.request("PUT", f"{FILES}/none", content=b"", headers={"If-Match": "*"})
        assert nothing.status_code == 409


@pytest.mark.promise("HTTP-01")
@pytest.mark.parametrize(
    ("asked", "status", "first", "end"),
    [
        ("bytes=0-9", 206, 0, 10),
        ("bytes=1048570-1048590", 206, 1_048_570, 1_048_591),
        ("bytes=2500000-", 206, 2_500_000, 3_000_000),
        ("bytes=-7", 206, 2_999_993, 3_000_000),
        ("bytes=2999999-9999999", 206, 2_999_999, 3_000_000),
        ("bytes=0-1,5-6", 200, 0, 3_000_000),
        ("bytes=9-3", 200, 0, 3_000_000),
        ("lines=1-2", 200, 0, 3_000_000),
    ],
)
async def test_a_part_of_a_large_file_is_read(asked, status, first, end) -> None:
    content = bytes(number * 7 % 251 for number in range(3_000_000))
    async with opened() as client:
        await client.request("PUT", f"{FILES}/big.bin", content=content)
        got = await client.get(f"{FILES}/big.bin", headers={"Range": asked})
        assert got.status_code == status
        assert got.content == content[first:end]
        assert got.headers["content-length"] == str(end - first)
        if status == 206:
            assert got.headers["content-range"] == f"bytes {first}-{end - 1}/3000000"


@pytest.mark.promise("HTTP-01")
async def test_parts_that_are_not_there_or_of_another_version_are_not_sent() -> None:
    async with opened() as client:
        made = await client.request("PUT", f"{FILES}/a", content=b"0123456789")
        beyond = await client.get(f"{FILES}/a", headers={"Range": "bytes=10-"})
        assert (beyond.status_code, beyond.headers["content-range"]) == (416, "bytes */10")
        ranged = {"Range": "bytes=2-3", "If-Range": made.headers["etag"]}
        assert (await client.get(f"{FILES}/a", headers=ranged)).content == b"23"
        await client.request("PUT", f"{FILES}/a", content=b"abcdefghij")
        assert (await client.get(f"{FILES}/a", headers=ranged)).content == b"abcdefghij"


@pytest.mark.promise("HTTP-01")
async def test_files_are_listed_page_by_page_in_one_order() -> None:
    async with opened() as client:
        paths = ["/a", "/a.b", "/b/c", "/b/d/e", "/b.c", "/z"]
        for path in paths:
            await client.request("PUT", FILES + path, content=b"x")
        every = [one["path"] for one in (await client.get(FILES)).json()["items"]]
        assert sorted(every) == sorted([*paths, "/b", "/b/d"])
        for limit in (1, 3):
            seen, cursor = [], ""
            while True:
                page = (await client.get(f"{FILES}?limit={limit}{cursor}")).json()
                seen += [one["path"] for one in page["items"]]
                if page["next"] is None:
                    break
                cursor = f"&cursor={page['next']}"
            assert seen == every
        assert [one["path"] for one in (await client.get(f"{FILES}?under=/b/d")).json()["items"]] == ["/b/d/e"]


@pytest.mark.promise("HTTP-01")
async def test_an_upload_that_is_cut_off_writes_nothing_and_one_of_any_length_is_streamed(file) -> None:
    service = create_app(App(), file, authenticate=everyone())
    stop = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        stop.set()
        await asyncio.Event().wait()

    async def long() -> AsyncIterator[bytes]:
        for number in range(40):
            yield bytes([number]) * 100_000

    async with fail_after(30), served(service) as address, httpx.AsyncClient() as http:
        upload = asyncio.ensure_future(http.put(f"{address}{FILES}/cut", content=endless()))
        await stop.wait()
        upload.cancel()
        await asyncio.wait({upload})
        sent = await http.put(f"{address}{FILES}/long", content=long())
        assert (sent.status_code, sent.json()["size"]) == (201, 4_000_000)
        async with http.stream("GET", f"{address}{FILES}/long") as got:
            digest = hashlib.sha256()
            async for piece in got.aiter_bytes():
                digest.update(piece)
        assert digest.hexdigest() == sent.json()["hash"]
        assert (await http.get(f"{address}{FILES}/cut")).status_code == 404


@pytest.mark.promise("HTTP-01")
async def test_a_compressed_upload_is_refused_and_not_stored_as_if_it_were_the_file(place) -> None:
    async with opened((), place) as client:
        refused = await client.request("PUT", f"{FILES}/a", content=b"x", headers={"Content-Encoding": "br"})
        assert (refused.status_code, refused.json()["code"]) == (415, "encoded")
        assert (await client.get(f"{FILES}/a")).status_code == 404


@pytest.mark.promise("HTTP-01")
async def test_paths_that_leave_the_session_are_refused() -> None:
    async with opened() as client:
        for path in ("%2e%2e/secret", "a/%2e%2e/%2e%2e/b", "a%00b"):
            refused = await client.http.put(f"{FILES}/{path}", content=b"x")
            assert refused.status_code in (400, 404, 405, 422), path
        assert (await client.get(FILES)).json()["items"] == []


@pytest.mark.promise("HTTP-01")
async def test_key_values_are_written_read_listed_and_removed(place) -> None:
    keys = "/v1/sessions/s/kv"
    async with opened(store=place) as client:
        for key, value in (("a", 1), ("a/b", None), ("z", {"deep": [True]})):
            url = f"{keys}/{key.replace('/', '%2F')}"
            assert (await client.request("PUT", url, json={"value": value})).json() == {"key": key, "value": value}
            assert (await client.get(url)).json() == {"key": key, "value": value}
        assert [one["key"] for one in (await client.get(keys)).json()["items"]] == ["a", "a/b", "z"]
        page = (await client.get(f"{keys}?prefix=a&limit=1")).json()
        assert [one["key"] for one in page["items"]] == ["a"]
        rest = (await client.get(f"{keys}?prefix=a&cursor={page['next']}")).json()
        assert ([one["key"] for one in rest["items"]], rest["next"]) == (["a/b"], None)
        assert (await client.delete(f"{keys}/a")).status_code == 204
        assert (await client.get(f"{keys}/a")).status_code == 404
        assert (await client.delete(f"{keys}/a")).status_code == 404


@pytest.mark.promise("HTTP-01")
async def test_secrets_are_written_and_listed_and_never_read(file) -> None:
    secrets = "/v1/sessions/s/secrets"
    value = "correct horse battery staple"
    async with opened(store=file) as client:
        assert (await client.request("PUT", f"{secrets}/key", json={"value": value})).status_code == 204
        listed = await client.get(secrets)
        assert [one["key"] for one in listed.json()["items"]] == ["key"]
        assert value not in listed.text
        assert (await client.http.get(f"{secrets}/key")).status_code == 405
        for wrong in ({"value": 1234567890}, {"value": [value]}, {"valeu": value}, {"value": "x"}):
            refused = await client.request("PUT", f"{secrets}/key", json=wrong)
            assert refused.status_code == 422
            assert value not in refused.text
            assert "1234567890" not in refused.text
        assert (await client.delete(f"{secrets}/key")).status_code == 204
        assert (await client.delete(f"{secrets}/key")).status_code == 404


class CountsLists(SqlFilesStore):
    """Files that count how many directories were listed."""

    def __init__(self, files: SqlFilesStore) -> None:
        super().__init__(files._changes)
        self.listed = 0

    async def list_files(self, session: str, path: str) -> list[FileInfo]:
        self.listed += 1
        return await super().list_files(session, path)


@pytest.mark.promise("HTTP-01")
async def test_a_page_of_files_reads_no_directory_that_earlier_pages_have_shown(file) -> None:
    store = SqliteStore(file)
    store.services.files = files = CountsLists(store.services.files)
    async with opened(store=store) as client:
        session = client.runtime.session("s")
        for path in ("a/b/c/1", "a/b/d/2", "a-b/3", "b/c/4", "b/5", "c/d/e/6", "d/7", "a.txt"):
            await session.files.write(f"/{path}", "x")
        whole = [one["path"] for one in (await client.get(FILES)).json()["items"]]
        shown, path, most = list[str](), f"{FILES}?limit=2", 0
        cursor: str | None = ""
        while cursor is not None:
            files.listed = 0
            page = (await client.get(f"{path}&cursor={cursor}" if cursor else path)).json()
            most = max(most, files.listed)
            shown += [one["path"] for one in page["items"]]
            cursor = page["next"]
    assert shown == whole
    assert len(whole) == 19
    assert most <= 6  # the root, the directories above the place, and those of the page


class WrittenAfterTheLook(SqlFilesStore):
    """Files of which one is written by somebody else as soon as a request has looked at it."""

    def __init__(self, files: SqlFilesStore) -> None:
        super().__init__(files._changes)
        self.write: Callable[[], Awaitable[object]] | None = None

    async def find_file(self, session: str, path: str) -> FileInfo | None:
        found = await super().find_file(session, path)
        write, self.write = self.write, None
        if write is not None:
            await write()
        return found


@pytest.mark.promise("HTTP-01")
async def test_a_file_that_is_written_meanwhile_is_not_removed_by_who_read_the_old_one(file) -> None:
    store = SqliteStore(file)
    store.services.files = files = WrittenAfterTheLook(store.services.files)
    async with opened(store=store) as client:
        url, session = f"{FILES}/a.txt", client.runtime.session("s")
        first = await client.request("PUT", url, content=b"one")
        files.write = lambda: session.files.write("/a.txt", "two")
        refused = await client.delete(url, headers={"If-Match": first.headers["etag"]})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert refused.json()["stands"]["hash"] == hashlib.sha256(b"two").hexdigest()
        assert await session.files.read("/a.txt") == "two"
        assert (await client.delete(url, headers={"If-Match": "*"})).status_code == 204
        assert await session.files.stat("/a.txt") is None
