"""A whole session as one archive: out, in, and what is refused on the way."""

import io
import os
import zipfile

import apsw
import pytest

from tests.support import fail_after
from toolwright import ConnectionRequired, Pending, ToolCall, ToolContext, jsonx, tool
from toolwright.errors import ArchiveError, ServiceError, StoreError, ToolwrightError
from toolwright.session.secrets.master_keys import GivenKeys
from toolwright.stores.contracts.sessions import Quota, Quotas

NOW = 1_700_000_000.0
BLOB = b"hello\n"
HASH = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"


async def fill(session):
    await session.messages.append({"text": "hi ✈"}, sender="user", metadata={"a": 1})
    await session.messages.append("there", sender="assistant")
    await session.kv.set("k", [1, 2.5, None, "ü"])
    await session.resources.upsert("r", kind="run", name="R", status="ok", metadata={"x": [1]})
    await session.attachments.put(b"x" * 2_500_000, name="big", media_type="a/b")
    await session.attachments.put(b"", name="empty", media_type="a/b")
    await session.connect("github", detail={"login": "ada"})


async def contents(session):
    return (
        await session.messages.list(),
        [(info, await session.kv.get(info.key)) for info in await session.kv.list()],
        await session.resources.list(),
        [(info, await session.attachments.get(info.hash)) for info in await session.attachments.list()],
        await session.connections(),
    )


def write_rows(file):
    """Files and secrets, as the services that own them write them."""
    with apsw.Connection(str(file)) as connection:
        for path, directory in (("/a", 1), ("/a/b.txt", 0), ("/c.txt", 0)):
            parent, digest = path.rpartition("/")[0] or "/", None if directory else bytes.fromhex(HASH)
            connection.execute(
                "INSERT INTO files VALUES ('s', ?, ?, ?, ?, ?, 0, ?, ?)",
                (path, parent, directory, digest, 0 if directory else len(BLOB), NOW, NOW),
            )
        connection.execute("INSERT INTO blobs VALUES (?, 0, ?)", (bytes.fromhex(HASH), BLOB))
        connection.execute("INSERT INTO secrets VALUES ('s', 'token', 'm1', x'01', x'0203', ?, ?)", (NOW, NOW))


def rows(file, table, session="s"):
    with apsw.Connection(str(file)) as connection:
        found = connection.execute(f"SELECT * FROM {table} WHERE session = ? ORDER BY 2", (session,)).fetchall()
    return [row[1:] for row in found]


@pytest.mark.parametrize("to", ["memory", "file"])
async def test_a_session_comes_out_of_its_archive_as_it_went_in(place, open_runtime, tmp_path, to):
    first = await open_runtime(place)
    await fill(first.session("s"))
    exported = await first.export_session("s", tmp_path / "s.zip")
    assert exported.counts["messages"] == 2
    assert exported.bytes == (tmp_path / "s.zip").stat().st_size
    assert os.stat(tmp_path / "s.zip").st_mode & 0o077 == 0
    second = await open_runtime(":memory:" if to == "memory" else tmp_path / "other.db")
    imported = await second.import_session(tmp_path / "s.zip")
    assert (imported.session, imported.counts, imported.secrets_left_out) == ("s", exported.counts, ())
    assert await contents(second.session("s")) == await contents(first.session("s"))
    assert (await second.session("s").messages.append("more", sender="user")).number == 3
    await second.import_session(tmp_path / "s.zip", as_id="t")
    assert await contents(second.session("t")) == await contents(first.session("s"))
    assert [info.id for info in await second.sessions()] == ["s", "t"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".zip") == ["s.zip"]


