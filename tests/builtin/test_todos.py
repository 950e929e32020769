"""The model's own list of things to do."""

import pytest

from toolwright import ToolCall
from toolwright.builtin.todos import TODOS, write_todos


@pytest.mark.promise("BLT-01")
async def test_the_list_is_kept_in_the_session_in_place_of_the_one_before(place, open_runtime):
    session = (await open_runtime(place, write_todos)).session("s")
    await session.call("write_todos", todos=[{"content": "old"}])
    outcome = await session.call(
        "write_todos",
        todos=[
            {"content": "plan", "status": "completed"},
            {"content": "test", "status": "in_progress", "active_form": "Testing"},
            {"content": "ship"},
        ],
    )
    assert outcome.value == {"total": 3, "pending": 1, "in_progress": 1, "completed": 1}
    assert await session.kv.get(TODOS) == [
        {"content": "plan", "status": "completed"},
        {"content": "test", "status": "in_progress", "active_form": "Testing"},
        {"content": "ship", "status": "pending"},
    ]


async def test_lists_of_one_batch_are_written_in_their_order(place, open_runtime):
    session = (await open_runtime(place, write_todos)).session("s")
    await session.run_batch(
        [ToolCall(name="write_todos", arguments={"todos": [{"content": str(number)}]}) for number in range(5)]
    )
    assert [todo["content"] for todo in await session.kv.get(TODOS)] == ["4"]


@pytest.mark.parametrize(
    ("statuses", "advice"),
    [
        (["in_progress", "in_progress"], "More than one"),
        (["pending", "completed"], "Nothing is in progress"),
        (["completed"], None),
        ([], None),
    ],
)
async def test_a_list_that_is_not_well_kept_comes_with_advice(run, statuses, advice):
    value = (await run(write_todos, todos=[{"content": "x", "status": status} for status in statuses])).value
    assert value["total"] == len(statuses)
    assert (advice or "") in value.get("advice", "")
    assert ("advice" in value) is (advice is not None)


@pytest.mark.parametrize(
    "todos",
    [
        [{"content": ""}],
        [{"content": "x", "status": "later"}],
        [{"content": "x", "owner": "me"}],
        [{"content": "x"}] * 201,
    ],
    ids=["empty", "status", "field", "many"],
)
async def test_a_list_that_does_not_fit_is_refused_and_not_kept(place, open_runtime, todos):
    session = (await open_runtime(place, write_todos)).session("s")
    outcome = await session.call("write_todos", todos=todos)
    assert outcome.failure.category == "invalid_arguments"
    assert await session.kv.get(TODOS) is None
