"""Two sessions that do whatever they like with files: neither sees the other, and each sees a plain tree."""

import asyncio
import hashlib
import tempfile
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwright import Runtime
from toolwright.errors import ServiceError
from toolwright.stores.contracts.sessions import Quota, Quotas


class Tree:
    """What a session should have: the content of each file by its path, and None for a directory."""

    def __init__(self, most: int) -> None:
        self.entries: dict[str, bytes | None] = {}
        self.most = most

    def inside(self, path: str) -> list[str]:
        return sorted(each for each in self.entries if each.startswith("/" if path == "/" else f"{path}/"))

    def above(self, path: str) -> list[str]:
        names = path.split("/")[1:-1]
        return ["/" + "/".join(names[: count + 1]) for count in range(len(names))]

    def make(self, path: str) -> str | None:
        if path == "/":
            return None
        missing = []
        for each in [*self.above(path), path]:
            if each not in self.entries:
                missing.append(each)
            elif self.entries[each] is not None:
                return "not_directory"
        if len(self.entries) + len(missing) > self.most:
            return "quota"
        self.entries.update(dict.fromkeys(missing))
        return None

    def write(self, path: str, content: bytes, expected: str | None) -> str | None:
        if path == "/" or (path in self.entries and self.entries[path] is None):
            return "is_directory"
        now = self.entries.get(path)
        if expected is not None and expected != ("" if now is None else hashlib.sha256(now).hexdigest()):
            return "conflict"
        if path not in self.entries and (refused := self.make(path)) is not None:
            return refused
        self.entries[path] = content
        return None

    def delete(self, path: str, recursive: bool) -> str | int:
        inside = self.inside(path)
        if inside and not recursive:
            return "not_empty"
        removed = [*inside, *([path] if path in self.entries else [])]
        for each in removed:
            del self.entries[each]
        return len(removed)


PATHS = ["/", "/a", "/a/b", "/a/b/c", "/a-b", "/a/b.txt", "/A", "/workspace/a", "a/b", "/ü", "/u\u0308"]
CONTENTS = [b"", b"one", b"two\nlines", b"one\none", bytes(range(256))]
changes = st.tuples(
    st.sampled_from(["write", "write", "write", "make", "delete"]),
    st.sampled_from(PATHS),
    st.sampled_from(CONTENTS),
    st.sampled_from([None, None, "", *(hashlib.sha256(content).hexdigest() for content in CONTENTS)]),
    st.booleans(),
)


async def attempt(use):
    try:
        return await use
    except ServiceError as error:
        return error.code


async def do(files, tree, change):
    """Make a change in both, and compare what they say."""
    verb, path, content, expected, flag = change
    meant = {"/workspace/a": "/a", "a/b": "/a/b", "/u\u0308": "/ü"}.get(path, path)
    if verb == "write":
        said = await attempt(files.write(path, content, expected=expected))
        wanted = tree.write(meant, content, expected)
        assert said == wanted if wanted else said.hash == hashlib.sha256(content).hexdigest()
    elif verb == "make":
        said = await attempt(files.make_directory(path))
        wanted = tree.make(meant)
        assert said == wanted if wanted else (said.path, said.directory) == (meant, True)
    else:
        assert await attempt(files.delete(path, recursive=flag)) == tree.delete(meant, flag)


async def compare(files, tree):
    """Everything that can be seen of a session is in its tree, and the other way round."""
    seen: dict[str, bytes | None] = {}
    folders = ["/"]
    while folders:
        for info in await files.list(folders.pop()):
            seen[info.path] = None if info.directory else await files.read_bytes(info.path)
            if info.directory:
                folders.append(info.path)
    assert seen == tree.entries
    for path in ("/a", "/a/b", "/a/b/c", "/a-b", "/A", "/ü"):
        info = await files.stat(path)
        assert (info is not None) == (path in tree.entries)
    expected = [
        (path, number)
        for path, content in sorted(tree.entries.items())
        if content is not None and b"\0" not in content
        for number, line in enumerate(content.split(b"\n"), 1)
        if b"one" in line
    ]
    assert [(match.path, match.line) for match in await files.grep("one")] == expected


@pytest.mark.promise("SES-06", "SES-02")
@pytest.mark.parametrize("kind", ["memory", "file"])
@given(steps=st.lists(st.tuples(st.booleans(), changes), max_size=25), most=st.sampled_from([4, 100]))
@settings(max_examples=60)
def test_neither_of_two_sessions_sees_the_other(kind, steps, most):
    async def check(place) -> None:
        quotas = Quotas(files=Quota(most, 10_000))
        async with Runtime.open(place, sync="normal", quotas=quotas) as runtime:
            sessions = [(runtime.session(name).files, Tree(most)) for name in ("s", "s/../t")]
            for first, change in steps:
                files, tree = sessions[first]
                await do(files, tree, change)
            for session in sessions:
                await compare(*session)
            for files, tree in sessions:
                await files.delete("/", recursive=True)
                tree.entries.clear()
                for session in sessions:
                    await compare(*session)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(":memory:" if kind == "memory" else Path(folder) / "agent.db"))


@pytest.mark.promise("SES-06", "SES-02")
async def test_content_that_two_sessions_have_is_kept_until_the_last_of_them_lets_it_go(file, open_runtime):
    runtime = await open_runtime(file)
    one, other = runtime.session("s").files, runtime.session("t").files
    data = b"x" * 3_000_000

    def kept() -> list:
        connection = apsw.Connection(str(file))
        try:
            return connection.execute("SELECT number, length(content) FROM blobs ORDER BY digest, number").fetchall()
        finally:
            connection.close()

    for files in (one, other):
        await files.write("/a", data)
        await files.write("/copy", data)
    assert kept() == [(0, 1_048_576), (1, 1_048_576), (2, 902_848)]
    await one.delete("/", recursive=True)
    assert await other.read_bytes("/a") == data
    await other.write("/a", "small")
    assert len(kept()) == 4
    await other.delete("/copy")
    assert kept() == [(0, 5)]
    await other.write("/a", "")
    assert kept() == []
