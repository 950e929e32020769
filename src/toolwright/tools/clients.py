"""What a tool may do in its session. Owns the protocols of the session's services, and the values they give.

They are the same for tools (`ctx.files`) and for the host (`session.files`). Instants are seconds since the epoch. What
a service refuses is a `ServiceError`; what a call changes is changed once, across attempts and crashes.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from datetime import datetime

    from toolwright.tools.call import ToolCall
    from toolwright.tools.definition import ToolDefinition
    from toolwright.tools.outcome import ToolOutcome

Sender = Literal["user", "assistant", "tool", "runtime"]


class FileInfo(Struct, frozen=True, gc=False):
    """A file or directory. `hash` is the SHA-256 of a file's content, in hexadecimal."""

    path: str
    directory: bool
    size: int
    hash: str | None
    readonly: bool
    created_at: float
    updated_at: float

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


class GrepMatch(Struct, frozen=True):
    """A line that matches: its number, from 1, and its text."""

    path: str
    line: int
    text: str


class FilesClient(Protocol):
    """The files of a session: absolute paths, of which `/workspace` is another name for the root."""

    async def read(self, path: str) -> str:
        """The text of a file; one that is not UTF-8 is refused, and `read_bytes` reads it."""
        ...

    async def read_bytes(self, path: str) -> bytes: ...

    async def write(
        self, path: str, content: str | bytes, *, expected: str | None = None, readonly: bool | None = None
    ) -> FileInfo:
        """Write a file, and make the directories above it.

        With `expected`, only if its content has this hash now; "" stands for a file that is not there. `readonly` sets
        the flag that keeps tools from changing it.
        """
        ...

    def stream(self, path: str) -> AsyncIterator[bytes]:
        """The content in pieces, for what is too large to hold."""
        ...

    async def write_stream(self, path: str, content: AsyncIterable[bytes]) -> FileInfo: ...

    async def make_directory(self, path: str) -> FileInfo: ...

    async def list(self, path: str = "/") -> builtins.list[FileInfo]:
        """What stands in a directory, by name."""
        ...

    async def stat(self, path: str) -> FileInfo | None: ...

    async def delete(self, path: str, recursive: bool = False) -> int:
        """Remove a file or directory, and return how many entries that were; 0 when there was none."""
        ...

    async def grep(self, pattern: str, path: str = "/", *, limit: int = 1_000) -> builtins.list[GrepMatch]:
        """The lines that match a regular expression, in the files below a path."""
        ...


class KeyInfo(Struct, frozen=True):
    """A key or the name of a secret, and when it was first and last written."""

    key: str
    created_at: float
    updated_at: float


class KeyValueClient(Protocol):
    """What the session keeps under names it chose, as JSON."""

    async def get(self, key: str, default: Any = None) -> Any: ...

    async def set(self, key: str, value: Any) -> None: ...

    async def delete(self, key: str) -> bool: ...

    async def list(self, prefix: str = "") -> builtins.list[KeyInfo]: ...


class SecretsClient(Protocol):
    """Values that tools may use and models never see. They are redacted from whatever a tool gives."""

    async def get(self, name: str) -> str | None: ...

    async def set(self, name: str, value: str) -> None: ...

    async def delete(self, name: str) -> bool: ...

    async def list(self) -> builtins.list[KeyInfo]:
        """Names and instants, never values."""
        ...


class Message(Struct, frozen=True):
    """One message of a session. `number` rises by one from each to the next, from 1."""

    number: int
    sender: Sender
    content: Any
    metadata: dict[str, Any]
    at: float


class MessagesClient(Protocol):
    """The conversation of a session."""

    async def append(
        self, content: Any, *, sender: Sender = "tool", metadata: Mapping[str, Any] | None = None
    ) -> Message: ...

    async def list(self, *, after: int = 0, limit: int | None = None) -> builtins.list[Message]: ...


class AttachmentInfo(Struct, frozen=True):
    """Content kept under its SHA-256."""

    hash: str
    name: str
    media_type: str
    size: int
    at: float


