"""The file of servers, in the `mcpServers` form that other programs use. Owns reading it and writing it; does not own
connecting."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from toolwright.errors import ToolwrightError
from toolwright.mcp.client_settings import Sampling, ServerOptions
from toolwright.mcp.tool_names import require_server_name

DEFAULT = "mcp.json"
LARGEST = 1024 * 1024
_OWN = frozenset(ServerOptions.__annotations__)


@dataclass(frozen=True, slots=True)
class ServersFile:
    """A file with servers, and everything else that is in it."""

    path: Path
    content: dict[str, Any]

    @classmethod
    def read(cls, path: str | Path, *, missing: bool = False) -> ServersFile:
        """The file at a path; with `missing`, an empty one where there is none.

        Raises:
            ToolwrightError: it cannot be read, or has another form.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                raw = file.read(LARGEST + 1)
        except FileNotFoundError:
            if missing:
                return cls(path, {"mcpServers": {}})
            raise ToolwrightError(
                f"There is no file {str(path)!r}; make it with: toolwright mcp add NAME COMMAND"
            ) from None
        except OSError as error:
            raise ToolwrightError(f"The file {str(path)!r} cannot be read: {error.strerror or error}") from error
        if len(raw) > LARGEST:
            raise ToolwrightError(f"The file {str(path)!r} has more than {LARGEST} bytes; that is no list of servers")
        try:
            content = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise ToolwrightError(f"The file {str(path)!r} is not JSON: {error}") from error
        # A file with other things in it and no servers is that of another program, which names them otherwise.
        if not isinstance(content, dict) or not isinstance(content.get("mcpServers", None if content else {}), dict):
            raise ToolwrightError(
                f'The file {str(path)!r} has another form; write {{"mcpServers": {{"name": {{"command": ...}}}}}}'
            )
        content.setdefault("mcpServers", {})
        return cls(path, content)

    @property
    def servers(self) -> dict[str, Any]:
        """The servers by name, as they are written."""
        return cast("dict[str, Any]", self.content["mcpServers"])

    def write(self) -> None:
        """Write the file, all of it or nothing. Only its owner may read it: it may have tokens in it."""
        text = json.dumps(self.content, indent=2, ensure_ascii=False) + "\n"
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
        mode = (self.path.stat().st_mode & 0o777) if self.path.exists() else 0o600
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise ToolwrightError(
                f"The file {str(self.path)!r} cannot be written: {error.strerror or error}"
            ) from error


def read_entry(name: str, entry: object) -> tuple[dict[str, Any], ServerOptions]:
    """The settings of one server of a file, and the options that it has under "toolwright".

    Raises:
        ToolwrightError: it has another form.
    """
    require_server_name(name)
    if not isinstance(entry, Mapping):
        raise _wrong(name, "is not an object", "{'command': ...} or {'url': ...}")
    if "command" in entry and "url" in entry:
        raise _wrong(name, "has a command and a url", "one of the two")
    kind = entry.get("type") or entry.get("transport") or ("stdio" if "command" in entry else "http")
    if kind == "sse":
        raise _wrong(name, "has the type 'sse'", "a server with streamable HTTP: the old transport is not supported")
    settings: dict[str, Any]
    if kind == "stdio":
        args: Any = entry.get("args", [])
        if not isinstance(args, list):
            raise _wrong(name, f"has args={args!r:.100}", "a list of texts")
        env = {key: str(value) for key, value in _object(name, entry, "env").items()}
        settings = {"command": entry.get("command"), "args": tuple(args), "env": env, "cwd": entry.get("cwd")}
    elif kind in ("http", "streamable-http", "streamableHttp", "streamable_http"):
        settings = {"url": entry.get("url"), "headers": dict(_object(name, entry, "headers"))}
    else:
        raise _wrong(name, f"has the type {kind!r:.100}", "'stdio' or 'http'")
    own = dict(_object(name, entry, "toolwright"))
    unknown = own.keys() - _OWN
    if unknown:
        raise _wrong(
            name, f"has unknown options {sorted(unknown)} under 'toolwright'", f"any of {', '.join(sorted(_OWN))}"
        )
    sampling = own.get("sampling")
    if isinstance(sampling, Mapping):
        if unknown := sampling.keys() - {each.name for each in fields(Sampling)}:
            raise _wrong(name, f"has unknown options {sorted(unknown)} of sampling", "requests and max_tokens")
        own["sampling"] = Sampling(**sampling)
    return settings, cast("ServerOptions", own)


def is_disabled(entry: object) -> bool:
    """True for a server that its file turns off."""
    return isinstance(entry, Mapping) and entry.get("disabled") is True


def _object(name: str, entry: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = entry.get(key) or {}
    if not isinstance(found, Mapping):
        raise _wrong(name, f"has {key} that are no object", "an object of texts")
    return found


def _wrong(name: str, what: str, use: str) -> ToolwrightError:
    return ToolwrightError(f"The MCP server {name!r:.100} {what}; use {use}")
