"""The context of a running tool. Owns `ToolContext`; the pipeline passes in the parts behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVarTuple, overload

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from toolwright.limited_children import ChildPool
    from toolwright.tools.background_protocols import RunsClient, SchedulesClient, TriggersClient
    from toolwright.tools.call import ToolCall
    from toolwright.tools.outcome import ToolOutcome
    from toolwright.tools.service_protocols import (
        AttachmentsClient,
        ConnectionsClient,
        FilesClient,
        KeyValueClient,
        MessagesClient,
        ResourcesClient,
        SecretsClient,
    )
    from toolwright.tools.session_protocols import CatalogueClient, ChildSessionClient, SessionClient
    from toolwright.tools.shell_rules import ShellRule
    from toolwright.tools.turn_protocols import TurnOutcome

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")

T = TypeVar("T")
Inputs = TypeVarTuple("Inputs")


StepCrashPolicy = Literal["rerun", "fail", "ask"] | Callable[..., Any]
"""The crash policy of a step that was cut off: see `ToolContext.step`."""


class CallServices(Protocol):
    """The services of the pipeline for a running call."""

    @property
    def cancelled(self) -> bool: ...

    @property
    def deps(self) -> Any: ...

    def now(self) -> float: ...

    def report_progress(
        self, current: float | None, total: float | None, label: str | None, unit: str | None
    ) -> None: ...

    def report_status(self, text: str) -> None: ...

    def report_output(self, stream: str, text: str) -> None: ...

    def run_nested(self, calls: Iterable[ToolCall | Mapping[str, Any]]) -> Awaitable[list[ToolOutcome]]: ...

    def service(self, name: str) -> Any: ...

    @property
    def limited_children(self) -> ChildPool: ...

    def shell_rules(self) -> tuple[tuple[ShellRule, ...], ...]: ...

    def refused_by(self, rule: str) -> None: ...

    def open_child(self, name: str) -> ChildSessionClient: ...

    async def ask_agent(self, app: object, message: str, options: dict[str, Any]) -> TurnOutcome: ...

    async def complete(self, name: str, messages: Sequence[Any], options: dict[str, Any]) -> object: ...

    def wait_key(self, kind: Literal["completion", "event", "signal"], name: str) -> str: ...

    async def step(
        self, name: str, function: Callable[..., Any], inputs: tuple[Any, ...], on_crash: object
    ) -> object: ...

    async def sleep(self, name: str, seconds: float) -> None: ...

    async def wait(self, key: str, deadline: float | None) -> object: ...

    async def receive(self, name: str, deadline: float | None) -> object: ...

    async def ask(
        self, name: str, message: str, schema: Mapping[str, Any] | None, deadline: float | None
    ) -> object: ...

    async def emit(self, name: str, payload: object, key: str | None) -> None: ...


class Done:
    """Already done; awaiting it costs nothing, and so does not awaiting it."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_DONE = Done()


