"""Exceptions with a text that a model may read. Owns the failure that each of them stands for.

A child process imports this module to answer, so it imports little.
"""

from __future__ import annotations

from toolwright.errors import InvalidArguments, RunRefused, ServiceError
from toolwright.tools.model import ModelError
from toolwright.tools.outcome import Failure, ToolError
from toolwright.tools.validation_messages import as_data, summarise

CATEGORY_OF_SERVICE = {
    "invalid_arguments": "invalid_arguments",
    "is_directory": "invalid_arguments",
    "not_directory": "invalid_arguments",
    "not_empty": "invalid_arguments",
    "not_text": "invalid_arguments",
    "no_model": "unavailable",
    "not_installed": "unavailable",
    "not_found": "not_found",
    "permission_denied": "permission_denied",
    "quota": "resource_limit",
    "session_limit": "resource_limit",
    "worker_limit": "resource_limit",
    "timeout": "timeout",
    "unavailable": "unavailable",
}
"""The category of a failure by the code of a session service's refusal."""


def failure_told_by(name: str, error: BaseException) -> Failure | None:
    """The failure that an exception of a tool's code stands for; None for one that a model may not read."""
    if isinstance(error, ToolError) and hasattr(error, "failure"):
        return error.failure
    if isinstance(error, InvalidArguments):
        return invalid(name, error)
    if isinstance(error, RunRefused):
        category = "internal" if error.code == "policy_error" else "permission_denied"
        return Failure(category=category, code=error.code, message=str(error), source="policy")
    if isinstance(error, ServiceError):
        category = CATEGORY_OF_SERVICE.get(error.code, "execution")
        return Failure(category=category, code=error.code, message=str(error), source="tool")
    if isinstance(error, ModelError):
        category = "timeout" if error.code == "timeout" else "unavailable" if error.retry else "external"
        message = f"The model that {name!r} asks could not answer ({error.code})"
        retry, after = error.retry, error.after if error.retry else None
        return Failure(
            category=category, code=error.code, message=message, retry=retry, retry_after=after, detail=str(error)
        )
    return None


def invalid(name: str, error: InvalidArguments) -> Failure:
    """The failure a model reads when its arguments do not fit."""
    return Failure(
        category="invalid_arguments",
        code="invalid_arguments",
        message=f"The arguments of {name!r} do not fit its schema:\n{summarise(error.problems)}",
        source="runtime",
        data=as_data(error.problems),
    )
