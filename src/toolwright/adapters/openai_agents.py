"""OpenAI Agents SDK: the tools of a session as function tools of its agents, and its function tools as ours.

Owns what an outcome is in the SDK's words, and how its interruptions and a session's approvals decide each other. Does
not own running calls; the session does, under its policy.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Unpack

from toolwright import jsonx
from toolwright.adapters.answer_batches import AnswerBatches
from toolwright.errors import ToolDefinitionError
from toolwright.extras import require_extra
from toolwright.tools.call import ToolCall
from toolwright.tools.names import wire_name
from toolwright.tools.outcome import Image, Success, ToolError
from toolwright.wire.images import from_url, stand_in, to_url, viewable

try:
    from agents import FunctionTool, Model, ModelResponse, RunState, ToolOutputImage, ToolOutputText, Usage
except ModuleNotFoundError:
    require_extra("openai-agents", "toolwright.adapters.openai_agents")
    raise
from agents.items import TResponseOutputItem
from agents.run_context import RunContextWrapper
from agents.tool_context import ToolContext as AgentToolContext
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

if TYPE_CHECKING:
    from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
    from openai.types.responses import ResponseCompletedEvent

    from toolwright.adapters.session_loop import SessionLoop
    from toolwright.blocking_types import BlockingSession
    from toolwright.session.session import Session
    from toolwright.tools.arguments import Arguments
    from toolwright.tools.context import ToolContext
    from toolwright.tools.definition import ToolDefinition
    from toolwright.tools.options import ToolOptions
    from toolwright.tools.outcome import ToolOutcome
    from toolwright.tools.tool import Tool

Scope = str | Callable[[RunContextWrapper[Any]], str] | None
"""The scope of the calls of a run, or a function that gives it; None takes it from the input of the run."""

BY = "openai-agents"
"""Who decided, in the record of an approval that was given or refused in a run."""


def function_tools(session: Session | BlockingSession, *, scope: Scope = None) -> list[FunctionTool]:
    """The tools of a session as function tools of an agent: durable, in order, under the session's policy.

    The calls of one model answer are one batch of the session. A call is known by its id and the scope: a run that is
    resumed from its state, or run again with the same input and ids, gets the recorded outcome, and no effect happens
    twice. A
    call that waits for a person interrupts the run. It is decided by `state.approve` and `state.reject`, with `settle`
    before the run is resumed, or in the session: then it is not asked about again. A call that waits for something else
    makes the run wait.

    Args:
        session: the session of the conversation; for `Runner.run_sync`, one of `Runtime.open_blocking(...)`, or one of
            a loop in another thread.
        scope: a namespace of call ids. It must be the same when a run is resumed, and another one for each other run.
            Without it, the input of the run is its scope, the history before it included: a run with the same input is
            the same run. Give one where a session may get the same input twice, without the history in between, from a
            server whose ids begin again in each run.
    """
    from toolwright.adapters.session_loop import SessionLoop, session_of

    own = session_of(session)
    answers, loop = AnswerBatches(own), SessionLoop(own._core.shared)
    scopes = _Scopes(scope)
    return [_function_tool(answers, loop, definition, scopes) for definition in own.definitions()]


async def settle(session: Session | BlockingSession, state: RunState[Any, Any], *, scope: Scope = None) -> None:
    """Let the session and the interrupted state of a run know each other's decisions. Do this before it is resumed.

    A call that was rejected in the state is denied in the session: the SDK does not call its tool, and it would wait
    there. A call that was decided in the session is approved in the state, so that the resumed run takes its outcome:
    the model reads the result, or that a person denied it.
    """
    from toolwright.adapters.session_loop import SessionLoop, session_of

    own = session_of(session)
    await SessionLoop(own._core.shared).run(lambda: _settle(own, state, scope))


async def _settle(session: Session, state: RunState[Any, Any], scope: Scope) -> None:
    answers, context = AnswerBatches(session), state._context
    if context is None:
        return
    where = _input_scope(state._original_input) if scope is None else _Scopes(scope).of(context)
    ours = {wire_name(each.name) for each in session.definitions()}
    for item in state.get_interruptions():
        name, call_id = item.tool_name or "", item.call_id or ""
        if name not in ours or not call_id:
            continue
        decided = context.get_approval_status(name, call_id, existing_pending=item)
        asked = await answers.approval(where, call_id)
        if asked is None and decided is None:
            # Only an outcome proves that it was decided; a call that the session does not know asks now.
            if (await answers.run(ToolCall(name, item.arguments, call_id), where)).status != "pending":
                state.approve(item)
        elif asked is not None and decided is False:
            reason = context.get_rejection_message(name, call_id, existing_pending=item)
            await answers.deny(asked, reason=reason, by=BY)


class RecordedModel(Model):
    """A model whose answers a session records. A run that starts again after a crash gets them, with their call ids.

    The SDK stores nothing between the start of a run and its end or interruption, and a model that is asked again gives
    other ids: then its calls are other calls. With this model, the run asks nothing again that was answered, and its
    calls are replayed.

    Args:
        model: the model that is asked, such as `OpenAIResponsesModel(...)`.
        session: the session that records its answers, among its key-values.
        run: the name of the run. It is the same when the run starts again, and another one for each other run.
    """

    def __init__(self, model: Model, session: Session | BlockingSession, run: str) -> None:
        from toolwright.adapters.session_loop import SessionLoop, session_of

        own = session_of(session)
        self._model = model
        self._kv, self._loop = own.kv, SessionLoop(own._core.shared)
        self._prefix = f"openai_agents/{jsonx.digest(run.encode())[:32]}/"

    async def get_response(
        self, system_instructions: str | None, input: str | list[Any], *given: Any, **options: Any
    ) -> ModelResponse:
        """The recorded answer to this input, or that of the model, which is recorded before it is returned."""
        key = self._key(system_instructions, input)
        recorded = await self._loop.run(lambda: self._kv.get(key))
        if recorded is not None:
            return _read_answer(recorded)
        answer = await self._model.get_response(system_instructions, input, *given, **options)
        await self._record(key, answer)
        return answer

    async def stream_response(
        self, system_instructions: str | None, input: str | list[Any], *given: Any, **options: Any
    ) -> AsyncIterator[Any]:
        """The events of the model; for a recorded answer only the last one, which has the whole answer."""
        key = self._key(system_instructions, input)
        recorded = await self._loop.run(lambda: self._kv.get(key))
        if recorded is not None:
            yield _completed(_read_answer(recorded))
            return
        async for event in self._model.stream_response(system_instructions, input, *given, **options):
            if event.type == "response.completed":
                answer = ModelResponse(output=event.response.output, usage=Usage(), response_id=event.response.id)
                await self._record(key, answer)
            yield event

    async def forget(self) -> None:
        """Delete the recorded answers of the run: it is finished, and its result is stored."""
        await self._loop.run(self._forget)

    async def _forget(self) -> None:
        for each in await self._kv.list(self._prefix):
            await self._kv.delete(each.key)

    async def _record(self, key: str, answer: ModelResponse) -> None:
        await self._loop.run(lambda: self._kv.set(key, _written_answer(answer)))

    async def close(self) -> None:
        """Release what the model holds."""
        await self._model.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """The advice of the model."""
        return self._model.get_retry_advice(request)

    def _key(self, system_instructions: str | None, input: str | list[Any]) -> str:
        asked = to_jsonable_python([system_instructions, input])
        return self._prefix + jsonx.digest(jsonx.canonical(asked))[:32]


def _written_answer(answer: ModelResponse) -> dict[str, Any]:
    return {
        # Only what was set: a null that comes back in its place would make the next question another one.
        "output": [item.model_dump(mode="json", exclude_unset=True) for item in answer.output],
        "usage": _usage().dump_python(answer.usage, mode="json"),
        "id": answer.response_id,
    }


def _read_answer(recorded: dict[str, Any]) -> ModelResponse:
    output, usage = _output().validate_python(recorded["output"]), _usage().validate_python(recorded["usage"])
    return ModelResponse(output=output, usage=usage, response_id=recorded["id"])


# Made when a first answer is written or read: it takes long.


@functools.cache
def _output() -> TypeAdapter[list[Any]]:
    return TypeAdapter(list[TResponseOutputItem])


@functools.cache
def _usage() -> TypeAdapter[Usage]:
    return TypeAdapter(Usage)


def _completed(answer: ModelResponse) -> ResponseCompletedEvent:
    """The last event of a stream, with a whole answer."""
    from openai.types.responses import Response, ResponseCompletedEvent

    # Not validated: a recorded answer has only those fields of a response that the runner reads.
    response = Response.model_construct(id=answer.response_id or "recorded", output=answer.output, usage=None)
    return ResponseCompletedEvent.model_construct(response=response, sequence_number=0, type="response.completed")


class _Scopes:
    """The scope of each run."""

    def __init__(self, given: Scope) -> None:
        self._given = given
        self._last: tuple[list[Any], str] = [], ""

    def of(self, context: RunContextWrapper[Any]) -> str:
        """The scope of the run that a call is made in."""
        given = self._given
        if given is not None:
            return given if isinstance(given, str) else given(context)
        # Each call has a list of its own, of the same items: the calls of a run share one digest.
        items, (before, scope) = context.turn_input, self._last
        if not scope or len(items) != len(before) or any(map(operator.is_not, items, before)):
            scope = _input_scope(items)
            self._last = list(items), scope
        return scope


def _input_scope(given: str | list[Any]) -> str:
    """A scope that is the same for the same input, also after its state was stored and read."""
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    written = jsonx.canonical([_plain_item(item) for item in to_jsonable_python(items, exclude_none=True)])
    return f"input-{jsonx.digest(written)[:32]}"


def _plain_item(item: object) -> object:
    """An item of an input without what a stored state adds to it."""
    if not isinstance(item, dict):
        return item
    content = item.get("content")
    if item.get("role") == "assistant" and isinstance(content, str):
        content = [{"type": "output_text", "text": content}]
    return {key: value for key, value in item.items() if key not in ("status", "content")} | {"content": content}


def _function_tool(
    answers: AnswerBatches, loop: SessionLoop, definition: ToolDefinition, scopes: _Scopes
) -> FunctionTool:
    name = definition.name

    async def needs_approval(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        call = ToolCall(name, arguments, call_id)
        if (await answers.session.would(call)).effect != "ask":
            return False
        # The request is in the inbox of the session, too. A call that was decided there is not asked about again.
        where = scopes.of(context)
        outcome = await answers.run(call, where)
        return outcome.status == "pending" and await answers.approval(where, call_id) is not None

    async def asks(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return await loop.run(lambda: needs_approval(context, arguments, call_id))

    async def invoke(context: AgentToolContext[Any], arguments: str) -> object:
        call_id, where = context.tool_call_id, scopes.of(context)
        given = context.tool_call
        cut_off = "incomplete" if given is not None and given.status == "incomplete" else None
        call = ToolCall(name, arguments, call_id, cut_off=cut_off)
        outcome = await answers.run(call, where)
        if outcome.status == "pending":
            asked = await answers.approval(where, call_id)
            # To run again after a crash is another question than the one that was approved in the run.
            if (
                asked is not None
                and asked.cause == "policy"
                and context.is_tool_approved(context.tool_name, call_id) is True
            ):
                await answers.approve(asked, by=BY)
            outcome = await answers.finish(call, where)
        return await _returned(answers.session, outcome)

    return FunctionTool(
        name=wire_name(name),
        description=definition.description,
        params_json_schema=definition.input_schema,
        on_invoke_tool=lambda context, arguments: loop.run(lambda: invoke(context, arguments)),
        strict_json_schema=False,  # it would make every field required; the session checks arguments itself
        needs_approval=asks if answers.session.may_ask_about(name) else False,
    )


async def _returned(session: Session, outcome: ToolOutcome) -> str | list[ToolOutputText | ToolOutputImage]:
    """An outcome as the model reads it; a failure is text, too."""
    if not outcome.images:
        return outcome.text
    (filled,) = await session.attachments.fill_in([outcome])
    shown: list[ToolOutputText | ToolOutputImage] = [ToolOutputText(text=outcome.text)]
    for image in filled.images:
        if viewable(image):
            shown.append(ToolOutputImage(image_url=to_url(image)))
        else:
            shown.append(ToolOutputText(text=stand_in(image)))
    return shown


# --- the way back


def tools_from(tools: Iterable[FunctionTool], context: object = None, **options: Unpack[ToolOptions]) -> list[Tool]:
    """Function tools of the SDK as tools of ours, for an app or a session.

    A tool that needs approval there requires it here; one that decides it for each call requires it always. Guardrails
    of the tools are not run: the policy and hooks of the app take their place. A tool that makes a text of its own
    errors, as the SDK's decorator does by default, returns that text.

    Args:
        tools: the tools.
        context: the context of the run that the tools get.
        options: options of `@tool` for all of them, such as `readonly=True`. Without any, a tool is taken to change
            things, runs alone, and is not run again after a crash.

    Raises:
        ToolDefinitionError: one is not a function tool, such as a tool that runs at the provider.
    """
    return [_ours(tool, context, options) for tool in tools]


def _ours(tool: FunctionTool, run_context: object, options: ToolOptions) -> Tool:
    from toolwright.tools.tool import Tool

    if not isinstance(tool, FunctionTool):
        raise ToolDefinitionError(f"{tool!r:.200} is not a function tool of the SDK; give only FunctionTools")
    name, run = tool.name, tool.on_invoke_tool

    async def handler(arguments: Arguments, context: ToolContext) -> object:
        written = jsonx.encode(dict(arguments)).decode()
        about = AgentToolContext(run_context, tool_name=name, tool_call_id=context.call_id, tool_arguments=written)
        return _success(await run(about, written))

    chosen: ToolOptions = {"id": f"openai_agents.{name}", **options}
    if tool.needs_approval is not False:
        chosen.setdefault("approval", "required")
    if tool.timeout_seconds is not None:
        chosen.setdefault("timeout", tool.timeout_seconds)
    return Tool.from_schema(
        name=name, description=tool.description, input_schema=tool.params_json_schema, handler=handler, **chosen
    )


def _success(returned: object) -> object:
    """An output of theirs in our form, with its images beside it."""
    parts = returned if isinstance(returned, list) else [returned]
    if not any(isinstance(part, (ToolOutputText, ToolOutputImage)) for part in parts):
        return returned
    images: list[Image] = []
    texts: list[Any] = []
    for part in parts:
        if isinstance(part, ToolOutputImage):
            image = None if part.image_url is None else from_url(part.image_url)
            if image is None:
                raise ToolError("The tool returned an image that is not in its output; return a data URL", code="image")
            images.append(image)
        else:
            texts.append(part.text if isinstance(part, ToolOutputText) else part)
    return Success(texts[0] if len(texts) == 1 else texts or None, images=images)
