"""A session, as a program uses it: its batches, its background work, its services, its connections and its events.

`SessionCore` is its inside, which calls and background runs use; nothing of that is shown here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from toolwright import jsonx
from toolwright.argument_checks import require_count
from toolwright.calls.active_call import CURRENT
from toolwright.calls.batch import Batch
from toolwright.calls.judgement import Judgement
from toolwright.calls.policy import Policy, PolicySettings
from toolwright.calls.suspend.approvals import Approval
from toolwright.calls.suspend.questions import Question
from toolwright.event_bus import Subscription
from toolwright.session.children import Calls
from toolwright.session.core import SessionCore
from toolwright.session.open_waits import InboxClient, OpenWait, Resolved
from toolwright.session.secrets.secrets import Secrets
from toolwright.session.services.attachments import Attachments
from toolwright.session.services.connections import MOST, require_provider, to_detail
from toolwright.session.services.details import Details
from toolwright.session.services.files import Files
from toolwright.session.services.keyvalue import KeyValue
from toolwright.session.services.messages import Messages
from toolwright.session.services.quotas import Unmarked
from toolwright.session.services.resources import Resources
from toolwright.session.tool_catalogue import SessionCatalogue
from toolwright.tools.background_protocols import (
    RunClient,
    ScheduleClient,
    ScheduleOptions,
    SchedulesClient,
    SpawnOptions,
    Trigger,
    TriggerOptions,
    TriggersClient,
)
from toolwright.tools.call import ToolCall
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.model import ModelClient
from toolwright.tools.outcome import Image, ToolOutcome
from toolwright.tools.registry import ScopedRegistry
from toolwright.tools.service_protocols import Connection
from toolwright.tools.turn_protocols import AskOptions, Budget, TurnClient, TurnInfo, TurnOutcome, TurnsClient


class Session:
    """The calls of one conversation: they keep their order among each other, in and across batches."""

    __slots__ = ("__weakref__", "_core", "opened_by")

    def __init__(self, core: SessionCore) -> None:
        self._core = core
        self.opened_by: object = None
        """The runtime that the session was taken from: `toolwright.runtime.runtime.runtime_of` gives it with its
        type."""

    @property
    def id(self) -> str:
        """The name of the session, in every process."""
        return self._core.id

    @property
    def policy(self) -> Policy:
        """The policy of the session."""
        return self._core.policy

    @property
    def tools(self) -> ScopedRegistry:
        """The tools of the session: those of the app, and its own."""
        return self._core.tools

    # --- turns

    async def ask(
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
    ) -> TurnOutcome:
        """Send a message to the model, run the tools that it calls, and return its answer.

        The turn is durable: after a crash it continues in the next process, by `runtime.recover`, by a worker, or when
        the session is asked again. One turn at a time runs in a session; others wait in its queue. A turn whose call
        waits for something outside, such as an approval, has the status "waiting", and continues by itself after that.

        Args:
            message: the message of the user.
            model: the model that answers, such as "openai:gpt-5", in place of the app's.
            budget: how much the turn may use, in place of the app's budget.
            answer: a type, such as a pydantic model. The answer is asked for in this form and validated; it is the
                `value` of the outcome.
            images: images that go with the message.
            tool_choice: whether the first answer of the model calls tools: "auto", "required", "none", or the name of
                the tool that it must call.
            parallel: whether an answer may have several calls; None leaves that to the provider.
            max_tokens: the longest answer of one model call; None leaves that to the provider.
            id: an id of the caller's choice. Asked again with the same message, it is the same turn.

        Raises:
            TurnError: there is no model, or something is not usable.
        """
        options = _options(model, budget, answer, images, tool_choice, parallel, max_tokens, id)
        return await self._turns.ask(message, options)

    async def start_turn(
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
    ) -> TurnClient:
        """Start a turn and return its handle: await it, follow it, steer it, cancel it. The options are those of `ask`.

        With `background`, any worker of the store takes it: a few workers share the turns of many sessions.
        """
        options = _options(model, budget, answer, images, tool_choice, parallel, max_tokens, id)
        return await self._turns.start(message, options, background=background)

    async def turns(self, *, active: bool = False, limit: int = 100, before: int | None = None) -> list[TurnInfo]:
        """The turns of the session, the newest first: all, or only the unfinished ones, or those before a number."""
        require_count("limit", limit)
        if before is not None:
            require_count("before", before, 0)
        return await self._turns.list(active=active, limit=limit, before=before)

    async def turn(self, id: str) -> TurnClient:
        """The handle of a turn of the session.

        Raises:
            TurnError: there is none.
        """
        return await self._turns.get(id)

    @property
    def _turns(self) -> TurnsClient:
        return self._core.background.turns(self._core)

    # --- batches

    async def run_batch(self, calls: Calls, *, scope: str = "", **changes: Unpack[PolicySettings]) -> list[ToolOutcome]:
        """Run calls and return one outcome for each, in call order.

        `changes` are settings of the policy that hold for this batch, such as `read_only=True`.

        Raises:
            BatchFailed: with `continue_on_failure=False`, a call failed.
        """
        if CURRENT.get() is not None:
            return await self._core.run_batch(calls, scope, changes)
        return await self._core.make_batch(calls, scope, changes, None).start(at_once=True).wait()

    def start_batch(
        self,
        calls: Calls,
        *,
        scope: str = "",
        under: Policy | None = None,
        at_once: bool = False,
        **changes: Unpack[PolicySettings],
    ) -> Batch:
        """Start a batch and return it: await it for its outcomes, or cancel it. `changes` as for `run_batch`.

        `under` is a policy that holds beside the session's, for calls of somebody who may do less: a call runs only
        where both let it. `at_once` lets tools take their first step before this returns, where nothing must be waited
        for: a call that never waits is finished then.
        """
        core, parent = self._core, CURRENT.get()
        batch = core.make_batch(calls, scope, changes, parent, core.bounds(under))
        return batch.start(at_once=at_once and parent is None)

    async def call(self, name: str, /, **arguments: object) -> ToolOutcome:
        """Run one tool with these arguments."""
        (outcome,) = await self.run_batch([ToolCall(name=name, arguments=arguments, source="host")])
        return outcome

    async def would(self, call: ToolCall | Mapping[str, Any], **changes: Unpack[PolicySettings]) -> Judgement:
        """Say what would happen to a call that is started now: it runs, waits for a person, or fails. Start nothing.

        The verdict is by the tool, the arguments, the rules and the remembered decisions only. Before-hooks and the
        tool's prepare step, which might still change or refuse the call, are not run; nor is looked whether the call
        came before, repeats in a loop, or lacks a secret or a connection. Nothing is recorded.

        Args:
            call: the call, in either form that a batch takes. It needs no id.
            changes: settings of the policy for the batch that it would be in, such as `read_only=True`.

        Raises:
            ToolwrightError: it is no tool call.
        """
        return await self._core.would(call, changes)

    def may_ask_about(self, tool: str) -> bool:
        """Whether the policy may ask a person about a call of the tool of this name; `would` says it for one call."""
        return self._core.may_ask_about(tool)

    def cancel(self, reason: str = "the session was cancelled") -> None:
        """Cancel the turn and every batch of the session that still run here. Background runs continue, and so do turns
        in the queue; each has its own `cancel`."""
        self._core.cancel(reason)

    async def wait_for_idle(self, timeout: float | None = None) -> bool:
        """Wait until no batch of the session runs, or the running ones only wait for something outside.

        False when that is not so after `timeout` seconds. Calls of other processes and background runs are not seen.

        Raises:
            ToolwrightError: a call of the session asks, and would wait for itself.
        """
        return await self._core.wait_for_idle(timeout)

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The running batches, those of background runs among them."""
        return self._core.batches

    # --- calls that wait for something outside

    async def waits(self) -> list[OpenWait]:
        """What the calls of the session wait for outside, oldest first, each with the key that answers it."""
        return await self._inbox.waits(self.id)

    async def approvals(self) -> list[Approval]:
        """The calls of the session that wait for a person, oldest first."""
        return await self._inbox.approvals(self.id)

    async def approve(
        self,
        key: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        always: Mapping[str, Any] | None = None,
        by: str | None = None,
        via: str | None = None,
    ) -> Resolved:
        """Let a call of the session run, as `runtime.approve` does.

        Raises:
            KeyRefused: as for `runtime.approve`, or the key is of another session.
            ToolwrightError: the other arguments do not fit the tool.
        """
        return await self._inbox.approve(key, arguments, always, by, via, self.id)

    async def deny(
        self,
        key: str,
        *,
        reason: str | None = None,
        always: Mapping[str, Any] | None = None,
        by: str | None = None,
        via: str | None = None,
    ) -> Resolved:
        """Deny a call of the session, as `runtime.deny` does.

        Raises:
            KeyRefused: as for `runtime.deny`, or the key is of another session.
        """
        return await self._inbox.deny(key, reason, always, by, via, self.id)

    async def resolve(self, key: str, value: object = None) -> Resolved:
        """Complete what a call of the session waits for, as `runtime.resolve` does.

        Raises:
            KeyRefused: as for `runtime.resolve`, or the key is of another session.
        """
        return await self._inbox.resolve(key, value, self.id)

    async def reject(
        self,
        key: str,
        *,
        code: str = "rejected",
        message: str = "It was rejected from outside",
        category: str = "external",
    ) -> Resolved:
        """Complete what a call of the session waits for with an error, as `runtime.reject` does.

        Raises:
            KeyRefused: as for `runtime.resolve`, or the key is of another session.
        """
        return await self._inbox.reject(key, code, message, category, self.id)

    async def questions(self) -> list[Question]:
        """The questions of the session's tools that wait for a person, oldest first."""
        return await self._inbox.questions(self.id)

    async def answer(self, key: str, value: object, *, by: str | None = None, via: str | None = None) -> Resolved:
        """Answer a question of the session, as `runtime.answer` does.

        Raises:
            KeyRefused: as for `runtime.answer`, or the key is of another session.
            ToolwrightError: the answer does not fit the schema of the question, which stays open.
        """
        return await self._inbox.answer(key, value, by, via, self.id)

    async def decline(
        self, key: str, reason: str | None = None, *, by: str | None = None, via: str | None = None
    ) -> Resolved:
        """Decline a question of the session, as `runtime.decline` does.

        Raises:
            KeyRefused: as for `runtime.decline`, or the key is of another session.
        """
        return await self._inbox.decline(key, reason, by, via, self.id)

    @property
    def _inbox(self) -> InboxClient:
        self._core.shared.lifetime.require_open()
        return self._core.background.inbox()

    async def cancel_waits(self, reason: str = "the waits of the session were cancelled") -> int:
        """Cancel whatever the session's calls wait for outside, in every process; return how many waits there were."""
        return await self._cancel_waits(reason, revoke=False)

    async def revoke(self, reason: str = "the session was revoked") -> int:
        """Cancel the waits of the session, and refuse its keys and waits from now on, for good.

        Nothing from outside reaches its calls any more. They still run, and may be started: `cancel` stops its batches,
        and the `cancel` of each run that run.
        """
        return await self._cancel_waits(reason, revoke=True)

    async def _cancel_waits(self, reason: str, *, revoke: bool) -> int:
        core = self._core
        core.shared.lifetime.require_open()
        return await core.shared.effects.room.cancel_all(core.id, await core.redacted(reason), revoke=revoke)

    def subscribe(self, *, limit: int = 10_000) -> Subscription:
        """Watch this session's events; close the subscription when done."""
        self._core.shared.lifetime.require_open()
        return self._core.shared.events.subscribe(self.id, limit)

    # --- background runs, schedules and triggers

    async def spawn(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        under: Policy | None = None,
        **options: Unpack[SpawnOptions],
    ) -> RunClient:
        """Start a tool that supports it in the background, and return the handle of its run.

        `SpawnOptions` explains the options; `under` is a policy that holds beside the session's, as for `start_batch`.

        Raises:
            RunError: the tool cannot run in the background, there are too many runs, or something is not usable.
        """
        await self._core.know_secrets()
        return await self._core.runs(under).spawn(tool, args, **options)

    async def track(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,
        *,
        title: str | None = None,
        signal_on_completion: bool = False,
        id: str | None = None,
    ) -> RunClient:
        """Register work that happens elsewhere, such as a deployment, as a run of this session; return its handle.

        No worker takes it: report on it with `report`, `append`, `finish` and `fail` of the handle, here or in another
        process, where `runtime.run(id)` gives one.

        Args:
            name: the name of the work, for rules and lists.
            input: its input, as JSON; it is stored and shown.
            title: the title of the run, for people; by default its name.
            signal_on_completion: append a message to the session when it is finished.
            id: an id of the caller's choice; a run of the same id and content is the same run.

        Raises:
            RunRefused: the policy denies work of this name, or would ask a person first.
            RunError: there are too many tracked runs, or something is not usable.
        """
        await self._core.know_secrets()
        return await self._core.runs().track(name, input, title=title, signal_on_completion=signal_on_completion, id=id)

    async def runs(self, *, active: bool = False) -> list[RunClient]:
        """The background runs of the session, the newest first: all, or only the unfinished ones."""
        return await self._core.runs().list(active=active)

    async def run(self, id: str) -> RunClient:
        """The handle of a background run of this session, or of a run that was granted to it.

        Raises:
            RunError: there is none, or it belongs to another session.
        """
        return await self._core.runs().get(id)

    async def schedule(
        self, tool: str, args: Mapping[str, Any] | None = None, **options: Unpack[ScheduleOptions]
    ) -> ScheduleClient:
        """Start a tool that supports the background at an instant, or again and again; return the schedule's handle.

        `ScheduleOptions` explains the options; one of `cron` and `at` is needed.

        Raises:
            ScheduleError: the timing or a policy is not usable, or the session has as many schedules as it may.
            RunError: the tool cannot run in the background, or its arguments are not usable.
        """
        return await self._schedules.add(tool, args, **options)

    async def schedules(self, *, active: bool = False) -> list[ScheduleClient]:
        """The schedules of the session, the oldest first: all, or only the unfinished ones."""
        return await self._schedules.list(active=active)

    async def scheduled(self, id: str) -> ScheduleClient:
        """The handle of a schedule of this session.

        Raises:
            ScheduleError: there is none, or it belongs to another session.
        """
        return await self._schedules.get(id)

    async def on(
        self, topic: str, tool: str, args: Mapping[str, Any] | None = None, **options: Unpack[TriggerOptions]
    ) -> Trigger:
        """Start a tool in the background each time something occurs under a topic, see `runtime.occur`.

        `TriggerOptions` explains the options.

        Raises:
            RunError: the tool cannot run in the background, there are too many triggers, or something is not usable.
        """
        return await self._triggers.add(topic, tool, args, **options)

    async def off(self, trigger: Trigger | str) -> bool:
        """Start nothing more by a trigger, or the one of an id; its runs continue. False if there is none."""
        return await self._triggers.remove(trigger.id if isinstance(trigger, Trigger) else trigger)

    async def triggers(self) -> list[Trigger]:
        """The triggers of the session, the oldest first."""
        return await self._triggers.list()

    @property
    def _schedules(self) -> SchedulesClient:
        return self._core.background.schedules(self._core, Unmarked(), self._core.origin(), None)

    @property
    def _triggers(self) -> TriggersClient:
        return self._core.background.triggers(self._core, Unmarked(), self._core.origin(), None)

    # --- tools, as a model sees them

    @property
    def catalogue(self) -> SessionCatalogue:
        """The tools of the session, and which of them the model sees in full."""
        return self._core.catalogue(self.kv)

    async def offered(self) -> list[ToolDefinition]:
        """The definitions to give to the model for its next answer: a deferred tool is a stub until it was revealed."""
        return await self.catalogue.offered()

    def definitions(self) -> list[ToolDefinition]:
        """The definitions of the session's tools, by name."""
        return self._core.definitions()

    # --- services

    @property
    def files(self) -> Files:
        """The files of the session."""
        return self._core.services.files

    @property
    def kv(self) -> KeyValue:
        """Named values of the session."""
        return self._core.services.kv

    @property
    def details(self) -> Details:
        """The title and the locale of the session."""
        return self._core.services.details

    @property
    def secrets(self) -> Secrets:
        """Values that tools may use and models never see."""
        return self._core.services.secrets

    @property
    def messages(self) -> Messages:
        """The conversation of the session."""
        return self._core.services.messages

    @property
    def attachments(self) -> Attachments:
        """Content that travels with messages and outcomes."""
        return self._core.services.attachments

    @property
    def resources(self) -> Resources:
        """The resources that the session uses or made outside."""
        return self._core.services.resources

    # --- connections

    async def connect(self, provider: str, *, detail: object = None) -> Connection:
        """Record that the session is connected to a provider. Calls that wait for it continue, in every process.

        A call that ended because the connection was missing runs when you submit it again.

        Args:
            provider: its name, as tools give it in `ConnectionRequired`.
            detail: data about the connection that tools may read, as JSON. A token belongs among the secrets.

        Raises:
            ServiceError: one of the two is not usable.
        """
        core = self._core
        core.shared.lifetime.require_open()
        data, now = to_detail(require_provider(provider), detail), core.shared.clock.now()
        await core.shared.stores().connections.set_connection(core.id, provider, data, now, MOST)
        await core.tell_connected(provider)
        return Connection(provider, jsonx.decode(data), now)

    async def disconnect(self, provider: str) -> bool:
        """Record that the session is no longer connected to a provider; False when it was not."""
        core = self._core
        core.shared.lifetime.require_open()
        require_provider(provider)
        return await core.shared.stores().connections.delete_connection(core.id, provider)

    async def connections(self) -> list[Connection]:
        """The providers that the session is connected to, by name."""
        return await self._core.services.connections.list()

    def __repr__(self) -> str:
        return f"<Session {self.id!r}>"


def _options(
    model: str | ModelClient | None,
    budget: Budget | None,
    answer: object,
    images: Sequence[Image],
    tool_choice: str,
    parallel: bool | None,
    max_tokens: int | None,
    id: str | None,
) -> AskOptions:
    return {
        "model": model,
        "budget": budget,
        "answer": answer,
        "images": images,
        "tool_choice": tool_choice,
        "parallel": parallel,
        "max_tokens": max_tokens,
        "id": id,
    }
