"""Files of sessions: directories, content in pieces, conditions, quotas, and changes under a mark."""

from __future__ import annotations

import asyncio

from toolwright.errors import ServiceError
from toolwright.stores.contracts.sessions import PIECE, FilesStore, Portion, Quota
from toolwright.testing.conformance.background import refusal
from toolwright.testing.conformance.cases import Database, cases
from toolwright.testing.conformance.session_services import (
    WIDE,
    content,
    marked,
    open_services,
    services_of,
    writing,
)
from toolwright.tools.service_protocols import FileInfo


async def a_file_comes_back_as_it_was_written(database: Database) -> None:
    files, other = (await open_services(database)).files, (await open_services(database)).files
    for data in (b"", b"text", bytes(range(256)), b"x" * PIECE, b"y" * (2 * PIECE + 1)):
        made = await files.write_file("s1", "/a/b.bin", content(data), writing(), None)
        expected = FileInfo("/a/b.bin", False, len(data), content(data).digest.hex(), False, 100.0, 100.0)
        assert made == await other.find_file("s1", "/a/b.bin") == expected
        assert await other.read_file("s1", "/a/b.bin") == (made, data)
        pieces = [await other.read_piece("s1", made, number) for number in range(4)]
        assert b"".join(filter(None, pieces)) == data
        assert pieces[3] is None
        await files.delete_file("s1", "/a/b.bin", False, False, None)
    assert await other.find_file("s1", "/a/b.bin") is None
    assert await other.read_file("s1", "/a/b.bin") is None


async def a_file_that_is_written_again_keeps_its_first_instant_and_its_flag(database: Database) -> None:
    files = (await open_services(database)).files
    await files.write_file("s1", "/a", content(b"1"), writing(100.0, readonly=True, host=True), None)
    again = await files.write_file("s1", "/a", content(b"22"), writing(200.0, host=True), None)
    assert again == await files.find_file("s1", "/a")
    assert (again.created_at, again.updated_at, again.size, again.readonly) == (100.0, 200.0, 2, True)
    free = await files.write_file("s1", "/a", content(b"22"), writing(300.0, readonly=False, host=True), None)
    assert (free.created_at, free.readonly) == (100.0, False)


async def a_file_has_the_directories_above_it(database: Database) -> None:
    files = (await open_services(database)).files
    await files.write_file("s1", "/a/b/c", content(b"1"), writing(), None)
    await files.write_file("s1", "/a/z", content(b"1"), writing(), None)
    made = await files.make_directory("s1", "/a/b", 200.0, WIDE, None)
    assert made == FileInfo("/a/b", True, 0, None, False, 100.0, 100.0)
    assert [(each.path, each.directory) for each in await files.list_files("s1", "/")] == [("/a", True)]
    assert [(each.path, each.directory) for each in await files.list_files("s1", "/a")] == [
        ("/a/b", True),
        ("/a/z", False),
    ]
    assert await files.list_files("s1", "/nowhere") == []
    assert await refusal(files.write_file("s1", "/a/z/y", content(b"1"), writing(), None)) == "not_directory"
    assert await refusal(files.write_file("s1", "/a/b", content(b"1"), writing(), None)) == "is_directory"
    assert await refusal(files.make_directory("s1", "/a/z/y", 200.0, WIDE, None)) == "not_directory"


async def a_file_is_written_only_over_the_content_that_was_expected(database: Database) -> None:
    files = (await open_services(database)).files
    first = await files.write_file("s1", "/a", content(b"1"), writing(expected=""), None)
    assert await refusal(files.write_file("s1", "/a", content(b"1"), writing(expected=""), None)) == "conflict"
    assert first.hash is not None
    await files.write_file("s1", "/a", content(b"2"), writing(expected=first.hash), None)
    assert await refusal(files.write_file("s1", "/a", content(b"3"), writing(expected=first.hash), None)) == "conflict"
    assert await files.read_piece("s1", first, 0) is None  # it has other content now
    found = await files.read_file("s1", "/a")
    assert found is not None
    assert found[1] == b"2"


async def of_many_who_expect_the_same_content_one_writes(database: Database) -> None:
    stores = [(await open_services(database)).files for _ in range(4)]
    await stores[0].write_file("s1", "/a", content(b"old"), writing(), None)
    old = content(b"old").digest.hex()

    async def write(number: int) -> bool:
        try:
            await stores[number % 4].write_file("s1", "/a", content(b"%d" % number), writing(expected=old), None)
        except ServiceError:
            return False
        return True

    assert sum(await asyncio.gather(*map(write, range(12)))) == 1


async def a_read_only_file_is_changed_by_the_host_alone(database: Database) -> None:
    files = (await open_services(database)).files
    await files.write_file("s1", "/d/a", content(b"1"), writing(readonly=True, host=True), None)
    assert await refusal(files.write_file("s1", "/d/a", content(b"2"), writing(), None)) == "permission_denied"
    assert await refusal(files.delete_file("s1", "/d/a", False, False, None)) == "permission_denied"
    assert await refusal(files.delete_file("s1", "/d", True, False, None)) == "permission_denied"
    assert await refusal(files.delete_file("s1", "/d/a", False, True, None, "0" * 64)) == "conflict"
    assert await files.delete_file("s1", "/d", True, True, None) == 2


