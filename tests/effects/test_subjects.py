"""What a person who is asked for approval is told of the call: the script, the directory, the file."""

from typing import Any

import pytest

from tests.effects.watching import waiting
from tests.support import fail_after
from toolwright import Policy, Rule, Subject, Tool, ToolCall, ToolDefinitionError, tool
from toolwright.builtin import default_tools
from toolwright.builtin.bash import bash_tool


async def asked(runtime: Any, *calls: ToolCall) -> list[Any]:
    """What is asked about some calls, each of which is denied then."""
    found = []
    async with fail_after(10):
        for call in calls:
            with runtime.subscribe() as events:
                batch = runtime.session("s").start_batch([call])
                await waiting(events)
                (approval,) = await runtime.approvals()
                found.append(approval)
                await runtime.deny(approval.key)
                await batch
    return found


@pytest.mark.promise("AUTH-03")
async def test_a_request_tells_the_script_and_directory_the_file_or_the_tool(place, open_runtime):
    @tool(kind="shell", directory="/srv/project", script="line")
    async def sh(line: str) -> str:
        """Run a line."""
        return line

    @tool
    async def launch(where: str) -> str:
        """Launch."""
        return where

    policy = Policy(rules=[Rule("ask", "*")])
    runtime = await open_runtime(place, sh, launch, *default_tools(), policy=policy)
    approvals = await asked(
        runtime,
        ToolCall(id="1", name="sh", arguments={"line": "rm -r build"}),
        ToolCall(id="2", name="write_file", arguments={"path": "/a.txt", "content": "x"}),
        ToolCall(id="3", name="launch", arguments={"where": "mars"}),
    )
    assert [approval.subject for approval in approvals] == [
        Subject("shell", "rm -r build", "/srv/project"),
        Subject("file", "/a.txt"),
        Subject("tool", "launch"),
    ]
    assert approvals[0].to_json()["subject"] == {"kind": "shell", "text": "rm -r build", "directory": "/srv/project"}
    assert [decided.subject.kind for decided in await runtime.decisions()] == ["tool", "file", "shell"]


@pytest.mark.promise("AUTH-03")
async def test_a_request_about_bash_tells_the_directory_that_the_last_script_left(place, open_runtime):
    ask = Rule("ask", "bash", when=lambda request: request.arguments["command"] == "pwd")
    runtime = await open_runtime(place, bash_tool(), policy=Policy(rules=[ask]))
    assert (await runtime.session("s").call("bash", command="mkdir -p src && cd src")).value["exit_code"] == 0
    (approval,) = await asked(runtime, ToolCall(id="1", name="bash", arguments={"command": "pwd"}))
    assert approval.subject == Subject("shell", "pwd", "/workspace/src")


@pytest.mark.promise("AUTH-03", "SES-03")
async def test_a_tool_says_itself_what_its_call_is_about_and_shows_no_secret(place, open_runtime):
    async def about(arguments: dict[str, Any], view: Any) -> Subject:
        return Subject("query", f"{arguments['sql']} {await view.files.read('/login')}", "db")

    @tool(approval="required", subject=about)
    async def ask_database(sql: str) -> str:
        """Ask."""
        return sql

    broken = Tool.from_schema(
        name="broken", handler=lambda arguments: 1, approval="required", subject=lambda arguments, view: 1 / 0
    )
    runtime = await open_runtime(place, ask_database, broken)
    await runtime.session("s").secrets.set("login", "correct horse battery")
    await runtime.session("s").files.write("/login", "correct horse battery")
    first, second = await asked(
        runtime,
        ToolCall(id="1", name="ask_database", arguments={"sql": "DROP"}),
        ToolCall(id="2", name="broken"),
    )
    assert first.subject == Subject("query", "DROP [secret:login]", "db")
    assert second.subject == Subject("tool", "broken")


def test_a_subject_that_is_no_function_is_refused():
    with pytest.raises(ToolDefinitionError, match="'work' has subject='x'; use a function"):

        @tool(subject="x")  # type: ignore[call-overload]
        async def work() -> None: ...
