"""Ids that cannot be written: the call fails alone."""

import pytest

from tests.support import fail_after
from toolwright import Runtime, ToolCall, tool


@pytest.mark.promise("RUN-02")
@pytest.mark.parametrize("where", ["memory", "file"])
async def test_a_call_whose_id_has_no_form_in_utf_8_fails_alone(tmp_path, where):
    ran: list[int] = []

    @tool
    async def note(n: int) -> int:
        ran.append(n)
        return n

    store = ":memory:" if where == "memory" else tmp_path / "agent.db"
    calls = [
        ToolCall(id="a", name="note", arguments={"n": 1}),
        ToolCall(id="\ud800", name="note", arguments={"n": 2}),
        ToolCall(id="\udfff", name="note", arguments={"n": 3}),
        ToolCall(id="?", name="note", arguments={"n": 4}),
        ToolCall(id="é", name="note", arguments={"n": 5}),
    ]
    async with fail_after(20), Runtime.open(store, tools=[note]) as runtime:
        first = await runtime.session("s").run_batch(calls)
        again = await runtime.session("s").run_batch(calls)
    for outcomes in (first, again):
        assert [outcome.value if outcome.ok else outcome.failure.code for outcome in outcomes] == [
            1,
            "unusable_id",
            "unusable_id",
            4,
            5,
        ]
        outcomes[1].call_id.encode()
        assert "give it another id" in outcomes[1].text
    assert sorted(ran) == [1, 4, 5]
