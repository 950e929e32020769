"""The tool `bash`: scripts in a sandbox over the session's files. Owns its limits, its state and its result.

The interpreter is the library bashkit, in a limited child process. Its commands are its own, its files are a copy of
the session's files, and it has no access to the host's files, processes or network. So it needs no approval, although
it executes code; a rule of the owner's policy may still ask, or deny.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Struct
from pydantic import Field

from toolwright.builtin.bash_files import (
    Changes,
    Loaded,
    Plan,
    carry_out,
    choose,
    pieces,
    plan_of,
    refused,
    require_paths,
)
from toolwright.errors import ToolDefinitionError
from toolwright.limited_children import ChildFailed, ChildJob, ChildTimeout
from toolwright.tools.context import ToolContext
from toolwright.tools.function import as_tool, tool
from toolwright.tools.outcome import Success, ToolError
from toolwright.tools.session_protocols import SessionView
from toolwright.tools.shell_rules import Policies, command_rules, write_refused_by
from toolwright.tools.subject import Subject

if TYPE_CHECKING:
    from toolwright.tools.tool import Tool

STATE_KEY = "toolwright:bash"
DIRECTORY_KEY = "toolwright:bash/directory"
"""The directory in which the next script starts; a person who is asked about a script sees it."""
START = "/workspace"
"""The session key that holds the state of the shell from call to call."""

DESCRIPTION = """\
Run a bash script in a sandbox over the session's files.

Every path is the same file as in the other tools: /notes.txt is what write_file calls /notes.txt. The first script \
starts in /workspace, which is another name of the root: /workspace/notes.txt is the same file again. Symbolic links \
and modes are gone after the call. The directory, variables, functions, aliases and `shopt` options are kept for the \
next call. There is no network, and no program but the sandbox's own commands (the usual ones: grep, sed, awk, jq, \
sort, find, tar, ...). A script that is stopped by a limit changes nothing. In the background, a script keeps files \
and no more.
"""


_LIMIT = re.compile(r"resource limit exceeded|execution error: .*(limit|budget)", re.S)
_CHILD = Path(__file__).with_name("bash_child.py")
_MB = 1024 * 1024
_SPARE_SECONDS = 1.0
"""How much longer the child may take than the interpreter's own clock, which gives a better message when it stops a
script."""


class BashLimits(Struct, frozen=True, kw_only=True):
    """How much one script may do. Times in seconds, sizes in bytes; `changed_bytes` is of the files it changes."""

    seconds: float = 20.0
    commands: int = 50_000
    loops: int = 50_000
    memory: int = 64 * 1024 * 1024
    output_bytes: int = 1024 * 1024
    files: int = 9_000
    file_bytes: int = 64 * 1024 * 1024
    changed_bytes: int = 16 * 1024 * 1024
    state_bytes: int = 256 * 1024

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, bool) or not 0 < value < float("inf"):
                raise ToolDefinitionError(f"BashLimits.{name} is {value!r}; use a number above 0")


class _Run(Struct):
    """The result of a script as the journal stores it. `state` is in base64, and None when there is none to store."""

    stdout: str
    stderr: str
    transcript: str
    exit_code: int
    cwd: str
    truncated: bool
    state: str | None
    plan: Plan
    left_out: list[str]


OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "stdout": {"type": "string"},
        "stderr": {"type": "string"},
        "exit_code": {"type": "integer"},
        "cwd": {"type": "string", "description": "The directory where the next script starts."},
        "changed": {"type": "array", "items": {"type": "string"}, "description": "Files it wrote."},
        "deleted": {"type": "array", "items": {"type": "string"}, "description": "Files and directories it removed."},
        "truncated": {"type": "boolean", "description": "True when the output was longer than the text here."},
        "left_out": {"type": "array", "items": {"type": "string"}, "description": "Files too large for it to see."},
    },
    "required": ["stdout", "stderr", "exit_code", "cwd", "changed", "deleted", "truncated", "left_out"],
}


async def _subject(arguments: dict[str, Any], view: SessionView) -> Subject:
    """The script, and the directory where an earlier script left the shell."""
    return Subject("shell", str(arguments.get("command", "")), str(await view.kv.get(DIRECTORY_KEY, START)))


def bash_tool(limits: BashLimits | None = None) -> Tool:
    """Make the tool `bash` with some limits."""
    bounds = limits or BashLimits()

    @tool(
        name="bash",
        description=DESCRIPTION,
        display_name="Run Bash",
        id="toolwright.builtin.bash",
        kind="shell",
        # The directory in which the first script starts. A later one may start elsewhere: the sandbox knows, and
        # applies the rules there.
        directory=START,
        mount="/workspace",
        subject=_subject,
        category="shell",
        output_schema=OUTPUT_SCHEMA,
        destructive=True,
        open_world=False,
        capabilities=["executes_code", "writes_files", "sandboxable"],
        # The executed code can reach nothing but the session's own files, so it needs no approval.
        approval="auto",
        supports_background=True,
        needs=["bash"],
        # The sandbox's own limit comes first, and its message says more. A busy machine may take long to start a child.
        timeout=bounds.seconds + 30,
        # A script that was cut off changed nothing, and a finished one is a step: done once.
        on_crash="rerun",
    )
    async def bash(
        command: Annotated[str, Field(description="The script.", min_length=1, max_length=65_536)], ctx: ToolContext
    ) -> Success:
        async def run(command: str) -> object:
            return msgspec.to_builtins(await _run(command, ctx, bounds))

        done = msgspec.convert(await ctx.step("run", run, command, on_crash="rerun"), _Run)
        await carry_out(ctx.files, done.plan)
        # A run in the background begins with the shell as it is, and leaves it to the scripts of the conversation.
        if done.state is not None and ctx.runs.current is None:
            await ctx.kv.set(STATE_KEY, done.state)
            if done.cwd != await ctx.kv.get(DIRECTORY_KEY, START):
                await ctx.kv.set(DIRECTORY_KEY, done.cwd)
        return Success(
            {
                "stdout": done.stdout,
                "stderr": done.stderr,
                "exit_code": done.exit_code,
                "cwd": done.cwd,
                "changed": [path for path, _, _ in done.plan.files],
                "deleted": done.plan.deleted,
                "truncated": done.truncated,
                "left_out": done.left_out,
            },
            raw_output=done.transcript,
        )

    return as_tool(bash)


class _Answer(Struct):
    """The child's answer about a script. It is checked, not trusted."""

    stdout: str
    stderr: str
    exit_code: int
    error: str | None
    truncated: bool
    lost: bool
    refused: tuple[str, str] | None
    refused_names: list[str]
    cwd: str = "/"
    state: str | None = None
    too_large: bool = False
    directories: list[str] = []
    files: list[tuple[str, str]] = []
    deleted: list[str] = []
    gone: list[str] = []
    links: list[str] = []


