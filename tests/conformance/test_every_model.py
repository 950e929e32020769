"""Every model passes the suite that ships with the package: those for tests, a chain, and those of providers."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.providers.dialects import DIALECTS, Dialect
from tests.providers.loopback import Asked, Reply, loopback, whole
from tests.support import fail_after
from toolwright.providers import FallbackModel
from toolwright.testing import FunctionModel, ScriptedModel
from toolwright.testing.conformance import MODEL_CASES
from toolwright.testing.conformance.models import Models, Scripted
from toolwright.tools.model import Model, ModelAnswer, ModelError, ModelRequest


class OfScript:
    @asynccontextmanager
    async def open(self, script: Sequence[Scripted]) -> AsyncIterator[Model]:
        yield ScriptedModel(script)


class OfFunction:
    @asynccontextmanager
    async def open(self, script: Sequence[Scripted]) -> AsyncIterator[Model]:
        said = iter(script)

        async def answer(request: ModelRequest) -> ModelAnswer:
            given = next(said)
            if isinstance(given, ModelError):
                raise given
            return given

        yield FunctionModel(answer)


class OfChain:
    """The first model of the chain never answers."""

    @asynccontextmanager
    async def open(self, script: Sequence[Scripted]) -> AsyncIterator[Model]:
        def down(request: ModelRequest) -> str:
            raise ModelError("down", "unavailable", retry=True)

        yield FallbackModel([FunctionModel(down), ScriptedModel(script)])


class OfProvider:
    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    @asynccontextmanager
    async def open(self, script: Sequence[Scripted]) -> AsyncIterator[Model]:
        async with loopback() as server, self.dialect.model(server) as model:
            server.will(*map(self.reply, script))
            yield model

    def reply(self, given: Scripted) -> Reply | Callable[[Asked], Reply]:
        if isinstance(given, ModelAnswer):
            reply: Callable[[Asked], Reply] = self.dialect.reply(given, size=11)
            return reply
        assert given.code == "rate_limited"
        return whole({"error": {"message": str(given)}}, 429, retry_after=str(given.after))


HARNESSES: dict[str, Models] = {
    "scripted": OfScript(),
    "function": OfFunction(),
    "fallback": OfChain(),
    **{repr(dialect): OfProvider(dialect) for dialect in DIALECTS},
}


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize("case", MODEL_CASES, ids=str)
@pytest.mark.parametrize("models", HARNESSES)
async def test_every_model_keeps_its_promises(case, models):
    async with fail_after(30):
        await case.run(HARNESSES[models])


def test_the_cases_have_names_of_their_own():
    assert len({case.name for case in MODEL_CASES}) == len(MODEL_CASES) >= 18
