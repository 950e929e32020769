"""A `ToolContext` for unit tests of tools, without a runtime. Owns its records, and the answers that a test gives it.

The services of the session (`ctx.files`, `ctx.kv` and the others) are the real ones over a database in memory: they
refuse the same requests as in production. All else is recorded or answered here: nothing waits, and no call is
journaled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from toolwright import jsonx
from toolwright.calls.environment import NO_LIFESPAN
from toolwright.calls.exception_failures import failure_told_by
from toolwright.calls.failures import internal, raised
from toolwright.calls.suspend.context_services import check_event, idempotency_key
from toolwright.calls.suspend.questions import Posed, answer_check, posed_json
from toolwright.effects.effect import Effect, require_same_input
from toolwright.effects.wait_keys import expired
from toolwright.errors import ToolwrightError
from toolwright.limited_children import ChildPool
from toolwright.log_fields import log_fields
from toolwright.session.children import SessionState
from toolwright.session.secrets.master_keys import GivenKeys
from toolwright.session.secrets.redactor import KnownSecrets
from toolwright.session.secrets.vault import Vault
from toolwright.session.services.connections import MOST as MOST_CONNECTIONS
from toolwright.session.services.connections import require_provider, to_detail
from toolwright.session.services.quotas import Marker, Marks, Unmarked
from toolwright.session.services.session_services import SessionServices
from toolwright.stores.contracts.journal import CallKey, Kept
from toolwright.stores.contracts.sessions import Quotas
from toolwright.stores.sql.sessions.services import SqlServiceStores
from toolwright.stores.sqlite.services import services_at_once
from toolwright.testing.clock import FakeClock
from toolwright.tools.call import CallSource, ToolCall
from toolwright.tools.context import Deps, ToolContext
from toolwright.tools.model import ModelClient, ModelRequest
from toolwright.tools.outcome import Failure, Success, ToolError, ToolOutcome
from toolwright.tools.shell_rules import ShellRule
from toolwright.tools.tool import Tool, is_async

if TYPE_CHECKING:
    from toolwright.tools.definition import ToolDefinition
    from toolwright.tools.service_protocols import (
        AttachmentsClient,
        FilesClient,
        KeyValueClient,
        MessagesClient,
        ResourcesClient,
        SecretsClient,
    )
    from toolwright.tools.session_protocols import ChildSessionClient
    from toolwright.tools.turn_protocols import TurnOutcome

GREP_TIMEOUT = 10.0
"""Seconds that a search in `ctx.files` may take."""
_IN_RUNTIME = ("runs", "schedules", "triggers", "catalogue", "limited_children", "open_child", "ask_agent")


class Progress(NamedTuple):
    """One `ctx.progress(...)`."""

    current: float | None
    total: float | None
    label: str | None
    unit: str | None


class Output(NamedTuple):
    """One `ctx.output(...)`."""

    stream: str
    text: str


class Emitted(NamedTuple):
    """One `ctx.emit(...)`; the payload in its JSON form."""

    name: str
    payload: Any
    key: str | None


class Asked(NamedTuple):
    """One `ctx.ask(...)`."""

    name: str
    message: str
    schema: dict[str, Any] | None
    deadline: float | None


@dataclass
class Recorded:
    """The actions of a tool on its context, in their order."""

    progress: list[Progress] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    output: list[Output] = field(default_factory=list)
    events: list[Emitted] = field(default_factory=list)
    """The events that the tool emitted."""
    steps: list[str] = field(default_factory=list)
    """The names of the steps whose function ran. A step that an earlier attempt finished does not run again."""
    sleeps: dict[str, float] = field(default_factory=dict)
    """The seconds of each sleep, by its name."""
    keys: dict[str, str] = field(default_factory=dict)
    """The keys that were given out, by "completion", "event:<name>" and "signal:<name>"."""
    calls: list[ToolCall] = field(default_factory=list)
    """The calls of other tools."""
    questions: list[ModelRequest] = field(default_factory=list)
    """The requests to the model."""
    asked: list[Asked] = field(default_factory=list)
    """The questions to a person."""
    refused_by: list[str] = field(default_factory=list)
    """The rules by which the tool refused an action of its script."""


class HostServices(Protocol):
    """The program's side of the session, which a tool does not have: it writes messages of users and read-only
    files."""

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

    async def connect(self, provider: str, detail: object = None) -> None:
        """Connect the session to a provider, so that `ctx.connections` has it."""
        ...


class FakeContext(ToolContext[Deps]):
    """A `ToolContext` that works without a runtime; give it to the function of a tool.

    ```python
    from toolwright import ToolContext, tool
    from toolwright.testing import FakeContext


    @tool
    async def order(ctx: ToolContext[dict[str, int]], item: str) -> str:
        await ctx.status("Ordering")
        paid = await ctx.wait(ctx.event_key("paid"))
        return f"{item} for {ctx.deps[item]}, by {paid['by']}"


    async def test_an_order_is_paid():
        ctx = FakeContext(deps={"tea": 3}, answers={"paid": {"by": "card"}})
        assert await order(ctx, item="tea") == "tea for 3, by card"
        assert ctx.recorded.statuses == ["Ordering"]
    ```

    `recorded` has the tool's reports, events, sleeps and calls. `host` is the program's side of the session: use it to
    write files, messages and secrets before the tool runs, and to read them afterwards. `cancel()` makes
    `ctx.cancelled` true. `next_attempt()` is the context of the same call when it runs again.

    Nothing waits: a sleep moves `clock` and returns, and a wait takes the answer that was given for it. A step runs its
    function and returns its value, converted through JSON as in a runtime.

    Args:
        tool: the tool, or its name. With the tool itself, `ctx.emit` is checked by the events that it declares.
        deps: the value of `ctx.deps`.
        answers: the values of `ctx.wait` and of `ctx.ask`, by the name of the event or the question; a `Failure`
            rejects or declines it. A wait without one fails as expired if it has a deadline.
        signals: the values of `ctx.receive`, by the name of the signal, one after the other.
        steps: values of steps that an earlier attempt finished: their functions do not run.
        outcomes: the results of other tools for `ctx.call` and `ctx.run_batch`, by name: a value, a `Failure`, a
            `ToolOutcome`, or a function that takes the arguments and returns one of these.
        model: what answers `ctx.complete`: a `ModelClient`, or a function that takes the request.
        doubles: your own doubles of what needs a runtime: "runs", "schedules", "triggers", "catalogue",
            "limited_children", and "open_child", a function that takes a name.
    """

    __slots__ = ("_fake", "clock", "recorded")

    def __init__(
        self,
        tool: Tool[..., Any] | str = "tool",
        *,
        deps: Deps = NO_LIFESPAN,
        answers: Mapping[str, Any] | None = None,
        signals: Mapping[str, Iterable[Any]] | None = None,
        steps: Mapping[str, Any] | None = None,
        outcomes: Mapping[str, Any] | None = None,
        model: ModelClient | Callable[[ModelRequest], Any] | None = None,
        doubles: Mapping[str, Any] | None = None,
        clock: FakeClock | None = None,
        shell_rules: tuple[tuple[ShellRule, ...], ...] = (),
        session_id: str = "s1",
        call_id: str = "c1",
        batch_id: str = "b1",
        attempt: int = 1,
        max_attempts: int = 1,
        source: CallSource = "model",
        parent_call_id: str | None = None,
        prepared: object = None,
        cancelled: bool = False,
    ) -> None:
        name = tool if isinstance(tool, str) else tool.name
        if unknown := sorted(set(doubles or ()) - set(_IN_RUNTIME)):
            raise ToolwrightError(f"There is no part {unknown[0]!r} to double; use {', '.join(map(repr, _IN_RUNTIME))}")
        self.clock = clock or FakeClock()
        self.recorded = Recorded()
        self._fake = fake = _FakeServices(
            self.recorded, self.clock, None if isinstance(tool, str) else tool, name, CallKey(session_id, "", call_id)
        )
        fake.given_deps = deps
        fake.answers = dict(answers or {})
        fake.signals = {signal: deque(payloads) for signal, payloads in (signals or {}).items()}
        fake.finished = {step: _recorded_step(step, value) for step, value in (steps or {}).items()}
        fake.posed = {}
        fake.outcomes = dict(outcomes or {})
        fake.model = model
        fake.doubles = dict(doubles or {})
        fake.rules = shell_rules
        fake.is_cancelled = cancelled
        super().__init__(
            fake,
            session_id=session_id,
            batch_id=batch_id,
            call_id=call_id,
            tool=name,
            attempt=attempt,
            max_attempts=max_attempts,
            idempotency_key=idempotency_key(session_id, "", call_id),
            source=source,
            parent_call_id=parent_call_id,
            prepared=prepared,
        )

    @property
    def host(self) -> HostServices:
        """The session as the program has it, to prepare data for the tool and to look at its changes."""
        return self._fake.host

    def cancel(self) -> None:
        """Let `ctx.cancelled` be true from now on. The tool's code is not stopped."""
        self._fake.is_cancelled = True

    def next_attempt(self) -> FakeContext[Deps]:
        """The context of the next attempt of this call, as after a failure or a crash.

        It has the same session, the same record, and the steps that are finished.
        """
        again: FakeContext[Deps] = object.__new__(type(self))
        again.clock, again.recorded = self.clock, self.recorded
        again._fake = self._fake.next_attempt()
        ToolContext.__init__(
            again,
            again._fake,
            session_id=self.session_id,
            batch_id=self.batch_id,
            call_id=self.call_id,
            tool=self.tool,
            attempt=self.attempt + 1,
            max_attempts=max(self.max_attempts, self.attempt + 1),
            idempotency_key=self.idempotency_key,
            source=self.source,
            parent_call_id=self.parent_call_id,
            prepared=self.prepared,
        )
        return again

    def __repr__(self) -> str:
        return f"<FakeContext of {self.tool!r}, attempt {self.attempt}>"