async def test_files_come_with_their_content_and_secrets_sealed_or_not_at_all(file, open_runtime, tmp_path):
    first = await open_runtime(file)
    write_rows(file)
    exported = await first.export_session("s", tmp_path / "s.zip")
    assert (exported.counts["files"], exported.counts["secrets"]) == (3, 1)
    other = tmp_path / "other.db"
    second = await open_runtime(other)
    imported = await second.import_session(tmp_path / "s.zip")
    assert imported.secrets_left_out == ("token",)
    assert rows(other, "files") == rows(file, "files")
    assert rows(other, "secrets") == []
    with apsw.Connection(str(other)) as connection:
        assert connection.execute("SELECT * FROM blobs").fetchall() == [(bytes.fromhex(HASH), 0, BLOB)]
        connection.execute("INSERT INTO secrets VALUES ('mine', 'x', 'm1', x'', x'', 0, 0)")
    assert (await second.import_session(tmp_path / "s.zip", as_id="t")).secrets_left_out == ("token",)
    assert (await second.import_session(tmp_path / "s.zip", replace=True)).secrets_left_out == ()
    assert rows(other, "secrets") == rows(file, "secrets") == [("token", "m1", b"\1", b"\2\3", NOW, NOW)]


async def test_a_session_that_exists_is_replaced_only_when_that_is_said(place, open_runtime, tmp_path):
    runtime = await open_runtime(place)
    session = runtime.session("s")
    await fill(session)
    await runtime.export_session("s", tmp_path / "s.zip")
    before = await contents(session)
    await session.kv.set("new", 1)
    with pytest.raises(ServiceError, match="already") as refused:
        await runtime.import_session(tmp_path / "s.zip")
    assert refused.value.code == "exists"
    assert await session.kv.get("new") == 1
    await runtime.import_session(tmp_path / "s.zip", replace=True)
    assert await contents(session) == before
    with pytest.raises(ArchiveError, match="already"):
        await runtime.export_session("s", tmp_path / "s.zip")
    await runtime.export_session("s", tmp_path / "s.zip", replace=True)
    with pytest.raises(ServiceError, match="no session") as refused:
        await runtime.export_session("unknown", tmp_path / "u.zip")
    assert refused.value.code == "not_found"
    with pytest.raises(ArchiveError, match="cannot be written"):
        await runtime.export_session("s", tmp_path / "none" / "s.zip")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


