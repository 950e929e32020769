"""Text that is too long for the model: head and tail, an exact count of the rest, and a file with the whole."""

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.calls.running import run, run_one
from toolwright import (
    ConnectionRequired,
    Failure,
    Policy,
    Runtime,
    Tool,
    ToolCall,
    ToolError,
    ToolOutcome,
    tool,
)

MARKER = re.compile(r"\[… (\d+) bytes in (\d+) lines omitted(?:; the whole is in ([^\n]*?))? …\]")


def giving(value: Any) -> Tool:
    @tool
    async def give() -> Any:
        return value

    return give


def outcome_of(value: Any, **settings_: Any) -> ToolOutcome:
    async def check() -> ToolOutcome:
        async with Runtime.open(tools=[giving(value)], policy=Policy(**settings_)) as runtime:
            outcome: ToolOutcome = await run_one(runtime.session("s"), "give")
            return outcome

    return asyncio.run(check())


def parts(text: str) -> tuple[str, int, int, str]:
    """Head, omitted bytes, omitted lines, and tail of a text that was cut."""
    (found,) = MARKER.finditer(text)
    return text[: found.start()], int(found[1]), int(found[2]), text[found.end() :]


def check_cut(whole: str, shown: str, max_lines: int, max_bytes: int) -> None:
    """Hold a cut text against the promise, from the outside."""
    assert len(shown.encode()) <= max_bytes
    assert shown.count("\n") + 1 <= max_lines
    head, size, lines, tail = parts(shown)
    # A line break beside the marker is the text's own, or was put in to give the marker its line.
    fits = []
    for own_head in {head, head.removesuffix("\n")}:
        for own_tail in {tail, tail.removeprefix("\n")}:
            left_out = len(whole) - len(own_head) - len(own_tail)
            omitted = whole[len(own_head) : len(own_head) + left_out]
            if left_out > 0 and whole == own_head + omitted + own_tail and len(omitted.encode()) == size:
                fits.append(len(omitted.split("\n")) - omitted.endswith("\n"))
    assert fits, (head[-20:], size, tail[:20])
    assert lines in fits


# --- lines and bytes


@pytest.mark.promise("OUT-05")
async def test_a_text_at_the_limit_is_left_alone_and_one_more_line_or_byte_is_cut(open_session):
    lines = "\n".join(f"{number}" for number in range(10))
    for text, cut in ((lines, False), (lines + "\n", True), ("x" * 300, False), ("x" * 301, True)):
        session = await open_session(giving(text), policy=Policy(max_lines=10, max_bytes=300))
        outcome = await run_one(session, "give")
        assert (outcome.text != text) is cut
        assert outcome.value == text


@pytest.mark.promise("OUT-05")
async def test_the_defaults_are_2000_lines_and_50_kib(open_session):
    for text, cut in (
        ("\n" * 1999, False),
        ("\n" * 2000, True),
        ("x" * 51_200, False),
        ("x" * 51_201, True),
        ("ü" * 25_600, False),
        ("ü" * 25_601, True),
    ):
        outcome = await run_one(await open_session(giving(text)), "give")
        assert (outcome.text != text) is cut


@pytest.mark.promise("OUT-05")
def test_head_and_real_tail_are_kept_when_there_are_too_many_lines():
    text = "\n".join(f"line {number}" for number in range(1, 3001))
    outcome = outcome_of(text)
    shown = outcome.text
    first, last = shown.split("\n")[:999], shown.split("\n")[-1000:]
    assert first == [f"line {number}" for number in range(1, 1000)]
    assert last == [f"line {number}" for number in range(2001, 3001)]
    # Lines 1000 to 2000: 1001 of nine characters and a line break, and one digit less in none of them.
    where = f"; the whole is in {outcome.spilled_to}"
    assert shown.split("\n")[999] == f"[… {1001 * 10} bytes in 1001 lines omitted{where} …]"
    assert len(shown.split("\n")) == 2000


@pytest.mark.promise("OUT-05")
def test_head_and_real_tail_are_kept_when_there_are_too_many_bytes():
    shown = outcome_of("a" * 5000 + "b" * 5000, max_bytes=1000).text
    head, size, lines, tail = parts(shown)
    assert set(head.strip()) == {"a"}
    assert set(tail.strip()) == {"b"}
    assert abs(len(head) - len(tail)) <= 1
    assert size == 10_000 - len(head.strip()) - len(tail.strip())
    assert lines == 1
    assert 990 <= len(shown.encode()) <= 1000


