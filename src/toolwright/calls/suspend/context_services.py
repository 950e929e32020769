"""The services of a running tool. Owns the far side of `ToolContext`; does not own the execution itself."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolwright import jsonx
from toolwright.calls.active_call import ActiveCall, about, call_fields, reports_of
from toolwright.calls.authorise.authorise import Judge
from toolwright.calls.authorise.authority import SPAWN_BACKGROUND, Origin
from toolwright.calls.conclude import lose
from toolwright.calls.environment import NO_LIFESPAN
from toolwright.calls.redact import off_loop, publish, weight
from toolwright.calls.suspend import questions
from toolwright.calls.suspend import steps as durable
from toolwright.calls.suspend.suspend import enter
from toolwright.errors import ServiceError, StoreError, ToolwrightError
from toolwright.events import CallEmitted, CallNote, CallOutput, CallProgress, CallStatus
from toolwright.limited_children import ChildPool
from toolwright.plain_data import plain_number
from toolwright.stores.contracts.journal import CallKey
from toolwright.tools.call import CallSource, ToolCall
from toolwright.tools.context import ToolContext
from toolwright.tools.model import ModelAnswer, ModelRequest
from toolwright.tools.outcome import ToolOutcome, encodable
from toolwright.tools.raw_schema import summarise
from toolwright.tools.shell_rules import ShellRule
from toolwright.tools.tool import Tool

if TYPE_CHECKING:
    from toolwright.tools.session_protocols import ChildSessionClient
    from toolwright.tools.turn_protocols import TurnOutcome

log = logging.getLogger("toolwright.calls")

LARGEST_EVENT = 64 * 1024
"""Bytes of an event's payload."""


def describe(call: ActiveCall) -> dict[str, Any]:
    """The plain facts of a call, as its context shows them; they can travel to another process."""
    owner, env = call.owner, call.env
    return {
        "session_id": env.session_id,
        "batch_id": owner.id,
        "call_id": call.call_id,
        "tool": call.name,
        "attempt": call.attempt,
        "max_attempts": max_attempts(call) + call.reruns,
        "idempotency_key": idempotency_key(env.session_id, owner.scope, call.call_id),
        "source": call.source,
        "parent_call_id": call.parent_id,
        "prepared": call.payload,
    }


def max_attempts(call: ActiveCall) -> int:
    """How often the call may be tried."""
    return 1 if call.tool is None else call.tool.definition.retry.attempts


def idempotency_key(session: str, scope: str, call_id: str) -> str:
    """The same for every attempt and every replay of a call, in every process."""
    return jsonx.digest(jsonx.encode([session, scope, call_id]))


def make_context(call: ActiveCall) -> ToolContext:
    """The context of a call's current attempt."""
    return ToolContext(ActiveCallServices(call), **describe(call))


def origin_of(call: ActiveCall, key: CallKey | None = None) -> Origin:
    """The origin of what a running call starts. `key` is its identity, where that is known to the journal."""
    assert call.tool is not None
    source: CallSource = call.source if call.tool.definition.id == SPAWN_BACKGROUND else "tool"
    return Origin(source, call.owner.policy, call.owner.context.authority, key)


