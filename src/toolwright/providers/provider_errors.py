"""The errors of providers as `ModelError`s. Owns telling them apart, and keeping keys out of them; raises none."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping
from typing import Any

from toolwright.tools.model import ModelError

LONGEST_SAID = 500
"""Characters of a provider's own words in an error."""
_LONGEST_WAIT = 86_400.0
_SECRETS = re.compile(r"\b(?:sk|pk|rk|key|gsk|xai|hf)[-_][A-Za-z0-9_\-*.]{6,}|(?i:\bbearer\s+)[^\s\"',;]+")
_CONTEXT = re.compile(
    r"context[ _-]?(?:length|window|size|limit)|maximum context|prompt is too long|too many (?:input )?tokens"
    r"|input is too long|exceeds? the (?:model'?s )?(?:maximum|max) (?:number of tokens|input)|reduce the length of",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"content[ _-]?(?:filter|policy|management|moderation)|safety system|flagged|usage polic|responsible ?ai"
    r"|prohibited content|violat\w+ .{0,40}polic",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"insufficient_quota|billing|credit balance|quota exceeded for your plan", re.IGNORECASE)


def error_said(
    model: str,
    *,
    status: int | None = None,
    kinds: tuple[str, ...] = (),
    message: str = "",
    after: float | None = None,
    secrets: tuple[str, ...] = (),
) -> ModelError:
    """The error for a refusal of the provider: its HTTP status, the types and codes in it, and its own words."""
    said = cleaned(message, secrets)
    told = " ".join(each for each in kinds if each)
    about = f"{model} ({_status(status, told, secrets)}{': ' + said if said else ''})"
    words = f"{told} {message}"
    if (
        status == 413
        or "request_too_large" in kinds
        or (status in (None, 400, 422, 500) and _is_context(told, message))
    ):
        return ModelError(
            f"{about}: the conversation does not fit into the model's context; shorten it, or use another model",
            "context_overflow",
        )
    if status in (None, 400, 403, 422) and _REFUSED.search(words):
        return ModelError(f"{about}: the provider refuses this content; ask for something else", "content_refused")
    if status == 402 or _NO_CREDIT.search(told) or (status in (400, 403, 429) and _NO_CREDIT.search(words)):
        return ModelError(f"{about}: the account has no credit left; add some at the provider", "rate_limited")
    if status == 429 or "rate_limit_error" in kinds or "rate_limit_exceeded" in kinds:
        return ModelError(
            f"{about}: the rate limit is reached; ask again {_when(after)}", "rate_limited", retry=True, after=after
        )
    if status in (401, 403) or "authentication_error" in kinds or "permission_error" in kinds:
        return ModelError(
            f"{about}: the provider does not accept the key; set one that may use this model", "unauthorised"
        )
    if status in (503, 529) or "overloaded_error" in kinds:
        return ModelError(
            f"{about}: the provider is overloaded; ask again {_when(after)}", "overloaded", retry=True, after=after
        )
    if status in (408, 504) or "timeout_error" in kinds:
        return ModelError(f"{about}: the provider took too long; ask again", "timeout", retry=True, after=after)
    if status is None or status >= 500 or status in (409, 425):
        return ModelError(
            f"{about}: the provider failed; ask again {_when(after)}", "unavailable", retry=True, after=after
        )
    return ModelError(f"{about}: the provider refuses the request; correct it", "bad_request")


def error_of_status(
    model: str, status: int, body: object, headers: Mapping[str, str], secrets: tuple[str, ...]
) -> ModelError:
    """The error for an answer with an HTTP status of 400 or more."""
    kinds, message = words_of(body)
    return error_said(
        model, status=status, kinds=kinds, message=message, after=seconds_to_wait(headers), secrets=secrets
    )


def words_of(body: object) -> tuple[tuple[str, ...], str]:
    """The types and codes in the body of an error, and its message."""
    found: Any = body
    for name in ("error", "detail"):
        if isinstance(found, dict) and isinstance(found.get(name), (dict, str)):
            found = found[name]
            break
    if isinstance(found, str):
        return (), found
    if not isinstance(found, dict):
        return (), ""
    inner = found.get("innererror")
    codes = [found.get("type"), found.get("code"), inner.get("code") if isinstance(inner, dict) else None]
    message = found.get("message")
    return tuple(each for each in codes if isinstance(each, str)), message if isinstance(message, str) else ""


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """The seconds that a provider asks to wait: `retry-after-ms`, or `retry-after` as a number or a date."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name)
        if not text:
            continue
        try:
            seconds = float(text) / unit
        except ValueError:
            seconds = _until(text)
        if math.isfinite(seconds):
            return min(max(seconds, 0.0), _LONGEST_WAIT)
    return None


def cleaned(message: str, secrets: tuple[str, ...]) -> str:
    """The words of a provider without keys and control characters, and not longer than an error should be."""
    for secret in secrets:
        if secret:
            message = message.replace(secret, "[key]")
    message = _SECRETS.sub("[key]", message[: 4 * LONGEST_SAID])
    message = " ".join("".join(each if each.isprintable() else " " for each in message).split())
    return message if len(message) <= LONGEST_SAID else f"{message[:LONGEST_SAID]}..."


def _status(status: int | None, told: str, secrets: tuple[str, ...]) -> str:
    return f"HTTP {status}" if status else cleaned(told, secrets) or "an error in its answer"


def _is_context(told: str, message: str) -> bool:
    return "context_length_exceeded" in told or "exceed_context_size" in told or bool(_CONTEXT.search(message))


def _when(after: float | None) -> str:
    return "later" if after is None else f"in {after:g} s"


def _until(text: str) -> float:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, OverflowError, OSError):
        return math.nan
