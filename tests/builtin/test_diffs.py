"""Diffs, held against the program `patch`'s own reading of them: what they say turns the old text into the new."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwright.builtin.diffs import MOST_COMPARED, unified

lines = st.lists(st.sampled_from(["a", "b", "c", "", "-d", "+e", " f", "@@ g"]), max_size=30)
texts = st.tuples(lines, st.booleans()).map(lambda made: "\n".join(made[0]) + ("\n" if made[1] and made[0] else ""))


def applied(old: str, diff: str) -> str:
    """The old text with a unified diff applied, strictly: every number and every line must fit."""
    before = old.split("\n")
    before = [line + "\n" for line in before[:-1]] + ([before[-1]] if before[-1] else [])
    body = diff.split("\n")[2:-1]
    made: list[str] = []
    done = place = 0
    while place < len(body):
        numbers = re.fullmatch(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", body[place])
        assert numbers is not None
        start, olds, _, news = map(int, numbers.groups())
        place += 1
        start -= olds > 0
        made += before[done:start]
        assert len(made) == int(numbers.group(3)) - (news > 0)
        done = start
        while olds or news:
            mark, line = body[place][0], body[place][1:] + "\n"
            place += 1
            if place < len(body) and body[place].startswith("\\"):
                line, place = line[:-1], place + 1
            if mark in " -":
                assert before[done] == line
                done, olds = done + 1, olds - 1
            if mark in " +":
                made.append(line)
                news -= 1
    return "".join(made + before[done:])


@given(texts, texts)
def test_a_diff_turns_the_old_text_into_the_new(old, new):
    assert applied(old, unified(old, new, "/a")) == new


def test_where_very_many_lines_differ_they_are_shown_as_replaced_in_little_time():
    old = "same\n" * 10 + "a\nb\n" * (20 * MOST_COMPARED) + "end\n" * 10
    new = "same\n" * 10 + "b\na\n" * (20 * MOST_COMPARED) + "end\n" * 10
    began = time.process_time()
    diff = unified(old, new, "/a")
    assert time.process_time() - began < 2
    assert applied(old, diff) == new


@pytest.mark.parametrize("count", [MOST_COMPARED - 20, MOST_COMPARED])
def test_the_bound_changes_how_much_is_shown_and_not_what_is_said(count):
    old = "".join(f"{number}\n" for number in range(count))
    new = "first\n" + old.replace("500\n", "five hundred\n") + "last\n"
    assert applied(old, unified(old, new, "/a")) == new
