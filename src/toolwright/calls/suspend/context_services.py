"""What a running tool may ask for. Owns the far side of `ToolContext`; does not own the run itself."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolwright import jsonx
from toolwright.calls.active_call import about
from toolwright.calls.authorise.authorise import Judge
from toolwright.calls.authorise.authority import origin_of
from toolwright.calls.conclude import lose
from toolwright.calls.environment import NO_LIFESPAN
from toolwright.calls.redact import off_loop, publish, weight
from toolwright.calls.suspend import steps as durable
from toolwright.calls.suspend.declared_events import emit
from toolwright.calls.suspend.suspend import enter
from toolwright.errors import ServiceError, StoreError, ToolwrightError
from toolwright.events import CallNote, CallOutput, CallProgress, CallStatus
from toolwright.limited_children import ChildPool
from toolwright.tools.call import ToolCall
from toolwright.tools.context import ToolContext
from toolwright.tools.outcome import ToolOutcome
from toolwright.tools.session_protocols import ModelRequest
from toolwright.tools.shell_rules import ShellRule

if TYPE_CHECKING:
    from toolwright.calls.execute.execute import CallRun

log = logging.getLogger("toolwright.calls")


def describe(run: CallRun) -> dict[str, Any]:
    """The plain facts of a call, as its context shows them; they can travel to another process."""
    owner, host = run.owner, run.host
    return {
        "session_id": host.session_id,
        "batch_id": owner.id,
        "call_id": run.call_id,
        "tool": run.name,
        "attempt": run.attempt,
        "max_attempts": max_attempts(run) + run.reruns,
        "idempotency_key": idempotency_key(host.session_id, owner.scope, run.call_id),
        "source": run.source,
        "parent_call_id": run.parent_id,
        "prepared": run.payload,
    }


def max_attempts(run: CallRun) -> int:
    """How often the call may be tried."""
    return 1 if run.tool is None else run.tool.definition.retry.attempts


def idempotency_key(session: str, scope: str, call_id: str) -> str:
    """The same for every attempt and every replay of a call, in every process."""
    return jsonx.digest(jsonx.encode([session, scope, call_id]))


def make_context(run: CallRun) -> ToolContext:
    """The context of a call's current attempt."""
    return ToolContext(RunServices(run), **describe(run))


class RunServices:
    """`CallServices` over a run in this process. Reports may come from any thread."""

    __slots__ = ("_clients", "_run")

    def __init__(self, run: CallRun) -> None:
        self._run = run
        self._clients: Any = None

    @property
    def cancelled(self) -> bool:
        return self._run.stopping

    @property
    def deps(self) -> Any:
        deps = self._run.host.deps
        if deps is NO_LIFESPAN:
            raise ToolwrightError(
                f"Tool {self._run.name!r} asks for ctx.deps, and the app has no lifespan; give it one, "
                "App(lifespan=...)"
            )
        return deps

    def now(self) -> float:
        return self._run.host.clock.now()

    def report_progress(self, current: float | None, total: float | None, label: str | None, unit: str | None) -> None:
        self._publish(CallProgress(*about(self._run), current, total, label, unit))

    def report_status(self, text: str) -> None:
        self._publish(CallStatus(*about(self._run), text))

    def report_output(self, stream: str, text: str) -> None:
        self._publish(CallOutput(*about(self._run), stream, text))

    async def run_nested(self, calls: Iterable[ToolCall | Mapping[str, Any]]) -> list[ToolOutcome]:
        async with durable.recording(self._run):
            return await self._run.host.run_nested(self._run, calls)

    @property
    def limited_children(self) -> ChildPool:
        return self._run.host.limited_children

    def shell_rules(self) -> tuple[tuple[ShellRule, ...], ...]:
        run = self._run
        judge: Judge = run.owner.setting.judge
        return judge.shell_rules(run, leave=run.asked)

    def refused_by(self, rule: str) -> None:
        self._run.decided_by = rule

    def service(self, name: str) -> Any:
        """A client of the session's, for this attempt."""
        run = self._run
        if self._clients is None:
            self._clients = run.host.services(origin_of(run, enter(run)), functools.partial(Recorded, run))
        return getattr(self._clients, name)

    def open_child(self, name: str) -> Any:
        """A session of this call's own."""
        run = self._run
        if threading.get_ident() != run.host.thread_id:
            raise ToolwrightError("A child session needs an async tool; make it `async def`")
        child = run.host.open_child(run, name, functools.partial(Recorded, run))
        run.host.keeper.pass_on(child._keeper)
        return child

    async def complete(self, name: str, messages: Any, options: dict[str, Any]) -> Any:
        """Ask the model, as a step."""
        run = self._run
        model = run.host.model
        if model is None:
            # The model reads the error, the owner the log: each is told what it can do.
            log.warning("Tool %r asks a model, and there is none; give one to App(model=...)", run.name)
            raise ServiceError("This tool asks a model, and none is configured here", "no_model")

        if run.host.redactor is not None:  # A model that a tool asks is a model like any other.
            size = weight(messages) + weight(options)
            messages = await off_loop(size, run.host.redactor.value, messages)
            options = await off_loop(size, run.host.redactor.value, options)

        async def ask(messages: Any, options: dict[str, Any]) -> Any:
            return await model.complete(
                ModelRequest(run.host.session_id, messages, options, run.call_id, run.name, run.owner.scope)
            )

        # Asked again after a crash: that costs, and changes nothing.
        return await durable.step(run, f"complete:{name}", ask, (messages, options), "rerun")

    def wait_key(self, kind: durable.KeyKind, name: str) -> str:
        return durable.wait_key(self._run, kind, name)

    async def step(self, name: str, function: Callable[..., Any], inputs: tuple[Any, ...], on_crash: Any) -> Any:
        return await durable.step(self._run, name, function, inputs, on_crash)

    async def sleep(self, name: str, seconds: float) -> None:
        await durable.sleep(self._run, name, seconds)

    async def wait(self, key: str, deadline: float | None) -> Any:
        return await durable.wait(self._run, key, deadline)

    async def receive(self, name: str, deadline: float | None) -> Any:
        return await durable.receive(self._run, name, deadline)

    async def emit(self, name: str, payload: Any, key: str | None) -> None:
        await emit(self._run, name, payload, key)

    def _publish(self, event: CallNote) -> None:
        host = self._run.host
        if threading.get_ident() == host.thread_id:
            self._publish_here(event)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody watches any more
                host.loop.call_soon_threadsafe(self._publish_here, event)

    def _publish_here(self, event: CallNote) -> None:
        if not self._run.concluded:
            publish(self._run.host, self._run, event)


class Recorded:
    """A store of a session service, as a call uses it: where it fails, the call stops, and has no outcome by that."""

    __slots__ = ("_run", "_store")

    def __init__(self, run: CallRun, store: Any) -> None:
        self._run = run
        self._store = store

    def __getattr__(self, name: str) -> Any:
        verb, run = getattr(self._store, name), self._run

        async def use(*args: Any, **options: Any) -> Any:
            try:
                return await verb(*args, **options)
            except StoreError as fault:
                lose(run, fault)
                raise durable.Unrecorded from fault

        return use