class ToolContext(Generic[Deps]):
    """One call's view of the runtime. Annotate a parameter with it, and it is injected.

    `ToolContext[Database]` means that the lifespan of the app gives a `Database`, which the tool has as `ctx.deps`.
    `idempotency_key` is the same for every attempt of the call and every replay: pass it to outside services.
    `progress`, `status` and `output` act at once: await them in async tools, just call them in sync ones.
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
        prepared: object,
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

    def __repr__(self) -> str:
        return f"<ToolContext of {self.tool!r}, call {self.call_id!r}, attempt {self.attempt} of {self.max_attempts}>"

    @property
    def cancelled(self) -> bool:
        """True once the call was cancelled or ran out of time; a long loop in a thread should look at it."""
        return self._services.cancelled

    @property
    def deps(self) -> Deps:
        """The dependencies that the lifespan of the app gave in this process, such as a connection pool.

        Raises:
            ToolwrightError: the app has no lifespan.
        """
        deps: Deps = self._services.deps
        return deps

    def now(self) -> float:
        """The instant by the runtime's clock, in seconds since the epoch."""
        return self._services.now()

    def progress(
        self,
        current: float | None = None,
        total: float | None = None,
        label: str | None = None,
        unit: str | None = None,
    ) -> Done:
        """Report the progress of the call to watchers; `unit` is the unit of the numbers, such as "files".

        Without `current` it reports the known facts: the total, or a label of the current work. A report that cannot be
        used, such as one whose `current` is not a number, never fails the call: it is left out. It is logged, once for
        each call.
        """
        self._services.report_progress(current, total, label, unit)
        return _DONE

    def status(self, text: str) -> Done:
        """Report the activity of the call to watchers, such as "Uploading". A background run shows it until the next
        one.

        A `text` that is not text never fails the call: it is left out. It is logged, once for each call.
        """
        self._services.report_status(text)
        return _DONE

    def output(self, stream: Literal["stdout", "stderr"] | str, text: str) -> Done:
        """Send a piece of output to watchers while the call runs."""
        self._services.report_output(stream, text)
        return _DONE

    @property
    def files(self) -> FilesClient:
        """The files of the session."""
        client: FilesClient = self._services.service("files")
        return client

    @property
    def kv(self) -> KeyValueClient:
        """Named values of the session."""
        client: KeyValueClient = self._services.service("kv")
        return client

    @property
    def secrets(self) -> SecretsClient:
        """Values that the tool may use and the model never sees."""
        client: SecretsClient = self._services.service("secrets")
        return client

    @property
    def messages(self) -> MessagesClient:
        """The conversation of the session."""
        client: MessagesClient = self._services.service("messages")
        return client

    @property
    def attachments(self) -> AttachmentsClient:
        """Content that travels with messages and outcomes."""
        client: AttachmentsClient = self._services.service("attachments")
        return client

    @property
    def resources(self) -> ResourcesClient:
        """The resources that the session uses or made outside."""
        client: ResourcesClient = self._services.service("resources")
        return client

    @property
    def catalogue(self) -> CatalogueClient:
        """The tools of the session, and which of them the model sees in full."""
        client: CatalogueClient = self._services.service("catalogue")
        return client

    @property
    def connections(self) -> ConnectionsClient:
        """The providers that the session is connected to."""
        client: ConnectionsClient = self._services.service("connections")
        return client

    @property
    def runs(self) -> RunsClient:
        """Tools that run in the background."""
        client: RunsClient = self._services.service("runs")
        return client

    @property
    def schedules(self) -> SchedulesClient:
        """Tools that are started at instants."""
        client: SchedulesClient = self._services.service("schedules")
        return client

    @property
    def triggers(self) -> TriggersClient:
        """Tools that are started when something occurs."""
        client: TriggersClient = self._services.service("triggers")
        return client

    @property
    def session(self) -> SessionClient:
        """The call's own session: its id, its tools, its services."""
        session: SessionClient = self._services.service("session")
        return session

    @property
    def limited_children(self) -> ChildPool:
        """Processes whose limits the operating system enforces, for untrusted code and data."""
        return self._services.limited_children

    def shell_rules(self) -> tuple[tuple[ShellRule, ...], ...]:
        """The rules on commands and writes that hold for this call, of each policy that restricts it.

        A tool with a sandbox of its own applies them to the real commands of its script; see
        `toolwright.tools.shell_rules`.
        """
        return self._services.shell_rules()

    def refused_by(self, rule: str) -> None:
        """Name the rule by which the tool refuses an action of its script; the outcome shows it as `decided_by`."""
        self._services.refused_by(rule)

    def open_child(self, name: str) -> ChildSessionClient:
        """Open a session of this call's own: the same one for a name in every attempt, and no other call's."""
        return self._services.open_child(name)

    async def complete(self, name: str, messages: str | list[Any], **options: object) -> Any:
        """Ask the session's model, as a step of this name: an answer that was recorded is not asked for again.

        That holds across crashes and attempts. A question that a crash cut off before its answer was recorded is asked
        again: it may cost twice, and changes nothing else.

        Text stands for one message of a user. The model defines the meaning of `options`. The result is the text of an
        `ModelAnswer`, as the models of `toolwright.providers` give one; of any other model it is what that model gave.

        Raises:
            ToolError: the model failed, now or when it was asked.
            ServiceError: the runtime has no model.
        """
        asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return await self._services.complete(name, asked, options)

    @overload
    async def step(
        self,
        name: str,
        function: Callable[[*Inputs], Awaitable[T]],
        *inputs: *Inputs,
        on_crash: StepCrashPolicy | None = None,
    ) -> T: ...
    @overload
    async def step(
        self,
        name: str,
        function: Callable[[*Inputs], T],
        *inputs: *Inputs,
        on_crash: StepCrashPolicy | None = None,
    ) -> T: ...
    async def step(
        self,
        name: str,
        function: Callable[[*Inputs], object],
        *inputs: *Inputs,
        on_crash: StepCrashPolicy | None = None,
    ) -> object:
        """Run `function(*inputs)` once, across crashes and attempts, and return its value.

        The value is recorded as JSON, and comes back as the declared return type of the function: a dataclass, a
        pydantic model, a tuple, a datetime. Without a return annotation it is plain JSON data. It is a copy, also when
        the function ran just now, so that a replay cannot differ.

        A plain function runs on a thread. A finished step is not run again; a `ToolError` is raised again,
        unless it says `retry`. `on_crash` is for a step that was cut off and may have happened: "rerun" (the default
        in readonly and idempotent tools), "fail" with code "interrupted" (the default elsewhere), "ask" to let a person
        decide whether it runs again, or a probe that takes the same inputs and returns what the step gave, or None if
        it did not happen.

        Raises:
            ToolError: the step failed, now or when it ran; or its recorded value does not fit the return annotation
                (code "step_type").
            ReplayMismatch: it ran before with other inputs.
        """
        from toolwright.tools.step_values import restore

        return restore(name, function, await self._services.step(name, function, inputs, on_crash))

    async def sleep(self, name: str, seconds: float) -> None:
        """Wait for some time. After a crash the wait continues with the remaining time."""
        await self._services.sleep(name, seconds)

    def completion_key(self) -> str:
        """The key that completes this call from outside, the same in every attempt. Then return `Pending`."""
        return self._services.wait_key("completion", "")

    def event_key(self, name: str) -> str:
        """The key of an event of this call, to be handed out and waited for."""
        return self._services.wait_key("event", name)

    def signal_key(self, name: str) -> str:
        """The key by which signals of this name are sent to this call."""
        return self._services.wait_key("signal", name)

    async def wait(self, key: str, deadline: float | None = None) -> Any:
        """Wait for an event of this call, at most `deadline` seconds; meanwhile the call holds no slot.

        Raises:
            ToolError: it was rejected or cancelled, or the deadline passed (code "expired").
        """
        return await self._services.wait(key, deadline)

    async def receive(self, name: str, deadline: float | None = None) -> Any:
        """The next signal of this name, in the order they were sent.

        Raises:
            ToolError: none came in time (code "expired"), or the waits of the session were cancelled.
        """
        return await self._services.receive(name, deadline)

    async def ask(
        self,
        name: str,
        message: str,
        schema: Mapping[str, Any] | None = None,
        *,
        deadline: float | None = None,
    ) -> Any:
        """Ask a person, and return the answer, which fits the JSON Schema; meanwhile the call holds no slot.

        The question is stored: it can be answered while no process runs the call, and after a crash its recorded answer
        is returned. `runtime.questions()` lists the open ones, and the first `runtime.answer` or `runtime.decline`
        decides. It waits at most `deadline` seconds; without one, as long as an approval does by the policy.

        Raises:
            ToolError: it was declined (code "declined"), nobody answered in time ("expired"), or the waits of the
                session were cancelled.
            ReplayMismatch: something else was asked before under this name.
            ToolwrightError: the text or the schema is not usable, or the name was used before in this attempt.
        """
        return await self._services.ask(name, message, schema, deadline)

    async def emit(self, name: str, payload: object = None, *, key: str | None = None) -> None:
        """Publish an event that the tool declares in `events`. A background run stores it among its events.

        There, an event with a `key` is stored once, across attempts and crashes.

        Raises:
            ServiceError: the tool declares no such event, or the payload does not fit its schema.
        """
        await self._services.emit(name, payload, key)

    async def call(self, name: str, /, **arguments: object) -> ToolOutcome:
        """Run another tool as part of this call."""
        from toolwright.tools.call import ToolCall

        (outcome,) = await self._services.run_nested([ToolCall(name=name, arguments=arguments)])
        return outcome

    async def run_batch(self, calls: Iterable[ToolCall | Mapping[str, Any]]) -> list[ToolOutcome]:
        """Run several tools as part of this call: one outcome each, in order."""
        return await self._services.run_nested(calls)
