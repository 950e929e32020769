"""A process is killed while it changes files, wherever that may be: each change is made once, and told."""

import pytest

from tests.session.leaks import files_beside
from toolwright import Runtime, ToolCall
from toolwright.builtin.file_editing import delete_file, edit_file, write_file
from toolwright.builtin.kv_and_secrets import secret_store
from toolwright.testing import CrashKit, say


async def agent() -> None:
    async with Runtime.open("agent.db", tools=[write_file, edit_file, delete_file]) as runtime:
        session = runtime.session("s")
        if await session.kv.get("begun") is None:
            await session.files.write("/a", "one\n")
            await session.files.write("/b", "two\n")
            await session.kv.set("begun", True)
        edit = {"path": "/a", "edits": [{"old_text": "one", "new_text": "one and one"}]}
        calls = [
            ToolCall(id="edit", name="edit_file", arguments=edit),
            ToolCall(id="write", name="write_file", arguments={"path": "/c", "content": "three\n"}),
            ToolCall(id="delete", name="delete_file", arguments={"path": "/b"}),
        ]
        # One after the other: what shares a commit, and so how many there are, is the same in every run.
        say([outcome.value for call in calls for outcome in await session.run_batch([call])])
        say([await session.files.read(path) for path in ("/a", "/c")])


@pytest.mark.promise("BLT-01")
def test_files_are_changed_once_and_the_outcome_tells_it_wherever_the_process_is_killed(zygote, tmp_path):
    first = tmp_path / "first"
    first.mkdir()
    expected = CrashKit(first, zygote=zygote).run(agent).said
    assert expected[1] == ["one and one\n", "three\n"]
    assert expected[0][0]["diff"].endswith("-one\n+one and one\n")
    assert expected[0][2] == {"path": "/b", "deleted": 1}
    second = tmp_path / "second"
    second.mkdir()
    for number, (point, nth) in enumerate(CrashKit(second, zygote=zygote).points(agent)):
        place = tmp_path / str(number)
        place.mkdir()
        kit = CrashKit(place, zygote=zygote)
        kit.kill_at(point, agent, nth=nth)
        assert kit.run(agent).said == expected, f"{point} {nth}"


SECRET = "hunter2/hunter2+hunter2"


async def keeper() -> None:
    async with Runtime.open("agent.db", tools=[secret_store]) as runtime:
        session = runtime.session("s")
        arguments = {"action": "set", "name": "k", "value": SECRET}
        (outcome,) = await session.run_batch([ToolCall(id="set", name="secret_store", arguments=arguments)])
        say([outcome.value, await session.secrets.get("k") == SECRET])


async def recovering() -> None:
    async with Runtime.open("agent.db", tools=[secret_store]) as runtime:
        say([(done.outcome.ok, done.outcome.failure.code) for done in await runtime.recover()])


@pytest.mark.promise("SES-03", "EFF-05")
def test_a_secret_that_a_model_gives_is_set_wherever_the_process_is_killed_and_never_on_the_disk(zygote, tmp_path):
    first = tmp_path / "first"
    first.mkdir()
    codes = set()
    for number, (point, nth) in enumerate(CrashKit(first, zygote=zygote).points(keeper)):
        for again in (False, True):
            place = tmp_path / f"{number}-{again}"
            place.mkdir()
            kit = CrashKit(place, zygote=zygote)
            kit.kill_at(point, keeper, nth=nth)
            if again:
                # Nobody gives the value again: that is said, and nothing else is set in its place.
                codes.update(code for _, code in kit.run(recovering).said[0])
            else:
                assert kit.run(keeper).said[0] == [{"action": "set", "handle": "secret:k"}, True], f"{point} {nth}"
            for name, data in files_beside(place / "agent.db"):
                assert SECRET.encode() not in data, name
    assert codes == {"value_not_kept"}


async def shell() -> None:
    async with Runtime.open("agent.db", capabilities=["virtual_bash"]) as runtime:
        session = runtime.session("s")
        if await session.files.stat("/log") is None and await session.files.stat("/d") is None:
            await session.files.write("/log", "one\n")
        # What it counts is kept for the next script: run twice, it would count to two.
        script = "count=$((count + 1)); echo two >> log; mkdir d; mv log d; echo $count"
        (outcome,) = await session.run_batch([ToolCall(id="run", name="bash", arguments={"command": script})])
        say([outcome.value["stdout"], outcome.value["changed"], outcome.value["deleted"]])
        say(await session.files.read("/d/log"))


@pytest.mark.promise("BLT-02")
def test_a_script_changes_files_and_variables_once_wherever_the_process_is_killed(zygote, tmp_path):
    first = tmp_path / "first"
    first.mkdir()
    for number, (point, nth) in enumerate(CrashKit(first, zygote=zygote).points(shell)):
        place = tmp_path / str(number)
        place.mkdir()
        kit = CrashKit(place, zygote=zygote)
        kit.kill_at(point, shell, nth=nth)
        expected = [["1\n", ["/d/log"], ["/log"]], "one\ntwo\n"]
        assert kit.run(shell).said == expected, f"{point} {nth}"
