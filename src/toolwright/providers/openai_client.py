"""OpenAI's library. Owns how its clients are made; knows neither of its two protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openai import AsyncOpenAI

ADDRESS = "https://api.openai.com/v1"
KEYS = ("OPENAI_API_KEY",)
ADDRESS_VARIABLE = "OPENAI_BASE_URL"
_NO_KEY = "none"
"""Sent as the key to servers that need none: the library requires one."""


def new_client(key: str | None, address: str | None, timeout: float) -> AsyncOpenAI:
    """A client that does not retry. Imports the library."""
    import openai

    from toolwright.providers.http_limits import bound_error, timeouts

    http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [bound_error]})
    client = openai.AsyncOpenAI(
        api_key=key or _NO_KEY, base_url=address or ADDRESS, timeout=timeouts(timeout), max_retries=0, http_client=http
    )
    # Each imports a good part of the library when it is first used, which takes long.
    _ = client.chat.completions.with_streaming_response, client.responses.with_streaming_response
    return client
