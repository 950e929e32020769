"""Limited children: jobs in processes whose limits the operating system keeps."""

import asyncio
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import process_table
from tests.support import fail_after
from toolwright import MachineError
from toolwright.limited_children import ChildFailed, ChildJob, ChildPool, ChildTimeout

MB = 1024 * 1024


def job(name: str, **limits: Any) -> ChildJob:
    return ChildJob(f"tests.limited_children.jobs:{name}", **limits)


@pytest.fixture
async def pool() -> AsyncIterator[ChildPool]:
    pool = ChildPool()
    async with fail_after(30):
        yield pool
        await pool.close()


@pytest.mark.promise("BLT-05")
async def test_a_child_answers_with_plain_data_and_is_kept_for_the_next_request(pool):
    value = {"text": "é", "bytes": b"\x00\xff", "list": [1, 2.5, None, True]}
    assert await pool.run(job("echo"), value, seconds=5) == value
    first = await pool.run(job("pid"), None, seconds=5)
    assert await pool.run(job("pid"), None, seconds=5) == first
    # Two at once are two.
    both = await asyncio.gather(*(pool.run(job("pid"), None, seconds=5) for _ in range(2)))
    assert first in both
    assert len(set(both)) == 2


async def test_a_child_is_fed_and_heard_while_it_works(pool):
    async def feed() -> AsyncIterator[Any]:
        for number in range(3):
            yield b"x" * number

    heard: list[Any] = []
    assert await pool.run(job("collect"), 3, seconds=5, feed=feed()) == [b"", b"x", b"xx"]
    assert await pool.run(job("tell"), 4, seconds=5, hear=heard.append) == "told"
    assert heard == [0, 1, 2, 3]


@pytest.mark.promise("BLT-05")
@pytest.mark.parametrize("name", ["spin", "spin_locked"])
async def test_a_child_that_takes_too_long_is_killed_for_real(pool, name):
    heard: list[int] = []
    with pytest.raises(ChildTimeout, match="it took longer"):
        await pool.run(job(name), None, seconds=0.5, hear=heard.append)
    gone(heard[0])
    assert await pool.run(job("echo"), 1, seconds=5) == 1


@pytest.mark.promise("BLT-05")
async def test_a_child_that_never_stops_telling_is_killed_at_its_time_and_does_not_hold_up_the_program(
    pool, loop_watch
):
    with pytest.raises(ChildTimeout):
        await pool.run(job("tell"), 10**12, seconds=1, hear=lambda note: None)


@pytest.mark.promise("BLT-05")
async def test_a_cancelled_request_kills_its_child(pool):
    began = asyncio.Event()
    heard: list[int] = []

    def hear(number: int) -> None:
        heard.append(number)
        began.set()

    running = asyncio.ensure_future(pool.run(job("spin"), None, seconds=20, hear=hear))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    gone(heard[0])


@pytest.mark.promise("BLT-05")
async def test_what_a_child_started_dies_with_it(pool):
    heard: list[int] = []
    with pytest.raises(ChildTimeout):
        await pool.run(job("offspring"), None, seconds=1, hear=heard.append)
    gone(heard[0])


@pytest.mark.promise("BLT-05")
@pytest.mark.parametrize(
    ("name", "request_", "code", "says"),
    [
        ("crash", None, "died", "SIGSEGV"),
        ("fill", 600 * MB, "memory", "more memory"),
        ("wrong", None, "ValueError", "not this one"),
        ("nest", 20_000, "depth", "nested too deeply"),
        ("long_answer", 3 * MB, "too_large", "more than"),
        ("lie", None, "too_large", "announced"),
        ("no_message", None, "died", "not a message"),
    ],
)
async def test_a_child_that_fails_fails_its_request_and_no_other(pool, name, request_, code, says):
    with pytest.raises(ChildFailed, match=says) as caught:
        await pool.run(job(name, memory=200 * MB, most_bytes=2 * MB), request_, seconds=10)
    assert caught.value.code == code
    assert await pool.run(job("echo"), 1, seconds=5) == 1


