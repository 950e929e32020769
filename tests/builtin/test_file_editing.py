"""Tools that change the session's files."""

import asyncio
import base64
import hashlib
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import ToolCall
from toolwright.builtin.file_editing import MOST_EDITED, delete_file, edit_file, write_file
from toolwright.builtin.file_reading import grep_files, list_directory, read_file, stat_file
from toolwright.stores.sqlite.store import SqliteStore


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.promise("BLT-01")
async def test_a_file_is_written_in_place_of_what_it_had(run, files):
    for content in ("old text", "née\n"):
        outcome = await run(write_file, path="/a/b/c.txt", content=content)
    assert outcome.value == {"path": "/a/b/c.txt", "size": 5, "hash": sha("née\n".encode())}
    assert await files.read("/a/b/c.txt") == "née\n"


async def test_a_file_that_is_not_text_is_written_from_base64(run, files):
    content = bytes(range(256))
    await run(write_file, path="/a", content=base64.b64encode(content).decode(), encoding="base64")
    assert await files.read_bytes("/a") == content


@pytest.mark.parametrize("content", ["not base64!", "YQ=", "é"])
async def test_base64_that_is_none_is_refused_and_nothing_is_written(run, files, content):
    outcome = await run(write_file, path="/a", content=content, encoding="base64")
    assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", "bad_encoding")
    assert await files.stat("/a") is None


async def test_a_file_is_written_only_if_it_is_what_was_expected(run, files):
    new = await run(write_file, path="/a", content="1", expected_hash="")
    assert new.ok
    for expected in ("", sha(b"other")):
        assert not (await run(write_file, path="/a", content="2", expected_hash=expected)).ok
    assert await files.read("/a") == "1"
    assert (await run(write_file, path="/a", content="2", expected_hash=new.value["hash"])).ok


@pytest.mark.parametrize("tool", [write_file, edit_file, delete_file], ids=lambda tool: tool.name)
async def test_a_read_only_file_is_not_changed(run, files, tool):
    await files.write("/a", "keep", readonly=True)
    arguments = {
        "write_file": {"content": "x"},
        "edit_file": {"edits": [{"old_text": "keep", "new_text": "x"}]},
        "delete_file": {},
    }[tool.name]
    outcome = await run(tool, path="/a", **arguments)
    assert outcome.failure.category == "permission_denied"
    assert await files.read("/a") == "keep"


async def test_a_directory_is_not_written(run, files):
    await files.make_directory("/folder")
    assert (await run(write_file, path="/folder", content="x")).failure.code == "is_directory"


@pytest.mark.promise("BLT-01")
async def test_many_edits_are_made_in_one_call_and_come_back_as_a_diff_and_a_hash(run, files):
    old = "".join(f"{number}\n" for number in range(1, 11)) + "end"
    await files.write("/a.txt", old)
    outcome = await run(
        edit_file,
        path="/a.txt",
        expected_hash=sha(old.encode()),
        edits=[
            {"old_text": "2\n3\n", "new_text": "two\nthree\n"},
            {"old_text": "three", "new_text": "3!"},
            {"old_text": "end", "new_text": "end\n"},
        ],
    )
    new = old.replace("2\n3\n", "two\n3!\n").replace("end", "end\n")
    assert await files.read("/a.txt") == new
    diff = outcome.value.pop("diff")
    assert outcome.value == {
        "path": "/a.txt",
        "replacements": 3,
        "size": len(new),
        "hash": sha(new.encode()),
    }
    assert diff == (
        "--- /a.txt\n+++ /a.txt\n"
        "@@ -1,6 +1,6 @@\n 1\n-2\n-3\n+two\n+3!\n 4\n 5\n 6\n"
        "@@ -8,4 +8,4 @@\n 8\n 9\n 10\n-end\n\\ No newline at end of file\n+end\n"
    )


@pytest.mark.promise("BLT-01")
async def test_edits_are_made_all_or_not_at_all(run, files):
    await files.write("/a", "one two")
    outcome = await run(
        edit_file,
        path="/a",
        edits=[{"old_text": "one", "new_text": "1"}, {"old_text": "three", "new_text": "3"}],
    )
    assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", "no_match")
    assert "Edit 2" in outcome.failure.message
    assert await files.read("/a") == "one two"


