"""The loopback server, and the models that ask it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.providers.dialects import DIALECTS, Dialect
from tests.providers.loopback import Loopback, loopback
from tests.support import fail_after
from toolwright.tools.model import Delta, ModelAnswer, ModelRequest

OpenModel = Callable[..., Awaitable[Any]]


@pytest.fixture
async def server() -> AsyncIterator[Loopback]:
    async with loopback() as running:
        yield running


@pytest.fixture(params=DIALECTS, ids=repr)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Every provider's protocol in turn."""
    found: Dialect = request.param
    return found


@pytest.fixture
async def open_model_of(server: Loopback) -> AsyncIterator[OpenModel]:
    """Makes models of a dialect that ask the loopback server; their connections are closed at the end."""
    async with AsyncExitStack() as stack:

        async def opened(dialect: Dialect, **options: Any) -> Any:
            return await stack.enter_async_context(dialect.model(server, **options))

        yield opened


@pytest.fixture
async def model(dialect: Dialect, open_model_of: OpenModel) -> Any:
    """A model of the dialect."""
    return await open_model_of(dialect)


async def asked(model: Any, request: ModelRequest) -> tuple[list[Delta], ModelAnswer]:
    """The pieces of a streamed answer, and the answer."""
    async with fail_after(10):
        given = [piece async for piece in model.stream(request)]
    assert isinstance(given[-1], ModelAnswer)
    assert not any(isinstance(piece, ModelAnswer) for piece in given[:-1])
    return given[:-1], given[-1]