async def a_directory_is_removed_with_all_in_it_or_not_at_all(database: Database) -> None:
    files = (await open_services(database)).files
    for path in ("/a/b/c", "/a/d", "/a-b", "/ab"):
        await files.write_file("s1", path, content(path.encode()), writing(), None)
    assert await refusal(files.delete_file("s1", "/a", False, False, None)) == "not_empty"
    assert await files.delete_file("s1", "/a", True, False, None) == 4
    assert await files.delete_file("s1", "/a", True, False, None) == 0
    assert [each.path for each in await files.list_files("s1", "/")] == ["/a-b", "/ab"]
    assert await files.delete_file("s1", "/", True, False, None) == 2
    assert await files.list_files("s1", "/") == []


async def content_that_several_files_share_stays_until_the_last_is_gone(database: Database) -> None:
    services = await open_services(database)
    for session, path in (("s1", "/a"), ("s1", "/b"), ("s2", "/a")):
        await services.files.write_file(session, path, content(b"same"), writing(), None)
    await services.attachments.put_attachment("s1", b"same", "n", "text/plain", 100.0, WIDE, None)
    await services.files.delete_file("s1", "/a", False, False, None)
    await services.files.write_file("s1", "/b", content(b"other"), writing(), None)
    assert await services.attachments.get_attachment("s1", content(b"same").digest) == b"same"
    await services.attachments.delete_attachment("s1", content(b"same").digest, None)
    found = await services.files.read_file("s2", "/a")
    assert found is not None
    assert found[1] == b"same"


async def a_search_reads_all_content_below_a_path_once(database: Database) -> None:
    files = (await open_services(database)).files
    for path, data in {"/d/big": b"x" * (9 * PIECE), "/d/a": b"1", "/d/a-b": b"2", "/e": b"3", "/d/empty": b""}.items():
        await files.write_file("s1", path, content(data), writing(), None)
    assert await _scanned(files, "/") == {"/d/a": b"1", "/d/a-b": b"2", "/d/big": b"x" * (9 * PIECE), "/e": b"3"}
    assert set(await _scanned(files, "/d")) == {"/d/a", "/d/a-b", "/d/big"}
    assert await _scanned(files, "/d/a") == {"/d/a": b"1"}
    assert await _scanned(files, "/nowhere") == {}


async def _scanned(files: FilesStore, path: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    after: Portion | None = None
    while after is None or not after.final:
        after = await files.scan_files("s1", path, after)
        for piece in after.pieces:
            assert piece.number == len(found.get(piece.path, b"")) // PIECE
            found[piece.path] = found.get(piece.path, b"") + piece.content
    assert list(found) == sorted(found)
    return found


async def a_session_has_no_more_files_than_it_may(database: Database) -> None:
    files = (await open_services(database)).files
    few, small = Quota(2, 1_000), Quota(10, 5)
    await files.write_file("s1", "/d/a", content(b"123"), writing(quota=few), None)
    assert await refusal(files.write_file("s1", "/b", content(b"1"), writing(quota=few), None)) == "quota"
    assert await refusal(files.make_directory("s1", "/e", 100.0, few, None)) == "quota"
    assert await refusal(files.write_file("s1", "/d/a", content(b"123456"), writing(quota=small), None)) == "quota"
    assert await files.find_file("s1", "/b") is None
    found = await files.read_file("s1", "/d/a")
    assert found is not None
    assert found[1] == b"123"
    await files.write_file("s1", "/d/a", content(b"12345"), writing(quota=small), None)
    await files.write_file("s2", "/a", content(b"12345"), writing(quota=small), None)


async def a_change_of_files_under_a_mark_is_made_once(database: Database) -> None:
    store = await database.open()
    files, mark = services_of(store).files, await marked(store)
    first = await files.write_file("s1", "/a", content(b"1"), writing(100.0, expected=""), mark)
    await files.delete_file("s1", "/a", False, False, None)
    assert await files.write_file("s1", "/a", content(b"1"), writing(200.0, expected=""), mark) == first
    assert await files.find_file("s1", "/a") is None


async def files_are_those_of_one_session(database: Database) -> None:
    files = (await open_services(database)).files
    made = await files.write_file("s1", "/a", content(b"1"), writing(), None)
    assert await files.find_file("s2", "/a") is None
    assert await files.read_piece("s2", made, 0) is None
    assert await files.list_files("s2", "/") == []
    assert await files.delete_file("s2", "/", True, True, None) == 0
    assert (await files.scan_files("s2", "/", None)).pieces == []
    assert await files.find_file("s1", "/a") == made


FILES = cases(
    a_file_comes_back_as_it_was_written,
    a_file_that_is_written_again_keeps_its_first_instant_and_its_flag,
    a_file_has_the_directories_above_it,
    a_file_is_written_only_over_the_content_that_was_expected,
    of_many_who_expect_the_same_content_one_writes,
    a_read_only_file_is_changed_by_the_host_alone,
    a_directory_is_removed_with_all_in_it_or_not_at_all,
    content_that_several_files_share_stays_until_the_last_is_gone,
    a_search_reads_all_content_below_a_path_once,
    a_session_has_no_more_files_than_it_may,
    a_change_of_files_under_a_mark_is_made_once,
    files_are_those_of_one_session,
)