@pytest.mark.parametrize(("text", "old"), [("a b a", "a"), ("aaa", "aa"), ("x\nx\n", "x\n")])
async def test_a_text_that_is_found_more_than_once_is_not_replaced_unless_all_are_meant(run, files, text, old):
    await files.write("/a", text)
    edit = {"old_text": old, "new_text": "!"}
    outcome = await run(edit_file, path="/a", edits=[edit])
    assert outcome.failure.code == "many_matches"
    assert await files.read("/a") == text
    outcome = await run(edit_file, path="/a", edits=[{**edit, "replace_all": True}])
    assert await files.read("/a") == text.replace(old, "!")
    assert outcome.value["replacements"] == text.count(old)


async def test_a_file_that_is_not_what_was_expected_is_not_edited(run, files):
    await files.write("/a", "one")
    outcome = await run(
        edit_file, path="/a", edits=[{"old_text": "one", "new_text": "1"}], expected_hash=sha(b"something else")
    )
    assert outcome.failure.code == "conflict"
    assert await files.read("/a") == "one"


@pytest.mark.parametrize(
    ("content", "edits", "code"),
    [
        (b"\xff\xfe", [{"old_text": "a", "new_text": "b"}], "not_text"),
        (b"a", [{"old_text": "a", "new_text": "a"}], "no_change"),
        (b"a", [{"old_text": "a", "new_text": "b"}, {"old_text": "b", "new_text": "a"}], "no_change"),
        (b"x" * (MOST_EDITED + 1), [{"old_text": "x", "new_text": "y", "replace_all": True}], "too_large"),
        (b"x" * 100_000, [{"old_text": "x", "new_text": "y" * 1_000, "replace_all": True}], "too_large"),
    ],
    ids=["binary", "same", "there and back", "large", "growing"],
)
async def test_what_cannot_be_edited_stays_as_it_is(run, files, content, edits, code):
    await files.write("/a", content)
    assert (await run(edit_file, path="/a", edits=edits)).failure.code == code
    assert await files.read_bytes("/a") == content


@pytest.mark.parametrize(
    "edits",
    [
        [],
        [{"old_text": "", "new_text": "x"}],
        [{"old_text": "a"}],
        [{"old_text": "a", "new_text": "b", "line": 3}],
        [{"old_text": "a", "new_text": "b"}] * 101,
    ],
    ids=["none", "empty", "half", "unknown", "many"],
)
async def test_edits_that_are_none_are_refused(run, files, edits):
    await files.write("/a", "a")
    assert (await run(edit_file, path="/a", edits=edits)).failure.category == "invalid_arguments"


@pytest.mark.parametrize(("path", "code"), [("/missing", "not_found"), ("/folder", "is_directory")])
async def test_only_files_that_are_there_are_edited(run, files, path, code):
    await files.make_directory("/folder")
    outcome = await run(edit_file, path=path, edits=[{"old_text": "a", "new_text": "b"}])
    assert outcome.failure.code == code


@pytest.mark.promise("BLT-01")
async def test_a_file_is_deleted_and_a_directory_when_that_is_meant(run, files):
    await files.write("/folder/a", "x")
    await files.write("/folder/b", "x")
    assert (await run(delete_file, path="/folder/a")).value == {"path": "/folder/a", "deleted": 1}
    assert (await run(delete_file, path="/folder")).failure.code == "not_empty"
    assert await files.read("/folder/b") == "x"
    assert (await run(delete_file, path="/folder", recursive=True)).value == {"path": "/folder", "deleted": 2}
    assert (await run(delete_file, path="/folder")).failure.code == "not_found"


class Hanging:
    """The files of a store, which makes a change that a call asks for, and then does not answer."""

    def __init__(self, files):
        self._files = files
        self.written = asyncio.Event()

    def __getattr__(self, verb):
        return getattr(self._files, verb)

    async def write_file(self, *change):
        await self._files.write_file(*change)
        self.written.set()
        await asyncio.Event().wait()


