"""Errors as problem details (RFC 9457). Owns which status, code and members an exception of ours has over HTTP; an
unexpected exception shows only that it is in the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from msgspec import Struct, to_builtins

from toolwright.errors import (
    ConversionError,
    InvalidArguments,
    KeyRefused,
    MachineError,
    ReplayMismatch,
    RunRefused,
    RuntimeClosed,
    ServiceError,
    StoreError,
    ToolwrightError,
)
from toolwright.http.access.refusals import AccessRefused
from toolwright.http.answers import JsonAnswer
from toolwright.log_fields import log_fields
from toolwright.tools.validation_messages import ArgumentProblem, as_data

log = logging.getLogger("toolwright.http")

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = 2
"""Seconds after which a request may be made again that a store or a machine could not serve."""


class ProblemDetails(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was refused or failed."""

    type: str
    """A name for the kind of problem: `urn:toolwright:problem:` and the code."""
    title: str
    """The name of the status."""
    status: int
    code: str
    """A short stable word for programs."""
    detail: str
    """What is wrong, and the way out."""
    rule: str | None = None
    """The rule that refused, where a policy did."""
    stands: Any = None
    """What stands already, where the request came too late or contradicts it."""
    problems: list[ArgumentProblem] | None = None
    """Each place where the request does not fit."""
    differences: list[str] | None = None
    """The paths in which a call differs from the one of the same identity that came before."""


class Problem(ToolwrightError):
    """A request that is refused with a status, a code and a sentence; `members` are more fields of `ProblemDetails`."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})
        self.members = dict(members or {})


def not_found(what: str) -> Problem:
    """The problem of something that is not there, or not for this caller: both read the same."""
    return Problem(404, "not_found", what)


_OF_SERVICE: dict[str, int] = {
    "conflict": 409,
    "denied": 403,
    "ended": 409,
    "exists": 409,
    "needs_approval": 403,
    "not_empty": 409,
    "not_found": 404,
    "not_own": 404,
    "over": 409,
    "own_tool": 409,
    "permission_denied": 403,
    "policy_error": 403,
    "quota": 409,
    "session_limit": 429,
    "too_large": 413,
    "too_long": 413,
    "unfinished": 409,
    "worker_limit": 429,
}
"""The status for the code of a `ServiceError`; 422 for any other."""
_OF_KEYS: dict[str, int] = {"forged": 404, "unknown": 404, "session": 404, "kind": 422, "revoked": 410, "over": 410}


def problem_of(error: Exception) -> Problem:
    """The problem that an exception is over HTTP. An unexpected one is logged, and tells nothing of itself."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, AccessRefused):
        return Problem(error.status, error.code, str(error), headers=error.headers)
    if isinstance(error, InvalidArguments):
        return invalid(error.problems)
    if isinstance(error, ReplayMismatch):
        return Problem(409, "replay_mismatch", str(error), members={"differences": error.differences})
    if isinstance(error, KeyRefused):
        return Problem(_OF_KEYS.get(error.why, 422), f"key_{error.why}", str(error))
    if isinstance(error, RunRefused):
        return Problem(403, error.code, str(error), members={"rule": error.rule})
    if isinstance(error, ServiceError):
        return Problem(_OF_SERVICE.get(error.code, 422), error.code, str(error))
    if isinstance(error, (StoreError, MachineError, RuntimeClosed)):
        return unavailable(str(error))
    if isinstance(error, ConversionError):
        return Problem(422, "unknown_shape", str(error))
    if isinstance(error, ToolwrightError):
        return Problem(422, "refused", str(error))
    log.error("A request failed", exc_info=error, extra=log_fields("http.failed"))
    return Problem(500, "internal", "The request failed by an error of the server, which is in its log")


def invalid(problems: list[ArgumentProblem]) -> Problem:
    """The problem of a request that does not fit its types."""
    told = as_data(problems)["problems"]
    detail = "; ".join(f"{one['path']}: {one['message']}" for one in told[:5])
    return Problem(422, "invalid", f"The request does not fit: {detail}", members={"problems": told})


def unavailable(detail: str) -> Problem:
    """The problem of a store or a machine that cannot serve now."""
    return Problem(503, "unavailable", detail, headers={"Retry-After": str(RETRY_AFTER)})


def details_of(problem: Problem) -> dict[str, Any]:
    """The problem as it is written."""
    try:
        title = HTTPStatus(problem.status).phrase
    except ValueError:
        title = "Problem"
    written: dict[str, Any] = {
        "type": f"urn:toolwright:problem:{problem.code}",
        "title": title,
        "status": problem.status,
        "code": problem.code,
        "detail": str(problem).encode("utf-8", "replace").decode(),
    }
    members = {name: value for name, value in problem.members.items() if value is not None}
    return {**written, **to_builtins(members)}


def answer_of(problem: Problem) -> JsonAnswer:
    """The answer that tells a problem."""
    return JsonAnswer.of(details_of(problem), problem.status, problem.headers, media_type=MEDIA_TYPE)