class AttachmentsClient(Protocol):
    """Content that travels with messages and outcomes."""

    async def put(self, content: bytes, *, name: str, media_type: str) -> AttachmentInfo: ...

    async def get(self, hash: str) -> bytes | None: ...

    async def list(self) -> builtins.list[AttachmentInfo]: ...

    async def delete(self, hash: str) -> bool: ...


class Resource(Struct, frozen=True):
    """Something outside that the session uses or made: a browser, a run, a deployment."""

    id: str
    kind: str
    name: str
    status: str
    metadata: dict[str, Any]
    created_at: float
    updated_at: float


class Connection(Struct, frozen=True):
    """A provider that the session is connected to. `detail` is what tools may read of it; it holds no secret."""

    provider: str
    detail: Any
    connected_at: float


class ConnectionsClient(Protocol):
    """The providers that the session is connected to. Tools read them; the host connects."""

    async def get(self, provider: str) -> Connection | None: ...

    async def list(self) -> builtins.list[Connection]: ...


class RunClient(Protocol):
    """The handle of a background run. What it shows is as it was last looked at."""

    @property
    def id(self) -> str: ...

    @property
    def status(self) -> str: ...

    @property
    def process(self) -> Any:
        """All that is known of the run, when it was last looked at."""
        ...

    @property
    def outcome(self) -> ToolOutcome | None:
        """Its outcome, once it is known."""
        ...

    async def refresh(self) -> Any:
        """Look at it now."""
        ...

    async def wait(self, timeout: float | None = None) -> ToolOutcome:
        """Its outcome, when it is over.

        Raises:
            TimeoutError: it is not over yet. It goes on.
        """
        ...

    def follow(self, after: int = 0) -> AsyncIterator[Any]:
        """What happened to it beyond an event's number, and what happens, until it is over."""
        ...

    async def log(self) -> str:
        """Its output so far."""
        ...

    async def cancel(self, reason: str = ...) -> bool:
        """Ask it and all that it started to stop; False when it was over already."""
        ...

    async def signal(self, name: str, payload: Any = None) -> int:
        """Send a signal, which its tool takes by `ctx.receive(name)`."""
        ...

    async def grant(self, session: str) -> None:
        """Let another session have a handle of it."""
        ...

    async def children(self) -> builtins.list[Any]:
        """The handles of the runs that it started, and of those that these did."""
        ...

    def to_json(self) -> dict[str, Any]: ...


class RunsClient(Protocol):
    """Tools that run in the background, in the session's name."""

    @property
    def current(self) -> str | None:
        """The id of the run that this call is part of, if it runs in the background."""
        ...

    async def spawn(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        title: str | None = None,
        timeout: float | None = None,
        signal_on_completion: bool = False,
        disposition: Literal["resume", "rerun", "abandon"] = "resume",
        id: str | None = None,
    ) -> RunClient:
        """Start a tool that supports it, and return the handle of its run."""
        ...

    async def list(self, *, active: bool = False) -> builtins.list[Any]:
        """The handles of the session's runs, the newest first."""
        ...

    async def get(self, id: str) -> RunClient:
        """The handle of a run of this session, or of one that was granted to it."""
        ...


class Trigger(Struct, frozen=True, kw_only=True):
    """What starts a tool in the background each time something occurs: see `TriggersClient`."""

    id: str
    session: str
    topic: str
    tool: str
    arguments: dict[str, Any]
    match: dict[str, Any]
    payload_as: str | None
    title: str
    timeout: float | None
    signal_on_completion: bool
    created_at: float


class TriggersClient(Protocol):
    """What starts tools in the background, in the session's name, when something occurs."""

    async def add(
        self,
        topic: str,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        match: Mapping[str, Any] | None = None,
        payload_as: str | None = None,
        title: str | None = None,
        timeout: float | None = None,
        signal_on_completion: bool = False,
        id: str | None = None,
    ) -> Trigger:
        """Start a tool each time something occurs under a topic with a payload that matches."""
        ...

    async def list(self) -> builtins.list[Trigger]:
        """The triggers of the session, the oldest first."""
        ...

    async def remove(self, id: str) -> bool:
        """Start nothing more by a trigger; False when there was none."""
        ...


