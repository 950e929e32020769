"""`toolwright files`: the files of a session, on this machine's side."""

import asyncio
import base64
import hashlib
import os
import pty
import signal
import subprocess
import time
import tracemalloc
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_live import read_until
from toolwright import Runtime

DB = ("--db", "agent.db")
S1 = ("--session", "s1", *DB)
BINARY = bytes(range(256))
PIECE = 1024 * 1024


@pytest.fixture
def kept(project: Path) -> Path:
    """A store with a session that has files."""

    async def fill() -> None:
        async with Runtime.open(project / "agent.db") as runtime:
            files = runtime.session("s1").files
            await files.write("/notes/a.txt", "née\n")
            await files.write("/notes/b.bin", BINARY)
            await files.write("/notes/none", b"")
            await files.write("/steer.txt", "one\x1b[31m\x9b2J\ttwo\n")
            await files.write("/fixed", "keep", readonly=True)

    asyncio.run(fill())
    return project / "agent.db"


def read(path: str, session: str = "s1") -> bytes:
    """What a program finds in the store."""

    async def work() -> bytes:
        async with Runtime.open("agent.db") as runtime:
            return await runtime.session(session).files.read_bytes(path)

    return asyncio.run(work())


def test_a_directory_is_listed(run: Run, kept: Path) -> None:
    found = run("files", "ls", *S1, "--json").json
    assert [(info["path"], info["directory"], info["readonly"]) for info in found] == [
        ("/fixed", False, True),
        ("/notes", True, False),
        ("/steer.txt", False, False),
    ]
    (a, b, none) = run("files", "ls", "notes", *S1, "--json").json
    assert (a["path"], a["size"], a["hash"]) == ("/notes/a.txt", 5, hashlib.sha256("née\n".encode()).hexdigest())
    assert (b["path"], b["size"], none["size"]) == ("/notes/b.bin", 256, 0)
    out = run("files", "ls", *S1).out
    assert "notes/" in out
    assert "read-only" in out
    assert [info["path"] for info in run("files", "ls", "/notes/a.txt", *S1, "--json").json] == ["/notes/a.txt"]


def test_a_directory_with_nothing_in_it_is_listed_too(run: Run, kept: Path) -> None:
    async def make() -> None:
        async with Runtime.open(kept) as runtime:
            await runtime.session("s1").files.make_directory("/empty")

    asyncio.run(make())
    assert run("files", "ls", "/empty", *S1, "--json").json == []
    ended = run("files", "ls", "/empty", *S1)
    assert (ended.code, ended.out) == (0, "")


