"""A chain of models. Owns asking the next model when one cannot answer; does not own retries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import AsyncExitStack, aclosing
from typing import Any, Self

from toolwright.errors import ToolwrightError
from toolwright.providers.opening import open_model
from toolwright.tools.model import Delta, HoldsConnections, Model, ModelAnswer, ModelError, ModelRequest

NEXT_ON = frozenset({"rate_limited", "overloaded", "unavailable", "timeout", "unauthorised", "bad_answer"})
"""The errors after which the next model of a chain is asked."""


class FallbackModel:
    """Several models as one: the first is asked, and the next one when it cannot answer.

    `ModelAnswer.model` names the model that answered. A conversation may change between providers: the parts that only
    one of them reads are left out for the others. Once a model has begun to stream its answer, no other is asked.

    Args:
        models: models, or their names as `open_model` takes them, the preferred one first.
        on: the codes of a `ModelError` after which the next model is asked. By default those that another model need
            not have too; a conversation that is too long, refused content or a wrong request are not among them.
    """

    provider = "fallback"

    def __init__(self, models: Iterable[Model | str], *, on: Collection[str] = NEXT_ON) -> None:
        self.models: tuple[Model, ...] = tuple(
            open_model(model) if isinstance(model, str) else model for model in models
        )
        if not self.models:
            raise ToolwrightError("FallbackModel has no models; give at least one")
        for model in self.models:
            if not isinstance(model, Model):
                raise ToolwrightError(
                    f"FallbackModel has {model!r:.200}, which is no Model; give models or their names"
                )
        self.on = frozenset(on)
        self.name = ",".join(f"{model.provider}:{model.name}" for model in self.models)

    def __repr__(self) -> str:
        return f"<FallbackModel {self.name}>"

    @property
    def server(self) -> str:
        """The servers of its models, in order."""
        return ",".join(str(getattr(model, "server", "")) for model in self.models)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """The answer of the first model that gives one.

        Raises:
            ModelError: none does. It may be retried if one of them may.
        """
        failed: list[ModelError] = []
        for model in self.models:
            try:
                return await model.complete(request)
            except ModelError as error:
                self._next_or_raise(error, failed)
        raise _all_failed(failed)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelAnswer]:
        """The same in pieces. An error after the first piece is the error of the chain."""
        failed: list[ModelError] = []
        for model in self.models:
            begun = False
            pieces: Any = model.stream(request)
            try:
                async with aclosing(pieces):
                    async for piece in pieces:
                        begun = True
                        yield piece
                return
            except ModelError as error:
                if begun:
                    raise
                self._next_or_raise(error, failed)
        raise _all_failed(failed)

    def _next_or_raise(self, error: ModelError, failed: list[ModelError]) -> None:
        if error.code not in self.on:
            raise error
        failed.append(error)

    def hold(self) -> None:
        """Keep the connections of all models from now on."""
        for model in self.models:
            if isinstance(model, HoldsConnections):
                model.hold()

    async def release(self) -> None:
        """Close the connections of all models, unless somebody else holds them."""
        async with AsyncExitStack() as stack:  # one that fails keeps no other open
            for model in self.models:
                if isinstance(model, HoldsConnections):
                    stack.push_async_callback(model.release)

    async def __aenter__(self) -> Self:
        self.hold()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.release()


def _all_failed(failed: list[ModelError]) -> ModelError:
    if len(failed) == 1:
        return failed[0]
    said = "; ".join(str(error) for error in failed)
    again = [error for error in failed if error.retry]
    waits = [error.after for error in again if error.after is not None]
    return ModelError(
        f"None of {len(failed)} models answered: {said}",
        (again or failed)[-1].code,
        retry=bool(again),
        after=min(waits) if waits and len(waits) == len(again) else None,
    )