@pytest.mark.promise("OUT-05")
def test_json_is_cut_like_any_text():
    value = {"items": list(range(1000))}
    outcome = outcome_of(value, max_bytes=300)
    assert outcome.value == value
    head, _, _, tail = parts(outcome.text)
    assert head.startswith('{"items":[0,1,2,')
    assert tail.endswith("998,999]}")


texts = st.text(st.sampled_from('ab\n üß漢🎉\r\x00\\"…['), max_size=2000) | st.text(max_size=1000)


@pytest.mark.promise("OUT-05")
@settings(max_examples=300, deadline=None)
@given(text=texts, repeat=st.integers(1, 60), max_lines=st.integers(1, 30), max_bytes=st.integers(256, 2000))
@example(text="\n", repeat=3000, max_lines=3, max_bytes=300)
@example(text="a\n", repeat=3000, max_lines=2000, max_bytes=51_200)
@example(text="\n" + "x" * 999, repeat=1, max_lines=100, max_bytes=256)
@example(text="x" * 999 + "\n", repeat=1, max_lines=100, max_bytes=256)
@example(text="🎉" * 999, repeat=1, max_lines=100, max_bytes=257)
@example(text="x\ny", repeat=1, max_lines=1, max_bytes=256)
def test_a_cut_text_keeps_to_its_limits_and_counts_exactly(text: str, repeat: int, max_lines: int, max_bytes: int):
    whole = text * repeat
    outcome = outcome_of(whole, max_lines=max_lines, max_bytes=max_bytes)
    assert outcome.value == whole
    if len(whole.encode()) <= max_bytes and whole.count("\n") + 1 <= max_lines:
        assert outcome.text == whole
    else:
        check_cut(whole, outcome.text, max_lines, max_bytes)


@pytest.mark.promise("OUT-05")
@settings(max_examples=200, deadline=None)
@given(
    message=st.text(st.sampled_from('a\n\x00\x01"\\ü🎉 '), max_size=1500) | st.text(max_size=800),
    repeat=st.integers(1, 50),
    max_lines=st.integers(1, 20),
    max_bytes=st.integers(256, 1500),
)
@example(message="\x01", repeat=10_000, max_lines=2000, max_bytes=256)
@example(message="\x01", repeat=48, max_lines=2000, max_bytes=300)
@example(message="\x01", repeat=49, max_lines=2000, max_bytes=300)
@example(message='"', repeat=10_000, max_lines=2000, max_bytes=51_200)
@example(message="a\n", repeat=3000, max_lines=1, max_bytes=256)
def test_an_error_is_bounded_the_same_way_and_stays_json(message: str, repeat: int, max_lines: int, max_bytes: int):
    whole = message * repeat
    outcome = outcome_of(Failure(message=whole), max_lines=max_lines, max_bytes=max_bytes)
    assert outcome.failure is not None
    assert outcome.failure.message == whole
    assert len(outcome.text.encode()) <= max_bytes
    shown = json.loads(outcome.text)["error"]
    # A line of JSON, however many lines the message has: only its bytes count.
    if len(json.dumps({"error": whole}, ensure_ascii=False, separators=(",", ":")).encode()) <= max_bytes:
        assert shown == whole
    else:
        check_cut(whole, shown, max_lines, max_bytes)


@pytest.mark.promise("OUT-05")
@pytest.mark.parametrize(
    "value",
    [ConnectionRequired("x" * 100_000), Failure(message="x" * 100_000)],
    ids=["connection", "failure"],
)
def test_every_other_ending_is_bounded_and_stays_json(value: Any):
    outcome = outcome_of(value, max_bytes=300)
    assert len(outcome.text.encode()) <= 300
    (shown,) = json.loads(outcome.text).values()
    assert "bytes in 1 lines omitted" in shown


@pytest.mark.promise("OUT-05")
async def test_the_reason_of_a_cancellation_is_bounded_too(open_runtime):
    @tool
    async def give() -> None:
        await asyncio.Event().wait()

    runtime = await open_runtime(give, policy=Policy(max_bytes=300))
    batch = runtime.session("s").start_batch([ToolCall(name="give")])
    batch.cancel("x" * 100_000)
    (outcome,) = await batch
    assert len(outcome.text.encode()) <= 300
    assert json.loads(outcome.text)["error"].startswith("Cancelled: xxx")


