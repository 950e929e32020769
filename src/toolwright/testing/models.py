"""Models for tests and demos, which need no provider: a script of answers, and a function that answers.

Both are `Model`s. Their answers are streamed word by word, so that a program under test sees deltas.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from toolwright.errors import ToolwrightError
from toolwright.tools.call import ToolCall
from toolwright.tools.model import Delta, ModelAnswer, ModelError, ModelRequest, TextDelta, to_answer

Given: TypeAlias = str | Sequence[ToolCall] | ModelAnswer
"""An answer as a test writes it: a text, a list of calls, or a `ModelAnswer`."""
_WORD = re.compile(r"\S+\s*|\s+")


class FunctionModel:
    """A model that is a function of the `ModelRequest`: it returns a text, a list of calls or a `ModelAnswer`."""

    provider = "function"

    def __init__(self, function: Callable[[ModelRequest], Awaitable[Given] | Given], *, name: str = "function") -> None:
        if not callable(function):
            raise ToolwrightError(f"FunctionModel({function!r:.200}) is not usable; give a function of the request")
        self._function = function
        self.name = name

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """The answer of the function."""
        given = self._function(request)
        return to_answer(await given if inspect.isawaitable(given) else given, f"{self.provider}:{self.name}")

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelAnswer]:
        """The same, word by word."""
        answer = await self.complete(request)
        for word in _WORD.findall(answer.text):
            yield TextDelta(word)
        yield answer

    def __repr__(self) -> str:
        return f"<FunctionModel {self.name!r}>"


class ScriptedModel:
    """A model that gives prepared answers, in order. Each session has the script from its beginning.

    The answer is chosen by the number of answers that the conversation has already, so that a turn which continues in
    another process continues in the script. Beyond the end of the script, a new model gives its answers
    from the first one: a program that continues a turn may be given only the rest of the script. A `ModelError` in the
    script is raised once in each session, before the answer that follows it.

    `requests` are the requests it was sent, for a test to look at.
    """

    provider = "scripted"

    def __init__(self, answers: Iterable[Given | ModelError], *, name: str = "script") -> None:
        self.name = name
        spec = f"{self.provider}:{name}"
        self._answers: list[ModelAnswer] = []
        self._failures: dict[int, list[ModelError]] = {}
        for each in answers:
            if isinstance(each, ModelError):
                self._failures.setdefault(len(self._answers), []).append(each)
            else:
                self._answers.append(to_answer(list(each) if isinstance(each, tuple) else each, spec))
        self._given: Counter[str] = Counter()
        self._failed: Counter[tuple[str, int]] = Counter()
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """The next answer of the script.

        Raises:
            ModelError: the script has one here.
            ToolwrightError: the script has ended.
        """
        self.requests.append(request)
        given = self._given[request.session]
        for position in (request.number, given):
            failures, failed = self._failures.get(position, ()), self._failed[request.session, position]
            if failed < len(failures):
                self._failed[request.session, position] += 1
                raise failures[failed]
            if position < len(self._answers):
                self._given[request.session] = given + 1
                return self._answers[position]
        raise ToolwrightError(
            f"The script has {len(self._answers)} answers, and session {request.session!r} asks for another; add one"
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelAnswer]:
        """The same, word by word."""
        answer = await self.complete(request)
        for word in _WORD.findall(answer.text):
            yield TextDelta(word)
        yield answer

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.name!r}: {len(self._answers)} answers>"
