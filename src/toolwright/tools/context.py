"""What a running tool is given. Owns `ToolContext`; what stands behind it is handed in by the pipeline."""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from toolwright.tools.call import ToolCall
    from toolwright.tools.outcome import ToolOutcome


class CallServices(Protocol):
    """What the pipeline does on behalf of a running call."""

    @property
    def cancelled(self) -> bool: ...

    def report_progress(self, current: float, total: float | None, label: str | None) -> None: ...

    def report_output(self, stream: str, text: str) -> None: ...

    def run_nested(self, calls: Iterable[ToolCall | Mapping[str, Any]]) -> Awaitable[list[ToolOutcome]]: ...


class Done:
    """Already done; awaiting it costs nothing, and so does not awaiting it."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_DONE = Done()


class ToolContext:
    """One call's view of the runtime. Annotate a parameter with it, and it is injected.

    `idempotency_key` is the same for every attempt of the call and every replay: hand it to the outside world.
    `progress` and `output` act at once: await them in async tools, just call them in sync ones.
    """

    __slots__ = (
        "_services",
        "attempt",
        "batch_id",
        "call_id",
        "idempotency_key",
        "max_attempts",
        "parent_call_id",
        "prepared",
        "session_id",
        "source",
        "tool",
    )
    __tool_context__ = True

    def __init__(
        self,
        services: CallServices,
        *,
        session_id: str,
        batch_id: str,
        call_id: str,
        tool: str,
        attempt: int,
        max_attempts: int,
        idempotency_key: str,
        source: str,
        parent_call_id: str | None,
        prepared: Any,
    ) -> None:
        self._services = services
        self.session_id = session_id
        self.batch_id = batch_id
        self.call_id = call_id
        self.tool = tool
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.idempotency_key = idempotency_key
        self.source = source
        self.parent_call_id = parent_call_id
        self.prepared = prepared

    @property
    def cancelled(self) -> bool:
        """True once the call was cancelled or ran out of time; a long loop in a thread should look at it."""
        return self._services.cancelled

    def progress(self, current: float, total: float | None = None, label: str | None = None) -> Done:
        """Tell watchers how far the call is."""
        self._services.report_progress(current, total, label)
        return _DONE

    def output(self, stream: Literal["stdout", "stderr"] | str, text: str) -> Done:
        """Send a piece of output to watchers while the call runs."""
        self._services.report_output(stream, text)
        return _DONE

    async def call(self, name: str, /, **arguments: Any) -> ToolOutcome:
        """Run another tool as part of this call."""
        from toolwright.tools.call import ToolCall

        (outcome,) = await self._services.run_nested([ToolCall(name=name, arguments=arguments)])
        return outcome

    async def run_batch(self, calls: Iterable[ToolCall | Mapping[str, Any]]) -> list[ToolOutcome]:
        """Run several tools as part of this call: one outcome each, in order."""
        return await self._services.run_nested(calls)
