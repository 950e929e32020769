"""Calls of LangGraph in a session. Owns which session and scope a call has, and a task of a graph from its calls to
their results, through its interrupts. The faces are in `langchain`, which imports this when one is made.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.errors import GraphInterrupt
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import ExecutionInfo
from langgraph.types import interrupt

from toolwright.adapters.langchain_messages import answer_with, answered, calls_of, cut_off, to_call, to_message
from toolwright.adapters.langchain_offer import SessionTool
from toolwright.adapters.langgraph_answers import OpenAnswer, OpenAnswers, Place, Waiting
from toolwright.adapters.langgraph_interrupts import Interrupts
from toolwright.adapters.session_loop import SessionLoop, session_of
from toolwright.blocking import BlockingPortal
from toolwright.errors import ToolwrightError
from toolwright.ids import new_id
from toolwright.runtime.runtime import Runtime
from toolwright.runtime.used_sessions import used_session
from toolwright.session.session import Session
from toolwright.tools.call import ToolCall
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import ToolOutcome

if TYPE_CHECKING:
    from toolwright.blocking_types import BlockingRuntime, BlockingSession

MOST_THREADS = 1_024
"""Threads whose unfinished answers are kept at once. One that is forgotten finds its calls again by their identity."""


class SessionCalls:
    """Runs the calls of a graph in a session, or in that of each thread: one task for each call, or one for all."""

    def __init__(self, given: Session | BlockingSession | Runtime | BlockingRuntime) -> None:
        self._sessions = _Sessions(given)
        self.loop = self._sessions.loop

    @property
    def session(self) -> Session | None:
        """The session; None where each thread has its own."""
        return None if self._sessions.one is None else self._sessions.one.session

    async def offered(self, info: ExecutionInfo | None) -> list[ToolDefinition]:
        """The definitions to offer to the model now."""
        return await self._sessions.of(info).session.offered()

    def call(self, request: ToolCallRequest) -> _CallTask:
        """The task of one call, among those of its answer."""
        given, runtime = request.tool_call, request.runtime
        messages = _messages(request.state, "messages")
        message = answer_with(messages, given["id"])
        index, unfinished, reason = 0, 1, None
        if message is not None:
            reason = cut_off(message)
            foreign = {each.name for each in runtime.tools if not isinstance(each, SessionTool)}
            done, calls = answered(messages), message.tool_calls
            index = _index(calls, given)
            unfinished = sum(each["id"] not in done and each["name"] not in foreign for each in calls)
        info = runtime.execution_info
        return _CallTask(self._sessions, info, _scope(message, info), to_call(given, index, reason), index, unfinished)

    def answer(self, state: object, key: str, info: ExecutionInfo | None) -> _AnswerTask:
        """The task of all calls of the last answer in a state, or of calls that were sent without one.

        Raises:
            ToolwrightError: there is no answer.
        """
        messages: list[Any] = _messages(state, key)
        if messages and all(isinstance(each, Mapping) and each.get("type") == "tool_call" for each in messages):
            calls = [to_call(each, index) for index, each in enumerate(messages)]
            return _AnswerTask(self._sessions, info, _scope(None, info), calls)
        last = next((at for at in reversed(range(len(messages))) if isinstance(messages[at], AIMessage)), None)
        if last is None:
            raise ToolwrightError(f"No message under {key!r} is an answer of a model; give an AIMessage with calls")
        done = answered(messages[last:])
        calls = [each for each in calls_of(messages[last]) if each.id not in done]
        return _AnswerTask(self._sessions, info, _scope(messages[last], info), calls)

    def run(self, task: _CallTask | _AnswerTask) -> list[ToolMessage]:
        """Run a task on this thread: its calls on the loop of the session, its interrupts here."""
        return _drive(self.loop, task)

    async def arun(self, task: _CallTask | _AnswerTask) -> list[ToolMessage]:
        """The same on the loop of the graph."""
        return await _adrive(self.loop, task)


# --- which session, and which scope


class _Here(NamedTuple):
    """A session, and its unfinished answers."""

    session: Session
    answers: OpenAnswers


class _Sessions:
    """The session of each thread of a graph: the one that was given, or that of the thread's id."""

    def __init__(self, given: Session | BlockingSession | Runtime | BlockingRuntime) -> None:
        target = given._target if isinstance(given, BlockingPortal) else given
        self._runtime = target if isinstance(target, Runtime) else None
        self._threads: dict[str, _Here] = {}
        self.one: _Here | None = None
        if self._runtime is not None:
            self.loop = SessionLoop(self._runtime._parts.shared)
        else:
            session = session_of(cast("Session", target))
            self.one = _Here(session, OpenAnswers(session))
            self.loop = SessionLoop(session._core.shared)

    def of(self, info: ExecutionInfo | None) -> _Here:
        """The session of the thread that is executed. For code on the session's loop.

        Raises:
            ToolwrightError: the session is that of the thread, and there is none.
        """
        if self.one is not None:
            return self.one
        thread = None if info is None else info.thread_id
        if thread is None or self._runtime is None:
            raise ToolwrightError(
                "The graph runs without a thread, so that its calls have no session; compile it with a checkpointer "
                'and give {"configurable": {"thread_id": ...}}, or give a session in place of the runtime'
            )
        here = self._threads.pop(str(thread), None)
        if here is None:
            session = used_session(self._runtime, str(thread))
            here = _Here(session, OpenAnswers(session))
            while len(self._threads) >= MOST_THREADS:
                self._threads.pop(next(iter(self._threads)))
        self._threads[str(thread)] = here  # the last one was used last
        return here


