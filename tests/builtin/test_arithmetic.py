"""Four tools that calculate."""

import pytest

from toolwright.builtin.arithmetic import add, divide, multiply, subtract


@pytest.mark.promise("BLT-01")
@pytest.mark.parametrize(
    ("tool", "a", "b", "result"),
    [
        (add, 5, 3, 8),
        (add, 0.5, 3, 3.5),
        (add, 9007199254740993, 0, 9007199254740993),
        (subtract, 5, 8, -3),
        (multiply, 4, 2.5, 10.0),
        (multiply, 2**62, 4, 2.0**64),
        (divide, 7, 2, 3.5),
        (divide, 9007199254740993, 1, 9007199254740993),
        (divide, -6, 3, -2),
        (divide, 0, 5, 0),
    ],
)
async def test_numbers_are_calculated_and_whole_ones_stay_exact(run, tool, a, b, result):
    outcome = await run(tool, a=a, b=b)
    assert outcome.value == {"result": result}
    assert type(outcome.value["result"]) is type(result)


@pytest.mark.promise("BLT-01")
@pytest.mark.parametrize("zero", [0, 0.0, -0.0])
async def test_dividing_by_zero_is_a_failure_that_says_so(run, zero):
    outcome = await run(divide, a=1, b=zero)
    assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", "division_by_zero")
    assert "zero" in outcome.text


@pytest.mark.parametrize(
    ("tool", "a", "b"),
    [(multiply, 1e308, 10), (add, 1.7e308, 1.7e308), (divide, 1e308, 1e-10), (subtract, -1.7e308, 1.7e308)],
)
async def test_a_result_beyond_all_numbers_is_a_failure(run, tool, a, b):
    outcome = await run(tool, a=a, b=b)
    assert (outcome.failure.category, outcome.failure.code) == ("execution", "overflow")


async def test_a_number_beyond_all_numbers_is_refused(run):
    assert (await run(multiply, a=10**400, b=1)).failure.category in ("execution", "invalid_arguments")


@pytest.mark.parametrize("wrong", [{"a": 1}, {"a": 1, "b": "two"}, {"a": 1, "b": None}, {"a": 1, "b": 2, "c": 3}])
async def test_what_is_no_number_is_refused(run, wrong):
    assert (await run(add, **wrong)).failure.category == "invalid_arguments"
