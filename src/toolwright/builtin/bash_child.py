"""Runs one script of `bash` in a limited child. Owns the interpreter and the check of each command.

The interpreter is bashkit's: its commands are its own, and its files are a copy of the session's. The rules of the
policy come as data. Each command that a rule may refuse is replaced by one of ours, which the interpreter calls with
the words as they are after every expansion; so no spelling of a command avoids it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import secrets
import shlex
import threading
import time
from typing import TYPE_CHECKING, Any

from bashkit import Bash, BashError, BuiltinResult, CommandStatus, FileSystem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from bashkit import BuiltinContext, CommandContext, CommandOutput, ExecResult

    from toolwright.limited_children.far_side import Link

ROOT = "/workspace"
_CONTROLS = [chr(number) for number in range(32) if number not in (9, 10, 13)]
_PIECE = 16 * 1024
_PAUSE = 0.02

# The interpreter runs these commands itself and does not let them be replaced. The commands that they run are checked
# like any other.
_NOT_REPLACEABLE = {
    *(".", "bash", "bind", "builtin", "command", "compgen", "complete", "compopt", "declare", "eval", "exec", "export"),
    *("fc", "getopts", "history", "let", "local", "readonly", "return", "sh", "source", "typeset", "unset"),
}
# These commands change or inspect the shell that runs them, so that a replacement of ours could not do the same.
_OF_THE_SHELL = {
    *("[", "alias", "bg", "break", "caller", "cd", "continue", "dirs", "disown", "enable", "exit", "fg", "hash"),
    *("jobs", "mapfile", "popd", "printf", "pushd", "read", "readarray", "set", "shift", "shopt", "test", "times"),
    *("trap", "type", "ulimit", "umask", "unalias", "wait"),
}
# An executable file can name a command of the interpreter past the one that replaces it. No other command makes one.
_MAKE_EXECUTABLE = ("chmod", "install", "mkfifo")


def work(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Run a script over the files that follow the request, and return its result."""
    script = _Script(request, link)
    script.load()
    return script.run()


class _Script:
    def __init__(self, request: dict[str, Any], link: Link) -> None:
        self._request = request
        self._link = link
        self._limits = request["limits"]
        self._files = _empty()
        self._scratch = _empty()
        self._loaded: dict[str, bytes] = {}
        self._refused_names: list[str] = []
        self._output = _Output(link, self._limits["output_bytes"])
        self._guard = _Guard(request["rules"], self._limits) if request["rules"] else None

    def load(self) -> None:
        """Take the session's files, which come in pieces, and end with an empty one."""
        for path in self._request["directories"]:
            try:
                self._files.mkdir(path, recursive=True)
            except RuntimeError:
                continue  # its name is refused; so are the files below it
        while pieces := self._link.receive():
            for path, known, content in pieces:
                try:
                    self._files.write_file(path, content)
                except RuntimeError:  # a name that the sandbox refuses, such as one with a line break
                    self._refused_names.append(path)
                else:
                    self._loaded[path] = bytes.fromhex(known) if known else hashlib.sha256(content).digest()

    def run(self) -> dict[str, Any]:
        """Run the script, and collect its result."""
        shell = _make_shell(self._limits)
        lost = not _restore(shell, self._request["state"])
        # The files are written over the restored state: a state holds no files that count.
        shell.mount("/", self._files)
        shell.mount(ROOT, self._files)
        directories = set(self._request["directories"])
        if "/tmp" not in directories:
            shell.mount("/tmp", self._scratch)
        if self._guard is None:
            # Under rules there is no executable file: a copy of one could be made into a way past them.
            for place in {"/bin", "/usr/bin"} - directories:
                shell.mount(place, _programs(), read_only=True)
        if not shell.exists(shell.shell_state().cwd):
            shell.execute_sync(f"cd {ROOT}")  # the directory is gone
        command = self._request["command"]
        if self._guard is None:
            result = shell.execute_sync(command, self._output.take)
        else:
            result = asyncio.run(self._guard.execute(shell, command, on_output=self._output.take))
        self._output.end()
        room = self._limits["output_bytes"]
        stdout, stderr = _cut(result.stdout, room), _cut(result.stderr, room)
        cut = (stdout, stderr) != (result.stdout, result.stderr)
        answer = {
            "stdout": stdout,
            "stderr": stderr,
            "exit_code": result.exit_code,
            "error": None if result.error is None else result.error[:2_000],
            "truncated": cut or result.stdout_truncated or result.stderr_truncated or self._output.overflowed,
            "lost": lost,
            "refused": self._guard.refused if self._guard is not None else None,
            "refused_names": self._refused_names,
        }
        if answer["refused"] is None and answer["error"] is None:
            answer["cwd"] = shell.shell_state().cwd
            answer["state"] = base64.b64encode(shell.snapshot(exclude_filesystem=True)).decode("ascii")
            answer.update(self._changes())
        return answer

    def _changes(self) -> dict[str, Any]:
        """The difference to the files that came."""
        before = set(self._request["directories"])
        directories: set[str] = set()
        links: list[str] = []
        changed: dict[str, str] = {}
        seen: set[str] = set()
        room = self._limits["changed_bytes"]
        for files, place in ((self._files, ""), (self._scratch, "/tmp")):
            for path, kind in _walk(files):
                full = place + path
                if kind == "directory":
                    directories.add(full)
                elif kind == "file":
                    seen.add(full)
                    content = files.read_file(path)
                    if self._loaded.get(full) == hashlib.sha256(content).digest():
                        continue
                    room -= len(content)
                    if room < 0:
                        return {"too_large": True}
                    changed[full] = base64.b64encode(content).decode("ascii")
                    if place:
                        directories.add(place)
                else:
                    links.append(full)
                if place and kind == "directory":
                    directories.add(place)
        return {
            "directories": sorted(directories - before),
            "files": sorted(changed.items()),
            "deleted": sorted(path for path in self._loaded if path not in seen),
            "gone": sorted(before - directories),
            "links": sorted(links),
        }


