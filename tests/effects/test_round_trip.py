"""What is recorded of an outcome is all of it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolwright import Attachment, Failure, Image, Policy, Runtime, Success, ToolCall, ToolError, ToolOutcome, tool


async def trip(file, function, **options) -> tuple[ToolOutcome, ToolOutcome]:
    """Run a call, and again after a restart."""
    outcomes = []
    for _ in range(2):
        async with Runtime.open(file, tools=[function], **options) as runtime:
            outcomes += await runtime.session("s").run_batch([ToolCall(id="c1", name=function.name)])
    first, second = outcomes
    assert (first.replayed, second.replayed) == (False, True)
    return first, second


@pytest.mark.promise("EFF-11")
async def test_values_images_attachments_and_raw_output_survive(file):
    @tool
    async def draw() -> Success:
        return Success(
            {"a": [1, 2.5, None, True, "é😀"], "big": 2**53 + 1},
            raw_output="raw\0text",
            images=(Image.from_bytes(b"\x89PNG"),),
            attachments=(Attachment("a.txt", "aGk=", "text/plain"),),
        )

    _, second = await trip(file, draw)

    assert second.value == {"a": [1, 2.5, None, True, "é😀"], "big": 9007199254740993}
    assert second.raw_output == "raw\0text"
    assert second.images == (Image("iVBORw==", "image/png"),)
    assert second.attachments == (Attachment("a.txt", "aGk=", "text/plain"),)


@pytest.mark.promise("EFF-11")
async def test_failures_survive_with_all_they_say(file):
    @tool
    async def draw() -> Failure:
        return Failure(
            category="external", code="upstream", message="no luck: é", retry=True, retry_after=5, detail="secret"
        )

    _, second = await trip(file, draw)

    assert second.status == "failure"
    assert second.failure == Failure(
        category="external", code="upstream", message="no luck: é", retry=True, retry_after=5.0, detail="secret"
    )


@pytest.mark.promise("EFF-11")
@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**4000], ids=["positive", "negative", "long"])
async def test_integers_of_any_length_survive_wherever_a_tool_puts_them(tmp_path, number):
    @tool
    async def counts() -> Success:
        return Success({"n": number}, metadata={"n": [number]})

    @tool
    async def fails() -> None:
        raise ToolError("too many", data={"n": {"of": number}})

    first, second = await trip(tmp_path / "counts.db", counts)
    assert first.metadata == second.metadata == {"n": [number]}
    assert second.value == {"n": number}
    first, second = await trip(tmp_path / "fails.db", fails)
    assert first.failure == second.failure
    assert second.failure.data == {"n": {"of": number}}


@pytest.mark.promise("EFF-11")
async def test_text_that_has_no_form_in_utf8_does_not_keep_an_outcome_from_being_recorded(file):
    @tool
    async def read() -> str:
        raise OSError("no file \udcff here")

    first, second = await trip(file, read)

    assert first.failure is not None
    assert second.failure is not None
    assert second.failure.code == "internal_error"
    assert second.failure.message == first.failure.message
    assert "no file \\udcff here" in str(second.failure.detail)


@pytest.mark.promise("EFF-11")
async def test_a_huge_outcome_survives(file):
    @tool
    async def read() -> str:
        return "x" * 20_000_000

    first, second = await trip(file, read, policy=Policy(max_bytes=1000, max_output_bytes=30_000_000))

    assert len(second.value) == 20_000_000
    assert second.text == first.text
    assert len(second.text) < 2000


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.promise("EFF-11")
@given(value=VALUES)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_the_value_after_a_restart_is_the_value_before(value, tmp_path_factory):
    @tool
    async def give() -> object:
        return value

    first, second = await trip(tmp_path_factory.mktemp("store") / "agent.db", give)

    assert second.value == first.value
    assert second.text == first.text
