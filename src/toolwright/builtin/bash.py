"""The tool `bash`: scripts in a sandbox over the session's files. Owns its limits, its state and its result.

The interpreter is the library bashkit's, in this process: its commands are its own, its files are a copy of the
session's, and it has neither the host's files nor its processes nor a network. So it needs no one's approval, although
it executes code; a rule of the owner's policy may still ask, or deny.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Struct
from pydantic import Field

from toolwright.builtin.bash_files import ROOT, Loaded, Plan, carry_out, compare, load, require_paths
from toolwright.errors import ToolDefinitionError
from toolwright.tools.context import ToolContext
from toolwright.tools.function import as_tool, tool
from toolwright.tools.outcome import Success, ToolError

if TYPE_CHECKING:
    from toolwright.tools.tool import Tool

STATE_KEY = "toolwright:bash"
"""The key of the session's key-values that holds what the shell remembers from call to call."""

DESCRIPTION = """\
Run a bash script in a sandbox over the session's files.

The files are under /workspace, where the first script starts; files elsewhere are gone after the call, and so are \
symbolic links. The directory, variables, functions, aliases and `shopt` options are kept for the next call. There is \
no network, and no program but the sandbox's own commands (the usual ones: grep, sed, awk, jq, sort, find, tar, ...). \
A script that is stopped by a limit changes nothing. In the background, a script keeps files and no more.
"""


_LIMIT = re.compile(r"resource limit exceeded|execution error: .*(limit|budget)", re.S)


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
    """What a script did, as the journal keeps it. `state` is in base64, and None when there is none to keep."""

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
        "truncated": {"type": "boolean", "description": "True when the output was longer than what is given here."},
        "left_out": {"type": "array", "items": {"type": "string"}, "description": "Files too large for it to see."},
    },
    "required": ["stdout", "stderr", "exit_code", "cwd", "changed", "deleted", "truncated", "left_out"],
}


def bash_tool(limits: BashLimits | None = None) -> Tool:
    """Make the tool `bash` with some limits."""
    bounds = limits or BashLimits()

    @tool(
        name="bash",
        description=DESCRIPTION,
        display_name="Run Bash",
        id="toolwright.builtin.bash",
        kind="shell",
        category="shell",
        output_schema=OUTPUT_SCHEMA,
        destructive=True,
        open_world=False,
        capabilities=["executes_code", "writes_files", "sandboxable"],
        # What it executes can reach nothing but the session's own files, so nobody has to look at it first.
        approval="auto",
        supports_background=True,
        needs=["bash"],
        # The sandbox's own limit comes first, and says more.
        timeout=bounds.seconds + 10,
        # A script that was cut off left nothing behind, and one that was not is a step: done once.
        on_crash="rerun",
    )
    async def bash(
        command: Annotated[str, Field(description="The script.", min_length=1, max_length=65_536)], ctx: ToolContext
    ) -> Success:
        async def run(command: str) -> Any:
            return msgspec.to_builtins(await _run(command, ctx, bounds))

        done = msgspec.convert(await ctx.step("run", run, command, on_crash="rerun"), _Run)
        await carry_out(ctx.files, done.plan)
        # A run in the background begins with the shell as it is, and leaves it to the scripts of the conversation.
        if done.state is not None and ctx.runs.current is None:
            await ctx.kv.set(STATE_KEY, done.state)
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