@functools.cache
def _installed() -> bool:
    return importlib.util.find_spec("bashkit") is not None


@functools.cache
def _job(limits: BashLimits) -> ChildJob:
    return ChildJob(
        f"{_CHILD}:work",
        # The files are in memory twice while they come in, and changed files three times while they go out.
        memory=limits.memory + 2 * limits.file_bytes + 4 * limits.changed_bytes + 4 * limits.output_bytes + 128 * _MB,
        seconds=2 * limits.seconds + 5,
        open_files=256,
        most_bytes=2 * limits.changed_bytes + 6 * limits.output_bytes + 2 * limits.state_bytes + 4 * _MB,
    )


async def _run(command: str, ctx: ToolContext, limits: BashLimits) -> _Run:
    """Run a script on a copy of the session's files, and return its result."""
    if not _installed():
        raise ToolError(
            "The sandbox is not installed here.",
            category="unavailable",
            code="not_installed",
            detail="pip install 'toolwright[bash]'",
        )
    rules = ctx.shell_rules()
    loaded = await choose(ctx.files, limits.files, limits.file_bytes)
    before = await ctx.kv.get(STATE_KEY)
    live = _Live(ctx.output, limits.output_bytes)
    answer = await _in_child(command, ctx, limits, rules, loaded, before, live)
    if answer.refused is not None:
        raise _refused_command(ctx, rules, *answer.refused)
    if answer.error is not None and _LIMIT.match(answer.error):
        raise _stopped(answer.error, await _end_of(live, ctx))
    if answer.too_large:
        raise refused(
            f"The script changed more than {limits.changed_bytes} bytes of files; write less in one call", "too_large"
        )
    for path in answer.refused_names:
        if loaded.files.pop(path, None) is not None:
            loaded.left_out.append(path)
    plan = plan_of(Changes(answer.directories, answer.files, answer.deleted, answer.gone, answer.links), loaded)
    _judge_writes(ctx, rules, plan)
    await require_paths(ctx.files, plan)
    notes = "bash: the state of earlier calls was lost\n" if answer.lost else ""
    if plan.links:
        notes += f"bash: symbolic links are not kept: {', '.join(plan.links[:5])}\n"
    state = answer.state
    if len(state or "") > limits.state_bytes:
        notes += "bash: the variables and functions are too large to keep, and are as before the call\n"
        state = None
    return _Run(
        stdout=answer.stdout,
        stderr=answer.stderr + notes,
        transcript=live.transcript,
        exit_code=answer.exit_code,
        cwd=answer.cwd,
        truncated=answer.truncated or live.overflowed,
        state=None if state == before else state,
        plan=plan,
        left_out=sorted(loaded.left_out),
    )