class _FakeServices:
    """`CallServices` that records, and answers with the values of the test."""

    given_deps: Any
    answers: dict[str, Any]
    signals: dict[str, deque[Any]]
    finished: dict[str, Kept]
    posed: dict[str, Kept]
    outcomes: dict[str, Any]
    model: ModelClient | Callable[[ModelRequest], Any] | None
    doubles: dict[str, Any]
    rules: tuple[tuple[ShellRule, ...], ...]
    is_cancelled: bool

    def __init__(
        self,
        recorded: Recorded,
        clock: FakeClock,
        tool: Tool[..., Any] | None,
        name: str,
        call: CallKey,
        session: _FakeSession | None = None,
    ) -> None:
        self._recorded = recorded
        self._clock = clock
        self._tool = tool
        self._name = name
        self._call = call
        self._session = session or _FakeSession(call.session, clock)
        self._used: set[str] = set()
        self._ids = count(1)

    def next_attempt(self) -> _FakeServices:
        again = _FakeServices(self._recorded, self._clock, self._tool, self._name, self._call, self._session)
        for name in _FakeServices.__annotations__:
            setattr(again, name, getattr(self, name))
        return again

    # --- what the test and the tool see

    @property
    def host(self) -> _FakeHost:
        return self._session.host

    @property
    def cancelled(self) -> bool:
        return self.is_cancelled

    @property
    def deps(self) -> object:
        if self.given_deps is NO_LIFESPAN:
            raise ToolwrightError(f"Tool {self._name!r} asks for ctx.deps; give FakeContext(deps=...)")
        return self.given_deps

    def now(self) -> float:
        return self._clock.now()

    def report_progress(self, current: float | None, total: float | None, label: str | None, unit: str | None) -> None:
        self._recorded.progress.append(Progress(current, total, label, unit))

    def report_status(self, text: str) -> None:
        self._recorded.statuses.append(text)

    def report_output(self, stream: str, text: str) -> None:
        self._recorded.output.append(Output(stream, text))

    async def emit(self, name: str, payload: object, key: str | None) -> None:
        data = jsonx.encode(payload) if self._tool is None else check_event(self._tool, name, payload)
        self._recorded.events.append(Emitted(name, jsonx.decode(data), key))

    # --- the session

    def service(self, name: str) -> Any:
        return self._double(name) if name in _IN_RUNTIME else getattr(self._services, name)

    @cached_property
    def _services(self) -> SessionServices:
        services = self._session.services(Marks(self._call))
        services.session = SessionState(self._call.session, self._definitions, services)
        return services

    def _definitions(self) -> list[ToolDefinition]:
        return [] if self._tool is None else [self._tool.definition]

    @property
    def limited_children(self) -> ChildPool:
        pool: ChildPool = self._double("limited_children")
        return pool

    def open_child(self, name: str) -> ChildSessionClient:
        child: ChildSessionClient = self._double("open_child")(name)
        return child

    async def ask_agent(self, app: object, message: str, options: dict[str, Any]) -> TurnOutcome:
        outcome: TurnOutcome = await self._double("ask_agent")(app, message, **options)
        return outcome

    def _double(self, name: str) -> Any:
        if name not in self.doubles:
            raise ToolwrightError(
                f"ctx.{name} needs a runtime; give a double, FakeContext(doubles={{{name!r}: ...}}), or open a runtime "
                "in the test"
            )
        return self.doubles[name]

    def shell_rules(self) -> tuple[tuple[ShellRule, ...], ...]:
        return self.rules

    def refused_by(self, rule: str) -> None:
        self._recorded.refused_by.append(rule)

    # --- other tools, and the model

    async def run_nested(self, calls: Iterable[ToolCall | Mapping[str, Any]]) -> list[ToolOutcome]:
        return [await self._outcome(call if isinstance(call, ToolCall) else ToolCall(**call)) for call in calls]

    async def _outcome(self, call: ToolCall) -> ToolOutcome:
        self._recorded.calls.append(call)
        if call.name not in self.outcomes:
            raise ToolwrightError(
                f"Tool {self._name!r} calls {call.name!r}; give FakeContext(outcomes={{{call.name!r}: ...}})"
            )
        given = self.outcomes[call.name]
        if callable(given):
            arguments = jsonx.decode(call.arguments) if isinstance(call.arguments, (str, bytes)) else call.arguments
            given = given(arguments or {})
            given = await given if asyncio.iscoroutine(given) else given
        if isinstance(given, ToolOutcome):
            return given
        call_id = call.id or f"{self._call.call_id}-{next(self._ids)}"
        if isinstance(given, Failure):
            return ToolOutcome(call_id, call.name, "failure", failure=given, attempts=1)
        if isinstance(given, Success):
            given = given.value
        return ToolOutcome(call_id, call.name, "success", jsonx.encode(given), attempts=1)

    async def complete(self, name: str, messages: Sequence[Any], options: dict[str, Any]) -> object:
        model = self.model
        if model is None:
            raise ToolwrightError(f"Tool {self._name!r} asks a model; give FakeContext(model=...)")
        ask = model if not hasattr(model, "complete") else model.complete
        call = self._call

        async def answer(messages: list[Any], options: dict[str, Any]) -> object:
            request = ModelRequest(call.session, messages, options, call.call_id, self._name, call.scope)
            self._recorded.questions.append(request)
            given = ask(request)
            return await given if asyncio.iscoroutine(given) else given

        return await self._step(f"complete:{name}", answer, (messages, options))

    # --- steps, sleeps, waits

    async def step(self, name: str, function: Callable[..., Any], inputs: tuple[Any, ...], on_crash: object) -> Any:
        self._recorded.steps += [] if name in self.finished else [name]
        return await self._step(name, function, inputs)

    async def _step(self, name: str, function: Callable[..., Any], inputs: tuple[Any, ...]) -> object:
        self._take("step", name)
        effect = Effect(self._call, "step", name, _canonical(name, inputs))
        kept = self.finished.get(name)
        if kept is not None and kept.input:  # a step that the test gave as finished has no input
            require_same_input(effect, kept)
        if kept is None:
            kept = await self._kept(effect, function, inputs)
        if kept.failure is not None:
            error = ToolError(kept.failure.message)
            error.failure = kept.failure
            raise error
        return jsonx.decode(kept.payload)

    async def _kept(self, effect: Effect, function: Callable[..., Any], inputs: tuple[Any, ...]) -> Kept:
        kept = Kept(effect.label, effect.input, self.now(), True, b"null", None)
        try:
            result = await function(*inputs) if is_async(function) else await asyncio.to_thread(function, *inputs)
        except Exception as error:  # the tool's code
            result = self._failure(error)
        if isinstance(result, Failure):
            kept = Kept(kept.label, kept.input, kept.at, True, b"null", result)
            if result.retry:
                return kept  # another attempt runs it again
        else:
            kept = _recorded_step(effect.name, result, effect.input)
        self.finished[effect.name] = kept
        return kept

    def _failure(self, error: Exception) -> Failure:
        if self._tool is not None:
            call_id, fields = self._call.call_id, log_fields("call.raised", call_id=self._call.call_id, tool=self._name)
            return raised(self._tool, self._name, call_id, error, fields)
        return failure_told_by(self._name, error) or internal(error)

    async def sleep(self, name: str, seconds: float) -> None:
        self._take("sleep", name)
        if name not in self._recorded.sleeps:
            self._recorded.sleeps[name] = seconds
            self._clock.jump(seconds)

    def wait_key(self, kind: Literal["completion", "event", "signal"], name: str) -> str:
        label = kind if kind == "completion" else f"{kind}:{name}"
        return self._recorded.keys.setdefault(label, f"key-of-{self._call.call_id}-{label}")

    async def wait(self, key: str, deadline: float | None) -> object:
        names = {given: label for label, given in self._recorded.keys.items() if label.startswith("event:")}
        if key not in names:
            raise ToolwrightError("A call waits for its own events only; take the key from ctx.event_key(name)")
        name = names[key].partition(":")[2]
        if name not in self.answers:
            raise self._nothing_came(f"event {name!r}", deadline, f"answers={{{name!r}: ...}}")
        return _answer(self.answers[name])

    async def ask(self, name: str, message: str, schema: Mapping[str, Any] | None, deadline: float | None) -> object:
        effect = Effect(self._call, "question", name, posed_json(name, message, schema))
        posed = jsonx.decode(effect.input, type=Posed)
        problem_of = answer_check(name, posed.schema)
        self._take("question", name)
        if name in self.posed:
            require_same_input(effect, self.posed[name])
        else:
            self.posed[name] = Kept(effect.label, effect.input, self.now(), True)
            self._recorded.asked.append(Asked(name, posed.message, posed.schema, deadline))
        if name not in self.answers:
            raise self._nothing_came(f"an answer to question {name!r}", deadline, f"answers={{{name!r}: ...}}")
        given = _answer(self.answers[name])
        problem = problem_of(jsonx.encode(given))
        if problem is not None:
            raise ToolwrightError(
                f"The answer to question {name!r} in FakeContext(answers=...) is not usable: {problem}"
            )
        return given

    async def receive(self, name: str, deadline: float | None) -> object:
        waiting = self.signals.get(name)
        if not waiting:
            raise self._nothing_came(f"signal {name!r}", deadline, f"signals={{{name!r}: [...]}}")
        return _answer(waiting.popleft())

    def _nothing_came(self, what: str, deadline: float | None, remedy: str) -> Exception:
        if deadline is None:
            return ToolwrightError(f"Tool {self._name!r} waits for {what} for ever; give FakeContext({remedy})")
        self._clock.jump(deadline)
        error = ToolError(expired(what).message)
        error.failure = expired(what)
        return error

    def _take(self, kind: str, name: str) -> None:
        label = f"{kind}:{name}"
        if label in self._used:
            raise ToolwrightError(f"The {kind} {name!r} was used before in this attempt; give each its own name")
        self._used.add(label)