def _scope(message: AIMessage | None, info: ExecutionInfo | None) -> str:
    """The scope of the calls of an answer, the same after a crash: the id of the message, or else of the task."""
    if message is not None and message.id:
        return message.id
    if info is not None and info.thread_id is not None:
        return f"task:{info.task_id}"
    return new_id("answer")  # nothing of the graph is stored, so that nothing comes again


def _index(calls: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> int:
    """The index of a call among those of its answer. A model may give one id twice, or none."""
    named = [at for at, each in enumerate(calls) if each["id"] == given["id"]]
    same = [at for at in named if calls[at]["name"] == given["name"] and calls[at]["args"] == given["args"]]
    # Another middleware may have changed the call.
    return next(iter(same or named), 0)


def _messages(state: object, key: str) -> list[BaseMessage]:
    """The messages of a state, which is a list of them, a mapping or an object."""
    found = state if isinstance(state, list) else None
    if found is None:
        found = state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)
    if not isinstance(found, list):
        raise ToolwrightError(f"The state has no list of messages under {key!r}; name their key by messages_key=")
    return found


# --- tasks of a graph


class _Ask(NamedTuple):
    """The next interrupt; without a value, another task tells what this one waits for."""

    value: dict[str, Any] | None


class _CallTask:
    """The task of one call. Its methods run on the loop of the session."""

    def __init__(
        self,
        sessions: _Sessions,
        info: ExecutionInfo | None,
        scope: str,
        call: ToolCall,
        index: int,
        unfinished: int,
    ) -> None:
        self._sessions = sessions
        self._info = info
        self._scope = scope
        self._call = call
        self._place = Place(call.id or "", index)
        self._unfinished = unfinished
        self._interrupts: Interrupts | None = None

    async def begin(self) -> list[ToolMessage] | _Ask:
        """Run the call, until it has its outcome or waits."""
        self._here = here = self._sessions.of(self._info)
        self._answer = here.answers.of(self._scope)
        return await self._next()

    async def resume(self, given: object) -> list[ToolMessage] | _Ask:
        """Take the answer to the interrupt, and continue."""
        if self._interrupts is not None:
            await self._interrupts.take(given)
        return await self._next()

    async def leave(self) -> None:
        """The task is interrupted, and the call waits on."""
        if self._interrupts is not None:
            await self._interrupts.shown()
        self._answer.leave(self._place)

    async def _next(self) -> list[ToolMessage] | _Ask:
        standing = await self._answer.outcome(self._call, self._place, self._unfinished)
        self._unfinished = 1  # the others are here, or came before
        session = self._here.session
        if isinstance(standing, Waiting):
            if not standing.waits and standing.told_elsewhere:
                return _Ask(None)
            if self._interrupts is None:
                self._interrupts = Interrupts(session, self._answer, self._place.call_id)
            return _Ask(await self._interrupts.request(standing.waits, {self._place.call_id: self._call.name}))
        await _forget(self._interrupts, session, self._answer, self._place.call_id, [standing])
        self._here.answers.drop_finished(self._answer)
        return await _written(session, [self._call], [standing])


