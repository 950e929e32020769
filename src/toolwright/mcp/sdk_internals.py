"""What a server reads of the official SDK beyond its public names. Owns all of that: a new version of the SDK is looked
into here.

The SDK gives the handler of a request no public way to its connection, nor to the channel to its client. Version 2.3
has both in attributes of the request's session; a test compares them with the version that is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.shared.direct_dispatcher import DIRECT_TRANSPORT_KIND

if TYPE_CHECKING:
    from mcp.server.connection import Connection
    from mcp.server.context import ServerRequestContext
    from mcp.shared.dispatcher import DispatchContext

    Context = ServerRequestContext[Any, Any]


def connection_of(context: Context) -> Connection:
    """The connection of a request. At 2026-07-28 there is a new one for each request."""
    return context.session._connection


def channel_of(context: Context) -> DispatchContext[Any]:
    """The channel to the client of a request, which knows whether the client cancelled it."""
    return context.session._request_outbound


def is_in_process(context: Context) -> bool:
    """True where client and server are connected within one process, without messages between them."""
    return bool(channel_of(context).transport.kind == DIRECT_TRANSPORT_KIND)


def has_progress_function(context: Context) -> bool:
    """True where a client within this process gave a function for progress; it sends no token then."""
    channel = channel_of(context)
    return getattr(getattr(channel, "_inner", channel), "_on_progress", None) is not None
