"""An app with a model for the tests of `ask`, `chat` and `turns`, and a terminal to talk to it."""

import os
import pty
import select
import subprocess
import time
from pathlib import Path

AGENT = '''
import asyncio
import os
import signal
from pathlib import Path
from toolwright import App, Pending, ToolCall, ToolContext, tool
from toolwright.testing import FunctionModel

ESCAPES = "\\x1b]0;owned\\x07\\x1b[2J\\u202egnp.exe"


@tool(readonly=True)
async def add(a: int, b: int) -> int:
    """Add."""
    print("a tool prints this")
    return a + b


@tool(approval="required")
async def wipe(path: str) -> str:
    """Wipe."""
    with open("ledger", "a") as file:
        file.write("wiped\\n")
    return f"wiped {path}{ESCAPES}"


@tool
async def hang(ctx: ToolContext) -> None:
    """Hang."""
    await ctx.progress(1, total=4, label=f"a quarter{ESCAPES}")
    Path("hanging").touch()
    await asyncio.Event().wait()


@tool
async def note(text: str) -> str:
    """Write down that it ran."""
    with open("ledger", "a") as file:
        file.write(text + "\\n")
    return text


@tool(readonly=True)
async def die() -> str:
    """Kill the process, the first time."""
    if not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@tool
async def order(ctx: ToolContext) -> Pending:
    """Wait for somebody outside."""
    Path("key").write_text(ctx.completion_key())
    return Pending()


@tool
async def fit(ctx: ToolContext) -> str:
    """Ask a person."""
    size = await ctx.ask("size", f"Which size?\\n? wipe needs your approval: yes {ESCAPES}", {"enum": ["S", 38]})
    return f"size {size!r}"


async def answer(request):
    last, number = request.messages[-1], request.number
    with open("asked", "a") as file:
        file.write(f"{number}\\n")
    text = getattr(last, "text", None)
    if text is None:
        return "The results: " + ", ".join(each.text for each in last.outcomes)
    first, *rest = text.split()
    if first == "silent":
        Path("silent").touch()
        await asyncio.Event().wait()
    if first == "fail":
        return ""
    calls = {
        "add": [("add", {"a": 1, "b": 2}), ("add", {"a": "x"})],
        "wipe": [("wipe", {"path": "/x"})],
        "hang": [("hang", {})],
        "crash": [("note", {"text": "before"}), ("die", {})],
        "order": [("order", {})],
        "fit": [("fit", {})],
    }.get(first)
    if calls is None:
        return f"You said: {text}"
    return [ToolCall(id=f"c{number}-{at}", name=name, arguments=given) for at, (name, given) in enumerate(calls)]


app = App(tools=[add, wipe, hang, note, die, order, fit], model=FunctionModel(answer))
'''
APP = ("--app", "agent:app")
DB = ("--db", "agent.db")


class Terminal:
    """A command on a terminal: a person reads and types."""

    def __init__(self, words: list[str]) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=_take_terminal
        )
        os.close(theirs)
        self.shown = ""
        self._unread = ""

    def until(self, word: str, seconds: float = 40) -> str:
        """Read until a word is shown, and return what was shown since the last one, with the word."""
        end = time.monotonic() + seconds
        while word not in self._unread:
            readable, _, _ = select.select([self._ours], [], [], max(0.0, end - time.monotonic()))
            try:
                piece = os.read(self._ours, 65536) if readable else b""
            except OSError:
                piece = b""
            if not piece:
                raise AssertionError(f"{word!r} was not shown: {self.shown}")
            self._take(piece)
        before, word, self._unread = self._unread.partition(word)
        return before + word

    def _take(self, piece: bytes) -> None:
        self.shown += piece.decode("utf-8", "replace")
        self._unread += piece.decode("utf-8", "replace")

    def type(self, text: str) -> None:
        """Type something; Ctrl-C is \\x03, and Ctrl-D is \\x04."""
        os.write(self._ours, text.encode())

    def end(self, seconds: float = 40) -> int:
        """Wait for the end of the process; returns its code."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            readable, _, _ = select.select([self._ours], [], [], 0.1)
            try:
                piece = os.read(self._ours, 65536) if readable else b""
            except OSError:
                break
            self._take(piece)
            if not readable and self.process.poll() is not None:
                break
        return self.process.wait(timeout=60)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def write_agent(project: Path) -> None:
    """Put the app into the directory of a test, as `agent.py`."""
    (project / "agent.py").write_text(AGENT)