@pytest.mark.promise("OUT-05")
@pytest.mark.parametrize("size", [254, 255, 100_000])
async def test_more_than_the_runtime_takes_is_a_failure_with_the_size(open_session, size):
    session = await open_session(giving("x" * size), policy=Policy(max_output_bytes=256))
    outcome = await run_one(session, "give")
    if size + 2 <= 256:  # two quotation marks more in JSON
        assert outcome.ok
    else:
        assert (outcome.failure.category, outcome.failure.code) == ("resource_limit", "output_too_long")
        # Of a text that is much too long only the beginning is encoded.
        told = f"{size + 2} bytes" if size < 256 else f"at least {size + 2} bytes"
        remedy = "return less, or write it to a file"
        assert outcome.failure.message == f"The tool returned {told} and the limit is 256; {remedy}"
        assert outcome.value is None


# --- the file with the whole


def named_file(outcome: ToolOutcome) -> Path:
    (found,) = MARKER.finditer(outcome.text)
    assert found[3] == outcome.spilled_to
    return Path(found[3])


@pytest.mark.promise("OUT-05")
async def test_the_whole_goes_to_a_file_named_after_the_call(open_session, tmp_path):
    text = "".join(f"line {number} ü\n" for number in range(5000))
    session = await open_session(giving(text), policy=Policy(spill_dir=tmp_path / "new" / "spill"))
    outcome = await run_one(session, "give")
    path = named_file(outcome)
    assert path == tmp_path / "new" / "spill" / "c1.txt"
    assert path.read_bytes() == text.encode()
    assert outcome.to_json()["spilled_to"] == str(path)
    assert outcome.value == text
    check_cut(text, outcome.text, 2000, 51_200)


@pytest.mark.promise("OUT-05")
async def test_the_file_and_its_name_are_on_the_disk_before_the_outcome_says_so(open_session, tmp_path, monkeypatch):
    synced: dict[int, int] = {}

    def fsync(number: int, really=os.fsync) -> None:
        really(number)
        status = os.fstat(number)
        synced[status.st_ino] = status.st_size

    monkeypatch.setattr(os, "fsync", fsync)
    session = await open_session(giving("x" * 100_000), policy=Policy(spill_dir=tmp_path / "new" / "spill"))
    path = named_file(await run_one(session, "give"))
    assert synced[path.stat().st_ino] == 100_000
    for folder in (tmp_path / "new" / "spill", tmp_path / "new", tmp_path):
        assert folder.stat().st_ino in synced


@pytest.mark.promise("OUT-05")
async def test_a_text_that_fits_is_not_written_down(open_session, tmp_path):
    session = await open_session(giving("short"), policy=Policy(spill_dir=tmp_path))
    outcome = await run_one(session, "give")
    assert (outcome.spilled_to, list(tmp_path.iterdir())) == (None, [])


@pytest.mark.promise("OUT-05")
async def test_a_long_error_goes_to_a_file_too(open_session, tmp_path):
    @tool
    async def give() -> None:
        raise ToolError('"error" ' * 50_000)

    session = await open_session(give, policy=Policy(spill_dir=tmp_path))
    outcome = await run_one(session, "give")
    shown = json.loads(outcome.text)["error"]
    (found,) = MARKER.finditer(shown)
    assert found[3] == outcome.spilled_to == str(tmp_path / "c1.txt")
    assert (tmp_path / "c1.txt").read_text() == '"error" ' * 50_000


@pytest.mark.promise("OUT-05")
@pytest.mark.parametrize(
    "call_id",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "..",
        ".",
        "...",
        "a/b",
        "a\\b",
        "C:\\temp",
        "nul\x00byte",
        "line\nbreak",
        "x" * 5000,
        "日本",
        "~",
        "-rf",
        "a b",
        ".hidden",
        "con",
        "*",
    ],
    ids=ascii,
)
async def test_no_call_id_leads_out_of_the_folder(open_session, tmp_path, call_id):
    folder = tmp_path / "spill"
    session = await open_session(giving("x" * 100_000), policy=Policy(spill_dir=folder))
    (outcome,) = await run(session, ToolCall(id=call_id, name="give"))
    (written,) = folder.iterdir()
    assert outcome.spilled_to == str(written)
    assert written.read_text() == "x" * 100_000
    assert list(tmp_path.iterdir()) == [folder]
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*\.txt", written.name)
    assert len(written.name) < 128
    named_file(outcome)


