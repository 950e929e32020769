"""A store's program is killed, or given an error, at single system calls. `make soak ARGS=--calls` does it for long."""

import asyncio
import json
import sys
from typing import Any

import pytest

from tests.crash.system_calls import KILL, KILL_AFTER
from tests.support import fail_after


async def inject(*arguments: str) -> list[Any]:
    command = (sys.executable, "-m", "tests.crash.system_calls", *arguments)
    program = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async with fail_after(120):
        said, _ = await program.communicate()
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line for line in lines if line["problems"]] == []
    assert program.returncode == 0
    return lines


@pytest.mark.promise("EFF-04", "EFF-07", "EFF-08")
async def test_no_kill_and_no_error_at_a_system_call_loses_what_was_told_or_repeats_what_must_not_be():
    whole, *tried = await inject("--seed", "3", "--most", "14")

    assert len(tried) == 14
    assert sum(whole["counts"].values()) > 100
    ways = {line["injection"][2] for line in tried if line["hit"]}
    assert ways & {KILL, KILL_AFTER}
    assert ways - {KILL, KILL_AFTER}


@pytest.mark.promise("EFF-04", "EFF-07", "EFF-08")
async def test_the_same_holds_between_sqlite_and_the_system_where_nothing_can_be_traced():
    whole, *tried = await inject("--seed", "4", "--most", "8", "--untraced")

    assert not whole["traced"]
    assert len([line for line in tried if line["hit"]]) >= 6


@pytest.mark.promise("EFF-07")
async def test_a_store_whose_files_cannot_be_looked_at_when_it_is_opened_says_so():
    chosen = [argument for nth in range(20, 27) for argument in ("--at", "stat", str(nth), "EIO")]
    whole, *tried = await inject("--seed", "5", *chosen)

    if whole["traced"]:
        assert [line["hit"] for line in tried] == [True] * 7
