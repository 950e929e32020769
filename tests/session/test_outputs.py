"""Output that is too long for the model: the whole of it is in a file of the session."""

import json
import re

import pytest

from toolwright import Policy, ToolCall, ToolContext, ToolError, tool
from toolwright.stores.contracts.sessions import Quota, Quotas

MARKER = re.compile(r"\[… \d+ bytes in \d+ lines omitted(?:; the whole is in ([^\n]*?))? …\]")
IDS = [
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    "...",
    "a/b",
    "a_b",
    "a\\b",
    "nul\x00byte",
    "line\nbreak",
    "x" * 5000,
    "日本",
    "~",
    "-rf",
    ".hidden",
    "workspace",
]


@tool
async def give(letter: str, times: int = 100_000) -> str:
    return letter * times


def call(call_id, letter="x", times=100_000):
    return ToolCall(id=call_id, name="give", arguments={"letter": letter, "times": times})


@pytest.mark.promise("OUT-05")
async def test_the_whole_goes_to_a_file_of_the_session_named_after_the_call(place, open_runtime):
    session = (await open_runtime(place, give)).session("s")
    (outcome,) = await session.run_batch([call("c1", "ü")])
    (named,) = MARKER.findall(outcome.text)
    assert named == outcome.spilled_to == "/.outputs/c1.txt"
    assert await session.files.read(named) == "ü" * 100_000 == outcome.value


@pytest.mark.promise("OUT-05")
async def test_a_text_that_fits_makes_no_file(place, open_runtime):
    session = (await open_runtime(place, give)).session("s")
    (outcome,) = await session.run_batch([call("c1", times=50 * 1024)])
    assert (outcome.spilled_to, await session.files.list()) == (None, [])


@pytest.mark.promise("OUT-05")
async def test_a_long_error_goes_to_a_file_too_also_that_of_a_call_that_never_ran(place, open_runtime):
    @tool
    async def fail() -> None:
        raise ToolError('"error" ' * 50_000)

    session = (await open_runtime(place, fail, policy=Policy(max_bytes=256))).session("s")
    outcomes = await session.run_batch(
        [
            ToolCall(id="c1", name="fail", arguments={}),
            ToolCall(id="c2", name="fail", arguments={f"no_{n}": n for n in range(9)}),
        ]
    )
    for outcome in outcomes:
        (named,) = MARKER.findall(json.loads(outcome.text)["error"])
        assert named == outcome.spilled_to == f"/.outputs/{outcome.call_id}.txt"
        assert await session.files.read(named) == outcome.failure.message


@pytest.mark.promise("OUT-05")
async def test_every_call_id_has_a_file_of_its_own_in_one_directory(place, open_runtime):
    session = (await open_runtime(place, give)).session("s")
    calls = [call(call_id, chr(97 + number)) for number, call_id in enumerate(IDS)]
    outcomes = await session.run_batch(calls) + await session.run_batch(calls, scope="other")
    for number, outcome in enumerate(outcomes):
        assert (await session.files.read(outcome.spilled_to))[0] == chr(97 + number % len(IDS))
    listed = [info.path for info in await session.files.list("/.outputs")]
    assert sorted(outcome.spilled_to for outcome in outcomes) == sorted(listed)
    assert [info.path for info in await session.files.list()] == ["/.outputs"]


@pytest.mark.promise("OUT-05")
async def test_a_file_that_is_there_is_not_written_over(place, open_runtime):
    session = (await open_runtime(place, give)).session("s")
    await session.files.write("/.outputs/c1.txt", "mine")
    await session.files.make_directory("/.outputs/c2.txt")
    await session.files.write("/.outputs/c3.txt", "x" * 100_000)
    outcomes = await session.run_batch([call("c1"), call("c2"), call("c3")])
    assert await session.files.read("/.outputs/c1.txt") == "mine"
    for outcome in outcomes:
        assert await session.files.read(outcome.spilled_to) == "x" * 100_000
    assert outcomes[0].spilled_to.startswith("/.outputs/c1-")
    assert outcomes[2].spilled_to == "/.outputs/c3.txt"


@pytest.mark.promise("OUT-05")
async def test_a_file_that_cannot_be_written_is_not_named(place, open_runtime, caplog):
    session = (await open_runtime(place, give, quotas=Quotas(files=Quota(100, 1000)))).session("s")
    (full,) = await session.run_batch([call("c1")])
    await session.files.write("/.outputs", "in the way")
    (blocked,) = await session.run_batch([call("c2")])
    for outcome in (full, blocked):
        assert (outcome.status, outcome.spilled_to, len(outcome.value)) == ("success", None, 100_000)
        assert MARKER.findall(outcome.text) == [""]
    assert "could not be written" in caplog.text


@pytest.mark.promise("OUT-05")
async def test_a_replayed_outcome_names_the_same_file_and_writes_none(place, open_runtime):
    session = (await open_runtime(place, give)).session("s")
    (first,) = await session.run_batch([call("c1")])
    await session.files.delete("/.outputs/c1.txt")
    (again,) = await session.run_batch([call("c1")])
    assert again.replayed
    assert (again.text, again.spilled_to) == (first.text, first.spilled_to)
    assert await session.files.list("/.outputs") == []


@pytest.mark.promise("OUT-05")
async def test_a_directory_of_the_host_takes_the_place_of_the_session_file(place, open_runtime, tmp_path):
    session = (await open_runtime(place, give, policy=Policy(spill_dir=tmp_path / "spill"))).session("s")
    (outcome,) = await session.run_batch([call("c1")])
    assert outcome.spilled_to == str(tmp_path / "spill" / "c1.txt")
    assert await session.files.list() == []
    (again,) = await session.run_batch([call("c1")])
    assert (again.spilled_to, len(list((tmp_path / "spill").iterdir()))) == (outcome.spilled_to, 1)


@pytest.mark.promise("OUT-05")
async def test_a_tool_of_the_next_batch_reads_the_file_that_the_marker_names(place, open_runtime):
    @tool
    async def tail(ctx: ToolContext, path: str) -> str:
        return (await ctx.files.read(path))[-3:]

    session = (await open_runtime(place, give, tail)).session("s")
    (outcome,) = await session.run_batch([call("c1", "abc")])
    assert (await session.call("tail", path=MARKER.findall(outcome.text)[0])).value == "abc"
