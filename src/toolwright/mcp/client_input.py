"""What a server may ask of its client: questions to a person, the model of the session, directories. Owns the answers,
and refusing what was not allowed; does not own when a server asks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    InputRequest,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
    Root,
    TextContent,
)

from toolwright.errors import ServiceError, ToolwrightError
from toolwright.mcp.client_redaction import ServerSecrets
from toolwright.mcp.client_settings import ServerSettings
from toolwright.mcp.tool_names import clean_line, clean_schema, clean_text
from toolwright.tools.context import ToolContext
from toolwright.tools.outcome import ToolError

LONGEST_QUESTION = 4_000
MOST_FIELDS = 50
MOST_QUESTIONS = 50
"""How many questions a server may ask in one call."""
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_KEYWORDS = {
    "string": {"minLength", "maxLength", "pattern", "format", "enum", "enumNames", "oneOf"},
    "number": {"minimum", "maximum"},
    "integer": {"minimum", "maximum"},
    "boolean": set(),
    "array": {"minItems", "maxItems", "items", "uniqueItems"},
}
"""The keywords of a field of a question, by its type: a form that a person can fill in, and nothing else."""
_TOLD = {"type", "title", "description", "default"}
_URL_ANSWER: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(slots=True, eq=False)
class CallInput:
    """A call on its way, and how often its server has asked for something."""

    ctx: ToolContext[Any]
    questions: int = 0
    samples: int = 0


class InputAnswers:
    """The answers to what one server asks."""

    def __init__(self, settings: ServerSettings, secrets: ServerSecrets) -> None:
        self._settings = settings
        self._secrets = secrets

    async def all(self, call: CallInput, requests: Mapping[str, InputRequest]) -> dict[str, InputResponse]:
        """An answer for each request of a round.

        Raises:
            ToolError: the server asks for something that it may not have.
        """
        answers: dict[str, InputResponse] = {}
        for key, request in requests.items():
            answer = await self._one(call, request)
            if isinstance(answer, ErrorData):
                raise ToolError(answer.message, category="external", code="mcp_input_refused")
            answers[key] = answer
        return answers

    async def _one(self, call: CallInput, request: InputRequest) -> InputResponse | ErrorData:
        if isinstance(request, ElicitRequest):
            return await self.elicit(call, request.params)
        if isinstance(request, CreateMessageRequest):
            return await self.sample(call, request.params)
        assert isinstance(request, ListRootsRequest)
        return self.roots()

    # --- questions to a person

    async def elicit(self, call: CallInput, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """The answer of a person to a question of the server: a durable question of the call."""
        if not self._settings.elicitation:
            return self._refused("answers of a person", "elicitation=True")
        if call.questions >= MOST_QUESTIONS:
            return ErrorData(
                code=INVALID_REQUEST,
                message=f"The server asked {MOST_QUESTIONS} questions in this call, which is all that it may",
            )
        call.questions += 1
        said = clean_text(self._secrets.text(params.message), LONGEST_QUESTION).strip() or "(without words)"
        message = f"The MCP server {self._settings.name!r} asks: {said}"
        if isinstance(params, ElicitRequestFormParams):
            try:
                schema = form_schema(params.requested_schema)
            except ToolwrightError as error:
                return ErrorData(code=INVALID_PARAMS, message=str(error))
        else:
            schema = _URL_ANSWER
            url = clean_line(params.url, 2_000)
            if not url.lower().startswith(("https://", "http://")):
                return ErrorData(code=INVALID_PARAMS, message="A person can be sent to an http or https address only")
            message += f"\nOpen this address, and answer {{}} when it is done: {url}"
        try:
            answer = await call.ctx.ask(f"mcp-question-{call.questions}", message, schema)
        except ToolError as error:
            # Nobody answered in time: the server is told that the person left it open.
            return ElicitResult(action="decline" if error.failure.code == "declined" else "cancel")
        except ToolwrightError as error:
            return ErrorData(code=INVALID_PARAMS, message=f"The question cannot be asked: {error}"[:1_000])
        if schema is _URL_ANSWER:
            return ElicitResult(action="accept")
        return ElicitResult(action="accept", content={**_defaults(schema), **_known_fields(schema, answer)})

    # --- the model

    async def sample(self, call: CallInput, params: CreateMessageRequestParams) -> CreateMessageResult | ErrorData:
        """The answer of the session's model, within the budget of the call."""
        budget = self._settings.sampling
        if budget is None:
            return self._refused("the model", "sampling=Sampling(...)")
        call.samples += 1
        if call.samples > budget.requests:
            return ErrorData(
                code=INVALID_REQUEST,
                message=f"The server asked the model {budget.requests} times in this call, which is all that it may",
            )
        messages: list[dict[str, Any]] = []
        for message in params.messages:
            blocks = message.content if isinstance(message.content, list) else [message.content]
            if not all(isinstance(block, TextContent) for block in blocks):
                return ErrorData(code=INVALID_PARAMS, message="The model can be asked in text only")
            text = "\n".join(block.text for block in blocks if isinstance(block, TextContent))
            messages.append({"role": message.role, "content": self._secrets.text(text)})
        options: dict[str, Any] = {"max_tokens": min(params.max_tokens, budget.max_tokens)}
        if params.system_prompt:
            options["system"] = self._secrets.text(params.system_prompt)
        try:
            answer = await call.ctx.complete(f"mcp-sample-{call.samples}", messages, **options)
        except (ToolError, ServiceError) as error:
            return ErrorData(code=INVALID_REQUEST, message=f"The model did not answer: {error}"[:1_000])
        text = answer if isinstance(answer, str) else str(answer)
        # Which model it was is not the server's to know.
        return CreateMessageResult(
            role="assistant", content=TextContent(type="text", text=text), model="unknown", stop_reason="endTurn"
        )

    # --- directories

    def roots(self) -> ListRootsResult:
        """The directories that the server is told of."""
        return ListRootsResult(roots=[Root.model_validate({"uri": uri}) for uri in self._settings.roots])

    def _refused(self, what: str, option: str) -> ErrorData:
        return ErrorData(
            code=INVALID_REQUEST,
            message=f"The MCP server {self._settings.name!r} asks for {what}, which it may not have; the owner "
            f"can allow it with {option}",
        )


