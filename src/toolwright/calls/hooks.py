"""Code of the host around a call. Owns the types that hooks see and may return; does not own when they run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import CoroutineType
from typing import Any, TypeVar, overload

from msgspec import Struct
from msgspec.structs import force_setattr

from toolwright.argument_checks import unusable
from toolwright.calls.around import Around
from toolwright.plain_data import plain_data, plain_value
from toolwright.tools.arguments import hide_secret
from toolwright.tools.capability import Capability
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import Failure, Success, ToolOutcome
from toolwright.tools.session_protocols import SessionView

T = TypeVar("T")


class HookCall(Struct, frozen=True, kw_only=True):
    """A call as a hook sees it: resolved and validated."""

    session: str
    batch: str
    call_id: str
    tool: ToolDefinition
    arguments: Mapping[str, Any]
    source: str
    parent: str | None

    def to_json(self) -> dict[str, Any]:
        """The call as plain data; a placeholder stands for the argument that its tool declares secret."""
        return plain_data(self) | {"arguments": plain_value(hide_secret(self.arguments, self.tool.secret))}


class PrepareCall(HookCall, frozen=True, kw_only=True):
    """A call as the prepare step of its tool sees it. `view` is its session, which can only be read.

    The step runs before the policy decides, and again when the call is continued after a crash: data that it reads may
    have changed since.
    """

    view: SessionView

    def to_json(self) -> dict[str, Any]:
        """The call as plain data, without the view."""
        shown = hide_secret(self.arguments, self.tool.secret)
        return plain_data(self, without=("view",)) | {"arguments": plain_value(shown)}


class ReplaceArguments(Struct, frozen=True):
    """A before-hook's answer: continue with these arguments, which are validated again."""

    arguments: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The arguments as plain data. Which of them is secret is known to the call alone."""
        return plain_data(self)


class Answer(Struct, frozen=True):
    """A before-hook's answer, or a tool's prepare step's: this is the value, do not run the tool."""

    value: Any = None

    def to_json(self) -> dict[str, Any]:
        """The value as plain data."""
        return plain_data(self)


BeforeAnswer = ReplaceArguments | Answer | Success | Failure | None
BeforeHook = Callable[[HookCall], BeforeAnswer | Awaitable[BeforeAnswer]]
AfterHook = Callable[[HookCall, ToolOutcome], ToolOutcome | Awaitable[ToolOutcome | None] | None]


class ProjectedCall(Struct, frozen=True, kw_only=True):
    """The call whose outcome a projector writes, as others may see it: secrets are not among the arguments.

    `tool` is None for a call of a tool that is not registered. `duration` is in seconds, from the start of the tool to
    now; 0 for a call that never ran.
    """

    session: str
    scope: str
    batch: str
    call_id: str
    name: str
    tool: ToolDefinition | None
    arguments: Any
    source: str
    parent: str | None
    duration: float

    def to_json(self) -> dict[str, Any]:
        """The call as plain data."""
        return plain_data(self)


Projector = Callable[[ToolOutcome], str | Awaitable[str]] | Callable[[ToolOutcome, ProjectedCall], str | Awaitable[str]]
"""Takes an outcome, and its call if it has a second parameter, which is required or named `call`."""


class Hooks(Struct, frozen=True):
    """The hooks of a runtime, run in order. `project` turns a finished outcome into the text for the model. `around`
    makes context managers around each attempt, the first one outermost."""

    before: tuple[BeforeHook, ...] = ()
    after: tuple[AfterHook, ...] = ()
    project: Projector | None = None
    project_call: bool = False
    """Whether the projector takes the call, too; found out here, once."""
    around: tuple[Around, ...] = ()

    def __post_init__(self) -> None:
        if self.project is not None:
            force_setattr(self, "project_call", takes_call(self.project))
        for hook in (*self.before, *self.after):
            if not callable(hook):
                raise unusable("hook", hook, "a function")
        for factory in self.around:
            if not is_around(factory):
                raise unusable("context manager around calls", factory, "a function under @contextlib.contextmanager")

    def with_projector(self, projector: Projector | None) -> Hooks:
        """These, with another projector where one is given."""
        return self if projector is None else Hooks(self.before, self.after, projector, around=self.around)

    def and_those_of(self, capabilities: Sequence[Capability]) -> Hooks:
        """These, after the hooks of capabilities."""
        before = (hook for one in capabilities for hook in one.before)
        after = (hook for one in capabilities for hook in one.after)
        return Hooks((*before, *self.before), (*after, *self.after), self.project, around=self.around)


def is_around(given: object) -> bool:
    """True for a function whose result may be a context manager, which an async one gives none of."""
    if not callable(given):
        return False
    function = inspect.unwrap(given)
    return not (inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function))


def is_projector(given: object) -> bool:
    """True for a function of an outcome, or of an outcome and its call."""
    if not callable(given):
        return False
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):
        return True  # A function written in C has no such attribute.
    return any(_binds(signature, count) for count in (1, 2))


def takes_call(projector: Projector) -> bool:
    """True when a projector takes the call beside its outcome."""
    try:
        signature = inspect.signature(projector)
    except (TypeError, ValueError):
        return False
    positional = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return _binds(signature, 2) and (not _binds(signature, 1) or (len(positional) > 1 and positional[1].name == "call"))


def _binds(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


@overload
async def invoke(function: Callable[..., Awaitable[T]], *args: object) -> T: ...
@overload
async def invoke(function: Callable[..., T], *args: object) -> T: ...
async def invoke(function: Callable[..., object], *args: object) -> object:
    """Call code of the host or of a tool, sync or async. It raises only an `Exception`, so that it ends one call."""
    try:
        answer = function(*args)
        return await answer if type(answer) is CoroutineType or inspect.isawaitable(answer) else answer
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        if _stops_this_task(error):
            raise
        raise RuntimeError(f"{type(error).__name__} was raised") from error


async def awaited(answer: Awaitable[T]) -> T:
    """Await the result of such code."""
    return await invoke(lambda: answer)


def _stops_this_task(error: BaseException) -> bool:
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and bool(task.cancelling())


def loop_is_ending(task: asyncio.Task[Any] | None) -> bool:
    """True when every task of the loop other than this one is being cancelled, as at the end of `asyncio.run`."""
    return all(other.cancelling() for other in asyncio.all_tasks() if other is not task)


def invoke_now(function: Callable[..., T], *args: object) -> T:
    """Call code of the host or of a tool that must answer at once."""
    try:
        return function(*args)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RuntimeError(f"{type(error).__name__} was raised") from error
