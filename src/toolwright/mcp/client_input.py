"""What a server may ask of its client: questions to a person, the model of the session, directories. Owns the answers,
and refusing what was not allowed; does not own when a server asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_types import (
    INVALID_REQUEST,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestParams,
    ErrorData,
    InputRequest,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
    Root,
)

from toolwright.mcp.client_settings import ServerSettings
from toolwright.tools.context import ToolContext
from toolwright.tools.outcome import ToolError


class InputAnswers:
    """The answers to what one server asks."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings

    async def all(
        self, ctx: ToolContext[Any], number: int, requests: Mapping[str, InputRequest]
    ) -> dict[str, InputResponse]:
        """An answer for each request of a round.

        Raises:
            ToolError: the server asks for something that it may not have.
        """
        answers: dict[str, InputResponse] = {}
        for key, request in requests.items():
            answer = await self.one(ctx, f"{number}-{key}"[:200], request)
            if isinstance(answer, ErrorData):
                raise ToolError(answer.message, category="external", code="mcp_input_refused")
            answers[key] = answer
        return answers

    async def one(self, ctx: ToolContext[Any], name: str, request: InputRequest) -> InputResponse | ErrorData:
        """The answer to one request, or the reason why there is none."""
        if isinstance(request, ElicitRequest):
            return await self.elicit(ctx, name, request.params)
        if isinstance(request, CreateMessageRequest):
            return await self.sample(ctx, name, request.params)
        assert isinstance(request, ListRootsRequest)
        return self.roots()

    async def elicit(self, ctx: ToolContext[Any], name: str, params: ElicitRequestParams) -> InputResponse | ErrorData:
        """The answer of a person to a question of the server."""
        return self._refused("questions", "elicitation=True")

    async def sample(
        self, ctx: ToolContext[Any], name: str, params: CreateMessageRequestParams
    ) -> InputResponse | ErrorData:
        """The answer of the session's model."""
        return self._refused("the model", "sampling=Sampling(...)")

    def roots(self) -> InputResponse:
        """The directories that the server is told of."""
        return ListRootsResult(roots=[Root.model_validate({"uri": uri}) for uri in self._settings.roots])

    def _refused(self, what: str, option: str) -> ErrorData:
        return ErrorData(
            code=INVALID_REQUEST,
            message=f"The MCP server {self._settings.name!r} asks for {what}, which it is not allowed; the owner can "
            f"allow it with {option}",
        )
