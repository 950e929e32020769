"""Pydantic AI: a session as a toolset of any agent, and the tools of its toolsets as ours.

Owns the identity of a call in a conversation, and what an outcome is in Pydantic AI's words: a return, a retry, a
failure, a deferred call. Does not own running calls; the session does, under its policy.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar, Unpack, cast

from toolwright import jsonx
from toolwright.adapters.answer_batches import AnswerBatches
from toolwright.errors import ToolwrightError
from toolwright.extras import require_extra
from toolwright.tools.call import ToolCall
from toolwright.tools.names import wire_name
from toolwright.tools.outcome import Image, Pending, Success, ToolError, ToolOutcome
from toolwright.wire.images import stand_in, viewable

try:
    from pydantic_ai import RunContext
except ModuleNotFoundError:
    require_extra("pydantic-ai", "toolwright.adapters.pydantic_ai")
    raise
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
)
from pydantic_ai.models import (
    CompletedStreamedResponse,
    KnownModelName,
    Model,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)
from pydantic_ai.tools import Tool as PydanticTool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
from pydantic_core import SchemaValidator, ValidationError, core_schema, to_jsonable_python

if TYPE_CHECKING:
    from toolwright.blocking_types import BlockingSession
    from toolwright.calls.suspend.approvals import Approval
    from toolwright.session.open_waits import OpenWait
    from toolwright.session.session import Session
    from toolwright.tools.arguments import Arguments
    from toolwright.tools.context import ToolContext
    from toolwright.tools.definition import ToolDefinition as OurDefinition
    from toolwright.tools.options import ToolOptions
    from toolwright.tools.tool import Tool

Deps = TypeVar("Deps")

BY = "pydantic-ai"
"""Who decided, in the record of an approval that was given or refused in an agent run."""
SESSION_DECIDES = "toolwright_decides"
"""The key in the metadata of a deferred result that approves nothing: the session decided, or has not yet."""
MOST_RETRIES = 100
"""Retries of one tool in a run, after which Pydantic AI ends the run."""
# The arguments are validated by the session, which tells the model every problem at once.
_ANY = SchemaValidator(schema=core_schema.any_schema())


class ToolwrightToolset(AbstractToolset[Deps], Generic[Deps]):
    """The tools of a session as a toolset of an agent: durable, in order, under the session's policy.

    The calls of one model answer are one batch of the session. A call is known by the conversation, the number of its
    answer in the history, and its id: an agent that is run again with the same history gets the recorded outcome, and
    no effect happens twice. A call that waits for a person is an approval request of the agent run, so that the
    agent needs `output_type=[..., DeferredToolRequests]`.

    Args:
        session: the session of the conversation; for `agent.run_sync`, one of `Runtime.open_blocking(...)`, or one of a
            loop in another thread.
        scope: gives the scope of an answer from the run context, in place of the conversation id and the number of the
            answer: for hosts that shorten histories, or that store them without conversation ids. It must be the same
            when the conversation is resumed.
        max_retries: how often the model may correct the arguments of one tool in a run.
        id: the id of the toolset among those of an agent.
    """

    def __init__(
        self,
        session: Session | BlockingSession,
        *,
        scope: Callable[[RunContext[Deps]], str] | None = None,
        max_retries: int = MOST_RETRIES,
        id: str | None = None,
    ) -> None:
        from toolwright.adapters.session_loop import SessionLoop, session_of

        self.session = session_of(session)
        self._loop = SessionLoop(self.session._core.shared)
        self._answers = AnswerBatches(self.session)
        self._scope = scope
        self._max_retries = max_retries
        self._id = id
        self._tools: dict[str, tuple[OurDefinition, ToolsetTool[Deps]]] = {}
        self._last: _Answer | None = None

    @property
    def id(self) -> str | None:
        """The id of the toolset among those of an agent."""
        return self._id

    async def get_tools(self, ctx: RunContext[Deps]) -> dict[str, ToolsetTool[Deps]]:
        """The tools that the session offers to the model now."""
        return await self._loop.run(lambda: self._get_tools(ctx))

    async def _get_tools(self, ctx: RunContext[Deps]) -> dict[str, ToolsetTool[Deps]]:
        await self._settle_denied(ctx.messages)
        known, self._tools = self._tools, {}
        found: dict[str, ToolsetTool[Deps]] = {}
        for definition in await self.session.offered():
            name = wire_name(definition.name)
            made = known.get(name)
            if made is None or made[0] is not definition:
                made = definition, self._tool(name, definition)
            self._tools[name] = made
            found[name] = made[1]
        return found

    def _tool(self, name: str, definition: OurDefinition) -> ToolsetTool[Deps]:
        described = ToolDefinition(
            name=name,
            description=definition.description,
            parameters_json_schema=definition.input_schema,
            return_schema=definition.output_schema,
        )
        return ToolsetTool(toolset=self, tool_def=described, max_retries=self._max_retries, args_validator=_ANY)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Deps], tool: ToolsetTool[Deps]
    ) -> object:
        """Run a call in the session: its value, or its failure in the words of Pydantic AI.

        Raises:
            ModelRetry: the arguments do not fit; the model reads why.
            ToolFailed: the call failed, was denied or was cancelled.
            ApprovalRequired: a person must approve it first, in this run or in the session.
            CallDeferred: it waits for something else outside.
        """
        return await self._loop.run(lambda: self._call_tool(name, tool_args, ctx))

    async def _call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Deps]) -> object:
        call_id = ctx.tool_call_id
        if not call_id:
            raise ToolwrightError("A call without an id has no place in a session; give the run context a tool_call_id")
        answer = self._answer(ctx, call_id)
        place, written = answer.places.get(call_id, (0, None))
        call = ToolCall(name, tool_args, call_id, cut_off=answer.cut_off)
        approved, others = ctx.tool_call_approved and not _session_decides(ctx.tool_call_metadata), None
        if approved and written is not None and (given := written.args_as_dict()) != tool_args:
            # A person gave other arguments. The call keeps its identity, which has the model's.
            asked = await self._answers.approval(answer.scope, call_id)
            if asked is None or asked.arguments != tool_args:
                call, others = ToolCall(name, given, call_id, cut_off=answer.cut_off), tool_args
        outcome = await self._answers.run(call, answer.scope, place)
        if outcome.status == "success" and not outcome.images:  # as nearly always
            return _value(outcome)
        if outcome.status == "pending":
            asked = await self._answers.approval(answer.scope, call_id)
            if asked is not None and approved and _approves(asked, ctx.tool_call_metadata):
                await self._answers.approve(asked, arguments=others, by=BY)
                outcome = await self._answers.run(call, answer.scope, place)
        if outcome.status in ("pending", "connection_required"):
            raise await self._deferred(outcome, answer.scope)
        return await self._returned(outcome)

    # --- identity

    def _answer(self, ctx: RunContext[Deps], call_id: str) -> _Answer:
        """The answer of the model that has a call: its scope, and its calls in their order."""
        messages, last = ctx.messages, self._last
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            if isinstance(message, ModelResponse):
                if last is not None and last.response is message and call_id in last.places:
                    return last
                places = {part.tool_call_id: (at, part) for at, part in enumerate(message.tool_calls)}
                if call_id in places:
                    number = sum(isinstance(each, ModelResponse) for each in messages[:index])
                    cut_off = "length" if message.finish_reason == "length" else None
                    self._last = made = _Answer(message, self._scope_of(ctx, number), places, cut_off)
                    return made
        # Not a call of the model: a hook, or a tool that runs code, made it.
        return _Answer(None, self._scope_of(ctx, sum(isinstance(each, ModelResponse) for each in messages)), {}, None)

    def _scope_of(self, ctx: RunContext[Deps], number: int) -> str:
        return f"{ctx.conversation_id or ''}.{number}" if self._scope is None else self._scope(ctx)

    # --- outcomes in the words of Pydantic AI

    async def _returned(self, outcome: ToolOutcome) -> object:
        if outcome.status != "success":
            message = _error_text(outcome)
            if _model_can_correct(outcome):
                raise ModelRetry(message)
            raise ToolFailed(message)
        value = _value(outcome)
        if not outcome.images:
            return value
        (filled,) = await self.session.attachments.fill_in([outcome])
        return ToolReturn(value, content=[_shown(image) for image in filled.images])

    async def _deferred(self, outcome: ToolOutcome, scope: str) -> ApprovalRequired | CallDeferred:
        asked = await self._answers.approval(scope, outcome.call_id)
        if asked is not None:
            said = {"key": asked.key, "cause": asked.cause, "rule": asked.rule, "reason": asked.reason}
            return ApprovalRequired(metadata={**said, "arguments": asked.arguments})
        if outcome.status == "connection_required":
            return CallDeferred(metadata={"waits_for": "connection", "name": outcome.provider})
        waits = await self._answers.waits(scope, outcome.call_id)
        if not waits:
            return CallDeferred(metadata={"waits_for": "another call"})
        about: dict[str, Any] = {"waits_for": waits[0].kind, "name": waits[0].name, "key": waits[0].key}
        if waits[0].kind == "question":
            for question in await self.session.questions():
                if question.key == waits[0].key:
                    about |= {"message": question.message, "schema": question.schema}
        return CallDeferred(metadata=about)

    # --- deferred calls that are decided on either side

    async def settle(self, results: DeferredToolResults) -> DeferredToolResults:
        """Tell the session what was decided about deferred calls outside of it; return the results to continue with.

        Pydantic AI does not call a toolset for a call that was denied or that has a result from outside; without this,
        such a call would wait in the session. Denials are noticed without it, too, at the next step of the run. The
        value for a call that waits for an answer or an event goes to its tool, and the model reads what the tool makes
        of it.
        """
        return await self._loop.run(lambda: self._settle(results))

    async def _settle(self, results: DeferredToolResults) -> DeferredToolResults:
        settled = DeferredToolResults(approvals={**results.approvals}, metadata={**results.metadata})
        for call_id, decision in results.approvals.items():
            if decision is False or isinstance(decision, ToolDenied):
                reason = decision.message if isinstance(decision, ToolDenied) else ToolDenied().message
                asked = await self._open_approval(call_id, results.metadata)
                if asked is not None:
                    await self._answers.deny(asked, reason=reason, by=BY)
        for call_id, given in results.calls.items():
            waits = [each for each in await self.session.waits() if each.call_id == call_id]
            if waits:
                await self._give(waits[-1], given)
            if waits and waits[-1].kind in ("event", "question"):
                settled.approvals[call_id] = ToolApproved()
                settled.metadata[call_id] = {**settled.metadata.get(call_id, {}), SESSION_DECIDES: True}
            else:
                settled.calls[call_id] = given
        return settled

    async def _give(self, wait: OpenWait, given: object) -> None:
        """Give a call that waits what it waits for; a connection is not given by a value."""
        refused = given.message if isinstance(given, (ModelRetry, ToolFailed)) else None
        value = given.return_value if isinstance(given, ToolReturn) else given
        if wait.kind in ("completion", "event"):
            if refused is not None:
                await self.session.reject(wait.key, message=refused)
            else:
                await self.session.resolve(wait.key, to_jsonable_python(value))
        elif wait.kind == "question":
            if refused is not None:
                await self.session.decline(wait.key, refused, by=BY)
            else:
                await self.session.answer(wait.key, to_jsonable_python(value), by=BY)

    async def decided(self, requests: DeferredToolRequests) -> DeferredToolResults:
        """Results with which the agent continues as the session decided, or will: they approve nothing themselves.

        A call that was approved, denied or completed in the session gives its outcome. One that is still open is
        deferred again.
        """
        calls = [*requests.approvals, *requests.calls]
        return DeferredToolResults(
            approvals={call.tool_call_id: ToolApproved() for call in calls},
            metadata={
                call.tool_call_id: {**requests.metadata.get(call.tool_call_id, {}), SESSION_DECIDES: True}
                for call in calls
            },
        )

    async def _settle_denied(self, messages: list[ModelMessage]) -> None:
        """Deny in the session the calls that were denied in the newest request of the history."""
        last = messages[-1] if messages else None
        if isinstance(last, ModelRequest):
            for part in last.parts:
                if isinstance(part, ToolReturnPart) and part.outcome == "denied":
                    asked = await self._open_approval(part.tool_call_id, {})
                    if asked is not None:
                        await self._answers.deny(asked, reason=part.model_response_str(), by=BY)

    async def _open_approval(self, call_id: str, metadata: Mapping[str, Mapping[str, Any]]) -> Approval | None:
        """The newest open request for a call of an id; the one of the key in its metadata, if there is one."""
        key = metadata.get(call_id, {}).get("key")
        found = [each for each in await self.session.approvals() if each.call_id == call_id and key in (None, each.key)]
        return found[-1] if found else None


class RecordedModel(WrapperModel):
    """A model whose answers a session records. A run that starts again after a crash gets them, with their call ids.

    For hosts that store a history only when a run has ended: a model that is asked again gives other ids, and then its
    calls are other calls. With this model the run asks nothing again that was answered. Start it again with the same
    prompt, history and conversation id: `agent.run(..., conversation_id=...)`.

    Args:
        wrapped: the model that is asked, or its name.
        session: the session that records its answers, among its key-values.
        run: the name of the run. It is the same when the run starts again, and another one for each other run.
    """

    def __init__(self, wrapped: Model | KnownModelName, session: Session | BlockingSession, run: str) -> None:
        from toolwright.adapters.session_loop import SessionLoop, session_of

        super().__init__(wrapped)
        own = session_of(session)
        self._kv, self._loop = own.kv, SessionLoop(own._core.shared)
        self._prefix = f"pydantic_ai/{jsonx.digest(run.encode())[:32]}/"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """The recorded answer of this number, or that of the model, which is recorded before it is returned."""
        answer = await self._recorded(messages)
        if answer is None:
            answer = await super().request(messages, model_settings, model_request_parameters)
            if answer.state == "complete":  # else the provider has paused it, and is asked again for the rest
                await self._record(messages, answer)
        return answer

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """The same for a stream; it is recorded when it has ended, and not if it was left before."""
        answer = await self._recorded(messages)
        if answer is not None:
            yield CompletedStreamedResponse(
                answer, model_request_parameters=model_request_parameters, replay_events=True
            )
            return
        async with super().request_stream(messages, model_settings, model_request_parameters, run_context) as stream:
            yield stream
            answer = stream.get()
        if answer.state == "complete":
            await self._record(messages, answer)

    async def forget(self) -> None:
        """Delete the recorded answers of the run: it is finished, and its history is stored."""
        await self._loop.run(self._forget)

    async def _forget(self) -> None:
        for each in await self._kv.list(self._prefix):
            await self._kv.delete(each.key)

    async def _recorded(self, messages: list[ModelMessage]) -> ModelResponse | None:
        recorded = await self._loop.run(lambda: self._kv.get(self._key(messages)))
        if recorded is None:
            return None
        (answer,) = ModelMessagesTypeAdapter.validate_python([recorded])
        return cast("ModelResponse", answer)

    async def _record(self, messages: list[ModelMessage], answer: ModelResponse) -> None:
        (written,) = ModelMessagesTypeAdapter.dump_python([answer], mode="json")
        await self._loop.run(lambda: self._kv.set(self._key(messages), written))

    def _key(self, messages: list[ModelMessage]) -> str:
        return f"{self._prefix}{sum(isinstance(each, ModelResponse) for each in messages)}"


class _Answer:
    """An answer of the model: its scope, and the place and the part of each of its calls."""

    __slots__ = ("cut_off", "places", "response", "scope")

    def __init__(
        self,
        response: ModelResponse | None,
        scope: str,
        places: dict[str, tuple[int, ToolCallPart]],
        cut_off: str | None,
    ) -> None:
        self.response = response
        self.scope = scope
        self.places = places
        self.cut_off = cut_off


def _session_decides(metadata: object) -> bool:
    return isinstance(metadata, Mapping) and metadata.get(SESSION_DECIDES) is True


def _approves(asked: Approval, metadata: object) -> bool:
    """Whether an approval in the run is one of this request: to run again after a crash is asked for by its key."""
    return asked.cause == "policy" or (isinstance(metadata, Mapping) and metadata.get("key") == asked.key)


def _value(outcome: ToolOutcome) -> object:
    """The value, unless the model is to read another text: shortened, written by a projector, or with a note."""
    note = None if outcome.decision is None else outcome.decision.note
    if note is None and (outcome.model_text is None or outcome.model_text == outcome.full_text()):
        return outcome.value
    return outcome.text


def _model_can_correct(outcome: ToolOutcome) -> bool:
    """Whether the call failed before it ran, by what the model wrote."""
    failure = outcome.failure
    if failure is None:
        return False
    return failure.category == "invalid_arguments" or (failure.category == "not_found" and failure.source == "runtime")


def _error_text(outcome: ToolOutcome) -> str:
    """The failure in words: Pydantic AI itself marks it as one."""
    if outcome.model_text is not None and outcome.model_text != outcome.full_text():
        return outcome.model_text
    if outcome.failure is None:
        return f"Cancelled: {outcome.reason or 'the batch was cancelled'}; {outcome.how_far}."
    note = None if outcome.decision is None else outcome.decision.note
    return outcome.failure.message if note is None else f"{outcome.failure.message} ({note})"


def _shown(image: Image) -> str | BinaryContent:
    if not viewable(image):
        return stand_in(image)
    return BinaryContent(base64.b64decode(image.data), media_type=image.media_type)


# --- the way back


async def tools_from(
    tools: AbstractToolset[Deps] | Iterable[PydanticTool[Deps] | Callable[..., Any]],
    deps: Deps = None,  # type: ignore[assignment]
    **options: Unpack[ToolOptions],
) -> list[Tool]:
    """Tools of Pydantic AI as tools of ours, for an app or a session.

    A tool that requires approval there requires it here. `ModelRetry` and `ToolFailed` are failures that the model
    reads. A call that is deferred waits for its completion: `runtime.resolve` with its key ends it. A toolset that must
    be entered stays entered by its owner for as long as the tools are used.

    Args:
        tools: a toolset, or functions and `Tool`s of Pydantic AI.
        deps: the dependencies of the run context that the tools get.
        options: options of `@tool` for all of them, such as `readonly=True`. Without any, a tool is taken to change
            things, runs alone, and is not run again after a crash.
    """
    toolset = tools if isinstance(tools, AbstractToolset) else FunctionToolset[Deps](list(tools))
    found = await toolset.get_tools(_context(deps))
    return [_ours(toolset, name, each, deps, options) for name, each in found.items()]


def _context(deps: Deps, **about: Any) -> RunContext[Deps]:
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.usage import RunUsage

    return RunContext(deps=deps, model=TestModel(), usage=RunUsage(), **about)


def _ours(toolset: AbstractToolset[Deps], name: str, tool: ToolsetTool[Deps], deps: Deps, options: ToolOptions) -> Tool:
    from toolwright.tools.tool import Tool

    async def handler(arguments: Arguments, context: ToolContext) -> object:
        ctx = _context(
            deps,
            tool_name=name,
            tool_call_id=context.call_id,
            max_retries=tool.max_retries,
            tool_call_approved=tool.tool_def.kind == "unapproved",
            run_id=context.batch_id,
            conversation_id=context.session_id,
        )
        try:
            checked = tool.args_validator.validate_python(dict(arguments), context=ctx.validation_context)
            if tool.args_validator_func is not None and (waited := tool.args_validator_func(ctx, **checked)):
                await waited
            returned = await toolset.call_tool(name, checked, ctx, tool)
        except (ModelRetry, ValidationError) as error:
            message = error.message if isinstance(error, ModelRetry) else str(error)
            raise ToolError(message, category="invalid_arguments", code="model_retry") from error
        except ToolFailed as error:
            raise ToolError(error.message, code="tool_failed") from error
        except ApprovalRequired as error:
            raise ToolError(
                f'Tool {name!r} asks for an approval while it runs; give it approval="required" by tools_from()',
                category="permission_denied",
                code="needs_approval",
            ) from error
        except CallDeferred:
            context.completion_key()
            return Pending()
        return _success(returned)

    described = tool.tool_def
    chosen: ToolOptions = {"id": f"pydantic_ai.{name}", **options}
    if described.kind == "unapproved":
        chosen.setdefault("approval", "required")
    if described.timeout is not None:
        chosen.setdefault("timeout", described.timeout)
    return Tool.from_schema(
        name=name,
        description=described.description or "",
        input_schema=described.parameters_json_schema,
        handler=handler,
        **chosen,
    )


def _success(returned: object) -> object:
    """A value of theirs in our form, with its images beside it."""
    metadata: Any = None
    value, content = returned, tuple[Any, ...]()
    if isinstance(returned, ToolReturn):
        metadata, value = returned.metadata, returned.return_value
        content = (returned.content,) if isinstance(returned.content, str) else tuple(returned.content or ())
    images = [Image.from_bytes(each.data, each.media_type) for each in content if _is_image(each)]
    if _is_image(value):
        return Success(None, images=[*images, Image.from_bytes(value.data, value.media_type)], metadata=metadata)
    texts = [each for each in content if isinstance(each, str)]
    plain = to_jsonable_python(value)
    if texts:
        plain = {"result": plain, "content": texts}
    return Success(plain, images=images, metadata=metadata) if images or metadata else plain


def _is_image(value: object) -> TypeGuard[BinaryContent]:
    return isinstance(value, BinaryContent) and value.is_image