class _Guard:
    """Judges each command when the interpreter is about to run it.

    The rules of a policy are in order, and the first match decides; each policy must allow the command.

    A rule is its effect, its name and its patterns: an expression for the name of a command, and None or one for the
    command and its arguments on a line. A rule without patterns (None) matches every command.
    """

    def __init__(self, policies: list[list[list[Any]]], limits: dict[str, Any]) -> None:
        self._limits = limits
        self._policies = [
            [
                (effect, name, None if patterns is None else [_compile(*pattern) for pattern in patterns])
                for effect, name, patterns in rules
            ]
            for rules in policies
        ]
        # The commands that run now. They are referred to through this list, which is emptied at the end: a shell that
        # its own commands refer to would not be freed.
        self._shells: list[Bash] = []
        self.refused: list[str] | None = None
        """The rule that a command met, and the command."""

    async def execute(self, shell: Bash, command: str, *, but: str | None = None, **options: Any) -> ExecResult:
        """Run a command line with ours in place of the commands that a rule may refuse, `but` for one."""
        self._shells.append(shell)
        try:
            self._install(shell, but)
            return await shell.execute(command, **options)
        finally:
            self._shells.remove(shell)

    def _install(self, shell: Any, but: str | None) -> None:
        for name in _MAKE_EXECUTABLE:
            shell.add_builtin(name, _not_executable)
        for name in sorted(set(shell.capabilities().builtins) - _NOT_REPLACEABLE - {but}):
            match self._decision(name):
                case "refuse":
                    shell.add_builtin(name, self._refuse)
                case "depends" if name not in _OF_THE_SHELL:
                    shell.add_command(name, self._judge)

    def _decision(self, name: str) -> str:
        """The decision of the rules about a command whose arguments are not known yet."""
        decisions = {_decision(rules, name) for rules in self._policies}
        return "refuse" if "refuse" in decisions else "depends" if "depends" in decisions else "pass"

    def _match(self, name: str, arguments: list[str]) -> str | None:
        """The rule that refuses a command; None when it may run."""
        line = " ".join([name, *arguments])
        for rules in self._policies:
            for effect, rule, patterns in rules:
                if patterns is None or any(
                    pattern.match(name) and (whole is None or whole.match(line)) for pattern, whole in patterns
                ):
                    if effect != "allow":
                        name_of_rule: str = rule
                        return name_of_rule
                    break
        return None

    def _refuse(self, context: BuiltinContext) -> BuiltinResult:
        rule = self._match(context.name, context.argv) or ""
        self._stop(rule, context)
        return BuiltinResult(stderr=f"{context.name}: refused by the rule {rule!r}\n", exit_code=126)

    def _stop(self, rule: str, context: BuiltinContext | CommandContext) -> None:
        if self.refused is None:
            self.refused = [rule, " ".join([context.name, *context.argv])[:200]]
        for shell in self._shells:
            shell.cancel()  # None of its changes will be kept: the rest need not run.

    async def _judge(self, context: CommandContext) -> CommandStatus:
        """Let the interpreter's own command run where the rules allow its arguments."""
        rule = self._match(context.name, context.argv)
        if rule is not None:
            self._stop(rule, context)
            return CommandStatus(126)
        given = b""
        async for piece in context.stdin:
            given += piece
        fed = _empty()
        fed.write_file("/stdin", given)
        place = f"/.{secrets.token_hex(8)}"
        inner = _make_shell(self._limits)
        inner.mount("/", context.fs)
        inner.mount(place, fed, read_only=True)
        for key, value in context.env.items():
            inner.set_env(key, value)
        words = " ".join(shlex.quote(word) for word in [context.name, *context.argv])
        result = await self.execute(
            inner,
            f"cd {shlex.quote(context.cwd)} && {words} < {place}/stdin",
            but=context.name,
            stdout=_sink(context.stdout),
            stderr=_sink(context.stderr),
        )
        return CommandStatus(result.exit_code)