class ActiveCallServices:
    """`CallServices` over a call of this process. Reports may come from any thread."""

    __slots__ = ("_call", "_clients")

    def __init__(self, call: ActiveCall) -> None:
        self._call = call
        self._clients: Any = None

    @property
    def cancelled(self) -> bool:
        return self._call.stopping

    @property
    def deps(self) -> object:
        deps = self._call.env.deps
        if deps is NO_LIFESPAN:
            raise ToolwrightError(
                f"Tool {self._call.name!r} asks for ctx.deps, and the app has no lifespan; give it one, "
                "App(lifespan=...)"
            )
        return deps

    def now(self) -> float:
        return self._call.env.clock.now()

    def report_progress(self, current: float | None, total: float | None, label: str | None, unit: str | None) -> None:
        said = (current, total, label, unit)
        usable = (plain_number(current), plain_number(total), _text(label), _text(unit))
        if any(each is None and given is not None for each, given in zip(usable, said, strict=True)):
            self._warn("progress", "finite numbers, and text for label and unit")
            if current is not None and usable[0] is None:
                return
        self._publish(CallProgress(*about(self._call), *usable))

    def report_status(self, text: str) -> None:
        if isinstance(text, str):
            self._publish(CallStatus(*about(self._call), encodable(text)))
        else:
            self._warn("status", "text")

    def report_output(self, stream: str, text: str) -> None:
        if isinstance(stream, str) and isinstance(text, str):
            self._publish(CallOutput(*about(self._call), encodable(stream), encodable(text)))
        else:
            self._warn("output", "the name of a stream, and text")

    async def run_nested(self, calls: Iterable[ToolCall | Mapping[str, Any]]) -> list[ToolOutcome]:
        async with durable.recording(self._call):
            return await self._call.env.run_nested(self._call, calls)

    @property
    def limited_children(self) -> ChildPool:
        return self._call.env.limited_children

    def shell_rules(self) -> tuple[tuple[ShellRule, ...], ...]:
        call = self._call
        judge: Judge = call.owner.context.judge
        return judge.shell_rules(call, approved=call.asked)

    def refused_by(self, rule: str) -> None:
        self._call.decided_by = rule

    def service(self, name: str) -> Any:
        """A client of the session's, for this attempt."""
        call = self._call
        if self._clients is None:
            self._clients = call.env.services(origin_of(call, enter(call).key), functools.partial(Recorded, call))
        return getattr(self._clients, name)

    def open_child(self, name: str) -> ChildSessionClient:
        """A session of this call's own."""
        call = self._call
        if threading.get_ident() != call.env.thread_id:
            raise ToolwrightError("A child session needs an async tool; make it `async def`")
        child = call.env.open_child(call, name, functools.partial(Recorded, call))
        call.env.keeper.pass_on(child._keeper)
        return child

    async def ask_agent(self, app: object, message: str, options: dict[str, Any]) -> TurnOutcome:
        """Run a turn of another app in a session of this call's own."""
        call = self._call
        child = await call.env.open_agent(call, app, functools.partial(Recorded, call))
        call.env.keeper.pass_on(child._keeper)
        return await child.ask(message, **options)

    async def complete(self, name: str, messages: Sequence[Any], options: dict[str, Any]) -> object:
        """Ask the model, as a step."""
        call = self._call
        model = call.env.model
        if model is None:
            # The error is for the model, the log for the owner: each says what its reader can do.
            log.warning(
                "Tool %r asks a model, and there is none; give one to App(model=...)",
                call.name,
                extra=call_fields(call, "call.no_model"),
            )
            raise ServiceError("This tool asks a model, and none is configured here", "no_model")

        if call.env.redactor is not None:  # A model that a tool asks is a model like any other.
            size = weight(messages) + weight(options)
            messages = await off_loop(size, call.env.redactor.value, messages)
            options = await off_loop(size, call.env.redactor.value, options)

        async def ask(messages: Sequence[Any], options: dict[str, Any]) -> object:
            request = ModelRequest(call.env.session_id, messages, options, call.call_id, call.name, call.owner.scope)
            if call.env.tracing is None:
                answer = await model.complete(request)
            else:
                redactor = call.env.redactor
                with call.env.tracing.model_call(model, request, None if redactor is None else redactor.json) as span:
                    answer = await model.complete(request)
                    span.answered(answer)
            return answer.text if isinstance(answer, ModelAnswer) else answer

        # Asked again after a crash: that costs, and changes nothing.
        return await durable.step(call, f"complete:{name}", ask, (messages, options), "rerun")

    def wait_key(self, kind: durable.KeyKind, name: str) -> str:
        return durable.wait_key(self._call, kind, name)

    def step(
        self, name: str, function: Callable[..., Any], inputs: tuple[Any, ...], on_crash: object
    ) -> Coroutine[Any, Any, Any]:
        return durable.step(self._call, name, function, inputs, on_crash)

    async def sleep(self, name: str, seconds: float) -> None:
        await durable.sleep(self._call, name, seconds)

    async def wait(self, key: str, deadline: float | None) -> object:
        return await durable.wait(self._call, key, deadline)

    async def receive(self, name: str, deadline: float | None) -> object:
        return await durable.receive(self._call, name, deadline)

    async def ask(self, name: str, message: str, schema: Mapping[str, Any] | None, deadline: float | None) -> object:
        return await questions.ask(self._call, name, message, schema, deadline)

    async def emit(self, name: str, payload: object, key: str | None) -> None:
        await emit(self._call, name, payload, key)

    def _warn(self, method: str, usable: str) -> None:
        """Log, once for each call, that a report cannot be used. Its content may be secret: it is not logged."""
        call = self._call
        reports = reports_of(call)
        if not reports.warned:
            reports.warned = True
            log.warning(
                "The call %r of %r gave ctx.%s a value that it cannot show; give it %s",
                call.call_id,
                call.name,
                method,
                usable,
                extra=call_fields(call, "call.report_unusable"),
            )

    def _publish(self, event: CallNote) -> None:
        env = self._call.env
        if threading.get_ident() == env.thread_id:
            self._publish_here(event)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: there are no watchers any more
                env.loop.call_soon_threadsafe(self._publish_here, event)

    def _publish_here(self, event: CallNote) -> None:
        if not self._call.concluded:
            publish(self._call.env, self._call, event)


