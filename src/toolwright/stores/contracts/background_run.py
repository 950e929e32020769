"""A background run. Owns its states, input and description; does not own running it.

A run is one tool call that outlives its caller: it is in the store before it begins, any worker may run it, and its
outcome stays there. Its call has the journal's identity (session, scope of the run, its id), so that a second worker
does not repeat steps, waits and changes of session services.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
from msgspec import Struct

from toolwright import jsonx
from toolwright.clock import rfc3339
from toolwright.errors import RunError
from toolwright.ids import uuid7
from toolwright.stores.contracts.journal import RUN_SCOPE, CallKey
from toolwright.tools.call import CallSource
from toolwright.tools.outcome import ToolOutcome

Status = Literal["queued", "running", "waiting", "completed", "failed", "cancelled", "abandoned"]
Disposition = Literal["resume", "rerun", "abandon"]
"""The handling of a run whose worker is gone: "resume" lets its tool's crash policy decide, and its finished durable
steps stay finished; "rerun" starts it again from nothing; "abandon" ends it, with the known facts as evidence."""

PREFIX = "bg_"
"""The prefix of the id of a run, unless its starter chose one."""
OVER: tuple[Status, ...] = ("completed", "failed", "cancelled", "abandoned")
"""The states that nothing follows."""
_ID = re.compile(r"[A-Za-z0-9_:-][A-Za-z0-9_.:-]{0,127}")


class Options(Struct, frozen=True, kw_only=True, gc=False):
    """How a run is to be executed. `timeout` is for the whole of it, across workers, from when it first starts."""

    timeout: float | None = None
    disposition: Disposition = "resume"
    signal_on_completion: bool = False
    artifacts: bool = True
    tracked: bool = False
    """True for work that happens elsewhere: no worker takes it, and its host reports on it."""


class Progress(Struct, frozen=True, gc=False, omit_defaults=True):
    """The progress of a run; without `current`, only its total or its label is known."""

    current: float | None = None
    total: float | None = None
    unit: str | None = None
    label: str | None = None


class Registration(Struct, frozen=True, kw_only=True):
    """A run that is to be registered. A registration with the same id and content is the same run."""

    id: str
    session: str
    tool: str
    arguments: bytes
    title: str
    options: Options
    at: float
    parent: str | None = None
    schedule: str | None = None
    alone: bool = False
    """True when it waits until no other run of its schedule is active."""
    provenance: bytes = b"{}"
    """JSON of its origin: the host, a call, a schedule and its instant, a trigger and the occurrence."""
    authority: bytes = b""
    """JSON of its permissions, as far as its starter has them (`calls/authorise/authority.py`); empty for no
    restrictions."""

    def same_as(self, other: BackgroundRun) -> bool:
        """True when an existing run is this one."""
        arguments = jsonx.canonical(jsonx.decode(self.arguments))
        return (self.session, self.tool, arguments, self.title, self.options, self.parent) == (
            other.session,
            other.tool,
            jsonx.canonical(other.arguments),
            other.title,
            other.options,
            other.parent,
        )


class BackgroundRun(Struct, frozen=True, kw_only=True):
    """A run as the store has it. `tail` is the end of its output; instants are seconds since the epoch.

    `token` rises with each worker that claims it: writes of a worker with an older one are refused.
    """

    id: str
    session: str
    tool: str
    arguments: Any
    title: str
    options: Options
    status: Status
    status_text: str
    created_at: float
    parent: str | None = None
    schedule: str | None = None
    provenance: Any = None
    authority: bytes = b""
    started_at: float | None = None
    ended_at: float | None = None
    deadline: float | None = None
    worker: str | None = None
    token: int = 0
    lease_until: float | None = None
    attempts: int = 0
    crashes: int = 0
    """How many workers in a row were gone while they ran it, without a step that was done in between."""
    cancel_reason: str | None = None
    progress: Progress | None = None
    tail: str = ""
    log_chars: int = 0
    outcome: ToolOutcome | None = None

    @property
    def over(self) -> bool:
        """True when nothing follows."""
        return self.status in OVER

    @property
    def source(self) -> CallSource:
        """The caller of its call, for rules and records."""
        if self.schedule is not None:
            return "schedule"
        origin = self.provenance if isinstance(self.provenance, dict) else {}
        source: CallSource = origin.get("source") or ("model" if origin.get("by") == "call" else "host")
        return source

    @property
    def started_by(self) -> str | None:
        """The id of the call that started it, if a call did."""
        origin = self.provenance if isinstance(self.provenance, dict) else {}
        return origin.get("call_id") if origin.get("by") == "call" else None

    @property
    def trace(self) -> str:
        """The trace of its starter; empty if it was not traced."""
        origin = self.provenance if isinstance(self.provenance, dict) else {}
        trace = origin.get("trace")
        return trace if isinstance(trace, str) else ""

    @property
    def call(self) -> CallKey:
        """The identity of its call in the journal."""
        return CallKey(self.session, scope_of(self.id), self.id)

    @property
    def artifact_dir(self) -> str:
        """The folder of its artifacts, among the files of its session."""
        return artifact_paths(self.id)["artifact_dir"]

    @property
    def log_path(self) -> str:
        """The file with its output."""
        return artifact_paths(self.id)["log_path"]

    @property
    def result_path(self) -> str:
        """The file with its result."""
        return artifact_paths(self.id)["result_path"]

    def to_json(self) -> dict[str, Any]:
        """The run as plain data, without its lease."""
        shown = {
            "run_id": self.id,
            "session": self.session,
            "tool": self.tool,
            "title": self.title,
            "status": self.status,
            "status_text": self.status_text,
            "parent": self.parent,
            "schedule": self.schedule,
            "created_at": rfc3339(self.created_at),
            "started_at": rfc3339(self.started_at),
            "ended_at": rfc3339(self.ended_at),
            "attempts": self.attempts,
            "signal_on_completion": self.options.signal_on_completion,
            "progress": None if self.progress is None else msgspec.to_builtins(self.progress),
            "output_tail": self.tail,
            "tracked": self.options.tracked,
        }
        if self.options.artifacts:
            shown |= artifact_paths(self.id)
        return shown


def require_run_id(id: object) -> str:
    """An id that a caller chose: it becomes the name of a folder, and part of a message to the session.

    Raises:
        RunError: it is not usable.
    """
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise RunError(
            f"The id {id!r:.200} of a run is not usable; use 1 to 128 letters, digits, or any of _ . : -, no dot first"
        )
    return str.__str__(id)  # of a subclass, which JSON does not know, the plain text


def new_run_id() -> str:
    """An id that no other run has, in the order of time."""
    return f"{PREFIX}{uuid7().replace('-', '')}"


def artifact_paths(run: str) -> dict[str, str]:
    """The paths of the artifacts of a run, among the files of its session."""
    folder = f"/.background/{run}"
    return {"artifact_dir": folder, "log_path": f"{folder}/output.log", "result_path": f"{folder}/result.json"}


def scope_of(run: str) -> str:
    """The scope of the calls of a run."""
    return f"{RUN_SCOPE}{run}"
