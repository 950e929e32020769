"""Edits and searches of long files: the loop keeps turning."""

from collections.abc import Callable

import pytest

from tests.support import fail_after
from toolwright import Runtime
from toolwright.builtin import default_tools

MIB = 1024 * 1024
# Made by the test that takes it: each process of the test run imports this file.
LONG: dict[str, Callable[[], bytes]] = {
    "short lines": lambda: b"a\n" * (2 * MIB - 99),
    "one line": lambda: b"a" * (4 * MIB - 99),
    "letters": lambda: "é\n".encode() * MIB,
    "numbers": lambda: b"".join(b"%d a\n" % number for number in range(400_000)),
}


async def settled(session, loop_watch) -> None:
    """Make what the first use of a session makes, and measure from there on."""
    await session.files.write("/settled", "x")
    await session.call("edit_file", path="/settled", edits=[{"old_text": "x", "new_text": "y"}])
    loop_watch.restart()


@pytest.mark.promise("SAFE-01")
@pytest.mark.parametrize("name", LONG)
async def test_a_long_file_is_edited_without_holding_up_the_loop(loop_watch, tmp_path, name):
    content = LONG[name]() + b"END"
    async with fail_after(60), Runtime.open(tmp_path / "agent.db", tools=default_tools()) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        await session.files.write("/long", content)
        for old, new in (("END", "FIN"), (content[:2].decode(), "b\n")):
            edit = {"old_text": old, "new_text": new, "replace_all": True}
            outcome = await session.call("edit_file", path="/long", edits=[edit])
            assert outcome.ok
            content = content.replace(old.encode(), new.encode())
            assert outcome.value["size"] == len(content)
        assert "(left out: from line 1 on" in outcome.value["diff"]
        assert await session.files.read_bytes("/long") == content


@pytest.mark.promise("SAFE-01")
async def test_a_file_that_is_too_long_to_be_edited_is_refused(loop_watch):
    async with fail_after(60), Runtime.open(tools=default_tools()) as runtime:
        session = runtime.session("s")
        await settled(session, loop_watch)
        await session.files.write("/long", b"a\n" * (8 * MIB))
        outcome = await session.call("edit_file", path="/long", edits=[{"old_text": "b", "new_text": "c"}])
        assert outcome.failure is not None
        assert outcome.failure.code == "too_large"


@pytest.mark.promise("SAFE-01")
@pytest.mark.parametrize("pattern", ["a", "^", ".*", "(a+a+)+b", "é", "END"])
async def test_long_files_are_searched_without_holding_up_the_loop(loop_watch, pattern):
    async with fail_after(60), Runtime.open(tools=default_tools()) as runtime:
        session = runtime.session("s")
        for name, make in LONG.items():
            await session.files.write(f"/{name}", make() * 3 + b"END")
        await settled(session, loop_watch)
        outcome = await session.call("grep_files", pattern=pattern, limit=1000)
        assert outcome.ok
