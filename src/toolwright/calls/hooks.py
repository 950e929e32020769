"""Code of the host around a call. Owns what hooks see and may answer; does not own when they run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from toolwright.given import unusable
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import Failure, Success, ToolOutcome


class HookCall(Struct, frozen=True, kw_only=True):
    """A call as a hook sees it: resolved and validated."""

    session: str
    batch: str
    call_id: str
    tool: ToolDefinition
    arguments: Mapping[str, Any]
    source: str
    parent: str | None


class ReplaceArguments(Struct, frozen=True):
    """A before-hook's answer: go on with these arguments, which are validated again."""

    arguments: Mapping[str, Any]


class Answer(Struct, frozen=True):
    """A before-hook's answer, or a tool's prepare step's: this is the value, do not run the tool."""

    value: Any = None


BeforeAnswer = ReplaceArguments | Answer | Success | Failure | None
BeforeHook = Callable[[HookCall], BeforeAnswer | Awaitable[BeforeAnswer]]
AfterHook = Callable[[HookCall, ToolOutcome], ToolOutcome | Awaitable[ToolOutcome | None] | None]
Projector = Callable[[ToolOutcome], str]


class Hooks(Struct, frozen=True):
    """The hooks of a runtime, run in order. `project` turns a finished outcome into what the model reads."""

    before: tuple[BeforeHook, ...] = ()
    after: tuple[AfterHook, ...] = ()
    project: Projector | None = None

    def __post_init__(self) -> None:
        for hook in (*self.before, *self.after):
            if not callable(hook):
                raise unusable("hook", hook, "a function")


async def ask(function: Callable[..., Any], *args: Any) -> Any:
    """Call code of the host or of a tool, sync or async. What it raises is an Exception, so that it ends one call."""
    answer = ask_now(function, *args)
    if not inspect.isawaitable(answer):
        return answer
    try:
        return await answer
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise RuntimeError(f"{type(error).__name__} was raised") from error


def ask_now(function: Callable[..., Any], *args: Any) -> Any:
    """Call code of the host or of a tool that must answer at once."""
    try:
        return function(*args)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RuntimeError(f"{type(error).__name__} was raised") from error
