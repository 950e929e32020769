"""One turn that this process works on: model call, batch, model call, until there is an answer. Owns this loop, the
budget, and writing each step to the store.

A step is written in this order. The answer of the model is recorded before one of its calls runs. The calls are run as
a batch whose scope is that of the answer, so that the journal gives the outcomes of those that ran before a crash. An
answer with all its results is one unit: it goes into the history together with the next answer, or with the end of the
turn. A turn that is continued finds its recorded answer, and the history up to it; nothing else is replayed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import operator
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.active_call import ActiveCall
from toolwright.calls.batch import Batch
from toolwright.calls.redact import fingerprint_of, without_secrets
from toolwright.errors import ServiceError, StoreError
from toolwright.events import AnyEvent, CallFinished
from toolwright.log_fields import log_fields
from toolwright.session.core import SessionCore
from toolwright.session.services.spilled_outputs import save_output
from toolwright.stores.contracts.journal import CallKey, Ended, Entry, JournalStore
from toolwright.stores.contracts.sessions import NewMessage
from toolwright.stores.contracts.turns import TURN_SCOPE, Advance, TurnRecord, TurnSteered, TurnStore
from toolwright.stores.contracts.waits import WaitKey
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.model import (
    Item,
    ModelAnswer,
    ModelClient,
    ModelError,
    ModelRequest,
    ToolResults,
    Usage,
    UserMessage,
)
from toolwright.tools.outcome import CUT_OFF_EARLIER, Failure, ToolOutcome
from toolwright.tools.registry import Snapshot, find
from toolwright.tools.service_protocols import Message
from toolwright.tools.tracing import LinkKind
from toolwright.tools.turn_protocols import Budget, ContextWindow, TurnOutcome, TurnState, TurnStatus, TurnWait
from toolwright.turns import conversation as stored
from toolwright.turns.context_window import (
    AFTER_SHORTENING,
    AFTER_SUMMARY,
    ASK_FOR_SUMMARY,
    CHARACTERS,
    Conversation,
    Shortened,
)
from toolwright.turns.event_log import TurnLog
from toolwright.turns.model_call import ask, model_spec, read_answer
from toolwright.turns.structured import AnswerForm

log = logging.getLogger("toolwright.turns")

MODEL_SECONDS = 600.0
"""How long one call of a model may take, with its retries."""
PAGE = 1_000
"""How many messages of the history are read at once."""
OVERFLOW = "context_overflow"
"""The code of a conversation that is too long for its model."""
EMPTY = "The model gave an empty answer"
StopKind = Literal["cancelled", "seconds", "tool_calls", "model_timeout"]


class TurnOptions(Struct, frozen=True, omit_defaults=True):
    """The options of a turn as they are stored with it."""

    model: str
    budget: Budget
    answer_schema: dict[str, Any] | None = None
    tool_choice: str = "auto"
    parallel: bool | None = None
    max_tokens: int | None = None
    by_name: bool = False
    """True when the model was opened by its name: any process may open it again."""
    server: str | None = None
    """The server of the model, where it says so."""
    trace: str = ""
    """The trace of the program that asked, where it has one."""


class Progress(Struct, omit_defaults=True):
    """How far a turn is, as it is stored with it."""

    model_calls: int = 0
    tool_calls: int = 0
    usage: dict[str, Usage] = {}
    seconds: float = 0.0
    """Seconds of work before it waited last, or before this process had it."""
    steered: int = 0
    """The number of the last steering message that the model was given."""
    text: str = ""
    """What the model said last."""
    agent_model_calls: int = 0
    """Model calls of its sub-agents, whose tokens are in `usage`; those of the calls that still run are not counted."""
    agent_tool_calls: int = 0
    """Calls of tools that its sub-agents made."""
    shortened: Shortened | None = None
    """The results that requests left out for the first time, since the last answer that is in the history."""
    trace: str = ""
    """The trace of the first work on it, where that was traced."""

    @property
    def total(self) -> Usage:
        """The tokens of all models together."""
        return sum(self.usage.values(), Usage())


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSetting:
    """What a turn needs beside its session."""

    store: TurnStore
    model: ModelClient
    instructions: Callable[[], str]
    context: ContextWindow
    form: AnswerForm | None = None
    """The form of the answer that was asked for."""
    durable: bool = False
    """True when other processes see the store: they may cancel and steer."""


class LostTurn(StoreError):
    """Another process has claimed the turn since."""


class TurnRun:
    """A claimed turn. `work` runs it until it has ended or waits; it is called again when the wait may be over."""

    def __init__(
        self,
        core: SessionCore,
        record: TurnRecord,
        setting: TurnSetting,
        events: TurnLog,
        above: TurnRun | None = None,
        *,
        was_left: bool = False,
    ) -> None:
        self.id = record.id
        self._was_left = was_left  # by this process, while it waited
        self.above = above
        """The turn that this one is part of, as the turn of a sub-agent."""
        self._below: dict[
            str, TurnRun | Progress
        ] = {}  # the sub-agents of the calls that run, by the ids of their turns
        self._running_calls = 0
        self._told_ends: set[str] = set()  # the calls that run whose ends are among the events
        self._summarised = -1  # the number of the model call after which a summary was asked for
        self._core = core
        self._record = record
        self._setting = setting
        self._log = events
        self._clock = core.shared.clock
        self._options = msgspec.json.decode(record.options, type=TurnOptions)
        self._progress = msgspec.json.decode(record.progress, type=Progress)
        self._answer = None if record.answer is None else read_answer(record.answer)
        self._stored_answer = record.answer
        self._units: list[NewMessage] = []
        self._advances = 0
        self.signalled = record.started_at != record.created_at or record.token > 1
        """True when there may be messages for it, or a request to stop, in the store."""
        self._used_ids: set[str] = set()
        self._pictures = False
        self._offered: tuple[ToolDefinition, ...] = ()
        self._offered_of: Snapshot | None = None
        self._seen_tools: Snapshot | None = None
        self._has_secret_arguments = False  # of one of these tools
        self._outcomes: list[ToolOutcome] = []
        self._resumed = record.token > 1
        self._begun = 0.0
        self._task: asyncio.Task[Any] | None = None
        self._asking = False
        self._stopped: tuple[StopKind, str] | None = None
        self.end: TurnStatus | None = None
        """How it ends, from the instant at which that is decided."""
        self.answering: asyncio.Future[None] | None = None
        """While its answer is being written: done when that is its end, or when it goes on with another message."""
        self.batch: Batch | None = None
        """The batch of the recorded answer, while it has unfinished calls."""
        self.change: asyncio.Future[None] | None = None
        """For a turn that waits: done when its batch has changed since it was found to wait."""
        if record.cancel_reason is not None:
            self._stopped = "cancelled", record.cancel_reason

    @property
    def token(self) -> int:
        """The claim of this process."""
        return self._record.token

    @property
    def session(self) -> str:
        """The id of its session."""
        return self._core.id

    @property
    def model(self) -> ModelClient:
        """The model that it asks."""
        return self._setting.model

    @property
    def log(self) -> TurnLog:
        """Its events."""
        return self._log

    @property
    def budget(self) -> Budget:
        """Its own budget."""
        return self._options.budget

    @property
    def depth(self) -> float:
        """How deep sub-agents may be nested below it."""
        own = math.inf if self.budget.depth is None else self.budget.depth
        return own if self.above is None else min(own, self.above.depth - 1)

    # --- stopping

    def stop(self, kind: StopKind, reason: str) -> None:
        """Stop the turn: the model call or the batch that is under way ends, and then the turn."""
        if self._stopped is None:
            self._stopped = kind, reason
            if self._asking and self._task is not None:
                self._task.cancel()
            elif self.batch is not None:
                self.batch.cancel(reason)

    def expire(self) -> None:
        """The model took too long."""
        self.stop("model_timeout", f"The model did not answer within {MODEL_SECONDS:.0f} seconds")

    # --- the loop

    async def work(self) -> TurnOutcome:
        """Run the turn until it has ended or waits for something outside.

        Raises:
            StoreError: the store failed, or another process has the turn now. It is left as it is.
        """
        tracing = self._core.shared.tracing
        if tracing is None:
            return await self._work()
        above, before = self._core.opened_by, self._progress.trace
        why: LinkKind = "continued" if self._was_left or self.batch is not None else "takeover"
        with tracing.turn(
            self._core.id,
            self.id,
            model_spec(self.model),
            None if above is None else above.name,
            self._options.trace,
            before,
            why,
        ) as span:
            self._progress.trace = before or span.trace
            outcome = await self._work()
            span.ended(outcome)
            return outcome

    async def _work(self) -> TurnOutcome:
        self._task = asyncio.current_task()
        self._begun = self._clock.monotonic()
        budget = self._options.budget
        timer = None
        if budget.seconds is not None:
            left = max(0.0, budget.seconds - self._progress.seconds)
            timer = self._clock.call_at(self._begun + left, self.stop, "seconds", "The time of the turn is used up")
        try:
            return await self._loop()
        except ServiceError as error:  # such as no room for another message
            if self.batch is not None:
                await self.batch.settled()
            self._stored_answer, self._units = None, []
            return await self._end("failed", code=error.code, reason=str(error))
        except StoreError:
            raise
        except Exception as error:  # the edge of a turn: whatever happens, it ends, and the next one begins
            log.exception("The turn %r failed", self.id, extra=log_fields("turn.failed", session=self._core.id))
            if self.batch is not None:
                self.batch.cancel("the turn failed")
                await self.batch.settled()
            self._stored_answer, self._units = None, []
            reason = f"The turn failed with {type(error).__name__}; see the log"
            return await self._end("failed", code="internal", reason=reason)
        finally:
            if timer is not None:
                timer.cancel()
            self._progress.seconds += self._clock.monotonic() - self._begun  # It may wait now, and work again later.

    async def _loop(self) -> TurnOutcome:
        if self.batch is None and self._answer is None and self._progress.model_calls == 0 and not self._resumed:
            self._log.add("turn.started", {"turn": self.id})
            if self._progress.trace and self._setting.durable:
                await self._write("running")  # else nobody who takes it over could link to this work
        elif self.batch is not None or self._resumed:
            taken_over = self.batch is None and not self._was_left
            self._log.add("turn.continued", {"turn": self.id, "taken_over": taken_over})
        if self._resumed and self._answer is not None and self.batch is None:
            await self._find_agents()
        conversation: Conversation | None = None
        while True:
            if self._answer is None:
                if conversation is None:
                    conversation = await self._conversation()
                ended = await self._ask(conversation)
                if ended is not None:
                    return ended
                if self._answer is None:
                    conversation = None
                    continue
            answer = self._answer
            assert answer is not None
            if answer.calls:
                outcomes = await self._run_calls(answer)
                if outcomes is None:
                    return await self._suspend()
                answer = self._without_secrets(answer)
                self._concluded(answer, outcomes)
                if conversation is not None:
                    conversation.add(answer, ToolResults(tuple(outcomes)))
                if self._stopped is not None:
                    return await self._end_stopped()
            else:
                ended = await self._judge(answer)
                if ended is not None:
                    return ended
                conversation = None  # It has what `_judge` added.

    def _concluded(self, answer: ModelAnswer, outcomes: Sequence[ToolOutcome]) -> None:
        """The calls of an answer have their outcomes: the unit is complete."""
        self._append(answer, outcomes)
        self._outcomes += outcomes
        self._used_ids.update([outcome.call_id for outcome in outcomes])
        self._pictures = self._pictures or _has_images(outcomes)
        if self.batch is not None:
            self._progress.tool_calls += len(outcomes)
        self._running_calls = 0
        if self._below:
            self._count_agents()
        self._answer = self._stored_answer = self.batch = None

    def _append(self, answer: ModelAnswer, outcomes: Sequence[ToolOutcome]) -> None:
        progress = self._progress
        self._units += stored.answered(answer, outcomes, self.id, progress.model_calls, progress.shortened)
        progress.shortened = None

    async def _conversation(self) -> Conversation:
        """The whole history of the session, with the units of this turn that are not written yet."""
        if self._units:
            await self._write("running")
        conversation = stored.read(await history(self._setting.store, self._core.id))
        if self._progress.shortened is not None:
            conversation.apply(self._progress.shortened)
        results = [one for item in conversation.items if isinstance(item, ToolResults) for one in item.outcomes]
        self._used_ids = {outcome.call_id for outcome in results}
        self._pictures = _has_images(results)
        return conversation

    # --- the model

    async def _ask(self, conversation: Conversation, *, again: bool = False) -> TurnOutcome | None:
        """Ask the model, and record its answer; or end the turn, and return how. When it has done neither, the
        conversation is to be read again before.

        `again` means that the provider found the conversation too long, and that results were left out since.
        """
        progress = self._progress
        await self._take_signals(conversation)
        if self._stopped is not None:
            return await self._end_stopped()
        limit = self._used_up()
        if limit is not None:
            return await self._end("out_of_budget", limit=limit, reason=f"The budget of {limit} is used up")
        limit = self._used_up_above()
        if limit is not None:
            reason = f"The budget of {limit} of the turn above is used up"
            return await self._end("out_of_budget", limit=limit, reason=reason)
        window = self._setting.context
        # The instructions and the tools count, too, and are measured only where the rest is large.
        if not again and conversation.size > window.limit / 2 and await self._size(conversation) > window.limit:
            if window.when_near == "fail":
                reason = (
                    f"The conversation has about {conversation.size:.0f} tokens, and {window.limit:.0f} are possible"
                )
                return await self._end("failed", code=OVERFLOW, reason=reason)
            if window.when_near == "summarise" and self._summarised != progress.model_calls:
                if not conversation.is_history:
                    return None  # Tools and other programs may have appended messages, and a summary counts them, too.
                ended = await self._summarise(conversation)
                return await self._ask(conversation) if ended is None else ended
            await self._shorten(conversation, window.limit * AFTER_SHORTENING)
        try:
            answer, written = await self._ask_within_time(await self._request(conversation))
        except ModelError as error:
            if error.code == OVERFLOW and not again and await self._shorten(conversation, 0.0):
                return await self._ask(conversation, again=True)
            return await self._end("failed", code=error.code, reason=str(error))
        except asyncio.CancelledError:
            if self._stopped is None:
                raise
            assert self._task is not None
            self._task.uncancel()
            return await self._end_stopped()
        progress.model_calls += 1
        progress.usage[answer.model] = progress.usage.get(answer.model, Usage()) + answer.usage
        if answer.text:
            progress.text = answer.text
        shown = self._without_secrets(answer)
        self._log.add("model.answered", shown)
        if answer.stop == "context" and not answer.calls and not again and await self._shorten(conversation, 0.0):
            return await self._ask(conversation, again=True)
        self._answer = answer
        if answer.calls:
            self._stored_answer = written if shown is answer else await self._recorded(shown, answer)
        return None

    def _without_secrets(self, answer: ModelAnswer) -> ModelAnswer:
        """An answer with the placeholder in place of each argument that its tool declares secret.

        The provider's own form of the answer has the value, too, and is left out.
        """
        if not answer.calls:
            return answer
        tools = self._core.all_tools()
        if tools is not self._seen_tools:
            self._seen_tools = tools
            self._has_secret_arguments = any(tool.definition.secret is not None for tool in tools.values())
        if not self._has_secret_arguments:
            return answer
        calls = [without_secrets(call, tools.get(call.name) or find(tools, call.name)) for call in answer.calls]
        if all(map(operator.is_, calls, answer.calls)):
            return answer
        return replace(answer, calls=tuple(calls), native=None)

    async def _recorded(self, shown: ModelAnswer, answer: ModelAnswer) -> bytes:
        """An answer as it is recorded before its calls run: with the placeholders that the journal has for them."""
        tools, env = self._core.all_tools(), self._core.environment
        await env.keeper.catch_up()  # Else the fingerprints might be of another key than those of the journal.
        calls = []
        for call in answer.calls:
            tool = tools.get(call.name) or find(tools, call.name)
            calls.append(without_secrets(call, tool, partial(fingerprint_of, env, tool)))
        return jsonx.encode(replace(shown, calls=tuple(calls)))

    async def _request(self, conversation: Conversation) -> ModelRequest:
        form, options = self._setting.form, self._options
        return ModelRequest(
            self._core.id,
            await self._shown(conversation.shown),
            turn=self.id,
            number=conversation.answers,
            instructions=self._instructions,
            tools=await self._tools(),
            tool_choice=options.tool_choice if self._progress.model_calls == 0 else "auto",
            parallel=options.parallel,
            max_tokens=options.max_tokens,
            answer_schema=None if form is None or form.is_text else form.schema,
        )

    async def _ask_within_time(self, request: ModelRequest) -> tuple[ModelAnswer, bytes]:
        deadline = self._core.shared.deadlines.bucket(MODEL_SECONDS)
        deadline.add(self)
        self._asking = True
        try:
            return await self._ask_traced(request)
        finally:
            self._asking = False
            deadline.discard(self)

    async def _ask_traced(self, request: ModelRequest) -> tuple[ModelAnswer, bytes]:
        model, tracing, redactor = self._setting.model, self._core.shared.tracing, self._core.environment.redactor
        if tracing is None:
            return await ask(model, request, self._used_ids, self._log.add, self._clock)
        with tracing.model_call(model, request, None if redactor is None else redactor.json) as span:

            def tell(kind: str, data: dict[str, Any]) -> None:
                if kind == "model.retrying":
                    span.retrying(data)
                self._log.add(kind, data)

            answered = await ask(model, request, self._used_ids, tell, self._clock)
            span.answered(self._without_secrets(answered[0]))
            return answered

    @cached_property
    def _instructions(self) -> str:
        return self._setting.instructions()

    async def _tools(self) -> tuple[ToolDefinition, ...]:
        """The tools that the model is offered now. They are the same as before while nothing was added or revealed."""
        tools = self._core.all_tools()
        if tools is not self._offered_of:
            if self._core.defers_tools():
                self._offered = tuple(await self._core.catalogue(self._core.services.kv).offered())
                self._offered_of = None
            else:
                self._offered, self._offered_of = tuple(self._core.definitions()), tools
        return self._offered

    async def _shown(self, conversation: Sequence[Item]) -> tuple[Item, ...]:
        """The conversation with the content of images that it names by hash."""
        if not self._pictures:
            return tuple(conversation)
        fill_in = self._core.services.attachments.fill_in
        return tuple(
            [
                ToolResults(tuple(await fill_in(item.outcomes))) if isinstance(item, ToolResults) else item
                for item in conversation
            ]
        )

    # --- the context window

    async def _size(self, conversation: Conversation) -> float:
        """The tokens of the next request, roughly."""
        if conversation.measured:
            return conversation.size
        tools = [jsonx.encode(each.to_json()) for each in await self._tools()]
        return conversation.size + (len(self._instructions) + sum(map(len, tools))) / CHARACTERS

    async def _shorten(self, conversation: Conversation, most: float) -> bool:
        """Leave old results out of the requests; False where that is not wanted, or there are none."""
        if self._setting.context.when_near == "fail":
            return False
        changed = await conversation.shorten(most, self._save)
        if changed is None:
            return False
        before = self._progress.shortened
        files = changed.files if before is None else {**before.files, **changed.files}
        self._progress.shortened = Shortened(changed.results, files)
        self._log.add("context.shortened", {"results": changed.results, "tokens": round(conversation.size)})
        return True

    async def _save(self, number: int, outcome: ToolOutcome) -> str | None:
        key = CallKey(self._core.id, f"context/{number}", outcome.call_id)
        try:
            return await save_output(self._core.services.files, key, outcome.text)
        except ServiceError as error:  # such as no room for another file
            log.warning(
                "The result of call %r is left out of the conversation, and cannot be written to a file: %s",
                outcome.call_id,
                error,
                extra=log_fields("context.not_stored", session=self._core.id, call_id=outcome.call_id),
            )
            return None

    async def _summarise(self, conversation: Conversation) -> TurnOutcome | None:
        """Ask the model for a summary of the older part, and record it; without a usable one, old results are left out.

        Returns how the turn ended, if it did.
        """
        progress, window = self._progress, self._setting.context
        items = conversation.older_part(window.limit * AFTER_SUMMARY)
        answer: ModelAnswer | None = None
        if items:
            shown = [*conversation.part(items), UserMessage(ASK_FOR_SUMMARY)]
            request = replace(
                await self._request(conversation),
                messages=await self._shown(shown),
                tool_choice="none",
                answer_schema=None,
            )
            try:
                answer, _ = await self._ask_within_time(request)
            except ModelError as error:
                if error.code != OVERFLOW:
                    return await self._end("failed", code=error.code, reason=str(error))
            except asyncio.CancelledError:
                if self._stopped is None:
                    raise
                assert self._task is not None
                self._task.uncancel()
                return await self._end_stopped()
        if answer is not None:
            progress.model_calls += 1
            progress.usage[answer.model] = progress.usage.get(answer.model, Usage()) + answer.usage
        self._summarised = progress.model_calls
        if answer is None or answer.stop != "end" or not answer.text.strip():
            await self._shorten(conversation, window.limit * AFTER_SHORTENING)
            return None
        self._units.append(stored.summary(answer.text, items, self.id))
        await self._write("running")
        conversation.summarise(answer.text, items)
        self._log.add("context.summarised", {"text": answer.text, "tokens": round(conversation.size)})
        return None

    # --- messages to the turn

    async def _take_signals(self, conversation: Conversation) -> None:
        """Take the messages that were sent to the turn since the last model call, and a request to stop."""
        if not self.signalled:
            return
        self.signalled = False
        signals = await self._setting.store.signals(self.id, self._progress.steered)
        for number, text in signals.steering:
            self._progress.steered = number
            self._units.append(stored.steered(text, self.id))
            conversation.add(UserMessage(text))
            self._log.add("turn.steered", {"text": text})
        if signals.cancel_reason is not None:
            self.stop("cancelled", signals.cancel_reason)

    def _used_up(self) -> str | None:
        """The budget that lets no further model call be made, if one does not."""
        budget = self._options.budget
        if budget.model_calls is not None and self.model_calls >= budget.model_calls:
            return "model_calls"
        if budget.tokens is None and budget.cost is None:
            return None
        usage = self.usage
        if budget.tokens is not None and usage.tokens >= budget.tokens:
            return "tokens"
        if budget.cost is not None and usage.cost is not None and usage.cost >= budget.cost:
            return "cost"
        return None

    # --- sub-agents, whose use counts for the turn

    def add_agent(self, below: TurnRun) -> None:
        """A call of the turn runs a sub-agent."""
        self._below[below.id] = below

    @property
    def model_calls(self) -> int:
        """Its model calls, with the one under way, and those of its sub-agents."""
        own = self._progress.model_calls + self._progress.agent_model_calls + self._asking
        return own + sum(each.model_calls for each in self._below.values()) if self._below else own

    @property
    def tool_calls(self) -> int:
        """Its calls of tools, with those under way, and those of its sub-agents."""
        own = self._progress.tool_calls + self._progress.agent_tool_calls + self._running_calls
        return own + sum(each.tool_calls for each in self._below.values()) if self._below else own

    @property
    def usage(self) -> Usage:
        """The tokens of its model calls, and of those of its sub-agents."""
        return sum(self.usage_by_model.values(), Usage())

    @property
    def usage_by_model(self) -> dict[str, Usage]:
        """The same by model."""
        found = dict(self._progress.usage)
        for each in self._below.values():
            used = each.usage_by_model if isinstance(each, TurnRun) else each.usage
            for model, usage in used.items():
                found[model] = found.get(model, Usage()) + usage
        return found

    def _used_up_above(self) -> str | None:
        """The budget of a turn above that lets no further model call be made, if one does not."""
        above = self.above
        while above is not None:
            limit = above._used_up()
            if limit is not None:
                return limit
            above = above.above
        return None

    def _may_call(self, count: int) -> bool:
        """Whether its budget and those of the turns above let this many more calls of tools be made."""
        turn: TurnRun | None = self
        while turn is not None:
            most = turn.budget.tool_calls
            if most is not None and turn.tool_calls + count > most:
                return False
            turn = turn.above
        return True

    def _count_agents(self) -> None:
        """The calls have ended: the use of their sub-agents is the turn's from now on."""
        progress = self._progress
        progress.usage = self.usage_by_model
        for each in self._below.values():
            progress.agent_model_calls += each.model_calls
            progress.agent_tool_calls += each.tool_calls
        self._below = {}

    async def _find_agents(self) -> None:
        """Find the sub-agents that the calls of the recorded answer had started before this process had the turn."""
        for record in await self._setting.store.below(self._scope):
            used = msgspec.json.decode(record.progress, type=Progress)
            used.model_calls += used.agent_model_calls
            used.tool_calls += used.agent_tool_calls
            self._below[record.id] = used

    # --- the calls

    @property
    def _scope(self) -> str:
        """The scope of the calls of the recorded answer."""
        return f"{TURN_SCOPE}{self.id}/{self._progress.model_calls}"

    async def _run_calls(self, answer: ModelAnswer) -> list[ToolOutcome] | None:
        """The outcomes of all calls of an answer; None when some of them wait for something outside."""
        if self.batch is None and not self._may_call(len(answer.calls)):
            self.stop("tool_calls", "")
            refused = [_not_run(call.id or "", call.name) for call in answer.calls]
            self._log.add_all("call.finished", refused)
            return refused
        if self.batch is None and self._stopped is not None and not self._is_recorded:
            return self._none_begun(answer, self._stopped[1])
        self._running_calls = len(answer.calls)
        channel = self._core.environment.channel
        scope = self._scope
        push: Callable[[AnyEvent], None] | None = None
        if self._log.watched:
            push = partial(_push_of_scope, self._log, scope, self._told_ends)
            channel.tap(push)
        try:
            batch = self.batch
            if batch is None:
                batch = await self._record_and_start(answer, scope)
                if batch is None:
                    assert self._stopped is not None
                    return self._none_begun(answer, self._stopped[1])
            outcomes = await batch.wait() if batch.done else await batch.quiet()
        finally:
            if push is not None:
                channel.untap(push)
        if any(outcome.status == "pending" for outcome in outcomes):
            # Before anything else is awaited: the wait may be over while the turn is being suspended.
            self.change = batch.next_change()
            return None
        # A call may also end between two looks at its batch, while the turn is suspended.
        told = self._told_ends
        self._log.add_all("call.finished", [one for one in outcomes if one.call_id not in told] if told else outcomes)
        told.clear()
        return outcomes

    @property
    def _is_recorded(self) -> bool:
        """True when the answer was recorded before this process had the turn: some of its calls may have run."""
        return self._record.answer is not None and self._stored_answer == self._record.answer

    def _none_begun(self, answer: ModelAnswer, reason: str) -> list[ToolOutcome]:
        """The outcomes of calls of which none begins, because the turn was stopped before."""
        outcomes = [ToolOutcome(call.id or "", call.name, "cancelled", reason=reason) for call in answer.calls]
        for outcome in outcomes:
            self._log.add("call.finished", outcome)
        return outcomes

    async def _record_and_start(self, answer: ModelAnswer, scope: str) -> Batch | None:
        """Record the answer of the model, and start its calls; None when the turn was stopped before one began.

        The answer is written together with the intents of its calls, and before them: a started batch asks for its
        intents to be written one turn of the loop later.
        """
        recorded = self._is_recorded
        if not recorded and not self._setting.durable:
            await self._write("running")
            if self._stopped is not None:
                return None
        # From here on a request to stop finds the batch, also while the answer is being written.
        was_left, self._was_left = self._was_left, False
        self.batch = batch = self._core.start_turn_batch(list(answer.calls), scope, was_left=was_left)
        if self._stopped is not None:
            batch.cancel(self._stopped[1])
        if not recorded and self._setting.durable:
            try:
                await self._write("running")
            except BaseException:
                batch.cancel("the answer of the model could not be recorded")
                raise
        return batch

    async def _suspend(self) -> TurnOutcome:
        """The turn waits for something outside, and holds nothing but its batch until then."""
        waits = await self._waits()
        self._log.add("turn.waiting", {"waits": [wait.to_json() for wait in waits]})
        await self._write("waiting")
        return self._outcome("waiting", waits=waits, reason="It waits for something outside")

    async def _waits(self) -> tuple[TurnWait, ...]:
        assert self.batch is not None
        calls = {CallKey(call.env.session_id, call.owner.scope, call.call_id): call for call in _unfinished(self.batch)}
        kinds: dict[CallKey, str] = {}
        for session in {key.session: None for key in calls}:
            open_waits = await self._core.shared.effects.waits.waiting(session)
            kinds |= {wait.key.call: str(wait.key.kind) for wait in open_waits}
        return tuple(
            TurnWait(key.call_id, call.name, kinds[key], key.session) for key, call in calls.items() if key in kinds
        )

    async def _end_cut_off_calls(self, reason: str) -> None:
        """End the calls that an earlier process left unfinished, with their waits: they are not run again."""
        journal, scope = self._core.shared.effects.journal, f"{TURN_SCOPE}{self.id}/"
        left = [entry for entry in await journal.unfinished(self._core.id) if entry.intent.key.scope.startswith(scope)]
        if not left:
            return
        begun = await journal.begin([entry.intent for entry in left])  # They are this process's from now on.
        for entry in left:
            await self._core.background.end_agents(entry.intent.key, reason)
        asked = await self._core.shared.effects.waits.waiting(self._core.id, ("approval",))
        unapproved = {wait.key.call for wait in asked}
        ended: list[Ended] = []
        for known in begun:
            if known is not None:
                outcome = self._cut_off(known, reason, known.intent.key in unapproved)
                ended.append(Ended(known.intent.key, outcome, None, self._clock.now(), waited=True))
        await journal.finish_all(ended)

    def _cut_off(self, entry: Entry, reason: str, unapproved: bool) -> ToolOutcome:
        """The outcome of a call that a crash cut off, and that is not run again."""
        tools, name = self._core.all_tools(), entry.intent.tool
        tool = tools.get(name) or find(tools, name)
        ran = entry.started_at is not None
        if not ran and (tool is None or tool.definition.on_crash == "rerun"):
            # No start is written of a call that may simply run again. It waits for its approval before it runs.
            ran = not unapproved or entry.crashes > 0
        return ToolOutcome(
            entry.intent.key.call_id,
            name,
            "cancelled",
            attempts=int(ran),
            reason=reason + CUT_OFF_EARLIER if ran else reason,
            may_have_run=ran and (tool is None or not tool.definition.hints.readonly),
        )

    def requests(self) -> list[WaitKey] | None:
        """The requests for approval that a waiting turn waits for, if it can be left until one of them is decided; None
        where its calls must stay in this process."""
        if self.batch is None or self.above is not None or self._core.opened_by is not None or self._log.unwritten:
            return None
        return self.batch.requests()

    def leave(self) -> None:
        """Leave a turn that waits for these requests: the store has all of it."""
        assert self.batch is not None
        self.batch.leave()
        self.batch = self.change = None
        self._log.leave()

    async def still_waits(self) -> bool:
        """True while one of the calls that the turn waits for has a wait without a resolution."""
        return self.batch is not None and not self.batch.done and bool(await self._waits())

    # --- the answer

    async def _judge(self, answer: ModelAnswer) -> TurnOutcome | None:
        """End the turn with an answer that has no calls; None where the model is to be asked again."""
        self._answer = None
        if answer.text or answer.images or answer.native:
            self._append(answer, ())
        if self._is_cancelled:
            return await self._end_stopped()
        if answer.stop == "pause":
            return None
        if answer.stop == "refusal":
            return await self._end("failed", code="refused", reason="The model refused to answer")
        if answer.stop == "context":
            return await self._end("failed", code=OVERFLOW, reason="The conversation is too long")
        if answer.stop == "length":
            return await self._end("failed", code="truncated", reason="The answer was cut at its longest length")
        if not answer.text.strip() and not answer.images:
            return await self._end("failed", code="empty_answer", reason=EMPTY)
        form = self._setting.form
        if form is None:
            return await self._end_answered(images=answer.images)
        try:
            value = form.read(answer.text)
            plain = form.stored(value, answer.text)
        except ValueError as error:
            self._units.append(stored.note(f"The answer is not usable: {error}. Answer again.", self.id))
            self._log.add("answer.refused", {"reason": str(error)})
            return None
        return await self._end_answered(plain, value=value)

    @property
    def _is_cancelled(self) -> bool:
        return self._stopped is not None and self._stopped[0] == "cancelled"

    # --- the end

    async def _end_answered(self, plain: bytes | None = None, **told: Any) -> TurnOutcome | None:
        """End the turn with its answer; None when it was sent a message meanwhile, with which the model is asked."""
        units = self._units
        self.answering = asyncio.get_running_loop().create_future()
        try:
            return await self._end("answered", plain, **told)
        except TurnSteered:
            self.end, self._units, self.signalled = None, units, True
            return None
        finally:
            self.answering.set_result(None)
            self.answering = None

    async def _end_stopped(self) -> TurnOutcome:
        assert self._stopped is not None
        kind, reason = self._stopped
        if kind == "cancelled":
            if self._resumed:
                await self._end_cut_off_calls(reason)
            return await self._end("cancelled", reason=reason)
        if kind == "model_timeout":
            return await self._end("failed", code="timeout", reason=reason)
        return await self._end("out_of_budget", limit=kind, reason=f"The budget of {kind} is used up")

    async def _end(self, status: TurnStatus, plain: bytes | None = None, **told: Any) -> TurnOutcome:
        """Write the end of the turn, and show it to its followers after that. `plain` is the value as JSON."""
        self.end = status
        outcome = self._outcome(status, **told)
        try:
            await self._write(status, outcome, plain)
        except TurnSteered:
            raise
        except ServiceError as error:  # such as no room for another message
            outcome = self._outcome("failed", code=error.code, reason=str(error))
            await self._write("failed", outcome)
        self._log.end()
        if self._resumed:
            journal, store = self._core.shared.effects.journal, self._setting.store
            outcome = replace(outcome, calls=await outcomes_of(journal, store, self._core.id, self.id))
        return outcome

    def _outcome(self, status: TurnStatus, **told: Any) -> TurnOutcome:
        progress = self._progress
        return TurnOutcome(
            turn_id=self.id,
            session=self._core.id,
            status=status,
            text=progress.text,
            usage=self.usage,
            usage_by_model=self.usage_by_model,
            model_calls=self.model_calls,
            calls=tuple(self._outcomes),
            **told,
        )

    async def _write(self, state: TurnState, outcome: TurnOutcome | None = None, plain: bytes | None = None) -> None:
        """Write the state of the turn. When it is not written, its events are written with the next state."""
        written = self._log.written
        try:
            if not await self._submit(state, outcome, plain):
                raise self._lost()
        except BaseException:
            self._log.put_back(written)
            raise

    def _submit(self, state: TurnState, outcome: TurnOutcome | None, plain: bytes | None) -> Awaitable[bool]:
        """Ask the store to write the state of the turn, with the units that are complete."""
        progress = self._progress
        encoded: bytes | None = None
        if outcome is not None:
            value = outcome.value if plain is None else msgspec.Raw(plain)
            encoded = jsonx.encode(replace(outcome, calls=(), value=value))
            self._log.add_end(outcome)  # Not before: without an outcome that can be written there is no end.
        self._advances += 1
        advance = Advance(
            id=self.id,
            token=self._record.token,
            number=self._advances,
            at=self._clock.now(),
            state=state,
            progress=msgspec.json.encode(
                replace(progress, seconds=progress.seconds + self._clock.monotonic() - self._begun)
            ),
            answer=self._stored_answer,
            messages=self._units,
            events=self._log.take(),
            outcome=encoded,
            steered=progress.steered if state == "answered" else None,
        )
        self._units = []
        return self._setting.store.advance(advance, self._core.shared.quotas.messages)

    def _lost(self) -> LostTurn:
        return LostTurn(f"The turn {self.id!r} is worked on by another process now")


