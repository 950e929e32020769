"""Work that outlives its call: runs, schedules, triggers. Owns the protocols by which tools and the host start it.

They are the same for both, and their runs belong to the session. Instants are seconds since the epoch.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

from msgspec import Struct

from toolwright.plain_data import plain_data

if TYPE_CHECKING:
    from datetime import datetime

    from toolwright.tools.outcome import Failure, ToolOutcome


class SpawnOptions(TypedDict, total=False):
    """The options of starting a tool in the background."""

    title: str | None
    """The name that people see; by default the display name of the tool."""
    timeout: float | None
    """Seconds that the whole run may take, from its first start. Without it the timeout of the tool holds for each
    attempt."""
    signal_on_completion: bool
    """Append a message to the session when the run is finished."""
    disposition: Literal["resume", "rerun", "abandon"]
    """What happens when its worker dies: "resume", the default, continues by the crash policy of the tool; "rerun"
    starts it again without its steps; "abandon" ends it."""
    id: str | None
    """An id of the caller's choice; a run of the same id and content is the same run."""


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule. One of `cron` and `at` is needed."""

    cron: str | None
    """Five fields, such as "*/10 * * * *"."""
    at: datetime | str | None
    """One instant: a datetime with a zone, or RFC 3339 text."""
    timezone: str | None
    """The IANA name of the zone that `cron` is read in; by default UTC."""
    title: str | None
    """The name of its runs that people see."""
    timeout: float | None
    """Seconds that each run may take."""
    signal_on_completion: bool
    """Append a message to the session when a run is finished."""
    misfire: Literal["skip", "once", "all"]
    """What happens with instants at which no worker ran: "once", the default, runs the latest of them."""
    overlap: Literal["skip", "queue", "allow"]
    """What happens at an instant while an earlier run is not finished; "skip" is the default."""
    id: str | None
    """An id of the caller's choice; a schedule of the same id and content is the same schedule."""


class TriggerOptions(TypedDict, total=False):
    """The options of a trigger."""

    match: Mapping[str, Any] | None
    """Fields that the payload must have with these values."""
    payload_as: str | None
    """The parameter of the tool that is given the payload."""
    title: str | None
    """The name of its runs that people see."""
    timeout: float | None
    """Seconds that each run may take."""
    signal_on_completion: bool
    """Append a message to the session when a run is finished."""
    id: str | None
    """An id of the caller's choice; a trigger of the same id and content is the same trigger."""


class RunClient(Protocol):
    """The handle of a background run. Its fields are as of the last refresh."""

    @property
    def id(self) -> str: ...

    @property
    def status(self) -> str: ...

    @property
    def record(self) -> Any:
        """All that is known of the run, when it was last looked at."""
        ...

    @property
    def outcome(self) -> ToolOutcome | None:
        """Its outcome, once it is known."""
        ...

    async def refresh(self) -> Any:
        """Look at it now."""
        ...

    async def wait(self, timeout: float | None = None, *, cancel: bool = False) -> ToolOutcome:
        """Its outcome, when it is finished. With `cancel=True`, cancelling this wait cancels the run too.

        Raises:
            TimeoutError: it is not over yet. It continues.
        """
        ...

    def follow(self, after: int = 0) -> AsyncIterator[Any]:
        """Its events after an event's number, past and future, until it is finished."""
        ...

    def events(self) -> AsyncIterator[Any]:
        """Its events so far."""
        ...

    async def log(self) -> str:
        """Its output so far."""
        ...

    async def cancel(self, reason: str = ...) -> bool:
        """Ask it and all runs that it started to stop; False when it was finished already."""
        ...

    async def resume(self, *, by: str | None = None) -> None:
        """Let an abandoned run continue, because a person decided that the step in doubt may happen again."""
        ...

    async def signal(self, name: str, payload: object = None) -> int:
        """Send a signal, which its tool takes by `ctx.receive(name)`."""
        ...

    async def append(self, name: str, payload: object = None, *, key: str | None = None, tell: bool = False) -> int:
        """Append an event of the host's own to it, while it is not over; with `tell`, a message to the session, too."""
        ...

    async def report(
        self,
        *,
        status: str | None = None,
        progress: float | None = None,
        total: float | None = None,
        label: str | None = None,
        unit: str | None = None,
        output: str | None = None,
        stream: str = "stdout",
    ) -> bool:
        """Report the progress of a tracked run; False when it is finished."""
        ...

    async def finish(self, value: object = None, *, summary: str | None = None) -> bool:
        """End a tracked run with a value; False when it was finished already."""
        ...

    async def fail(self, failure: Failure | str) -> bool:
        """End a tracked run with a failure; False when it was finished already."""
        ...

    async def grant(self, session: str) -> None:
        """Let another session have a handle of it."""
        ...

    async def children(self) -> builtins.list[Any]:
        """The handles of the runs that it started, and of the runs below these."""
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

    async def track(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,
        *,
        title: str | None = None,
        signal_on_completion: bool = False,
        id: str | None = None,
    ) -> RunClient:
        """Register work that happens elsewhere, and return the handle of its run, which takes reports."""
        ...

    async def list(self, *, active: bool = False) -> builtins.list[Any]:
        """The handles of the session's runs, the newest first."""
        ...

    async def get(self, id: str) -> RunClient:
        """The handle of a run of this session, or of a run that was granted to it."""
        ...


class ScheduleClient(Protocol):
    """The handle of a schedule. Its fields are as of the last refresh."""

    @property
    def id(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def next_at(self) -> float | None: ...

    async def refresh(self) -> Any:
        """Look at it now, and return all that is known of it."""
        ...

    async def pause(self) -> bool:
        """Fire nothing until it is resumed; False when it was not active."""
        ...

    async def resume(self) -> bool:
        """Continue with the next instant from now; False when it was not paused."""
        ...

    async def run_now(self) -> str:
        """Start a run beside its instants, and return the id of the run."""
        ...

    async def cancel(self) -> bool:
        """Stop firing; False when it was finished already."""
        ...

    async def history(self, limit: int = 100) -> builtins.list[Any]:
        """Its firings and skipped instants, the latest first."""
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
        id: str | None = None,
    ) -> ScheduleClient:
        """Start a tool that supports the background at an instant, or again and again."""
        ...

    async def list(self, *, active: bool = False) -> builtins.list[Any]:
        """The handles of the session's schedules, the oldest first."""
        ...

    async def get(self, id: str) -> ScheduleClient:
        """The handle of a schedule of this session."""
        ...


class Trigger(Struct, frozen=True, kw_only=True):
    """A rule that starts a tool in the background each time something occurs: see `TriggersClient`."""

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
    authority: bytes = b""
    """JSON of the permissions of its runs, as far as its creator had them; for the runtime."""

    def to_json(self) -> dict[str, Any]:
        """The trigger as plain data; instants are RFC 3339 text."""
        return plain_data(self, without=("authority",))


class TriggersClient(Protocol):
    """Starts tools in the background of the session when something occurs."""

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

    async def occur(self, topic: str, payload: object = None, *, key: str | None = None) -> builtins.list[Any]:
        """Report an occurrence: the triggers of this session that match start their tools."""
        ...

    async def remove(self, id: str) -> bool:
        """Start nothing more by a trigger; False when there was none."""
        ...
