"""Spans of turns and of requests to models: `invoke_agent` and `chat`. Owns what they tell; does not own turns."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import context, trace

from toolwright.errors import ToolwrightError
from toolwright.telemetry import conventions as names
from toolwright.telemetry.content import answer_messages, instructions, request_messages
from toolwright.telemetry.failures import Failures
from toolwright.telemetry.metrics import Metrics
from toolwright.telemetry.propagation import context_of, span_context, traceparent
from toolwright.tools.model import ModelAnswer, ModelRequest, Usage
from toolwright.tools.tracing import LinkKind, Redact
from toolwright.tools.turn_protocols import TurnOutcome

Attributes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SpanParts:
    """What the spans of one `Telemetry` share."""

    tracer: trace.Tracer
    metrics: Metrics
    failures: Failures
    content: bool


class _Work:
    """A span around some code of this task: begun when it is entered, and current until it is left."""

    def __init__(self, parts: SpanParts, what: str, measured: Attributes) -> None:
        self.parts = parts
        self.span: trace.Span = trace.INVALID_SPAN
        self.measured = measured
        self._what = what
        self._token: Any = None
        self._begun = perf_counter()

    def enter(self, span: trace.Span) -> None:
        self.span = span
        self._token = context.attach(trace.set_span_in_context(span))

    def fail(self, code: str) -> None:
        """It ended with an error."""
        self.measured = {**self.measured, names.ERROR_TYPE: code}
        self.span.set_attribute(names.ERROR_TYPE, code)
        self.span.set_status(trace.StatusCode.ERROR, code)

    def leave(self, error: BaseException | None, histogram: Any) -> None:
        if self._token is not None:
            context.detach(self._token)
        try:
            if isinstance(error, asyncio.CancelledError | GeneratorExit):
                self.span.set_attribute(names.STATUS, "stopped")
            elif error is not None:
                self.fail(_code(error))
            histogram.record(perf_counter() - self._begun, self.measured, trace.set_span_in_context(self.span))
            self.span.end()
        except Exception:  # the program's tracer
            self.parts.failures.say(f"the end of a {self._what}")


def _code(error: BaseException) -> str:
    code = getattr(error, "code", None)
    return code if isinstance(error, ToolwrightError) and isinstance(code, str) else type(error).__name__


class TurnWork(AbstractContextManager["TurnWork"]):
    """The work on a turn. It is `TurnSpan`."""

    def __init__(
        self,
        parts: SpanParts,
        session: str,
        turn_id: str,
        model: str,
        agent: str | None,
        asked_in: str,
        before: str,
        why: LinkKind,
    ) -> None:
        provider, _, name = model.rpartition(":")
        measured: Attributes = {names.OPERATION: names.INVOKE_AGENT, names.REQUEST_MODEL: name}
        if provider:
            measured[names.PROVIDER] = provider
        if agent is not None:
            measured[names.AGENT_NAME] = agent
        self._work = _Work(parts, "turn", measured)
        self._name = names.INVOKE_AGENT if agent is None else f"{names.INVOKE_AGENT} {agent}"
        self._about = {**measured, names.CONVERSATION: session, names.TURN: turn_id}
        self._asked_in = asked_in
        self._before = before, why

    @property
    def trace(self) -> str:
        """Its `traceparent`."""
        return traceparent(self._work.span.get_span_context())

    def __enter__(self) -> TurnWork:
        work = self._work
        try:
            before, why = self._before
            found = span_context(before)
            links = [] if found is None else [trace.Link(found, {names.LINK: why})]
            # Not below what is current: the task works on turns that others asked for, too.
            asked_in = context_of(self._asked_in)
            work.enter(work.parts.tracer.start_span(self._name, asked_in, attributes=self._about, links=links))
        except Exception:  # the program's tracer
            work.parts.failures.say("the start of a turn")
        return self

    def ended(self, outcome: TurnOutcome) -> None:
        """Tell the outcome."""
        work = self._work
        try:
            about = _usage(outcome.usage)
            work.span.set_attributes({**about, names.STATUS: outcome.status, names.MODEL_CALLS: outcome.model_calls})
            if outcome.status == "failed":
                work.fail(outcome.code or "failed")
        except Exception:  # the program's tracer
            work.parts.failures.say("the outcome of a turn")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._work.leave(error, self._work.parts.metrics.agent_duration)


class ModelCall(AbstractContextManager["ModelCall"]):
    """A request to a model. It is `ModelSpan`."""

    def __init__(self, parts: SpanParts, model: object, request: ModelRequest, redact: Redact | None) -> None:
        provider, name = getattr(model, "provider", None), getattr(model, "name", None)
        measured: Attributes = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: provider if isinstance(provider, str) and provider else "unknown",
            names.REQUEST_MODEL: name if isinstance(name, str) and name else type(model).__name__,
        }
        measured.update(_address(getattr(model, "server", None)))
        self._work = _Work(parts, "request to a model", measured)
        self._request = request
        self._redact = redact

    def __enter__(self) -> ModelCall:
        work, request = self._work, self._request
        about = {**work.measured, names.CONVERSATION: request.session}
        try:
            if request.turn:
                about[names.TURN] = request.turn
            if request.call_id:
                about[names.TOOL_CALL_ID] = request.call_id
            if request.max_tokens is not None:
                about[names.REQUEST_MAX_TOKENS] = request.max_tokens
            if request.answer_schema is not None:
                about[names.OUTPUT_TYPE] = "json"
            if work.parts.content:
                about[names.INPUT_MESSAGES] = request_messages(request, self._redact)
                if request.instructions:
                    about[names.SYSTEM_INSTRUCTIONS] = instructions(request, self._redact)
            name = f"{names.CHAT} {about[names.REQUEST_MODEL]}"
            work.enter(work.parts.tracer.start_span(name, kind=trace.SpanKind.CLIENT, attributes=about))
        except Exception:  # the program's tracer
            work.parts.failures.say("the start of a request to a model")
        return self

    def retrying(self, data: Mapping[str, Any]) -> None:
        """Add an event for an attempt that failed."""
        try:
            about = {names.ATTEMPT: data["attempt"], names.DELAY: data["delay"], names.CODE: data["code"]}
            self._work.span.add_event(names.RETRYING_EVENT, about)
        except Exception:  # the program's tracer
            self._work.parts.failures.say("a retry of a request to a model")

    def answered(self, answer: object) -> None:
        """Tell what the model answered: its tokens, and its content where that is wanted."""
        try:
            self._answered(answer)
        except Exception:  # the program's tracer
            self._work.parts.failures.say("the answer of a model")

    def _answered(self, answer: object) -> None:
        work = self._work
        if isinstance(answer, ModelAnswer):
            about = _usage(answer.usage)
            about[names.FINISH_REASONS] = (names.finish_reason(answer.stop),)
            if answer.id:
                about[names.RESPONSE_ID] = answer.id
            if answer.model:
                about[names.RESPONSE_MODEL] = answer.model.rpartition(":")[2]
            work.span.set_attributes(about)
            inside = trace.set_span_in_context(work.span)
            for kind, count in (("input", answer.usage.input), ("output", answer.usage.output)):
                if count:
                    work.parts.metrics.tokens.record(count, {**work.measured, names.TOKEN_TYPE: kind}, inside)
        if work.parts.content:
            work.span.set_attribute(names.OUTPUT_MESSAGES, answer_messages(answer, self._redact))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._work.leave(error, self._work.parts.metrics.model_duration)


def _usage(usage: Usage) -> Attributes:
    told = {
        names.INPUT_TOKENS: usage.input,
        names.OUTPUT_TOKENS: usage.output,
        names.CACHE_READ_TOKENS: usage.cache_read,
        names.CACHE_WRITE_TOKENS: usage.cache_write,
    }
    return {name: count for name, count in told.items() if count}


def _address(server: object) -> Attributes:
    if not isinstance(server, str):
        return {}
    try:
        parts = urlsplit(server)
        host, port = parts.hostname, parts.port
    except ValueError:
        return {}
    if not host:
        return {}
    return {names.SERVER_ADDRESS: host} | ({} if port is None else {names.SERVER_PORT: port})
