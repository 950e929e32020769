"""A path means the same file in every tool: in `bash`, in the file tools, for outputs and in background runs."""

from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Policy, Runtime, tool
from toolwright.builtin import default_tools
from toolwright.builtin.bash import bash_tool

SPELLINGS = ("/src/app.py", "/workspace/src/app.py")


async def value(session: Any, name: str, **arguments: Any) -> Any:
    async with fail_after(20):
        outcome = await session.call(name, **arguments)
    assert outcome.ok, outcome.text
    return outcome.value


@pytest.mark.promise("BLT-07")
@pytest.mark.parametrize("written", SPELLINGS)
@pytest.mark.parametrize("read", [*SPELLINGS, "src/app.py"])
async def test_a_file_of_one_tool_is_found_by_every_other_under_each_of_its_names(written, read):
    async with Runtime.open(tools=[*default_tools(), bash_tool()]) as runtime:
        session = runtime.session("s")
        shown = await value(session, "write_file", path=written, content="print('one')\n")
        assert "/src/app.py" in str(shown)
        assert (await value(session, "bash", command=f"cat {read}"))["stdout"] == "print('one')\n"
        changed = await value(session, "bash", command=f"echo 'print(2)' >> {read}")
        assert changed["changed"] == ["/src/app.py"]
        for path in SPELLINGS:
            assert "print(2)" in str(await value(session, "read_file", path=path))
            assert "app.py" in str(await value(session, "list_directory", path=path.rpartition("/")[0]))
        assert "/src/app.py" in str(await value(session, "grep_files", pattern="print", path="/workspace/src"))
        assert (await value(session, "bash", command=f"rm {written}; ls src"))["stdout"] == ""
        assert not (await session.call("read_file", path=written)).ok


@pytest.mark.promise("BLT-07")
async def test_files_that_a_script_leaves_anywhere_are_there_for_the_other_tools_and_the_next_script():
    async with Runtime.open(tools=[*default_tools(), bash_tool()]) as runtime:
        session = runtime.session("s")
        made = await value(
            session, "bash", command="cd /tmp; echo a > a; mkdir -p /var/log /etc; echo b > /var/log/b; echo c > /etc/c"
        )
        assert made["changed"] == ["/etc/c", "/tmp/a", "/var/log/b"]
        for path in made["changed"]:
            assert path[-1] in str(await value(session, "read_file", path=path))
        assert (await value(session, "bash", command="cat /tmp/a /workspace/tmp/a /etc/c"))["stdout"] == "a\na\nc\n"
        # An empty /tmp that a script was given is not made into one of the session.
        other = runtime.session("t")
        assert (await value(other, "bash", command="cd /tmp && pwd && ls"))["stdout"] == "/tmp\n"
        assert await other.files.list("/") == []


@pytest.mark.promise("BLT-07")
async def test_programs_are_found_by_their_usual_paths_unless_the_session_has_files_there():
    async with Runtime.open(tools=[bash_tool()]) as runtime:
        session = runtime.session("s")
        script = "printf '#!/bin/bash\\n/bin/echo by path\\n' > s; chmod +x s; ./s; /usr/bin/env bash -c 'echo env'"
        made = await value(session, "bash", command=script)
        assert (made["stdout"], made["changed"]) == ("by path\nenv\n", ["/s"])
        assert (await value(session, "bash", command="echo x > /bin/mine; echo $?"))["changed"] == []
        await session.files.write("/bin/mine", "echo mine")
        assert (await value(session, "bash", command="ls /bin; bash /bin/mine"))["stdout"] == "mine\nmine\n"


@pytest.mark.promise("BLT-07")
async def test_an_output_that_was_kept_whole_is_read_by_bash_under_the_path_that_the_model_was_told():
    @tool(readonly=True)
    async def long_list() -> str:
        return "\n".join(f"line {number}" for number in range(5_000))

    async with Runtime.open(tools=[long_list, bash_tool()], policy=Policy(max_lines=10)) as runtime:
        session = runtime.session("s")
        outcome = await session.call("long_list")
        assert outcome.spilled_to is not None
        assert outcome.spilled_to.startswith("/.outputs/")
        found = await value(session, "bash", command=f"tail -n 1 {outcome.spilled_to}; wc -l < {outcome.spilled_to}")
        assert "line 4999" in found["stdout"]


@pytest.mark.promise("BLT-07")
async def test_a_script_in_the_background_uses_the_same_paths(tmp_path):
    async with Runtime.open(tmp_path / "agent.db", tools=[*default_tools(), bash_tool()]) as runtime:
        session = runtime.session("s")
        await value(session, "write_file", path="/in.txt", content="given")
        async with fail_after(20):
            run = await session.spawn(
                "bash", {"command": "mkdir /out; cat /in.txt > out/made.txt; cat /workspace/out/made.txt"}
            )
            await run.wait()
        assert "given" in str(await value(session, "read_file", path="/out/made.txt"))