def test_a_file_is_printed_as_it_is(run: Run, kept: Path, command: list[str]) -> None:
    assert run("files", "cat", "/notes/a.txt", *S1).out == "née\n"
    assert run("files", "cat", "/notes/none", *S1) == (0, "", "")
    ended = subprocess.run([*command, "files", "cat", "/notes/b.bin", *S1], capture_output=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (0, BINARY)


def test_a_file_is_printed_as_json_whatever_is_in_it(run: Run, kept: Path) -> None:
    text = run("files", "cat", "/notes/a.txt", *S1, "--json").json
    assert text == {"path": "/notes/a.txt", "size": 5, "content": "née\n"}
    binary = run("files", "cat", "/notes/b.bin", *S1, "--json").json
    assert (binary["size"], base64.b64decode(binary["base64"])) == (256, BINARY)


def on_terminal(*words: str) -> tuple[int, str, str]:
    """Run a command whose stdout is a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        try:
            shown = read_until(ours, None)
            _, err = process.communicate(timeout=30)
        finally:
            os.close(ours)
            process.kill()
    return process.returncode, shown.decode().replace("\r\n", "\n"), err.decode()


def test_on_a_terminal_text_is_shown_without_what_would_steer_it(kept: Path, command: list[str]) -> None:
    assert on_terminal(*command, "files", "cat", "/steer.txt", *S1) == (0, "one�[31m�2J\ttwo\n", "")


def test_on_a_terminal_what_is_not_text_is_not_shown(kept: Path, command: list[str]) -> None:
    code, shown, err = on_terminal(*command, "files", "cat", "/notes/b.bin", *S1)
    assert (code, shown) == (2, "")
    assert "toolwright files get" in err


def test_a_file_is_put_under_a_name_or_into_a_directory(run: Run, kept: Path, project: Path) -> None:
    (project / "local.bin").write_bytes(BINARY)
    for words, path in [
        (("local.bin",), "/local.bin"),
        (("local.bin", "/other"), "/other"),
        (("local.bin", "/notes"), "/notes/local.bin"),
        (("local.bin", "/new/"), "/new/local.bin"),
        (("local.bin", "/fixed"), "/fixed"),
    ]:
        assert run("files", "put", *words, *S1).out == f"{path} is written (256 bytes)\n"
        assert read(path) == BINARY
    assert [info["readonly"] for info in run("files", "ls", "/fixed", *S1, "--json").json] == [True]


def test_a_file_is_put_from_stdin_also_into_a_session_that_is_new(run: Run, kept: Path) -> None:
    written = run("files", "put", "-", "/in.txt", "--session", "s2", *DB, "--json", stdin="from\nstdin").json
    assert (written["session"], written["path"], written["size"]) == ("s2", "/in.txt", 10)
    assert read("/in.txt", "s2") == b"from\nstdin"


def test_a_file_is_got_under_its_name_or_another_and_never_over_one_that_is_there(
    run: Run, kept: Path, project: Path
) -> None:
    (project / "out").mkdir()
    for words, place in [((), "b.bin"), (("c.bin",), "c.bin"), (("out",), "out/b.bin")]:
        assert run("files", "get", "/notes/b.bin", *words, *S1).out == f"{place} is written (256 bytes)\n"
        assert (project / place).read_bytes() == BINARY
    before = sorted(project.rglob("*"))
    for words in ((), ("c.bin",), ("out",)):
        refused = run("files", "get", "/notes/a.txt", "c.bin", *S1)
        assert (refused.code, "--force" in refused.err) == (2, True)
        assert run("files", "get", "/notes/b.bin", *words, *S1).code == 2
    assert (project / "c.bin").read_bytes() == BINARY
    got = run("files", "get", "/notes/a.txt", "c.bin", "--force", *S1, "--json").json
    assert got == {"session": "s1", "path": "/notes/a.txt", "to": "c.bin", "size": 5}
    assert (project / "c.bin").read_text() == "née\n"
    assert sorted(project.rglob("*")) == before


def test_a_file_is_got_on_stdout(run: Run, kept: Path, command: list[str]) -> None:
    assert run("files", "get", "/notes/a.txt", "-", *S1).out == "née\n"
    ended = subprocess.run([*command, "files", "get", "/notes/b.bin", "-", *S1], capture_output=True, timeout=30)
    assert ended.stdout == BINARY


def test_a_large_file_goes_there_and_back_without_being_held(
    run: Run, kept: Path, command: list[str], project: Path
) -> None:
    block = os.urandom(PIECE)
    with (project / "large").open("wb") as file:
        for number in range(60):
            file.write(number.to_bytes(4, "big") + block[4:])
    for words in (("put", "large"), ("get", "/large", "back")):
        tracemalloc.start()
        try:
            assert run("files", *words, *S1).code == 0
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 20 * PIECE
    assert (project / "back").read_bytes() == (project / "large").read_bytes()
    with (project / "out").open("wb") as out:
        subprocess.run([*command, "files", "cat", "/large", *S1], stdout=out, check=True, timeout=60)
    assert (project / "out").read_bytes() == (project / "large").read_bytes()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ls", "/none", *S1), "'/none'"),
        (("ls", "--session", "nobody", *DB), "no session 'nobody'"),
        (("ls", "/a", "--session", "nobody", *DB), "no session 'nobody'"),
        (("ls", "--session", "s1", "--db", "none.db"), "no store 'none.db'"),
        (("ls", "--session", "s1", "--db", "kit.py"), "kit.py"),
        (("ls", *DB), "--session"),
        (("cat", "/none", *S1), "no file '/none'"),
        (("cat", "/notes", *S1), "is a directory"),
        (("cat", "/", *S1), "is a directory"),
        (("cat", "/../etc/passwd", *S1), "no way up"),
        (("cat", "/notes/a.txt", "--session", "nobody", *DB), "no session 'nobody'"),
        (("put", "none", "/a", *S1), "'none' cannot be read"),
        (("put", ".", "/a", *S1), "add --recursive"),
        (("put", ".", "/steer.txt", "--recursive", *S1), "is a file and not a directory"),
        (("get", "/notes", "kit.py", "--recursive", *S1), "already"),
        (("get", "/notes", "kit.py", "--recursive", "--force", *S1), "cannot be made"),
        (("get", "/notes", "no/such", "--recursive", *S1), "cannot be made"),
        (("get", "/notes/a.txt", "new", "--recursive", *S1), "is a file and not a directory"),
        (("get", "/none", "new", "--recursive", *S1), "'/none'"),
        (("get", "/", "new", "--recursive", "--session", "nobody", *DB), "no session 'nobody'"),
        (("put", "-", *S1), "has no name"),
        (("put", "-", "/notes", *S1), "has no name"),
        (("put", "kit.py", "/steer.txt/below", *S1), "is a file and not a directory"),
        (("get", "/none", *S1), "no file '/none'"),
        (("get", "/notes", *S1), "is a directory"),
        (("get", "/", *S1), "is a directory"),
        (("get", "/notes/a.txt", "no/such/place", *S1), "'no/such/place' cannot be written"),
        (("get", "/notes/a.txt", "kit.py/x", *S1), "cannot be written"),
        (("get", "/notes/a.txt", "-", "--json", *S1), "leave out"),
        (("get", "/notes/a.txt", "--session", "nobody", *DB), "no session 'nobody'"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else None,
)
def test_what_cannot_be_done_ends_with_two_and_says_why(
    run: Run, kept: Path, project: Path, words: tuple[str, ...], says: str
) -> None:
    before = sorted(project.iterdir())
    ended = run("files", *words)
    assert (ended.code, ended.out) == (2, "")
    assert says in " ".join(ended.err.split())
    assert sorted(project.iterdir()) == before


@pytest.fixture
def tree(project: Path) -> dict[str, bytes]:
    """A directory `tree` of this machine, and what is to be found of it."""
    content = {"a.txt": b"one", "below/b.bin": BINARY, "below/deep/c d": b"", "z": b"last"}
    for name, data in content.items():
        (project / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (project / "tree" / name).write_bytes(data)
    (project / "tree" / "empty").mkdir()
    return content


def files_of(place: Path) -> dict[str, bytes]:
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_a_directory_goes_there_and_back(run: Run, kept: Path, project: Path, tree: dict[str, bytes]) -> None:
    assert run("files", "put", "tree", "/new/", "-r", *S1).out == "/new/tree is written (4 files, 263 bytes)\n"
    put = run("files", "put", "tree", "/other", "-r", *S1, "--json").json
    assert put == {"session": "s1", "path": "/other", "files": 4, "size": 263, "left_out": []}
    assert run("files", "get", "/new/tree", "back", "-r", *S1).out == "back is written (4 files, 263 bytes)\n"
    assert files_of(project / "back") == tree
    assert (project / "back" / "empty").is_dir()
    got = run("files", "get", "/other", "-r", *S1, "--json").json
    assert got == {"session": "s1", "path": "/other", "to": "other", "files": 4, "size": 263, "left_out": []}
    assert files_of(project / "other") == tree
    assert run("files", "get", "/", "all", "-r", *S1).code == 0
    assert files_of(project / "all")["new/tree/below/b.bin"] == BINARY


def test_a_directory_is_not_got_over_another_unless_that_is_meant(
    run: Run, kept: Path, project: Path, tree: dict[str, bytes]
) -> None:
    assert run("files", "put", "tree", "-r", *S1).code == 0
    (project / "tree" / "a.txt").unlink()
    (project / "tree" / "z").write_bytes(b"changed")
    (project / "tree" / "mine").write_bytes(b"mine")
    refused = run("files", "get", "/tree", "-r", *S1)
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert not (project / "tree" / "a.txt").exists()
    assert (project / "tree" / "z").read_bytes() == b"changed"
    assert run("files", "get", "/tree", "-r", "--force", *S1).code == 0
    assert files_of(project / "tree") == {**tree, "mine": b"mine"}


def test_links_and_the_store_itself_are_left_out_of_a_directory(run: Run, kept: Path, project: Path) -> None:
    key = project / "agent.db.key"
    key.write_bytes(b"as good as a key")
    (project / "link").symlink_to(key)
    (project / "folder").symlink_to("/")
    put = run("files", "put", ".", "/all", "-r", *S1, "--json").json
    assert {"agent.db", "agent.db.key", "link", "folder"} <= set(put["left_out"])
    assert (put["files"], read("/all/kit.py")) == (1, (project / "kit.py").read_bytes())


def test_a_directory_that_is_refused_in_the_middle_says_how_far_it_came(
    run: Run, kept: Path, project: Path, tree: dict[str, bytes]
) -> None:
    with (project / "tree" / "below" / "huge").open("wb") as file:
        file.truncate(64 * PIECE + 1)
    ended = run("files", "put", "tree", "/new", "-r", *S1)
    assert (ended.code, ended.out) == (2, "")
    assert "'/new/below/huge' may have at most" in ended.err
    assert "(3 files were written before)" in " ".join(ended.err.split())


def test_a_file_that_is_too_large_is_refused_and_leaves_what_was_there(run: Run, kept: Path, project: Path) -> None:
    with (project / "huge").open("wb") as file:
        file.truncate(64 * PIECE + 1)
    ended = run("files", "put", "huge", "/notes/a.txt", *S1)
    assert (ended.code, "at most 67108864 bytes" in ended.err) == (2, True)
    assert read("/notes/a.txt") == "née\n".encode()


def await_reading(pid: int) -> None:
    """Wait until a process waits for its stdin, where the system tells what a process waits for."""
    place, until = Path(f"/proc/{pid}/wchan"), time.monotonic() + 20
    while place.exists() and "pipe_read" not in place.read_text() and time.monotonic() < until:
        os.sched_yield()


def test_stdin_that_goes_on_for_ever_can_be_interrupted(kept: Path, fresh_command: list[str]) -> None:
    words = [*fresh_command, "files", "put", "-", "/endless", *S1]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            await_reading(process.pid)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
        finally:
            process.kill()