def _text(value: object) -> str | None:
    return encodable(value) if isinstance(value, str) else None


class Recorded:
    """A store of a session service, as a call uses it: where it fails, the call stops, and has no outcome by that."""

    __slots__ = ("_call", "_store")

    def __init__(self, call: ActiveCall, store: object) -> None:
        self._call = call
        self._store = store

    def __getattr__(self, name: str) -> Any:
        verb, call = getattr(self._store, name), self._call

        async def use(*args: object, **options: object) -> object:
            try:
                return await verb(*args, **options)
            except StoreError as fault:
                lose(call, fault)
                raise durable.Unrecorded from fault

        return use


# --- events that a tool declares


async def emit(call: ActiveCall, name: str, payload: object, key: str | None) -> None:
    """Check an event of a running call, store it if the call is that of a background run, and publish it.

    Raises:
        ServiceError: the tool declares no such event, or the payload does not fit its schema.
    """
    env = call.env
    assert call.tool is not None
    data = check_event(call.tool, name, payload)
    if key is not None and (not isinstance(key, str) or not key or len(key) > 255 or encodable(key) != key):
        raise ServiceError(f"The key {key!r:.300} of event {name!r} is not usable; use a text of up to 255 characters")
    if env.redactor is not None:
        data = await off_loop(len(data), env.redactor.json, data)
        key = None if key is None else env.redactor.text(key)
    if env.save_event is not None:
        try:
            await env.save_event(name, data, key or _replay_key(call, name, data))
        except StoreError as fault:
            lose(call, fault)
            raise durable.Unrecorded from fault
    if not call.concluded:
        env.channel.publish(CallEmitted(*about(call), name, jsonx.decode(data)))


def _replay_key(call: ActiveCall, name: str, data: bytes) -> str:
    """The key of an event without one: its position among the events of the attempt, and its content.

    So it is stored once when another worker runs the call again. A different event is stored, too.
    """
    reports = reports_of(call)
    reports.emitted += 1
    return f"\0{call.attempt}:{reports.emitted}:{jsonx.digest(jsonx.encode([name, data.decode()]))[:32]}"


def check_event(tool: Tool, name: object, payload: object) -> bytes:
    """The JSON of the payload of an event.

    Raises:
        ServiceError: the tool declares no such event, or the payload does not fit its schema.
    """
    checks = tool.check_events
    check = checks.get(name) if isinstance(name, str) else None
    if check is None:
        known = f"it declares {', '.join(map(repr, checks))}" if checks else "declare it by @tool(events={...})"
        raise ServiceError(f"Tool {tool.name!r} has no event {name!r:.200}; {known}")
    try:
        data = jsonx.encode(payload)
        problems = check(data)
    except Exception as error:  # a value may have code of its own for its JSON form
        raise ServiceError(f"The payload of event {name!r} of tool {tool.name!r} is not usable: {error}") from error
    if problems:
        raise ServiceError(
            f"The payload of event {name!r} of tool {tool.name!r} does not fit its schema:\n{summarise(problems)}"
        )
    if len(data) > LARGEST_EVENT:
        raise ServiceError(
            f"The payload of event {name!r} of tool {tool.name!r} has {len(data)} bytes and may have {LARGEST_EVENT}; "
            "put it in a file, and pass its path"
        )
    return data