async def _in_child(
    command: str,
    ctx: ToolContext,
    limits: BashLimits,
    rules: Policies,
    loaded: Loaded,
    state: object,
    live: _Live,
) -> _Answer:
    request = {
        "command": command,
        "limits": msgspec.to_builtins(limits),
        "state": state if isinstance(state, str) else None if state is None else "",
        "directories": sorted(loaded.directories),
        "rules": command_rules(rules),
    }
    try:
        answer = await ctx.limited_children.run(
            _job(limits),
            request,
            seconds=limits.seconds + _SPARE_SECONDS,
            feed=pieces(ctx.files, loaded),
            hear=live.take,
        )
        return msgspec.convert(answer, _Answer)
    except ChildTimeout:
        raise _stopped(
            f"execution timeout: it took longer than {limits.seconds:g} s", await _end_of(live, ctx)
        ) from None
    except ChildFailed as failed:
        if failed.code not in ("died", "memory", "depth", "too_large"):
            raise  # a fault of ours, and not of the script
        raise _stopped(
            f"its sandbox failed, as by a recursion that is too deep or too much memory: {failed}",
            await _end_of(live, ctx),
        ) from failed
    except msgspec.ValidationError as wrong:
        raise _stopped("its sandbox's answer is not a result", await _end_of(live, ctx)) from wrong


def _refused_command(ctx: ToolContext, rules: Policies, name: str, command: str) -> ToolError:
    rule = next((rule for policy in rules for rule in policy if rule.name == name), None)
    ctx.refused_by(name)
    why = f"The script runs {command!r}, which is not allowed" if rule is None else rule.refusal(f"runs {command!r}")
    return refused(why, "needs_approval" if rule is not None and rule.asks else "denied")


def _judge_writes(ctx: ToolContext, rules: Policies, plan: Plan) -> None:
    """Apply the rules on writes to every path of a plan.

    Raises:
        ToolError: a rule does not allow one of them; then no change is kept.
    """
    if not rules:
        return
    for path in [*plan.directories, *(path for path, _, _ in plan.files), *plan.deleted]:
        rule = write_refused_by(rules, path)
        if rule is not None:
            ctx.refused_by(rule.name)
            raise refused(rule.refusal(f"writes {path!r}"), "needs_approval" if rule.asks else "denied")


async def _end_of(live: _Live, ctx: ToolContext) -> str:
    """The end of the output, unless there is a secret in it: the end of one is not known for a part of it."""
    return "" if await ctx.secrets.hides(live.transcript) else live.tail


def _stopped(error: str, tail: str) -> ToolError:
    reason = error.removeprefix("resource limit exceeded: ").removeprefix("execution error: ")
    said = f" Its output ended with: {tail}" if tail else ""
    return ToolError(
        f"The script was stopped: {reason}. None of its changes were kept.{said}",
        category="timeout" if "timeout" in error else "resource_limit",
        code="limit",
    )


class _Live:
    """Output on its way to watchers, and a transcript of it. The data is checked: it comes from the sandbox."""

    def __init__(self, output: Callable[[str, str], Any], most: int) -> None:
        self._output = output
        self._room = most
        self._sent: list[str] = []
        self.overflowed = False

    def take(self, pieces: object) -> None:
        """Send pieces of output, each a stream and a text."""
        for piece in pieces if isinstance(pieces, list) else ():
            match piece:
                case ["stdout" | "stderr" as stream, str(text)]:
                    if len(text) > self._room:
                        self.overflowed, text = True, text[: self._room]
                    self._room -= len(text)
                    if text:
                        self._sent.append(text)
                        self._output(stream, text)

    @property
    def transcript(self) -> str:
        """All that was sent, in order."""
        return "".join(self._sent)

    @property
    def tail(self) -> str:
        """The end of it."""
        return self.transcript[-500:].strip()


bash = bash_tool()
