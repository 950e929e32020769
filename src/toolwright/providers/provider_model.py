"""A model behind a provider's library. Owns the library's client, the sending of a request and the bounds of an answer;
does not own any provider's protocol.

A client and its connections belong to one event loop. They are kept while somebody holds the model, as an open runtime
does, or `async with model`; otherwise each request has its own.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, ClassVar, Protocol, Self, TypedDict, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from toolwright import jsonx
from toolwright.errors import ConversionError, MissingRequirement, ToolwrightError
from toolwright.extras import how_to_install, missing_libraries
from toolwright.providers.event_stream import EventReader
from toolwright.providers.half_characters import HalfCharacters, joined_everywhere
from toolwright.providers.prices import Price
from toolwright.providers.provider_errors import cleaned, error_of_status
from toolwright.tools.model import Delta, ModelAnswer, ModelError, ModelRequest

T = TypeVar("T")

MOST_BYTES = 64 * 1024 * 1024
"""Bytes of one answer, with the framing of its stream. A generated image has a few million."""
_PATIENCE = 0.05
"""Seconds for the end of a stream whose answer is complete; then its connection is closed, and not used again."""
_LIBRARIES = ("openai", "anthropic", "httpx", "httpx2", "httpcore", "httpcore2", "anyio")
"""The packages whose exceptions are failures of a request."""
_OWN_FIELDS = ("model", "stream", "messages", "input", "tools", "system", "instructions")


class AnswerReader(Protocol):
    """Puts one answer together from the events of its stream, or from a whole response."""

    ended: bool
    """Whether the answer is complete, so that nothing more is read."""

    def take(self, name: str, data: bytes) -> list[Delta]:
        """Take one event, and give the pieces of the answer in it.

        Raises:
            ModelError: it is not an event of the provider's protocol, or an error of the provider.
        """
        ...

    def whole(self, response: object) -> list[Delta]:
        """Take a response that was not streamed; errors as for `take`."""
        ...

    def answer(self) -> ModelAnswer:
        """The answer.

        Raises:
            ModelError: the stream has ended before it was complete.
            ConversionError: a part of it is of another kind.
        """
        ...


class LibraryClient(Protocol):
    """A client of a provider's library."""

    async def close(self) -> None: ...