def _decision(rules: list[Any], name: str) -> str:
    for effect, _, patterns in rules:
        if patterns is None:
            return "pass" if effect == "allow" else "refuse"
        meant = [line for pattern, line in patterns if pattern.match(name)]
        if None in meant:
            return "pass" if effect == "allow" else "refuse"
        if meant:
            return "depends"
    return "pass"


def _not_executable(context: BuiltinContext) -> BuiltinResult:
    return BuiltinResult(
        stderr=f"{context.name}: no file is made executable under the rules of this session; use `bash FILE`\n",
        exit_code=0 if context.name == "chmod" else 1,
    )


def _compile(name: str, line: str | None) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    return re.compile(name), None if line is None else re.compile(line)


class _Output:
    """Output on its way to watchers. Small pieces that follow each other closely are sent as one."""

    def __init__(self, link: Link, most: int) -> None:
        self._link = link
        self._room = most
        self._lock = threading.Lock()
        self._waiting: list[list[str]] = []
        self._size = 0
        self._over = False
        self._wake = threading.Event()
        self.overflowed = False
        threading.Thread(target=self._send_in_time, daemon=True).start()

    def take(self, stdout: str, stderr: str) -> None:
        """Called by the interpreter, on any thread."""
        with self._lock:
            for stream, text in (("stdout", stdout), ("stderr", stderr)):
                cut = _cut(text, self._room)
                if cut != text:
                    self.overflowed, text = True, cut
                self._room = max(0, self._room - _cost(text)) if text else self._room
                self._size += len(text)
                if text and self._waiting and self._waiting[-1][0] == stream:
                    self._waiting[-1].append(text)
                elif text:
                    self._waiting.append([stream, text])
            if self._size >= _PIECE:
                self._send()
            elif self._waiting:
                self._wake.set()

    def end(self) -> None:
        """Send the waiting output with the answer."""
        self._over = True
        self._wake.set()
        with self._lock:
            self._send(hold=True)

    def _send_in_time(self) -> None:
        while not self._over:
            self._wake.wait()
            time.sleep(_PAUSE)
            with self._lock:
                self._wake.clear()
                if not self._over:
                    self._send()

    def _send(self, *, hold: bool = False) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        if waiting:
            self._link.note([[stream, "".join(texts)] for stream, *texts in waiting], hold=hold)


def _sink(stream: CommandOutput) -> Callable[[bytes], Awaitable[None]]:
    async def write(data: bytes) -> None:
        await stream.write(data)

    return write


def _make_shell(limits: dict[str, Any]) -> Bash:
    """An interpreter without files."""
    return Bash(
        username="agent",
        hostname="sandbox",
        cwd=ROOT,
        env={"HOME": ROOT},
        max_commands=limits["commands"],
        max_loop_iterations=limits["loops"],
        max_memory=limits["memory"],
        timeout_seconds=limits["seconds"],
    )


def _empty() -> FileSystem:
    files = FileSystem()
    for entry in files.read_dir("/"):
        files.remove(f"/{entry['name']}", recursive=True)
    return files


_programs_made: list[FileSystem] = []


def _programs() -> FileSystem:
    """Files for the commands of the interpreter, for scripts that call them by their usual path."""
    if not _programs_made:
        files = _empty()
        for name in set(Bash().capabilities().builtins) - {"."}:
            files.write_file(f"/{name}", f'#!/bin/sh\nexec {name} "$@"\n'.encode())
            files.chmod(f"/{name}", 0o755)
        _programs_made.append(files)
    return _programs_made[0]


def _walk(files: FileSystem) -> Iterator[tuple[str, str]]:
    waiting = ["/"]
    while waiting:
        directory = waiting.pop()
        try:
            entries = files.read_dir(directory)
        except RuntimeError:
            continue  # the script removed the root itself
        for entry in entries:
            path = f"{directory.rstrip('/')}/{entry['name']}"
            kind = entry["metadata"]["file_type"]
            if kind == "directory":
                waiting.append(path)
            yield path, kind


def _restore(shell: Bash, state: str | None) -> bool:
    if state is None:
        return True
    # Anything that can write the session's keys can write this one: it may be anything, and is tried, not trusted.
    try:
        shell.restore_snapshot(base64.b64decode(state, validate=True))
    except (BashError, ValueError, TypeError):
        return False
    return True


def _cut(text: str, room: int) -> str:
    """The longest start of a text that fits, measured by its length in JSON."""
    if _cost(text) <= room:
        return text
    whole = text.encode(errors="replace")[:room].decode(errors="ignore")
    return whole if _cost(whole) <= 2 * room else whole[: room // 6]


def _cost(text: str) -> int:
    """Bytes in JSON, where a control character takes six."""
    return len(text.encode(errors="replace")) + 5 * sum(map(text.count, _CONTROLS))