async def history(store: TurnStore, session: str) -> list[Message]:
    """All messages of a session."""
    messages: list[Message] = []
    after = 0
    while True:
        rows = await store.history(session, after, PAGE)
        messages += [
            Message(number, sender, jsonx.decode(content), jsonx.decode(about), at)
            for number, sender, content, about, at in rows
        ]
        if len(rows) < PAGE:
            return messages
        after = messages[-1].number


async def outcomes_of(journal: JournalStore, store: TurnStore, session: str, turn: str) -> tuple[ToolOutcome, ...]:
    """The outcomes of all calls of a turn, from the journal; those that were pruned there as the model read them."""
    told = stored.results_of(turn, await history(store, session))
    keys = [CallKey(session, f"{TURN_SCOPE}{turn}/{step}", outcome.call_id) for step, outcome in told]
    entries = await journal.begin((), keys) if keys else []
    return tuple(
        outcome if entry is None or entry.outcome is None else entry.outcome
        for (_, outcome), entry in zip(told, entries, strict=True)
    )


def _unfinished(batch: Batch) -> Iterator[ActiveCall]:
    """The calls of a batch that have no outcome, each with the calls that it made after it."""
    calls = batch.unfinished[::-1]
    while calls:
        call = calls.pop()
        yield call
        for nested in call.nested:
            calls += nested.unfinished[::-1]


def _has_images(outcomes: Sequence[ToolOutcome]) -> bool:
    return any(outcome.images for outcome in outcomes)


def _push_of_scope(log: TurnLog, scope: str, ends: set[str], event: AnyEvent) -> None:
    if event.kind.startswith("call.") and getattr(event, "scope", None) == scope:
        log.push(event)
        if isinstance(event, CallFinished):
            ends.add(event.call_id)


def _not_run(call_id: str, tool: str) -> ToolOutcome:
    failure = Failure(
        category="resource_limit",
        code="out_of_budget",
        message=f"Tool {tool!r} was not run: the turn may not make that many calls of tools",
        source="runtime",
    )
    return ToolOutcome(call_id, tool, "failure", failure=failure)