class _FakeSession:
    """The services of a session that lives in memory."""

    def __init__(self, session_id: str, clock: FakeClock) -> None:
        self._id = session_id
        self._clock = clock

    @cached_property
    def stores(self) -> SqlServiceStores:
        return services_at_once(self._clock)

    @cached_property
    def host(self) -> _FakeHost:
        return _FakeHost(self._id, self._clock, self.stores, self.services(Unmarked()))

    @cached_property
    def _known(self) -> KnownSecrets:
        return KnownSecrets(self._id, Vault(GivenKeys()), lambda redactor: None)

    def services(self, marker: Marker) -> SessionServices:
        return SessionServices(self.stores, self._id, marker, self._clock, Quotas(), GREP_TIMEOUT, self._known)


class _FakeHost:
    """`HostServices` of a session that lives in memory."""

    def __init__(self, session_id: str, clock: FakeClock, stores: SqlServiceStores, services: SessionServices) -> None:
        self._id = session_id
        self._clock = clock
        self._stores = stores
        self.files = services.files
        self.kv = services.kv
        self.secrets = services.secrets
        self.messages = services.messages
        self.attachments = services.attachments
        self.resources = services.resources

    async def connect(self, provider: str, detail: object = None) -> None:
        await self._stores.connections.set_connection(
            self._id, require_provider(provider), to_detail(provider, detail), self._clock.now(), MOST_CONNECTIONS
        )


def _canonical(name: str, inputs: tuple[Any, ...]) -> bytes:
    try:
        return jsonx.canonical(inputs)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ToolwrightError(f"The inputs of step {name!r} have no JSON form: {error}") from error


def _recorded_step(name: str, value: object, given: bytes = b"") -> Kept:
    try:
        return Kept(f"step:{name}", given, 0.0, True, jsonx.encode(value), None)
    except Exception:  # a value may have code of its own for its JSON form
        message = f"The step {name!r} returned a {type(value).__name__} that has no JSON form"
        return Kept(f"step:{name}", given, 0.0, True, b"null", Failure(code="unserialisable_result", message=message))


def _answer(given: object) -> object:
    if isinstance(given, Failure):
        error = ToolError(given.message)
        error.failure = given
        raise error
    return jsonx.decode(jsonx.encode(given))