@pytest.mark.promise("OUT-05")
async def test_ids_that_look_alike_once_made_safe_have_files_of_their_own(open_session, tmp_path):
    @tool
    async def give(letter: str) -> str:
        return letter * 100_000

    ids = ["a/b", "a_b", "a\\b", "a b", "a:b"]
    session = await open_session(give, policy=Policy(spill_dir=tmp_path))
    calls = [ToolCall(id=call_id, name="give", arguments={"letter": str(n)}) for n, call_id in enumerate(ids)]
    outcomes = await run(session, *calls)
    files = [Path(outcome.spilled_to or "") for outcome in outcomes]
    assert [path.read_text()[0] for path in files] == ["0", "1", "2", "3", "4"]
    assert files[1] == tmp_path / "a_b.txt"


@pytest.mark.promise("OUT-05")
async def test_a_file_that_was_named_before_is_never_written_over(open_runtime, tmp_path):
    @tool
    async def give(letter: str) -> str:
        return letter * 100_000

    runtime = await open_runtime(give, policy=Policy(spill_dir=tmp_path))
    first = await run_one(runtime.session("one"), "give", {"letter": "a"})
    second = await run_one(runtime.session("other"), "give", {"letter": "b"})
    assert first.spilled_to != second.spilled_to
    assert named_file(first).read_text() == "a" * 100_000
    assert named_file(second).read_text() == "b" * 100_000
    assert named_file(second).name.startswith("c1-")


@pytest.mark.promise("OUT-05")
async def test_a_file_that_cannot_be_written_is_not_named(open_session, tmp_path, caplog):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("mine")
    for folder in (in_the_way, in_the_way / "below", "/proc/nonexistent/spill", "nul\x00byte"):
        session = await open_session(giving("x" * 100_000), policy=Policy(spill_dir=folder))
        outcome = await run_one(session, "give")
        assert (outcome.status, outcome.spilled_to, outcome.value) == ("success", None, "x" * 100_000)
        assert "the whole is in" not in outcome.text
        parts(outcome.text)
    assert in_the_way.read_text() == "mine"
    assert "could not be written" in caplog.text


@pytest.mark.promise("OUT-05")
async def test_a_folder_that_may_not_be_written_to_is_not_named(open_session):
    # Nobody may make a file there, not even root.
    session = await open_session(giving("x" * 100_000), policy=Policy(spill_dir="/proc/self"))
    assert (await run_one(session, "give")).spilled_to is None


@pytest.mark.promise("OUT-05")
async def test_a_disk_that_is_full_leaves_no_half_of_a_file(open_session, tmp_path, monkeypatch):
    opened = Path.open

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *error: Any) -> None:
            self.file.close()

        def write(self, data: bytes) -> int:
            self.file.write(data[:1000])
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", lambda self, *args, **more: Full(opened(self, *args, **more)))
    session = await open_session(giving("x" * 100_000), policy=Policy(spill_dir=tmp_path))
    outcome = await run_one(session, "give")
    assert (outcome.spilled_to, list(tmp_path.iterdir())) == (None, [])
    assert outcome.ok


@pytest.mark.promise("OUT-05")
async def test_a_name_too_long_to_be_shown_is_left_out_of_the_marker(open_session, tmp_path):
    folder = tmp_path / ("d" * 200) / ("e" * 200)
    session = await open_session(giving("x" * 10_000), policy=Policy(spill_dir=folder, max_bytes=256))
    outcome = await run_one(session, "give")
    assert len(outcome.text.encode()) <= 256
    assert "the whole is in" not in outcome.text
    assert outcome.spilled_to is not None
    assert Path(outcome.spilled_to).read_text() == "x" * 10_000


@pytest.mark.promise("OUT-05")
async def test_the_projector_is_shown_where_the_whole_is(open_session, tmp_path):
    session = await open_session(
        giving("x" * 100_000),
        policy=Policy(spill_dir=tmp_path),
        projector=lambda outcome: f"see {outcome.spilled_to}",
    )
    outcome = await run_one(session, "give")
    assert outcome.text == f"see {tmp_path / 'c1.txt'}"
