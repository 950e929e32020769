"""The blocking API as type checkers and editors see it. Owns signatures only: `blocking` has the one implementation,
which reflects the methods of the async objects.

Each class here has the public methods of its async class, with the same parameters. A test compares them.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, Unpack

from toolwright.calls.hooks import Projector
from toolwright.calls.judgement import Judgement
from toolwright.calls.policy import Policy, PolicySettings
from toolwright.calls.record import MemoryCallLog
from toolwright.calls.suspend.approvals import Approval
from toolwright.calls.suspend.questions import Question
from toolwright.events import AnyEvent
from toolwright.session.archive.format import Exported, Imported
from toolwright.session.children import Calls
from toolwright.session.open_waits import OpenWait, Resolved
from toolwright.session.recovery import Recovered, Unfinished
from toolwright.stores.contracts.archives import SessionInfo
from toolwright.stores.contracts.background_run import BackgroundRun, Status
from toolwright.stores.contracts.event_log import EventPage
from toolwright.stores.contracts.run_events import RunEvent
from toolwright.stores.contracts.schedule import Fired, Schedule
from toolwright.tools.background_protocols import ScheduleOptions, SpawnOptions, Trigger, TriggerOptions
from toolwright.tools.call import ToolCall
from toolwright.tools.capability import Capability
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.model import ModelClient
from toolwright.tools.outcome import Failure, Image, ToolOutcome
from toolwright.tools.registry import ScopedRegistry, ToolRegistry, ToolSource
from toolwright.tools.remote_tools import RemoteStatus
from toolwright.tools.service_protocols import (
    AttachmentInfo,
    Connection,
    FileInfo,
    GrepMatch,
    KeyInfo,
    Message,
    Resource,
    Sender,
    SessionDetails,
)
from toolwright.tools.turn_protocols import Budget, Delivery, TurnEvent, TurnInfo, TurnOutcome


class BlockingFiles(Protocol):
    """A `Files` for code that is not async."""

    def delete(self, path: str, recursive: bool = False, *, expected: str | None = None) -> int: ...

    def grep(
        self, pattern: str, path: str = "/", *, glob: str | None = None, limit: int = 1000
    ) -> builtins.list[GrepMatch]: ...

    def list(self, path: str = "/") -> builtins.list[FileInfo]: ...

    def make_directory(self, path: str) -> FileInfo: ...

    def read(self, path: str) -> str: ...

    def read_bytes(self, path: str) -> bytes: ...

    def stat(self, path: str) -> FileInfo | None: ...

    def stream(self, path: str, *, start: int = 0, expected: str | None = None) -> Iterable[bytes]: ...

    def write(
        self, path: str, content: str | bytes, *, expected: str | None = None, readonly: bool | None = None
    ) -> FileInfo: ...

    def write_stream(self, path: str, content: AsyncIterable[bytes], *, expected: str | None = None) -> FileInfo: ...


class BlockingKeyValue(Protocol):
    """A `KeyValue` for code that is not async."""

    def delete(self, key: str) -> bool: ...

    def get(self, key: str, default: object = None) -> Any: ...

    def list(self, prefix: str = "") -> builtins.list[KeyInfo]: ...

    def set(self, key: str, value: object) -> None: ...


class BlockingSecrets(Protocol):
    """A `Secrets` for code that is not async."""

    def delete(self, name: str) -> bool: ...

    def get(self, name: str) -> str | None: ...

    def hides(self, text: str) -> bool: ...

    def list(self) -> builtins.list[KeyInfo]: ...

    def set(self, name: str, value: str) -> None: ...


class BlockingMessages(Protocol):
    """A `Messages` for code that is not async."""

    def append(
        self, content: object, *, sender: Sender = "tool", metadata: Mapping[str, Any] | None = None
    ) -> Message: ...

    def extend(self, messages: Iterable[Mapping[str, Any]]) -> builtins.list[Message]: ...

    def list(self, *, after: int = 0, limit: int | None = None) -> builtins.list[Message]: ...


class BlockingAttachments(Protocol):
    """A `Attachments` for code that is not async."""

    def delete(self, hash: str) -> bool: ...

    def fill_in(self, outcomes: Iterable[ToolOutcome]) -> builtins.list[ToolOutcome]: ...

    def get(self, hash: str) -> bytes | None: ...

    def list(self) -> builtins.list[AttachmentInfo]: ...

    def put(self, content: bytes, *, name: str, media_type: str) -> AttachmentInfo: ...


class BlockingResources(Protocol):
    """A `Resources` for code that is not async."""

    def delete(self, id: str) -> bool: ...

    def get(self, id: str) -> Resource | None: ...

    def list(self, *, kind: str | None = None, status: str | None = None) -> builtins.list[Resource]: ...

    def update_status(self, id: str, status: str) -> Resource | None: ...

    def upsert(
        self, id: str, *, kind: str, name: str, status: str, metadata: Mapping[str, Any] | None = None
    ) -> Resource: ...


class BlockingDetails(Protocol):
    """A `Details` for code that is not async."""

    def get(self) -> SessionDetails: ...

    def set(self, *, title: str | None = None, locale: str | None = None) -> SessionDetails: ...


class BlockingCatalogue(Protocol):
    """A `SessionCatalogue` for code that is not async."""

    def deferred(self) -> builtins.list[ToolDefinition]: ...

    def list(self) -> builtins.list[ToolDefinition]: ...

    def offered(self) -> builtins.list[ToolDefinition]: ...

    def reveal(self, names: Iterable[str]) -> None: ...


class BlockingBatch(Protocol):
    """A `Batch` for code that is not async."""

    def cancel(self, reason: str = "the batch was cancelled") -> None: ...

    @property
    def done(self) -> bool: ...

    @property
    def id(self) -> str: ...

    def wait(self) -> list[ToolOutcome]: ...


class BlockingRun(Protocol):
    """A `Run` for code that is not async."""

    def append(self, name: str, payload: object = None, *, key: str | None = None, tell: bool = False) -> int: ...

    def cancel(self, reason: str = "the run was cancelled") -> bool: ...

    def children(self) -> list[BlockingRun]: ...

    def events(self) -> Iterable[RunEvent]: ...

    def fail(self, failure: Failure | str) -> bool: ...

    def finish(self, value: object = None, *, summary: str | None = None) -> bool: ...

    def follow(self, after: int = 0) -> Iterable[RunEvent]: ...

    def grant(self, session: str) -> None: ...

    @property
    def id(self) -> str: ...

    def log(self) -> str: ...

    @property
    def outcome(self) -> ToolOutcome | None: ...

    @property
    def record(self) -> BackgroundRun: ...

    def refresh(self) -> BackgroundRun: ...

    def report(
        self,
        *,
        status: str | None = None,
        progress: float | None = None,
        total: float | None = None,
        label: str | None = None,
        unit: str | None = None,
        output: str | None = None,
        stream: str = "stdout",
    ) -> bool: ...

    def resume(self, *, by: str | None = None) -> None: ...

    def signal(self, name: str, payload: object = None) -> int: ...

    @property
    def status(self) -> Status: ...

    def to_json(self) -> dict[str, Any]: ...

    def wait(self, timeout: float | None = None, *, cancel: bool = False) -> ToolOutcome: ...


class BlockingSchedule(Protocol):
    """A `ScheduleHandle` for code that is not async."""

    def cancel(self) -> bool: ...

    def history(self, limit: int = 100) -> list[Fired]: ...

    @property
    def id(self) -> str: ...

    @property
    def next_at(self) -> float | None: ...

    def pause(self) -> bool: ...

    def refresh(self) -> Schedule: ...

    def resume(self) -> bool: ...

    def run_now(self) -> str: ...

    @property
    def schedule(self) -> Schedule: ...

    @property
    def state(self) -> str: ...

    def to_json(self) -> dict[str, Any]: ...

    def upcoming(self, count: int = 5) -> list[float]: ...


class BlockingSubscription(Protocol):
    """A `Subscription` for code that is not async: iterate over it, in a `with` block that closes it."""

    def __iter__(self) -> Iterator[AnyEvent]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    def close(self) -> None: ...

    @property
    def dropped(self) -> int: ...

    @property
    def limit(self) -> int: ...

    @property
    def session(self) -> str | None: ...

    def take(self) -> AnyEvent | None: ...


class BlockingTurn(Protocol):
    """A `Turn` for code that is not async."""

    def cancel(self, reason: str = "the turn was cancelled") -> bool: ...

    def follow(self, after: int = 0) -> Iterable[TurnEvent]: ...

    @property
    def id(self) -> str: ...

    def info(self) -> TurnInfo: ...

    @property
    def session_id(self) -> str: ...

    def steer(self, message: str, *, when: Delivery = "next_model_call") -> None: ...

    def wait(self, timeout: float | None = None) -> TurnOutcome | None: ...


class BlockingSession(Protocol):
    """A `Session` for code that is not async."""

    @property
    def id(self) -> str: ...

    @property
    def policy(self) -> Policy: ...

    @property
    def tools(self) -> ScopedRegistry: ...

    def ask(
        self,
        message: str,
        *,
        model: str | ModelClient | None = None,
        budget: Budget | None = None,
        answer: object = None,
        images: Sequence[Image] = (),
        tool_choice: str = "auto",
        parallel: bool | None = None,
        max_tokens: int | None = None,
        id: str | None = None,
    ) -> TurnOutcome: ...

    def answer(self, key: str, value: object, *, by: str | None = None, via: str | None = None) -> Resolved: ...

    def approvals(self) -> list[Approval]: ...

    def approve(
        self,
        key: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        always: Mapping[str, Any] | None = None,
        by: str | None = None,
        via: str | None = None,
    ) -> Resolved: ...

    @property
    def attachments(self) -> BlockingAttachments: ...

    @property
    def batches(self) -> tuple[BlockingBatch, ...]: ...

    def call(self, name: str, /, **arguments: object) -> ToolOutcome: ...

    def cancel(self, reason: str = "the session was cancelled") -> None: ...

    def cancel_waits(self, reason: str = "the waits of the session were cancelled") -> int: ...

    @property
    def catalogue(self) -> BlockingCatalogue: ...

    def connect(self, provider: str, *, detail: object = None) -> Connection: ...

    def connections(self) -> list[Connection]: ...

    def decline(
        self, key: str, reason: str | None = None, *, by: str | None = None, via: str | None = None
    ) -> Resolved: ...

    def definitions(self) -> list[ToolDefinition]: ...

    def deny(
        self,
        key: str,
        *,
        reason: str | None = None,
        always: Mapping[str, Any] | None = None,
        by: str | None = None,
        via: str | None = None,
    ) -> Resolved: ...

    @property
    def details(self) -> BlockingDetails: ...

    def disconnect(self, provider: str) -> bool: ...

    @property
    def files(self) -> BlockingFiles: ...

    @property
    def kv(self) -> BlockingKeyValue: ...

    def may_ask_about(self, tool: str) -> bool: ...

    @property
    def messages(self) -> BlockingMessages: ...

    def off(self, trigger: Trigger | str) -> bool: ...

    def offered(self) -> list[ToolDefinition]: ...

    def questions(self) -> list[Question]: ...

    def on(
        self, topic: str, tool: str, args: Mapping[str, Any] | None = None, **options: Unpack[TriggerOptions]
    ) -> Trigger: ...

    def reject(
        self,
        key: str,
        *,
        code: str = "rejected",
        message: str = "It was rejected from outside",
        category: str = "external",
    ) -> Resolved: ...

    def resolve(self, key: str, value: object = None) -> Resolved: ...

    @property
    def resources(self) -> BlockingResources: ...

    def revoke(self, reason: str = "the session was revoked") -> int: ...

    def run(self, id: str) -> BlockingRun: ...

    def run_batch(self, calls: Calls, *, scope: str = "", **changes: Unpack[PolicySettings]) -> list[ToolOutcome]: ...

    def runs(self, *, active: bool = False) -> list[BlockingRun]: ...

    def schedule(
        self, tool: str, args: Mapping[str, Any] | None = None, **options: Unpack[ScheduleOptions]
    ) -> BlockingSchedule: ...

    def scheduled(self, id: str) -> BlockingSchedule: ...

    def schedules(self, *, active: bool = False) -> list[BlockingSchedule]: ...

    @property
    def secrets(self) -> BlockingSecrets: ...

    def spawn(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        under: Policy | None = None,
        **options: Unpack[SpawnOptions],
    ) -> BlockingRun: ...

    def start_batch(
        self,
        calls: Calls,
        *,
        scope: str = "",
        under: Policy | None = None,
        at_once: bool = False,
        **changes: Unpack[PolicySettings],
    ) -> BlockingBatch: ...

    def subscribe(self, *, limit: int = 10000) -> BlockingSubscription: ...

    def track(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,
        *,
        title: str | None = None,
        signal_on_completion: bool = False,
        id: str | None = None,
    ) -> BlockingRun: ...

    def triggers(self) -> list[Trigger]: ...

    def wait_for_idle(self, timeout: float | None = None) -> bool: ...

    def waits(self) -> list[OpenWait]: ...

    def would(self, call: ToolCall | Mapping[str, Any], **changes: Unpack[PolicySettings]) -> Judgement: ...

    def start_turn(
        self,
        message: str,
        *,
        model: str | ModelClient | None = None,
        budget: Budget | None = None,
        answer: object = None,
        images: Sequence[Image] = (),
        tool_choice: str = "auto",
        parallel: bool | None = None,
        max_tokens: int | None = None,
        id: str | None = None,
        background: bool = False,
    ) -> BlockingTurn: ...

    def turn(self, id: str) -> BlockingTurn: ...

    def turns(self, *, active: bool = False, limit: int = 100, before: int | None = None) -> list[TurnInfo]: ...


class BlockingRuntime(Protocol):
    """A `Runtime` for code that is not async. Use it in a `with` block, or close it.

    Each method of the registry `tools` and of the log `log` runs on the thread of the runtime.
    """

    @property
    def policy(self) -> Policy: ...

    @property
    def tools(self) -> ToolRegistry: ...

    @property
    def log(self) -> MemoryCallLog: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    def answer(self, key: str, value: object, *, by: str | None = None, via: str | None = None) -> Resolved: ...

    def approvals(self, session: str | None = None) -> list[Approval]: ...

    def approve(
        self,
        key: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        always: Mapping[str, Any] | None = None,
        by: str | None = None,
        via: str | None = None,
    ) -> Resolved: ...

    def cancel(self, key: str, *, reason: str = "it was cancelled from outside") -> Resolved: ...

    @property
    def capabilities(self) -> tuple[Capability, ...]: ...

    def derive_key(self, purpose: str) -> bytes: ...

    def decisions(
        self, session: str | None = None, *, limit: int = 100, before: int | None = None
    ) -> list[Approval]: ...

    def decline(
        self, key: str, reason: str | None = None, *, by: str | None = None, via: str | None = None
    ) -> Resolved: ...

    def definitions(self) -> list[ToolDefinition]: ...

    def delete_session(self, session_id: str) -> bool: ...

    def deny(
        self,
        key: str,
        *,
        reason: str | None = None,
        always: Mapping[str, Any] | None = None,
        by: str | None = None,
        via: str | None = None,
    ) -> Resolved: ...

    def event_log(self, after: int | None = None, *, limit: int = 1000) -> EventPage: ...

    def expire(self, key: str) -> Resolved: ...

    def export_session(self, session_id: str, path: str | Path, *, replace: bool = False) -> Exported: ...

    def import_session(self, path: str | Path, *, as_id: str | None = None, replace: bool = False) -> Imported: ...

    def occur(self, topic: str, payload: object = None, *, key: str | None = None) -> list[BlockingRun]: ...

    @property
    def prompt(self) -> str: ...

    def questions(
        self, session: str | None = None, *, decided: bool = False, limit: int = 100, before: int | None = None
    ) -> list[Question]: ...

    def recover(self, session: str | None = None, *, scope: str | None = None) -> list[Recovered]: ...

    def recover_turns(self, session: str | None = None) -> list[BlockingTurn]: ...

    def reject(
        self,
        key: str,
        *,
        code: str = "rejected",
        message: str = "It was rejected from outside",
        category: str = "external",
    ) -> Resolved: ...

    def resolve(self, key: str, value: object = None) -> Resolved: ...

    def rotate_secrets(self) -> int: ...

    def run(self, id: str) -> BlockingRun: ...

    def runs(self, session: str | None = None, *, active: bool = False, limit: int = 1000) -> list[BlockingRun]: ...

    def scheduled(self, id: str) -> BlockingSchedule: ...

    def schedules(self, session: str | None = None, *, active: bool = False) -> list[BlockingSchedule]: ...

    def servers(self) -> list[RemoteStatus]: ...

    def session(
        self,
        session_id: str,
        *,
        tools: Iterable[object] | ToolSource = (),
        policy: Policy | None = None,
        projector: Projector | None = None,
    ) -> BlockingSession: ...

    def sessions(self, only: str | None = None, *, after: str = "", limit: int | None = None) -> list[SessionInfo]: ...

    def signal(self, key: str, payload: object = None) -> int: ...

    def subscribe(self, *, limit: int = 10000) -> BlockingSubscription: ...

    def unfinished(self, session: str | None = None, *, scope: str | None = None) -> list[Unfinished]: ...

    def turn(self, id: str) -> BlockingTurn: ...

    def turns(
        self, session: str | None = None, *, active: bool = False, limit: int = 100, prefix: str = ""
    ) -> list[TurnInfo]: ...
