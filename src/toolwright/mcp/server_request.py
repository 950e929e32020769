"""One request of an MCP client, as a server of tools sees it. Owns what is known of the client: its revision, its
abilities, its connection, and whether it still wants the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.request_state import authenticated_principal
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct

from toolwright.ids import new_id
from toolwright.mcp.sdk_internals import channel_of, connection_of, has_progress_function, is_in_process

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

TASKS = "io.modelcontextprotocol/tasks"
"""The extension by which a client takes a task in place of a result (SEP-2663)."""
NAME = "dev.toolwright/name"
"""The claim of a token that names its owner, for decisions."""
MAY_DECIDE = "dev.toolwright/may-decide"
"""The claim of a token that says whether the person behind its client approves calls and answers questions. They do
where a token does not say."""
_CONNECTION_ID = "dev.toolwright/connection"


class Client(Struct, frozen=True, kw_only=True):
    """An MCP client, as far as a server knows it. Only `principal` is proved; the rest is the client's own word."""

    principal: str | None
    """The authenticated client and user, where the server checks tokens; None where it does not."""
    connection: str | None
    """The id of its connection, until it connects again; None over HTTP at 2026-07-28, which has no connections."""
    name: str | None
    version: str | None
    revision: str
    """The revision of the protocol that it speaks, such as "2025-11-25"."""


class ClientRequest:
    """A request with its context."""

    __slots__ = ("context", "meta", "modern")

    def __init__(self, context: ServerRequestContext[Any, Any]) -> None:
        self.context = context
        self.meta: dict[str, Any] = dict(context.meta or {})
        self.modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def revision(self) -> str:
        """The revision of the protocol."""
        return self.context.protocol_version

    @property
    def over_http(self) -> bool:
        """True where the request came over HTTP."""
        return self.context.request is not None

    @property
    def principal(self) -> str | None:
        """The authenticated client and user; None where the server does not check tokens."""
        return authenticated_principal(self.context)

    @property
    def client(self) -> Client:
        """The client, as far as it is known."""
        given = self.context.session.client_params
        info = None if given is None else given.client_info
        return Client(
            principal=self.principal,
            connection=self._connection_id(),
            name=None if info is None else info.name[:200],
            version=None if info is None else info.version[:200],
            revision=self.revision,
        )

    @property
    def wants_progress(self) -> bool:
        """True where the client gave a token for progress, or a function within this process."""
        return "progress_token" in self.meta or "progressToken" in self.meta or has_progress_function(self.context)

    @property
    def may_decide(self) -> bool:
        """False where the token of the client lets nobody behind it decide."""
        access = get_access_token()
        return access is None or bool((access.claims or {}).get(MAY_DECIDE, True))

    @property
    def decider(self) -> tuple[str, str | None]:
        """Who decides behind the client, and from where. Only what a token says of them is proved."""
        access, client = get_access_token(), self.client
        if access is not None and (name := (access.claims or {}).get(NAME)) is not None:
            return _one_line(str(name)), f"mcp {_one_line(access.client_id)}"
        return f"mcp:{_one_line(client.principal or client.name)}", None

    @property
    def can_answer_forms(self) -> bool:
        """True where the client shows forms to a person, and this request can carry one."""
        given = self.context.session.client_capabilities
        if given is None or given.elicitation is None or not self.may_decide:
            return False
        asks = given.elicitation
        # A client of before the two modes says neither of them.
        form = asks.form is not None or asks.url is None
        return form and (self.modern or self.context.session.can_send_request)

    @property
    def takes_tasks(self) -> bool:
        """True where the client takes a task in place of a result."""
        given = self.context.session.client_capabilities
        return self.modern and given is not None and TASKS in (given.extensions or {})

    @property
    def log_level(self) -> str | None:
        """The least level of the log that the client asked for; None where it did not ask."""
        if self.modern:
            level = self.meta.get(types.LOG_LEVEL_META_KEY)
            return level if isinstance(level, str) else None
        level = connection_of(self.context).state.get("log_level")
        return level if isinstance(level, str) else None

    @property
    def was_cancelled(self) -> bool:
        """True where the client does not want the request any more, asked when it ends early.

        A connection that is lost is no cancellation, except over HTTP at 2026-07-28: there it is the only way. Within
        one process, the task that waits for the request is cancelled itself.
        """
        if (self.modern and self.over_http) or is_in_process(self.context):
            return True
        return channel_of(self.context).cancel_requested.is_set()

    def _connection_id(self) -> str | None:
        connection = connection_of(self.context)
        if connection.session_id is not None:
            return connection.session_id
        if self.over_http and self.modern:
            return None
        holder = self.context.lifespan_context if self.modern else connection.state
        if isinstance(holder, dict):
            return str(holder.setdefault(_CONNECTION_ID, new_id("connection")))
        return None


def _one_line(name: str | None) -> str:
    """The name of a client as one visible line; clients choose their names."""
    return "".join(each if each.isprintable() else "\ufffd" for each in (name or "client")[:200])
