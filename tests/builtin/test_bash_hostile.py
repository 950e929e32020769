"""Whatever a script does to its interpreter, only its own call fails, in time, and nothing is left of it."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.builtin.hostile import HOSTILE
from tests.conftest import process_table
from tests.effects.test_machine_faults import no_files, warm_up
from tests.support import fail_after
from toolwright import MachineError, Runtime, ToolCall
from toolwright.builtin.bash import BashLimits, bash_tool

QUICK = BashLimits(seconds=1.5)
CRASHES = 'e=\'eval "$e"\'; eval "$e"'
MB = 1024 * 1024


def memory() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def own_children() -> set[int]:
    return {number for number, (parent, _) in process_table().items() if parent == os.getpid()}


@pytest.mark.promise("BLT-05", "BLT-02")
@pytest.mark.parametrize("script", HOSTILE, ids=lambda script: script[:40])
async def test_a_hostile_script_ends_in_time_and_a_harmless_one_runs_after_it(script, loop_watch):
    async with Runtime.open(tools=[bash_tool(QUICK)]) as runtime:
        session = runtime.session("s")
        assert (await session.call("bash", command="echo > kept")).ok
        loop_watch.restart()
        before, cpu = memory(), time.process_time()
        async with fail_after(15):
            outcome = await session.call("bash", command=f"echo x > made; {script}")
        assert memory() - before < 100 * MB
        assert time.process_time() - cpu < 1.0
        if not outcome.ok:
            assert outcome.failure.code in ("limit", "too_large", "bad_name", "conflict"), outcome.text
            assert "None of its changes were kept" in outcome.text
            assert await session.files.stat("/made") is None
        async with fail_after(15):
            after = await session.call("bash", command="echo still here")
        assert (after.ok, after.value["stdout"]) == (True, "still here\n")


@pytest.mark.promise("BLT-05")
async def test_a_script_that_crashes_its_interpreter_says_so_and_its_process_is_gone(tmp_path):
    async with Runtime.open(tmp_path / "agent.db", tools=[bash_tool(QUICK)]) as runtime:
        before = own_children()
        outcome = await runtime.session("s").call("bash", command=CRASHES)
        assert (outcome.failure.category, outcome.failure.code) == ("resource_limit", "limit")
        assert "signal SIG" in outcome.text
        assert own_children() == before


@pytest.mark.promise("BLT-05")
async def test_a_script_that_crashes_its_interpreter_is_a_failed_run_in_the_background(tmp_path):
    async with fail_after(30), Runtime.open(tmp_path / "agent.db", tools=[bash_tool(QUICK)]) as runtime:
        session = runtime.session("s")
        run = await session.spawn("bash", {"command": CRASHES})
        outcome = await run.wait()
        assert outcome.failure.code == "limit", outcome
        assert (await session.call("bash", command="echo on")).ok


@pytest.mark.promise("BLT-05", "EFF-01")
async def test_a_script_that_crashes_its_interpreter_is_not_run_again_by_a_recovery(tmp_path):
    call = ToolCall(id="c1", name="bash", arguments={"command": CRASHES})
    for _ in range(3):
        async with fail_after(30), Runtime.open(tmp_path / "agent.db", tools=[bash_tool(QUICK)]) as runtime:
            await runtime.recover()
            (outcome,) = await runtime.session("s").run_batch([call])
            assert outcome.failure.code == "limit"


@pytest.mark.promise("BLT-05")
async def test_as_many_endless_scripts_as_there_are_cores_do_not_stop_bash_for_another_session():
    busy = 2 * (os.cpu_count() or 1)
    async with Runtime.open(tools=[bash_tool(BashLimits(seconds=12))]) as runtime:
        endless = [
            asyncio.ensure_future(
                runtime.session(f"busy{number}").call(
                    "bash", command="while :; do [[ aaaa =~ (a+)+ ]]; done & sleep 60"
                )
            )
            for number in range(busy)
        ]
        async with fail_after(10):
            assert (await runtime.session("s").call("bash", command="echo on")).value["stdout"] == "on\n"
        assert not any(call.done() for call in endless)
        async with fail_after(20):
            for call in endless:
                assert (await call).failure.code == "limit"
        assert (await runtime.session("s").call("bash", command="echo on")).ok


@pytest.mark.promise("BLT-05", "CANCEL-01")
async def test_a_cancelled_script_is_killed_and_not_left_to_run():
    async with Runtime.open(tools=[bash_tool()]) as runtime:
        session = runtime.session("s")
        with session.subscribe() as events:
            call = asyncio.ensure_future(
                session.call(
                    "bash", command="echo on; jq -n 'def f: f; f'; awk 'BEGIN { while (1) x = x \"y\" }'; sleep 15"
                )
            )
            async with fail_after(10):
                async for event in events:
                    if event.kind == "call.output":
                        break
            busy = own_children()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        async with fail_after(5):
            assert (await session.call("bash", command="echo on")).ok
        assert not busy & own_children()


@pytest.mark.promise("BLT-05", "EFF-07")
async def test_a_script_for_which_the_machine_has_no_process_did_not_run_and_runs_when_it_comes_again(tmp_path):
    call = ToolCall(id="c1", name="bash", arguments={"command": "echo ran"})
    tools = [warm_up, bash_tool(QUICK)]
    async with Runtime.open(tools=tools) as runtime:
        assert (await runtime.session("s").call("bash", command="echo on")).ok  # the libraries are found
    async with fail_after(30), Runtime.open(tmp_path / "agent.db", tools=tools) as runtime:
        session = runtime.session("s")
        await session.call("warm_up")
        with no_files(), pytest.raises(MachineError, match="nothing ran"):
            await session.run_batch([call])
        (outcome,) = await session.run_batch([call])
        assert outcome.value["stdout"] == "ran\n"


@pytest.mark.promise("BLT-05")
async def test_large_files_go_in_and_out_of_the_sandbox_without_holding_up_the_program(tmp_path, loop_watch):
    async with fail_after(60), Runtime.open(tmp_path / "agent.db", tools=[bash_tool()]) as runtime:
        session = runtime.session("s")
        data = os.urandom(9_000_000)
        await session.files.write("/large", data)
        assert (await session.call("bash", command="echo on")).ok
        loop_watch.restart()
        outcome = await session.call("bash", command="cp large copy; seq 1 50000; seq 1 50000 >&2")
        assert outcome.value["changed"] == ["/copy"]
        assert await session.files.read_bytes("/copy") == data


@pytest.mark.promise("SES-03", "BLT-02")
@pytest.mark.parametrize("after", [300, 485, 600])
async def test_the_end_of_the_output_of_a_stopped_script_shows_no_part_of_a_secret(after):
    token = "Zq8vKx2m-Lw9pTz4rNb7-Yc5hJd3gFs6"
    async with Runtime.open(tools=[bash_tool()]) as runtime:
        session = runtime.session("s")
        await session.secrets.set("k", token)
        await session.files.write("/settings", f"TOKEN={token}{'y' * after}")
        outcome = await session.call("bash", command="cat /settings; while true; do :; done")
    assert outcome.failure.code == "limit"
    assert [token[at : at + 5] for at in range(len(token) - 4) if token[at : at + 5] in outcome.text] == []