class _AnswerTask:
    """The task of all calls of an answer. Its methods run on the loop of the session."""

    def __init__(self, sessions: _Sessions, info: ExecutionInfo | None, scope: str, calls: list[ToolCall]) -> None:
        self._sessions = sessions
        self._info = info
        self._scope = scope
        self._calls = calls
        self._interrupts: Interrupts | None = None

    async def begin(self) -> list[ToolMessage] | _Ask:
        """Run the calls, until each has its outcome or waits."""
        self._here = here = self._sessions.of(self._info)
        self._answer = here.answers.of(self._scope)
        return await self._next()

    async def resume(self, given: object) -> list[ToolMessage] | _Ask:
        """Take the answer to the interrupt, and continue."""
        if self._interrupts is not None:
            await self._interrupts.take(given)
        return await self._next()

    async def leave(self) -> None:
        """The task is interrupted, and the calls wait on."""
        if self._interrupts is not None:
            await self._interrupts.shown()

    async def _next(self) -> list[ToolMessage] | _Ask:
        outcomes = await self._answer.outcomes(self._calls)
        session = self._here.session
        if any(outcome.status == "pending" for outcome in outcomes):
            if self._interrupts is None:
                self._interrupts = Interrupts(session, self._answer, "")
            names = {call.id or "": call.name for call in self._calls}
            order = {id: index for index, id in enumerate(names)}
            waits = sorted(await self._answer.waits(), key=lambda wait: order.get(wait.call_id, len(order)))
            return _Ask(await self._interrupts.request(waits, names))
        await _forget(self._interrupts, session, self._answer, "", outcomes)
        self._here.answers.drop_finished(self._answer)
        return await _written(session, self._calls, outcomes)


def _drive(loop: SessionLoop, task: _CallTask | _AnswerTask) -> list[ToolMessage]:
    """Run a task of a graph on this thread: its calls on the loop of the session, its interrupts here."""
    step = loop.run_blocking(task.begin)
    while isinstance(step, _Ask):
        try:
            given = _interrupt(step)
        except GraphInterrupt:
            loop.run_blocking(task.leave)
            raise
        step = loop.run_blocking(functools.partial(task.resume, given))
    return step


async def _adrive(loop: SessionLoop, task: _CallTask | _AnswerTask) -> list[ToolMessage]:
    """The same on the loop of the graph."""
    step = await loop.run(task.begin)
    while isinstance(step, _Ask):
        try:
            given = _interrupt(step)
        except GraphInterrupt:
            await loop.run(task.leave)
            raise
        step = await loop.run(functools.partial(task.resume, given))
    return step


def _interrupt(ask: _Ask) -> object:
    if ask.value is None:
        raise GraphInterrupt(())
    return interrupt(ask.value)


async def _forget(
    interrupts: Interrupts | None, session: Session, answer: OpenAnswer, task: str, outcomes: Sequence[ToolOutcome]
) -> None:
    """Forget what the interrupts of a task asked, in this execution or, as a decision shows, in an earlier one."""
    if interrupts is None and any(outcome.decision is not None for outcome in outcomes):
        interrupts = Interrupts(session, answer, task)
    if interrupts is not None:
        await interrupts.forget()


async def _written(session: Session, calls: Sequence[ToolCall], outcomes: Sequence[ToolOutcome]) -> list[ToolMessage]:
    if any(image.hash is not None for outcome in outcomes for image in outcome.images):
        outcomes = await session.attachments.fill_in(outcomes)
    return [to_message(each, call.id or "", call.name) for each, call in zip(outcomes, calls, strict=True)]