class LibraryResponse(Protocol):
    """A response of a provider's library whose body has not been read yet."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    def iter_bytes(self) -> AsyncIterator[bytes]: ...


class ModelOptions(TypedDict, total=False):
    """The options of every `ProviderModel`, which describes them."""

    api_key: str | None
    base_url: str | None
    price: Price | None
    max_tokens: int | None
    settings: Mapping[str, Any] | None
    timeout: float
    max_answer_bytes: int
    client: LibraryClient | None


class ProviderModel(ABC):
    """A model of a provider. It is a `Model`; each request is one HTTP request, and nothing is retried here.

    Args:
        name: the name of the model at the provider.
        api_key: the key; by default the provider's variable in the environment, read at each request.
        base_url: the address of another server that speaks the same protocol. The key of the environment is not sent
            there: give `api_key` if the server needs one.
        price: the price of its tokens, for `Usage.cost`.
        max_tokens: the most tokens of an answer, where the request does not say.
        settings: fields of every request, in the provider's own form, such as `{"temperature": 0}`.
        timeout: seconds without a byte after which a request fails.
        max_answer_bytes: the largest answer.
        client: a client of the provider's library, with its own address and credentials, such as `AsyncAzureOpenAI`.
            It is not closed here.
    """

    provider: str
    extra: ClassVar[str]
    """The extra that installs the library."""
    format: ClassVar[str]
    """The name of the form in which it gives answers: the `format` of `ModelAnswer.native`."""
    key_variables: ClassVar[tuple[str, ...]]
    other_credentials: ClassVar[tuple[str, ...]] = ()
    """Variables of the environment by which the library finds credentials of another kind."""
    address_variable: ClassVar[str]

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        price: Price | None = None,
        max_tokens: int | None = None,
        settings: Mapping[str, Any] | None = None,
        timeout: float = 600.0,
        max_answer_bytes: int = MOST_BYTES,
        client: LibraryClient | None = None,
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise ToolwrightError(f"Model name {name!r:.200} is not usable; give the name that the provider knows")
        if type(timeout) not in (int, float) or not 0 < timeout < math.inf:
            raise ToolwrightError(f"Model {name!r} has timeout {timeout!r:.80}; use a number of seconds above 0")
        for setting in settings or ():
            if setting in _OWN_FIELDS:
                raise ToolwrightError(f"Model {name!r} has the setting {setting!r}, which a request sets; leave it out")
        self.name = name
        self.price = price
        self.max_tokens = max_tokens
        self.settings = dict(settings or {})
        self.timeout = float(timeout)
        self.max_answer_bytes = max_answer_bytes
        self._given_key = None if api_key is None else _Key(api_key)
        self._base_url = base_url
        self.opened_by_name = False
        """True when `open_model` made it of nothing but its name, so that any process can open it again."""
        self._client_given = client
        self._held: WeakKeyDictionary[asyncio.AbstractEventLoop, _Held] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} at {self.server}>"

    @property
    def server(self) -> str:
        """The host that it asks, with its port."""
        address = str(getattr(self._client_given, "base_url", "")) or self.address or self._default_address()
        parts = urlsplit(address)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

    @property
    def address(self) -> str | None:
        """The address that was given, here or in the environment; None for the provider's own."""
        return self._base_url or os.environ.get(self.address_variable) or None

    @property
    def spec(self) -> str:
        """Its provider and name, as in `ModelAnswer.model`."""
        return f"{self.provider}:{self.name}"

    def require_key(self) -> None:
        """Check that there is a key, where the server is known to need one.

        Raises:
            MissingRequirement: there is none.
        """
        found = self._key() is not None or any(map(os.environ.get, self.other_credentials))
        if self._client_given is None and self.address is None and not found:
            variables = " or ".join(self.key_variables)
            raise MissingRequirement(f"Model {self.spec!r} needs a key, and there is none; set {variables}")

    # --- asking

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """The whole answer, which is not streamed."""
        reader, body = self._reader(request), self._written(request, False)
        async with self._asked(body, False) as received:
            reader.whole(self._json(await received.content()))
        return self._answer(reader)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelAnswer]:
        """The answer in pieces as they come; the last item is the whole answer."""
        reader, body = self._reader(request), self._written(request, True)
        async with self._asked(body, True) as received:
            if not received.is_stream:  # the answer of a server that streams nothing, or nothing when there are tools
                for delta in reader.whole(self._json(await received.content())):
                    yield delta
            else:
                events, halves = EventReader(), HalfCharacters()
                while not reader.ended:
                    chunk = await received.chunk()
                    for event in events.end() if chunk is None else events.feed(chunk):
                        for delta in () if reader.ended else reader.take(event.name, event.data):
                            if (whole := halves.completed(delta)) is not None:
                                yield whole
                    if chunk is None:
                        break
                else:
                    await received.drain()
                for delta in halves.rest():
                    yield delta
        yield self._answer(reader)

    def _answer(self, reader: AnswerReader) -> ModelAnswer:
        """The answer that was read, with its cost.

        Raises:
            ModelError: it is not complete, or not one of the protocol.
        """
        try:
            answer = reader.answer()
        except ConversionError as error:
            problem = ModelError(f"{self.spec} gave an answer that is not one of its protocol ({error})", "bad_answer")
        else:
            answer = _in_unicode(answer)
            return answer if self.price is None else replace(answer, usage=self.price.applied(answer.usage))
        raise problem

    def _written(self, request: ModelRequest, stream: bool) -> dict[str, Any]:
        try:
            return self._body(request, stream)
        except ConversionError as error:
            problem = ModelError(f"{self.spec}: the conversation cannot be written ({error})", "bad_request")
        raise problem

    def _json(self, content: bytes) -> object:
        try:
            return jsonx.decode(content)
        except (jsonx.DecodeError, RecursionError, ValueError):
            if b"\\ud" in content.lower():  # perhaps half of a character, which the fast decoder refuses
                with suppress(ValueError, RecursionError):
                    jsonx.require_shallow(content)
                    return json.loads(content, parse_constant=_refuse_constant)
        raise ModelError(
            f"{self.spec} gave {cleaned(repr(content[:80]), self._secrets())}, which is not JSON; check that "
            f"{self.server} is the right server",
            "bad_answer",
        )

    @asynccontextmanager
    async def _asked(self, body: dict[str, Any], stream: bool) -> AsyncIterator[_Received]:
        """Send a request. Leaving it ends the request, whatever has been read of the answer.

        Raises:
            ModelError: it could not be sent, or the provider refused it.
        """
        async with self._client() as client:
            sent = self._sent(client, body, stream)
            response = await self._translated(sent.__aenter__())
            try:
                yield _Received(self, response, stream)
            finally:
                await sent.__aexit__(None, None, None)

    async def _translated(self, action: Awaitable[T]) -> T:
        """The result of an action of the library; its exceptions become ours."""
        try:
            return await action
        except Exception as error:  # of a library that is not imported here
            problem = self._failure(error)
            if problem is None:
                raise
        # Outside of the `except`: the library's exception holds the request, with the key in its headers.
        raise problem

    def _failure(self, error: Exception) -> ModelError | None:
        """An exception of the library as ours; None for one that is not the library's."""
        kinds = {each.__name__ for each in type(error).__mro__}
        library = any(each.__module__.partition(".")[0] in _LIBRARIES for each in type(error).__mro__)
        status = getattr(error, "status_code", None)
        if library and isinstance(status, int):
            response = getattr(error, "response", None)
            headers = getattr(response, "headers", {})
            return error_of_status(self.spec, status, getattr(error, "body", None), headers, self._secrets())
        said = cleaned(str(error) or type(error).__name__, self._secrets())
        if "ConnectTimeout" in kinds | {type(error.__cause__).__name__}:
            return ModelError(
                f"{self.spec} cannot be reached at {self.server}: no connection in time ({said}); ask again",
                "unavailable",
                retry=True,
            )
        if isinstance(error, TimeoutError) or kinds & {"APITimeoutError", "TimeoutException"}:
            return ModelError(
                f"{self.spec} sent nothing for {self.timeout:g} s ({said}); ask again", "timeout", retry=True
            )
        if isinstance(error, OSError) or kinds & {"APIConnectionError", "TransportError", "StreamError"}:
            return ModelError(
                f"{self.spec} cannot be reached at {self.server}, or broke off ({said}); ask again",
                "unavailable",
                retry=True,
            )
        if isinstance(error, (UnicodeError, TypeError, ValueError, OverflowError, RecursionError)):
            return ModelError(f"{self.spec}: the request has no JSON form ({said}); use plain values", "bad_request")
        if library:
            return ModelError(f"{self.spec} could not be asked ({said}); correct its settings", "bad_request")
        return None

    def _secrets(self) -> tuple[str, ...]:
        given = getattr(self._client_given, "api_key", None)
        return tuple(each for each in (self._key(), given) if isinstance(each, str))

    # --- the client

    def hold(self) -> None:
        """Keep the connections of this event loop from now on; the first request makes them."""
        loop = asyncio.get_running_loop()
        held = self._held.setdefault(loop, _Held())
        held.holders += 1

    async def release(self) -> None:
        """Close the connections of this event loop, unless somebody else holds them."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            return
        held.holders -= 1
        if not held.holders:
            del self._held[loop]
            if held.client is not None:
                await held.client.close()

    async def __aenter__(self) -> Self:
        self.hold()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.release()

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        if self._client_given is not None:
            yield self._client_given
            return
        self.hold()
        try:
            held = self._held[asyncio.get_running_loop()]
            if held.client is None:
                client = await self._made_client()
                held.client = held.client or client  # that of a request which began at the same time
            yield held.client
        finally:
            await self.release()

    async def _made_client(self) -> LibraryClient:
        if missing := missing_libraries(self.extra):
            raise MissingRequirement(
                f"Model {self.spec!r} needs libraries that are not installed ({', '.join(map(repr, missing))}); "
                f"run: {how_to_install([self.extra])}"
            )
        # In a thread: importing the library and reading certificates take a second, and other calls continue.
        return await asyncio.to_thread(self._new_client)

    def _key(self) -> str | None:
        """The key to send: the one given, or that of the environment, unless the address is not the environment's."""
        if self._given_key is not None:
            return self._given_key.value
        if self._base_url is not None:
            return None
        return next((key for name in self.key_variables if (key := os.environ.get(name))), None)

    # --- the protocol of one provider

    @abstractmethod
    def _default_address(self) -> str:
        """The address of the provider itself."""

    @abstractmethod
    def _new_client(self) -> LibraryClient:
        """A client of the library, which does not retry. Imports the library."""

    @abstractmethod
    def _sent(self, client: Any, body: dict[str, Any], stream: bool) -> AbstractAsyncContextManager[LibraryResponse]:
        """The response to a request, whose body is read by `iter_bytes`; leaving it ends the request."""

    @abstractmethod
    def _body(self, request: ModelRequest, stream: bool) -> dict[str, Any]:
        """The JSON of a request.

        Raises:
            ConversionError: the conversation has no form in the provider's protocol.
        """

    @abstractmethod
    def _reader(self, request: ModelRequest) -> AnswerReader:
        """A reader for the answer to a request."""