async def test_an_edit_that_was_cut_off_after_its_write_is_told_and_not_made_again(file, open_runtime):
    """The old text is gone by then: what the call gives is known from before the write."""
    before = await open_runtime(file)
    await before.session("s").files.write("/a", "one\n")
    await before.close()
    store = SqliteStore(file)
    hanging: Any = Hanging(store.services.files)
    store.services.files = hanging
    call = ToolCall(
        id="c1",
        name="edit_file",
        arguments={"path": "/a", "edits": [{"old_text": "one", "new_text": "one more one"}]},
    )
    first = await open_runtime(store, edit_file)
    batch = first.session("s").start_batch([call])
    async with fail_after(5):
        await hanging.written.wait()
        await first.close()
        (cut_off,) = await batch
    assert cut_off.status == "cancelled"

    session = (await open_runtime(file, edit_file)).session("s")
    assert await session.files.read("/a") == "one more one\n"
    (outcome,) = await session.run_batch([call])
    assert await session.files.read("/a") == "one more one\n"
    assert outcome.value["diff"].endswith("-one\n+one more one\n")
    assert outcome.value["hash"] == sha(b"one more one\n")


@pytest.mark.promise("BLT-01")
async def test_what_one_batch_does_to_one_path_is_done_in_its_order(place, open_runtime):
    """Those that read may overlap, those that change what others look at may not."""
    tools = (write_file, edit_file, delete_file, read_file, list_directory, grep_files, stat_file)
    session = (await open_runtime(place, *tools)).session("s")

    def calls(*made):
        return [ToolCall(name=name, arguments=arguments) for name, arguments in made]

    outcomes = await session.run_batch(
        calls(
            ("write_file", {"path": "/d/a", "content": "one"}),
            ("read_file", {"path": "/workspace/d/a"}),
            ("edit_file", {"path": "//d/./a", "edits": [{"old_text": "one", "new_text": "two"}]}),
            ("grep_files", {"pattern": "two"}),
            ("list_directory", {"path": "/d"}),
            ("delete_file", {"path": "/d", "recursive": True}),
            ("stat_file", {"path": "/d/a"}),
            ("write_file", {"path": "/d/a", "content": "three"}),
            ("read_file", {"path": "/d/a"}),
            ("stat_file", {"path": "/d/a"}),
        )
    )
    assert outcomes[1].value["content"] == "     1\tone"
    assert outcomes[3].value["count"] == 1
    assert outcomes[4].value["total"] == 1
    assert outcomes[6].failure.code == "not_found"
    assert outcomes[8].value["content"] == "     1\tthree"
    assert outcomes[9].value["size"] == 5


@pytest.mark.promise("BLT-01")
@pytest.mark.parametrize(
    ("calls", "kinds"),
    [
        ([("write_file", "/a"), ("write_file", "/b")], ["started", "started", "finished", "finished"]),
        ([("write_file", "/a"), ("write_file", "/a")], ["started", "finished", "started", "finished"]),
        ([("write_file", "/a"), ("read_file", "/a")], ["started", "finished", "started", "finished"]),
        ([("read_file", "/a"), ("read_file", "/a")], ["started", "started", "finished", "finished"]),
    ],
    ids=["two writes", "one path", "write and read", "two reads"],
)
async def test_reads_overlap_and_so_do_writes_of_different_paths(place, open_runtime, calls, kinds):
    """A change or a look takes a turn of the loop at least: what may start meanwhile has started."""
    session = (await open_runtime(place, write_file, read_file)).session("s")
    await session.files.write("/a", "x")
    events = session.subscribe()
    outcomes = await session.run_batch(
        [
            ToolCall(name=name, arguments={"path": path, **({"content": "x"} if name == "write_file" else {})})
            for name, path in calls
        ]
    )
    assert all(outcome.ok for outcome in outcomes)
    events.close()
    seen = [event.kind async for event in events]
    assert [kind for kind in seen if kind in ("call.started", "call.finished")] == [f"call.{kind}" for kind in kinds]


@pytest.mark.promise("SES-03")
async def test_an_edit_of_a_file_with_a_secret_in_it_gives_no_diff(run, session, files):
    await session.secrets.set("k", "correct horse battery staple")
    await files.write("/env", "user=ann\nTOKEN=correct horse battery staple\n")
    outcome = await run(edit_file, path="/env", edits=[{"old_text": "correct", "new_text": "wrong"}])
    assert outcome.value["replacements"] == 1
    assert "horse" not in outcome.text
    assert "left out" in outcome.value["diff"]
    await files.write("/plain", "user=ann\n")
    outcome = await run(edit_file, path="/plain", edits=[{"old_text": "ann", "new_text": "bob"}])
    assert "+user=bob" in outcome.value["diff"]
