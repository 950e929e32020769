"""The errors raised for the program's owner. Owns the exception tree; does not own `Failure`, which a model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwright.tools.outcome import Failure, ToolOutcome


class ToolwrightError(Exception):
    """Base of everything toolwright raises at the program's owner."""


class ToolDefinitionError(ToolwrightError):
    """A tool is defined in a way that could never run right."""


class RegistryError(ToolwrightError):
    """A registry was asked for something it must refuse, such as a taken name."""


class PolicyError(ToolwrightError):
    """A policy or one of its rules is not usable."""


class RuntimeClosed(ToolwrightError):
    """The runtime is closed, or closing, and takes no more work."""


class ConversionError(ToolwrightError):
    """A provider's message does not have the shape it claims."""


class BatchFailed(ToolwrightError):
    """A batch with `continue_on_failure=False` met a failure; carries the outcome of every call."""

    def __init__(self, message: str, outcomes: Sequence[ToolOutcome]) -> None:
        super().__init__(message)
        self.outcomes = list(outcomes)


class InvalidArguments(ToolwrightError):
    """Arguments do not fit the tool; `problems` lists each place where they do not.

    Validators raise it, and the pipeline turns it into a failure the model reads.
    """

    def __init__(self, problems: Sequence[Any]) -> None:
        super().__init__("; ".join(str(getattr(problem, "message", problem)) for problem in problems))
        self.problems = list(problems)


class ToolError(Exception):
    """Raise it inside a tool to fail with a message that the model may read.

    Any other exception counts as internal: the model sees one generic sentence, the record keeps the cause.

    Args:
        message: what the model reads.
        category: one of the failure categories.
        code: a short stable word for programs.
        retry: whether running the call again is safe and may help.
        retry_after: seconds to wait before that; implies `retry`.
        detail: private text for the record and the log, never for the model.
    """

    def __init__(
        self,
        message: str,
        *,
        category: str = "execution",
        code: str = "tool_error",
        retry: bool = False,
        retry_after: float | None = None,
        detail: str | None = None,
    ) -> None:
        super().__init__(message)
        from toolwright.tools.outcome import Failure

        self.failure: Failure = Failure(
            category=category,
            code=code,
            message=message,
            source="tool",
            retry=retry or retry_after is not None,
            retry_after=retry_after,
            detail=detail,
        )