def form_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a form: an object of fields that are texts, numbers, switches or choices.

    Raises:
        ToolwrightError: it asks for something else.
    """
    properties = schema.get("properties", {})
    if schema.get("type") != "object" or not isinstance(properties, dict) or len(properties) > MOST_FIELDS:
        raise ToolwrightError(f"A question has an object of up to {MOST_FIELDS} fields for its schema")
    unknown = schema.keys() - {
        "type",
        "properties",
        "required",
        "title",
        "description",
        "$schema",
        "additionalProperties",
    }
    if unknown:
        raise ToolwrightError(f"The schema of a question has {sorted(unknown)[0]!r:.100}, which a form does not have")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) and name in properties for name in required):
        raise ToolwrightError("The schema of a question requires fields that it does not have")
    for name, field in properties.items():
        _require_field(name, field)
    cleaned: dict[str, Any] = clean_schema({**schema, "properties": properties, "additionalProperties": False})
    cleaned.pop("$schema", None)
    return cleaned


def _require_field(name: str, field: object) -> None:
    if not _FIELD.fullmatch(name):
        raise ToolwrightError(f"The field {name!r:.100} of a question has a name that no form has")
    kind = field.get("type") if isinstance(field, dict) else None
    if not isinstance(kind, str) or kind not in _KEYWORDS:
        raise ToolwrightError(f"The field {name!r} of a question is no text, number, switch or choice")
    assert isinstance(field, dict)
    if unknown := field.keys() - _KEYWORDS[kind] - _TOLD:
        raise ToolwrightError(f"The field {name!r} of a question has {sorted(unknown)[0]!r:.100}, which no field has")
    if kind == "array":
        items = field.get("items")
        choices = items.get("enum", items.get("anyOf")) if isinstance(items, dict) else None
        if not isinstance(choices, list):
            raise ToolwrightError(f"The field {name!r} of a question is a list of something else than choices")


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: field["default"] for name, field in schema["properties"].items() if "default" in field}


def _known_fields(schema: Mapping[str, Any], answer: object) -> dict[str, Any]:
    """The fields of an answer that the server asked for; a person gave no others."""
    return (
        {name: value for name, value in answer.items() if name in schema["properties"]}
        if isinstance(answer, dict)
        else {}
    )