def _in_unicode(answer: ModelAnswer) -> ModelAnswer:
    """The answer, with the halves of characters that a server sent apart put together."""
    try:
        jsonx.encode_unchecked(answer)
    except UnicodeEncodeError:
        return msgspec.convert(joined_everywhere(msgspec.to_builtins(answer)), ModelAnswer)
    return answer


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


class _Received:
    """A response whose body has not been read yet. Owns the bound of its size."""

    __slots__ = ("_bytes", "_chunks", "_model", "is_stream")

    def __init__(self, model: ProviderModel, response: LibraryResponse, stream: bool) -> None:
        self._model = model
        self._chunks = aiter(response.iter_bytes())
        self._bytes = 0
        kind = response.headers.get("content-type", "")
        # A wrong address often gives a page. As a stream it would have no event, and seem to have broken off.
        self.is_stream = stream and not kind.lower().startswith(("application/json", "text/html"))

    async def chunk(self) -> bytes | None:
        """The next bytes; None at the end.

        Raises:
            ModelError: the connection broke, or the answer is too large.
        """
        found = await self._model._translated(anext(self._chunks, None))
        if found is None:
            return None
        self._bytes += len(found)
        if self._bytes > self._model.max_answer_bytes:
            raise ModelError(
                f"The answer of {self._model.spec} has more than {self._model.max_answer_bytes} bytes; give the model "
                "a larger max_answer_bytes, or a lower max_tokens",
                "bad_answer",
            )
        return found

    async def content(self) -> bytes:
        """All bytes; errors as for `chunk`."""
        chunks = []
        while (found := await self.chunk()) is not None:
            chunks.append(found)
        return b"".join(chunks)

    async def drain(self) -> None:
        """Read to the end of the body, where that comes at once, so that the connection can be used again."""
        with suppress(TimeoutError, ModelError):
            async with asyncio.timeout(_PATIENCE):
                while await self.chunk() is not None:
                    pass


class _Key:
    """A key that no `repr` shows."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "[key]"


class _Held:
    """The client of one event loop, once it is made, and how many hold it."""

    __slots__ = ("__weakref__", "client", "holders")

    def __init__(self) -> None:
        self.client: LibraryClient | None = None
        self.holders = 0
