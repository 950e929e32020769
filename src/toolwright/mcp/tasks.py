"""Background tools as tasks of MCP (extension `io.modelcontextprotocol/tasks`, SEP-2663). Owns tasks on the wire.

The work is a background run, which is in the store before the client learns of its task, and which any worker
continues.

The id of a task cannot be guessed: who knows it may read the task, as long as the session is the same.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NoReturn, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import Field

from toolwright.background.handle import Run
from toolwright.calls.policy import Policy
from toolwright.clock import rfc3339
from toolwright.errors import RunError
from toolwright.mcp.server_answers import answered, failed, result_of
from toolwright.mcp.server_questions import open_questions
from toolwright.mcp.server_request import TASKS, ClientRequest
from toolwright.mcp.server_sessions import ServedSessions
from toolwright.session.session import Session
from toolwright.stores.contracts.background_run import BackgroundRun
from toolwright.tools.definition import ToolDefinition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcp.server.context import ServerRequestContext

PREFIX = "task_"
"""The start of the ids of tasks: other runs of the session are not for clients."""
POLL_MS = 1_000
"""How often a client should look at a task."""
_HEADER = "mcp-name"


class TaskParams(types.RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str = Field(max_length=200)


class UpdateTaskParams(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: dict[str, Any]


class ServedTasks:
    """The tasks of a server's clients."""

    def __init__(
        self, sessions: ServedSessions, *, policy: Policy | None, by_client: bool, required: Sequence[str]
    ) -> None:
        self._sessions = sessions
        self._policy = policy
        self._by_client = by_client
        self._required = required

    # --- starting

    def require_taken(self, request: ClientRequest, tool: ToolDefinition) -> None:
        """Refuse a tool that is only run as a task, for a client that takes none.

        Raises:
            MCPError: it is such a tool.
        """
        required = self._required
        if required and not request.takes_tasks and any(fnmatchcase(tool.name, pattern) for pattern in required):
            _refuse_without_tasks()

    async def start(
        self, session: Session, tool: ToolDefinition, arguments: Mapping[str, Any], key: str | None
    ) -> Run | dict[str, Any]:
        """Start the run of a call, or find the one of its key; a result where it may not start.

        Raises:
            MCPError: the key was given with another call.
        """
        id = f"{PREFIX}{secrets.token_hex(20)}" if key is None else self._id(session, key)
        try:
            return cast("Run", await session.spawn(tool.name, arguments, id=id, under=self._policy))
        except RunError as error:
            if error.code == "conflict":
                said = f"The idempotency key was given with another call before: {error}"
                raise MCPError(types.INVALID_PARAMS, said) from error
            return failed(str(error))

    async def create(
        self, session: Session, tool: ToolDefinition, arguments: Mapping[str, Any], key: str | None
    ) -> dict[str, Any]:
        """Start the task of a call, or find the one of its key, and return it in place of the result."""
        started = await self.start(session, tool, arguments, key)
        if not isinstance(started, Run):
            return started
        # The state of the moment of creation: a client reads the rest by `tasks/get`.
        return {**_task(started.record), "status": "working", "resultType": "task"}

    def _id(self, session: Session, key: str) -> str:
        secret = self._sessions.runtime.derive_key("mcp tasks")
        return PREFIX + hmac.digest(secret, f"{session.id}\0{key}".encode(), hashlib.sha256).hex()[:40]

    # --- the methods of the extension

    async def get(self, context: ServerRequestContext[Any, Any], params: TaskParams) -> dict[str, Any]:
        """`tasks/get`: the state of a task, with its result or its open questions."""
        request, session, run = await self._find(context, params.task_id)
        return {**await self._detailed(request, session, run.record), "resultType": "complete"}

    async def update(self, context: ServerRequestContext[Any, Any], params: UpdateTaskParams) -> dict[str, Any]:
        """`tasks/update`: answers to open questions of a task. Those that fit no open question are ignored."""
        request, session, run = await self._find(context, params.task_id)
        if self._by_client:
            for question in await open_questions(session, run.record.call.scope, run.record.call.call_id):
                response = params.input_responses.get(question.id)
                if question.form is not None and isinstance(response, Mapping):
                    await answered(session, question, response, request)
        return {"resultType": "complete"}

    async def cancel(self, context: ServerRequestContext[Any, Any], params: TaskParams) -> dict[str, Any]:
        """`tasks/cancel`: stop a task; nothing happens to one that is finished."""
        _, _, run = await self._find(context, params.task_id)
        if not run.record.over:
            await run.cancel("the client cancelled the task")
        return {"resultType": "complete"}

    async def _find(self, context: ServerRequestContext[Any, Any], id: str) -> tuple[ClientRequest, Session, Run]:
        request = ClientRequest(context)
        if not request.modern:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", context.method)
        if context.request is not None and context.request.headers.get(_HEADER) != id:
            said = "The header Mcp-Name must be the id of the task, as in params.taskId"
            raise MCPError(types.HEADER_MISMATCH, said)
        if not request.takes_tasks:
            _refuse_without_tasks()
        session = self._sessions.session_of(request)
        try:
            if not id.startswith(PREFIX):
                raise RunError("not a task", "not_found")
            return request, session, cast("Run", await session.run(id))
        except RunError as error:
            raise MCPError(types.INVALID_PARAMS, f"There is no task {id[:200]!r}; it may have been removed") from error

    async def _detailed(self, request: ClientRequest, session: Session, run: BackgroundRun) -> dict[str, Any]:
        task = _task(run)
        outcome = run.outcome
        if run.status == "waiting" and self._by_client and request.can_answer_forms:
            questions = [
                each
                for each in await open_questions(session, run.call.scope, run.call.call_id)
                if each.form is not None
            ]
            if questions:
                return {
                    **task,
                    "status": "input_required",
                    "inputRequests": {each.id: each.elicitation for each in questions},
                }
        if run.status == "cancelled":
            return {**task, "status": "cancelled"}
        if not run.over or outcome is None:
            return {**task, "status": "working"}
        failure = outcome.failure
        if run.status == "abandoned" or (failure is not None and failure.category == "internal"):
            said = outcome.text if failure is None else failure.message
            return {**task, "status": "failed", "error": {"code": types.INTERNAL_ERROR, "message": said}}
        tool = session.tools.get(run.tool)
        result = await result_of(session, outcome, None if tool is None else tool.definition, request.revision)
        return {**task, "status": "completed", "result": result}


def _task(run: BackgroundRun) -> dict[str, Any]:
    """The facts of a task, whatever its status is."""
    task: dict[str, Any] = {
        "taskId": run.id,
        "createdAt": rfc3339(run.created_at),
        "lastUpdatedAt": rfc3339(run.ended_at or run.started_at or run.created_at),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }
    said = _status_message(run)
    return {**task, "statusMessage": said} if said else task


def _status_message(run: BackgroundRun) -> str:
    progress = run.progress
    if run.over or progress is None:
        return run.status_text
    done = "" if progress.current is None else f"{progress.current:g}"
    done += "" if progress.total is None or not done else f" of {progress.total:g}"
    done += f" {progress.unit}" if done and progress.unit else ""
    return ": ".join(part for part in (progress.label or run.status_text, done) if part)


def _refuse_without_tasks() -> NoReturn:
    needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, f"This needs the extension {TASKS}", needed)