@pytest.mark.promise("BLT-05")
async def test_the_operating_system_keeps_the_limits_of_a_child(pool, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("TOOLWRIGHT_TEST_TOKEN", "known-only-to-the-host")
    found = await pool.run(job("limits", memory=100 * MB, open_files=20), None, seconds=5)
    assert (found["CORE"], found["FSIZE"], found["NOFILE"]) == (0, 0, 20)
    assert 100 * MB < found["AS"] < 2_000 * MB
    assert found["no_new_privileges"]
    assert found["leads_its_session"]
    assert "TOOLWRIGHT_TEST_TOKEN" not in found["environment"]
    with pytest.raises(ChildFailed):
        await pool.run(job("write"), str(tmp_path / "made"), seconds=5)
    assert not (tmp_path / "made").exists() or (tmp_path / "made").read_bytes() == b""


@pytest.mark.promise("BLT-05")
async def test_the_processor_time_of_a_request_is_bounded_even_if_nobody_kills_it(pool):
    with pytest.raises(ChildFailed, match="SIGXCPU"):
        await pool.run(job("spin", seconds=1), None, seconds=25)


async def test_a_child_whose_memory_grew_is_replaced(pool):
    growing = job("grow", memory=190 * MB)
    first = await pool.run(growing, 1 * MB, seconds=5)
    assert await pool.run(growing, 100 * MB, seconds=5) == first
    assert await pool.run(growing, 1 * MB, seconds=5) != first


async def test_more_requests_than_children_wait_for_their_turn():
    pool = ChildPool(most=1)
    async with fail_after(30):
        numbers = await asyncio.gather(*(pool.run(job("pid"), None, seconds=5) for _ in range(3)))
        assert len(set(numbers)) == 1
        await pool.close()


@pytest.mark.promise("BLT-05")
async def test_closing_kills_busy_and_idle_children_and_leaves_no_thread(pool):
    began = asyncio.Event()
    await pool.run(job("echo"), 1, seconds=5)
    running = asyncio.ensure_future(pool.run(job("spin"), None, seconds=20, hear=lambda _: began.set()))
    await began.wait()
    await pool.close()
    with pytest.raises(ChildFailed):
        await running
    with pytest.raises(ChildFailed, match="closed"):
        await pool.run(job("echo"), 1, seconds=5)
    assert not [
        thread for thread in threading.enumerate() if "toolwright-children" in thread.name and thread.is_alive()
    ]


@pytest.mark.promise("BLT-05", "EFF-07")
async def test_a_machine_without_a_child_to_give_is_told_from_a_job_that_fails(pool):
    assert await pool.run(job("echo"), 1, seconds=5) == 1
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
    try:
        with pytest.raises(MachineError, match="nothing ran"):
            await pool.run(job("tell"), 1, seconds=5)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert await pool.run(job("tell"), 1, seconds=5) == "told"


@pytest.mark.promise("BLT-05")
async def test_a_child_dies_with_its_parent(tmp_path: Path):
    program = (
        "import asyncio, os, signal\n"
        "from toolwright.limited_children import ChildJob, ChildPool\n"
        "def hear(number):\n"
        "    print(number, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "job = ChildJob('tests.limited_children.jobs:spin_locked')\n"
        "asyncio.run(ChildPool().run(job, None, seconds=60, hear=hear))\n"
    )
    async with fail_after(30):
        parent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        said, _ = await parent.communicate()
        assert parent.returncode == -signal.SIGKILL
        gone(int(said))


def gone(number: int) -> None:
    """Wait until a process has ended, and fail if it does not."""
    pause, deadline = threading.Event(), time.monotonic() + 60
    while number in (table := process_table()) and "(ended" not in table[number][1]:
        assert time.monotonic() < deadline, f"process {number} is still there: {table[number][1]}"
        pause.wait(0.01)
