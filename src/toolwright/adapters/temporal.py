"""Temporal: the tools of an app as one activity of a worker that a team has already.

`ToolsPlugin` registers the activity and opens the app with the worker; `call_tools` calls tools from a workflow. Owns
their form in Temporal's words. Does not own running calls; the session does, under its policy, and each tool's crash
policy decides what a call does that was cut off: the activity is retried without end, whatever the tool.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from toolwright.calls.finalise.truncate import bound_within
from toolwright.errors import StoreError, ToolwrightError
from toolwright.extras import require_extra
from toolwright.tools.call import ToolCall

try:
    from temporalio import activity, workflow
except ModuleNotFoundError:
    require_extra("temporal", "toolwright.adapters.temporal")
    raise
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import ActivityCancellationType

if TYPE_CHECKING:
    from toolwright.app import App
    from toolwright.app_options import OpenOptions
    from toolwright.calls.batch import Batch
    from toolwright.runtime.runtime import Runtime
    from toolwright.stores.contracts.store import Store
    from toolwright.tools.outcome import ToolOutcome

CALL_TOOLS = "toolwright.call_tools"
"""The name of the activity."""
HEARTBEAT = 10.0
"""Seconds after which Temporal takes a silent worker for dead, unless `call_tools` is told otherwise."""
LONGEST = timedelta(days=3_650)
"""How long one attempt may take: a call may wait for a person, and its heartbeats show that its worker lives."""

LARGEST = 1_500_000
"""Bytes of JSON that the texts of one batch may have together: Temporal takes no result of more than 2 MiB."""


@dataclass(frozen=True)
class ToolRequest:
    """A batch of calls on its way to a worker."""

    session: str
    scope: str
    calls: list[dict[str, Any]]
    heartbeat: float


@dataclass(frozen=True)
class ToolAnswer:
    """The outcome of one call, as the history of a workflow has it.

    `text` is what the model reads; where the texts of a batch are too long for Temporal, the longest are cut. The whole
    outcome stays in the store, under the id of the call.
    """

    id: str
    tool: str
    status: str
    text: str

    @property
    def ok(self) -> bool:
        """True when the call succeeded."""
        return self.status == "success"


async def call_tools(
    calls: Sequence[ToolCall | Mapping[str, Any]],
    *,
    session: str | None = None,
    scope: str | None = None,
    heartbeat: float = HEARTBEAT,
    task_queue: str | None = None,
) -> list[ToolAnswer]:
    """Run calls of tools as one batch, in one activity, from inside of a workflow; their answers come in call order.

    Args:
        calls: the calls of one answer of a model, as `ToolCall` or as `{"id", "name", "arguments"}`.
        session: the session that they belong to; by default one of this workflow's own.
        scope: a namespace of the ids of calls within the session; by default the id of the workflow.
        heartbeat: seconds after which the calls of a silent worker are brought to another one.
        task_queue: where the workers with the `ToolsPlugin` are, if that is another queue than the workflow's.
    """
    info = workflow.info()
    written = []
    for call in calls:
        fields = call.to_json() if isinstance(call, ToolCall) else dict(call)
        fields["id"] = fields.get("id") or f"call_{workflow.uuid4().hex}"
        written.append(fields)
    request = ToolRequest(
        session=f"temporal/{info.workflow_id}" if session is None else session,
        scope=f"temporal/{info.workflow_id}" if scope is None else scope,
        calls=written,
        heartbeat=heartbeat,
    )
    answers: list[ToolAnswer] = await workflow.execute_activity(
        CALL_TOOLS,
        request,
        result_type=list[ToolAnswer],
        task_queue=task_queue,
        start_to_close_timeout=LONGEST,
        heartbeat_timeout=timedelta(seconds=heartbeat),
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=0.2), maximum_interval=timedelta(seconds=10)),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=_summary(written),
    )
    return answers


class ToolsPlugin(SimplePlugin):
    """All tools of an app as one activity: `Worker(client, ..., plugins=[ToolsPlugin(app, "agent.db")])`.

    The app is opened when the worker starts to run, and closed with it. Workers that share the store may be killed at
    any time: Temporal brings the calls of a dead one to another, where the crash policy of each tool decides.

    Args:
        app: the app with the tools.
        store: where it is opened, as for `App.open`; not in memory, where no other worker could continue a call.
        options: those of `App.open`.
    """

    def __init__(self, app: App, store: str | Path | Store, **options: Unpack[OpenOptions]) -> None:
        if str(store) == ":memory:":
            raise ToolwrightError(
                "The ToolsPlugin needs a store that other workers can open; give it a file or the URL of a store"
            )
        self._app = app
        self._place = store
        self._options = options
        self._runtime: Runtime | None = None
        super().__init__(
            "toolwright.ToolsPlugin",
            activities=[self._call_tools],
            workflow_runner=_let_through,
            run_context=self._opened,
        )

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        async with self._app.open(self._place, **self._options) as runtime:
            self._runtime = runtime
            try:
                yield
            finally:
                self._runtime = None

    @activity.defn(name=CALL_TOOLS)
    async def _call_tools(self, request: ToolRequest) -> list[ToolAnswer]:
        from toolwright.runtime.used_sessions import used_session

        if self._runtime is None:
            raise _again("The app of this worker is not open")
        try:
            calls = [ToolCall(**fields) for fields in request.calls]
        except TypeError as error:
            raise ApplicationError(
                f"A call is not usable: {error}; give it an id, a name and arguments",
                type="ToolwrightError",
                non_retryable=True,
            ) from None
        try:
            batch = used_session(self._runtime, request.session).start_batch(calls, scope=request.scope)
        except ToolwrightError as error:  # such as the id of another call
            raise ApplicationError(f"{error!s:.1000}", type=type(error).__name__, non_retryable=True) from None
        try:
            outcomes = await _watched(batch, request.heartbeat)
        except StoreError as error:
            raise _again(f"{error!s:.300}") from None
        except ToolwrightError as error:
            raise ApplicationError(f"{error!s:.1000}", type=type(error).__name__, non_retryable=True) from None
        return _answers(outcomes)


async def _watched(batch: Batch, heartbeat: float) -> list[ToolOutcome]:
    """The outcomes of a batch, while Temporal is told that the worker lives."""
    ending, cancelled = asyncio.ensure_future(batch.settled()), False
    try:
        while not ending.done():
            activity.heartbeat()
            try:
                await asyncio.wait({ending}, timeout=heartbeat / 4)
            except asyncio.CancelledError:
                details = activity.cancellation_details()
                if details is None or not details.cancel_requested:
                    # The worker stops, or Temporal took it for dead: the calls continue elsewhere, as after a crash.
                    batch.store_failed(StoreError("the worker stops"))
                    await batch.settled()
                    raise
                cancelled = True
                batch.cancel("it was cancelled in Temporal")
    finally:
        ending.cancel()
    outcomes = await batch.wait()
    if cancelled and any(outcome.status == "cancelled" for outcome in outcomes):
        raise asyncio.CancelledError
    return outcomes


def _answers(outcomes: Sequence[ToolOutcome]) -> list[ToolAnswer]:
    texts = [outcome.text for outcome in outcomes]
    sizes, room = [len(json.dumps(text)) for text in texts], LARGEST
    for count, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        if size * count > room:  # the short ones are whole, and the others have equal parts of what is left
            most = room // count
            texts = [_cut(text, most) if size > most else text for text, size in zip(texts, sizes, strict=True)]
            break
        room -= size
    return [
        ToolAnswer(id=outcome.call_id, tool=outcome.tool, status=outcome.status, text=text)
        for outcome, text in zip(outcomes, texts, strict=True)
    ]


def _cut(text: str, most: int) -> str:
    """A text without its middle, which has at most so many bytes as JSON."""
    cut: str = json.loads(bound_within(text, json.dumps, len(text), most, None))
    return cut


def _again(message: str) -> ApplicationError:
    return ApplicationError(message, type="toolwright.again", category=ApplicationErrorCategory.BENIGN)


def _summary(calls: Sequence[Mapping[str, Any]]) -> str:
    names = ", ".join(str(call.get("name", "")) for call in calls)
    return names if len(names) <= 200 else f"{names[:199]}…"


def _let_through(runner: WorkflowRunner | None) -> WorkflowRunner:
    """Let workflows in the sandbox import this module: it is deterministic, and loading it there again is slow."""
    if runner is None:
        runner = SandboxedWorkflowRunner()
    if isinstance(runner, SandboxedWorkflowRunner):
        allowed = runner.restrictions.with_passthrough_modules("toolwright", "msgspec")
        return dataclasses.replace(runner, restrictions=allowed)
    return runner