async def test_a_deleted_session_leaves_nothing(file, open_runtime):
    @tool
    async def work(ctx: ToolContext) -> str:
        await ctx.kv.set("a", 1)
        return "done"

    runtime = await open_runtime(file, work)
    call = ToolCall(id="c1", name="work", arguments={})
    for name in ("s", "t"):
        await fill(runtime.session(name))
        await runtime.session(name).run_batch([call])
    write_rows(file)
    assert [(info.id, info.calls, info.unfinished) for info in await runtime.sessions()] == [("s", 1, 0), ("t", 1, 0)]
    assert await runtime.delete_session("s")
    assert not await runtime.delete_session("s")
    with apsw.Connection(str(file)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            if table == "events":  # that it was removed is all that is left
                query = "SELECT kind FROM events WHERE session = 's'"
                assert connection.execute(query).fetchall() == [("session.removed",)]
            elif "session" in columns:
                assert rows(file, table) == [], table
        # What the other session has, too, stays.
        assert connection.execute("SELECT count(DISTINCT digest) FROM blobs").fetchall() == [(1,)]
    assert len(await runtime.session("t").attachments.list()) == 2
    assert not (await runtime.session("s").run_batch([call]))[0].replayed


async def test_a_session_with_something_unfinished_is_not_deleted_and_not_replaced(place, open_runtime, tmp_path):
    keys = []

    @tool
    async def order(ctx: ToolContext) -> Pending:
        keys.append(ctx.completion_key())
        return Pending()

    runtime = await open_runtime(place, order)
    session = runtime.session("s")
    await fill(session)
    await runtime.export_session("s", tmp_path / "s.zip")
    async with fail_after(5):
        batch = session.start_batch([ToolCall(id="c1", name="order", arguments={})])
        assert await session.wait_for_idle()
        with pytest.raises(ServiceError) as refused:
            await runtime.delete_session("s")
        assert refused.value.code == "unfinished"
        with pytest.raises(ServiceError):
            await runtime.import_session(tmp_path / "s.zip", replace=True)
        await runtime.resolve(keys[0], 1)
        await batch
    assert await session.kv.get("k") is not None
    assert await runtime.delete_session("s")
    assert await runtime.sessions() == []


async def test_a_session_that_another_program_left_unfinished_is_not_deleted(file, open_runtime):
    @tool
    async def order(ctx: ToolContext) -> Pending:
        ctx.completion_key()
        return Pending()

    first = await open_runtime(file, order)
    async with fail_after(5):
        first.session("s").start_batch([ToolCall(id="c1", name="order", arguments={})])
        await first.session("s").wait_for_idle()
    second = await open_runtime(file)
    with pytest.raises(ServiceError, match="1 unfinished"):
        await second.delete_session("s")


# --- archives that nobody exported


class Forged:
    """An archive to be spoilt: its members by name."""

    def __init__(self) -> None:
        counts = dict.fromkeys(
            ("files", "key_values", "secrets", "messages", "attachments", "resources", "connections"), 0
        )
        self.members: dict[str, bytes] = {f"{name}.jsonl": b"" for name in counts}
        self.manifest = {
            "format": "toolwright-session",
            "version": 1,
            "session": "s",
            "exported_at": NOW,
            "counts": counts,
        }
        self.options: dict = {}
        self.tail = b""

    def add(self, table: str, *rows: dict) -> None:
        self.members[f"{table}.jsonl"] += b"".join(jsonx.encode(row) + b"\n" for row in rows)
        self.manifest["counts"][table] += len(rows)  # type: ignore[index]

    def file(self, path: str, **changes) -> None:
        row = {"path": path, "directory": False, "hash": HASH, "size": len(BLOB), "readonly": False}
        self.add("files", {**row, "created_at": NOW, "updated_at": NOW, **changes})
        self.members[f"blobs/{HASH}"] = BLOB

    def write(self) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", **{"compression": zipfile.ZIP_DEFLATED, **self.options}) as archive:
            for name, data in {**self.members, "manifest.json": jsonx.encode(self.manifest)}.items():
                archive.writestr(name, data)
        return out.getvalue() + self.tail


KEY = {"key": "k", "value": 1, "created_at": NOW, "updated_at": NOW}
MESSAGE = {"number": 1, "sender": "user", "content": "x", "metadata": {}, "at": NOW}
ATTACHED = {"hash": HASH, "name": "a", "media_type": "a/b", "size": len(BLOB), "at": NOW}
CONNECTED = {"provider": "p", "detail": None, "connected_at": NOW}
RESOURCE = {"id": "r", "kind": "k", "name": "n", "status": "s", "metadata": {}, "created_at": NOW, "updated_at": NOW}


SPOILT = {
    "a path up": lambda forged: forged.file("/../etc/passwd"),
    "a path that is not absolute": lambda forged: forged.file("etc/passwd"),
    "a path with an empty name": lambda forged: forged.file("//a"),
    "a path with a dot": lambda forged: forged.file("/./a"),
    "a path with NUL": lambda forged: forged.file("/a\0b"),
    "a path with a backslash": lambda forged: forged.file("/a\\b"),
    "a path with a slash that is none": lambda forged: forged.file("/a\u2215b"),
    "a path with wide dots": lambda forged: forged.file("/\uff0e\uff0e"),
    "a path in the alias of the root": lambda forged: forged.file("/workspace"),
    "a path that turns around": lambda forged: forged.file("/a\u202eb"),
    "a path without its directory": lambda forged: forged.file("/a/b"),
    "a path below a file": lambda forged: (forged.file("/a"), forged.file("/a/b")),
    "a long path": lambda forged: forged.file("/" + "x" * 300),
    "a path twice": lambda forged: (forged.file("/a"), forged.file("/a")),
    "a directory with content": lambda forged: forged.file("/a", directory=True),
    "a file without content": lambda forged: forged.file("/a", hash=None),
    "a file of another size": lambda forged: forged.file("/a", size=3),
    "a file of a negative size": lambda forged: forged.file("/a", size=-6),
    "two sizes of one content": lambda forged: (forged.file("/a"), forged.file("/b", size=7)),
    "content of another hash": lambda forged: (forged.file("/a"), forged.members.update({f"blobs/{HASH}": b"hellO\n"})),
    "content that is missing": lambda forged: (forged.file("/a"), forged.members.pop(f"blobs/{HASH}")),
    "content of nobody": lambda forged: forged.members.update({f"blobs/{HASH}": BLOB}),
    "a hash that leads elsewhere": lambda forged: forged.add("attachments", ATTACHED | {"hash": "../manifest.json"}),
    "a member elsewhere": lambda forged: forged.members.update({"../../etc/passwd": b"x"}),
    "an absolute member": lambda forged: forged.members.update({"/etc/passwd": b"x"}),
    "a member of another name": lambda forged: forged.members.update({"calls.jsonl": b""}),
    "a member that is missing": lambda forged: forged.members.pop("messages.jsonl"),
    "a directory as a member": lambda forged: forged.members.update({"blobs/": b""}),
    "another packing": lambda forged: forged.options.update(compression=zipfile.ZIP_BZIP2),
    "another format": lambda forged: forged.manifest.update(format="other"),
    "a later version": lambda forged: forged.manifest.update(version=2),
    "an earlier version": lambda forged: forged.manifest.update(version=0),
    "no version": lambda forged: forged.manifest.pop("version"),
    "an unusable id": lambda forged: forged.manifest.update(session=""),
    "no counts": lambda forged: forged.manifest.update(counts={}),
    "a wrong count": lambda forged: (forged.add("key_values", KEY), forged.manifest["counts"].update(key_values=2)),
    "a long manifest": lambda forged: forged.manifest.update(more="x" * 70_000),
    "a comment at its end": lambda forged: setattr(forged, "tail", b"PK"),
    "a key twice": lambda forged: forged.add("key_values", KEY, KEY),
    "an unusable key": lambda forged: forged.add("key_values", KEY | {"key": "a\nb"}),
    "a column more": lambda forged: forged.add("key_values", KEY | {"session": "t"}),
    "a column less": lambda forged: forged.add("key_values", {"key": "k"}),
    "an instant that is none": lambda forged: forged.add("key_values", KEY | {"created_at": 1e300}),
    "a value that is no JSON": lambda forged: (
        forged.add("key_values", KEY),
        forged.members.update({"key_values.jsonl": jsonx.encode(KEY).replace(b":1,", b":01,", 1) + b"\n"}),
    ),
    "a row that is cut off": lambda forged: (
        forged.add("key_values", KEY),
        forged.members.update({"key_values.jsonl": jsonx.encode(KEY)}),
    ),
    "a sender that is none": lambda forged: forged.add("messages", MESSAGE | {"sender": "root"}),
    "a message before the first": lambda forged: forged.add("messages", MESSAGE | {"number": 0}),
    "a number too large": lambda forged: forged.add("messages", MESSAGE | {"number": 2**70}),
    "the last number of all": lambda forged: forged.add("messages", MESSAGE | {"number": 2**63 - 1}),
    "metadata that is no object": lambda forged: forged.add("messages", MESSAGE | {"metadata": [1]}),
    "an unusable provider": lambda forged: forged.add("connections", CONNECTED | {"provider": ""}),
    "an unusable resource": lambda forged: forged.add("resources", RESOURCE | {"kind": ""}),
    "too many rows": lambda forged: forged.add("key_values", *(KEY | {"key": str(n)} for n in range(6))),
    "too many bytes": lambda forged: forged.add("key_values", KEY | {"value": "x" * 70_000}),
    "a bomb of one row": lambda forged: forged.add("messages", MESSAGE | {"content": "x" * 2_000_000}),
    "a bomb of a file": lambda forged: (forged.file("/a"), forged.members.update({f"blobs/{HASH}": b"x" * 5_000_000})),
    "a bomb that says its size": lambda forged: forged.file("/a", size=5_000_000),
    "too many members": lambda forged: forged.members.update({f"blobs/{n:064x}": b"" for n in range(40)}),
}
SMALL = Quotas(
    key_values=Quota(5, 1_000), messages=Quota(5, 10_000), files=Quota(5, 10_000), attachments=Quota(5, 10_000)
)


@pytest.mark.parametrize("what", SPOILT)
async def test_an_archive_that_is_not_what_it_says_leaves_nothing_behind(file, open_runtime, tmp_path, what):
    forged = Forged()
    SPOILT[what](forged)
    (tmp_path / "s.zip").write_bytes(forged.write())
    runtime = await open_runtime(file, quotas=SMALL)
    with pytest.raises(ToolwrightError) as refused:
        await runtime.import_session(tmp_path / "s.zip")
    assert not isinstance(refused.value, StoreError)
    assert await runtime.sessions() == []
    with apsw.Connection(str(file)) as connection:
        assert connection.execute("SELECT count(*) FROM blobs").fetchall() == [(0,)]


async def test_an_archive_that_is_in_order_is_read_though_nobody_exported_it(place, open_runtime, tmp_path):
    forged = Forged()
    forged.file("/b", directory=True, hash=None, size=0)
    forged.file("/b/c")
    forged.file("/d")
    forged.add("key_values", KEY)
    forged.add("messages", MESSAGE)
    forged.add("attachments", ATTACHED)
    forged.add("connections", CONNECTED)
    forged.add("resources", RESOURCE)
    (tmp_path / "s.zip").write_bytes(forged.write())
    runtime = await open_runtime(place, quotas=SMALL)
    imported = await runtime.import_session(tmp_path / "s.zip")
    assert sum(imported.counts.values()) == 8
    assert await runtime.session("s").attachments.get(HASH) == BLOB


@pytest.mark.parametrize("cut", [0, 10, 41, 200, -30, -1])
async def test_an_archive_that_is_cut_or_damaged_is_refused(place, open_runtime, tmp_path, cut):
    first = await open_runtime(":memory:")
    await fill(first.session("s"))
    await first.export_session("s", tmp_path / "s.zip")
    whole = (tmp_path / "s.zip").read_bytes()
    runtime = await open_runtime(place)
    (tmp_path / "s.zip").write_bytes(whole[:cut])
    with pytest.raises(ArchiveError):
        await runtime.import_session(tmp_path / "s.zip")
    (tmp_path / "s.zip").write_bytes(whole[:1000] + b"\xff" * 20 + whole[1020:])
    with pytest.raises(ArchiveError):
        await runtime.import_session(tmp_path / "s.zip", as_id="t")
    assert await runtime.sessions() == []
    with pytest.raises(ArchiveError, match="no archive"):
        await runtime.import_session(tmp_path / "none.zip")
    with pytest.raises(ArchiveError):
        await runtime.import_session(tmp_path)


async def test_a_call_that_lacked_a_connection_is_retried_when_it_came_with_an_archive(place, open_runtime, tmp_path):
    @tool
    async def star(ctx: ToolContext) -> str | ConnectionRequired:
        return "starred" if await ctx.connections.get("github") else ConnectionRequired("github")

    other = await open_runtime(":memory:")
    await other.session("s").connect("github")
    await other.export_session("s", tmp_path / "s.zip")
    runtime = await open_runtime(place, star)
    session = runtime.session("t")
    assert (await session.call("star")).status == "connection_required"
    await runtime.import_session(tmp_path / "s.zip", as_id="t", replace=True)
    assert (await session.call("star")).value == "starred"


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize("to", ["memory", "file"])
async def test_a_session_that_is_open_redacts_the_secrets_that_are_imported_into_it(open_runtime, tmp_path, to):
    @tool
    async def read(ctx: ToolContext) -> str:
        return await ctx.files.read("/notes.txt")

    keys = GivenKeys(bytes(range(32)))
    first = await open_runtime(tmp_path / "first.db", read, master_key=keys)
    await first.session("s").secrets.set("token", "a-token-of-ours")
    await first.session("s").files.write("/notes.txt", "with a-token-of-ours")
    await first.export_session("s", tmp_path / "s.zip")

    second = await open_runtime(":memory:" if to == "memory" else tmp_path / "second.db", read, master_key=keys)
    await second.session("other").secrets.set("key", "of the same master key")
    session = second.session("s")
    await session.files.write("/notes.txt", "without")
    assert (await session.call("read")).value == "without"
    await second.import_session(tmp_path / "s.zip", replace=True)
    assert (await session.call("read")).value == "with [secret:token]"