class ScheduleClient(Protocol):
    """The handle of a schedule. What it shows is as it was last looked at."""

    @property
    def id(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def next_at(self) -> float | None: ...

    async def pause(self) -> bool:
        """Fire nothing until it is resumed; False when it was not active."""
        ...

    async def resume(self) -> bool:
        """Go on with the next instant from now; False when it was not paused."""
        ...

    async def run_now(self) -> str:
        """Start a run beside its instants, and return the id of the run."""
        ...

    async def cancel(self) -> bool:
        """Fire nothing any more; False when it was over already."""
        ...

    async def history(self, limit: int = 100) -> builtins.list[Any]:
        """What it did for its instants, the newest first."""
        ...

    def upcoming(self, count: int = 5) -> builtins.list[float]:
        """Its next instants."""
        ...

    def to_json(self) -> dict[str, Any]: ...


class SchedulesClient(Protocol):
    """Tools that are started at instants, in the session's name."""

    async def add(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        cron: str | None = None,
        at: datetime | str | None = None,
        timezone: str | None = None,
        title: str | None = None,
        timeout: float | None = None,
        signal_on_completion: bool = False,
        misfire: Literal["skip", "once", "all"] = "once",
        overlap: Literal["skip", "queue", "allow"] = "skip",
    ) -> ScheduleClient:
        """Start a tool that supports the background at an instant, or again and again."""
        ...

    async def list(self, *, active: bool = False) -> builtins.list[Any]:
        """The handles of the session's schedules, the oldest first."""
        ...

    async def get(self, id: str) -> ScheduleClient:
        """The handle of a schedule of this session."""
        ...


class ModelRequest(Struct, frozen=True):
    """What a tool asks the model of its session. `options` is what the tool gave beside the messages."""

    session: str
    messages: list[Any]
    options: dict[str, Any]


class ModelClient(Protocol):
    """The model that tools may ask. What it raises as a `ToolError` with `retry` is not remembered; the rest is."""

    async def complete(self, request: ModelRequest) -> Any:
        """The answer, as something that has a JSON form."""
        ...


class SessionClient(Protocol):
    """What a tool sees of a session: its own, and in the form of `ChildSessionClient` one that it opened."""

    id: str

    @property
    def tools(self) -> builtins.list[str]:
        """The names of its tools, in order."""
        ...

    @property
    def definitions(self) -> builtins.list[ToolDefinition]:
        """What its tools say of themselves, by name."""
        ...

    @property
    def files(self) -> FilesClient: ...

    @property
    def kv(self) -> KeyValueClient: ...

    @property
    def secrets(self) -> SecretsClient: ...

    @property
    def messages(self) -> MessagesClient: ...

    @property
    def attachments(self) -> AttachmentsClient: ...

    @property
    def resources(self) -> ResourcesClient: ...

    @property
    def connections(self) -> ConnectionsClient: ...


class ChildSessionClient(SessionClient, Protocol):
    """A session that a call opened: what the call may do, it may do there, and no more."""

    async def run_batch(
        self, calls: Iterable[ToolCall | Mapping[str, Any]], *, scope: str = ""
    ) -> builtins.list[ToolOutcome]:
        """Run tools in it: one outcome each, in order."""
        ...

    async def call(self, name: str, /, **arguments: Any) -> ToolOutcome:
        """Run one tool in it."""
        ...


class ResourcesClient(Protocol):
    """What the session uses or made outside."""

    async def upsert(
        self, id: str, *, kind: str, name: str, status: str, metadata: Mapping[str, Any] | None = None
    ) -> Resource: ...

    async def get(self, id: str) -> Resource | None: ...

    async def list(self, *, kind: str | None = None, status: str | None = None) -> builtins.list[Resource]: ...

    async def delete(self, id: str) -> bool: ...


class CatalogueClient(Protocol):
    """The tools of the session. One that is deferred is shown to the model as a stub, until it is revealed."""

    async def list(self) -> builtins.list[ToolDefinition]:
        """All of them, by name."""
        ...

    async def deferred(self) -> builtins.list[ToolDefinition]:
        """Those that are or were deferred, by name, in full."""
        ...

    async def reveal(self, names: Iterable[str]) -> None:
        """Show the model these in full from now on, also after a restart."""
        ...