async def _run(command: str, ctx: ToolContext, limits: BashLimits) -> _Run:
    """Run a script on a copy of the session's files, and tell what it did."""
    sandbox, shell = _sandbox(limits)
    loaded: Loaded = await load(ctx.files, sandbox, limits.files, limits.file_bytes)
    before = await ctx.kv.get(STATE_KEY)
    notes = "" if before is None or _restore(shell, before) else "bash: what earlier calls left was lost\n"
    if not shell.exists(shell.shell_state().cwd):
        await shell.execute(f"cd {ROOT}")  # the directory was elsewhere, and is gone
    live = _Live(ctx.output, asyncio.get_running_loop(), limits.output_bytes)
    try:
        result = await shell.execute(command, on_output=live.take)
    except asyncio.CancelledError:
        shell.cancel()  # it ends at its next command
        raise
    finally:
        live.drain()
    if result.error is not None and _LIMIT.match(result.error):
        raise _stopped(result.error, live.tail)
    plan = await asyncio.to_thread(compare, sandbox, loaded, limits.changed_bytes)
    await require_paths(ctx.files, plan)
    if plan.links:
        notes += f"bash: symbolic links are not kept: {', '.join(plan.links[:5])}\n"
    state: str | None = base64.b64encode(shell.snapshot(exclude_filesystem=True)).decode("ascii")
    if len(state or "") > limits.state_bytes:
        notes += "bash: the variables and functions are too large to keep, and are as before the call\n"
        state = None
    return _Run(
        stdout=_cut(result.stdout, limits.output_bytes),
        stderr=_cut(result.stderr, limits.output_bytes) + notes,
        transcript=live.transcript,
        exit_code=result.exit_code,
        cwd=shell.shell_state().cwd,
        truncated=result.stdout_truncated or result.stderr_truncated or live.overflowed,
        state=None if state == before else state,
        plan=plan,
        left_out=loaded.left_out,
    )


def _sandbox(limits: BashLimits) -> tuple[Any, Any]:
    try:
        from bashkit import Bash, FileSystem
    except ImportError as missing:
        raise ToolError(
            "The sandbox is not installed here.",
            category="unavailable",
            code="not_installed",
            detail="pip install 'toolwright[bash]'",
        ) from missing
    files = FileSystem()
    for entry in files.read_dir("/"):
        files.remove(f"/{entry['name']}", recursive=True)
    shell = Bash(
        username="agent",
        hostname="sandbox",
        cwd=ROOT,
        env={"HOME": ROOT},
        max_commands=limits.commands,
        max_loop_iterations=limits.loops,
        max_memory=limits.memory,
        timeout_seconds=limits.seconds,
    )
    shell.mount(ROOT, files)
    return files, shell


def _restore(shell: Any, state: Any) -> bool:
    from bashkit import BashError

    # Whoever can write the session's keys can write this one: it may be anything, and is tried, not trusted.
    try:
        shell.restore_snapshot(base64.b64decode(state, validate=True))
    except (BashError, ValueError, TypeError):
        return False
    return True


def _stopped(error: str, tail: str) -> ToolError:
    reason = error.removeprefix("resource limit exceeded: ").removeprefix("execution error: ")
    said = f" Its output ended with: {tail}" if tail else ""
    return ToolError(
        f"The script was stopped: {reason}. Nothing that it did was kept.{said}",
        category="timeout" if "timeout" in error else "resource_limit",
        code="limit",
    )


def _cut(text: str, most_bytes: int) -> str:
    return text.encode(errors="replace")[:most_bytes].decode(errors="ignore")


class _Live:
    """Output on its way to watchers. Pieces that come faster than the loop turns are sent as one."""

    def __init__(self, output: Callable[[str, str], Any], loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._output = output
        self._loop = loop
        self._room = most
        self._lock = threading.Lock()
        self._waiting: deque[tuple[str, str]] = deque()
        self._sent: list[str] = []
        self.overflowed = False

    def take(self, stdout: str, stderr: str) -> None:
        """Called by the sandbox, on a thread of its own."""
        with self._lock:
            idle = not self._waiting
            for stream, text in (("stdout", stdout), ("stderr", stderr)):
                if len(text) > self._room:
                    self.overflowed, text = True, text[: self._room]
                self._room -= len(text)
                if text:
                    self._waiting.append((stream, text))
            idle = idle and bool(self._waiting)
        if idle:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody watches any more
                self._loop.call_soon_threadsafe(self.drain)

    def drain(self) -> None:
        """Send what waits, on the loop."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        joined: list[tuple[str, str]] = []
        for stream, text in waiting:
            if joined and joined[-1][0] == stream:
                joined[-1] = (stream, joined[-1][1] + text)
            else:
                joined.append((stream, text))
        for stream, text in joined:
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
