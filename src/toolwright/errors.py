"""The errors raised for the program's owner. Owns the exception tree; does not own `Failure`, which a model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ToolwrightError(Exception):
    """Base of everything toolwright raises at the program's owner."""


class ToolDefinitionError(ToolwrightError):
    """A tool is defined in a way that could never run right."""


class RegistryError(ToolwrightError):
    """A registry was asked for something it must refuse, such as a taken name."""


class PolicyError(ToolwrightError):
    """A policy or one of its rules is not usable."""


class RuleUnknown(PolicyError):
    """A run was started under a rule that the program which is to run it does not have."""


class MissingRequirement(ToolwrightError):
    """An app cannot be opened here: an extra, a model, a lifespan or a master key that its tools or its store need is
    missing. The message says how to provide it."""


class RuntimeClosed(ToolwrightError):
    """The runtime is closed, or closing, and takes no more work."""


class StoreError(ToolwrightError):
    """A store cannot be opened, read or written. It is never recorded as a tool's outcome."""


class StoreUnavailable(StoreError):
    """A store did not answer: it is busy, or out of reach. Whether it wrote is not known; the verb may be repeated.

    Any other `StoreError` says that the store refused, and that nothing was written.
    """


class StoreDamaged(StoreError):
    """The content of a store cannot be trusted any more; restore it from a copy."""


class StoreLost(StoreError):
    """The file of an open store was deleted, moved, replaced or truncated: it can store nothing more."""


class DriverError(ToolwrightError):
    """A driver, which brings work to workers, is not usable."""


class DriverUnavailable(DriverError):
    """A driver cannot be reached now. Nothing is lost by that: the work is in the store, and is offered again."""


class MachineError(ToolwrightError):
    """The machine has no thread, process or memory for a call, which did not run. It is never a tool's outcome.

    The call may run when it comes again.
    """


class ReplayMismatch(ToolwrightError):
    """A call's identity was used before, for another tool or other arguments; `differences` lists the first paths."""

    def __init__(self, message: str, differences: Sequence[str]) -> None:
        super().__init__(message)
        self.differences = list(differences)


class KeyRefused(ToolwrightError):
    """A key cannot be used: `why` is "forged", "unknown", "revoked", "over", "kind" for the key of another wait, or
    "session" for the key of another session."""

    def __init__(self, message: str, why: str) -> None:
        super().__init__(message)
        self.why = why


class ServiceError(ToolwrightError):
    """A session service refuses a request: `code` is a short stable word, such as "not_found" or "quota".

    A tool that does not catch it fails with this code and message, which the model may read.
    """

    def __init__(self, message: str, code: str = "invalid_arguments") -> None:
        super().__init__(message)
        self.code = code


class RunError(ServiceError):
    """A run, a schedule or a trigger is refused, such as with code "session_limit"."""


class RunRefused(RunError):
    """The policy of its starter does not let a run, schedule or trigger be started: `code` is "denied",
    "needs_approval" where nobody can be asked, or "policy_error". `rule` is the name of the rule that decided so."""

    def __init__(self, message: str, code: str, rule: str | None = None) -> None:
        super().__init__(message, code)
        self.rule = rule


class TurnError(ServiceError):
    """A turn is refused: its message, model or options are not usable, or its id is another turn's ("conflict")."""


class ScheduleError(RunError):
    """A schedule is refused: its timing cannot be read, never comes, or is past, or its policy is not known."""


class SecretsError(ToolwrightError):
    """A secret cannot be sealed, opened or redacted, because a key or a library is missing. Stored secrets do not
    change."""


class CapabilityError(ToolwrightError):
    """A capability is not known or not usable, or does not go with the others."""


class ArchiveError(ToolwrightError):
    """An archive of a session cannot be written or read, or its content does not match its index."""


class ConversionError(ToolwrightError):
    """A provider's message does not have the shape it claims."""


class BatchFailed(ToolwrightError):
    """A batch with `continue_on_failure=False` met a failure; carries the outcome of every call."""

    def __init__(self, message: str, outcomes: Sequence[Any]) -> None:
        super().__init__(message)
        self.outcomes = list(outcomes)


class InvalidArguments(ToolwrightError):
    """Arguments do not fit the tool; `problems` lists each place where they do not.

    Validators raise it, and the pipeline turns it into a failure the model reads.
    """

    def __init__(self, problems: Sequence[Any]) -> None:
        super().__init__("; ".join(str(getattr(problem, "message", problem)) for problem in problems))
        self.problems = list(problems)
