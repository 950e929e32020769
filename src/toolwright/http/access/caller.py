"""The caller of a request. Owns what it may do and in which sessions; does not own how it is proved."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

Scope = Literal["read", "run", "approve", "admin"]
"""A kind of request: to look, to start or stop work, to decide for a person, to administer."""
SCOPES: tuple[Scope, ...] = ("read", "run", "approve", "admin")
EVERY_SESSION = ("*",)
"""The session patterns of a caller that is not restricted."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The person or program that a token proves, with its scopes in the sessions that match one of its patterns.

    A scope includes no other one, except `admin`, which includes all. A pattern is a shell-style one, compared with the
    case of letters; `*` alone is every session.
    """

    name: str
    scopes: frozenset[Scope]
    sessions: tuple[str, ...] = EVERY_SESSION
    token: str | None = None
    """The id of the token, which is no secret."""
    address: str | None = None
    """The address that the request came from."""
    login: str | None = None
    """The id of its login, where a browser is logged in."""
    _patterns: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        patterns = () if self.everywhere else map(_compiled, self.sessions)
        object.__setattr__(self, "_patterns", tuple(patterns))

    @property
    def everywhere(self) -> bool:
        """True when it is not restricted to some sessions."""
        return "*" in self.sessions

    def sees(self, session: str) -> bool:
        """True for a session that is among its own."""
        return self.everywhere or any(pattern.fullmatch(session) for pattern in self._patterns)

    def may(self, scope: Scope, session: str | None = None) -> bool:
        """True when it has the scope; with a session, when it has it there.

        What is not of one session, such as a list, needs the scope only. The list then has the entries of sessions that
        it `sees`; what concerns all sessions, such as tokens, needs `everywhere` also.
        """
        return (scope in self.scopes or "admin" in self.scopes) and (session is None or self.sees(session))

    @property
    def by(self) -> str:
        """Who decides, for a decision that it makes: its name."""
        return self.name

    @property
    def via(self) -> str:
        """From where, for a decision that it makes: the token and the address."""
        way = "http" if self.login is None else "page"
        return " ".join([way, *filter(None, (self.token, self.address))])

    @property
    def proof(self) -> str | None:
        """The id of what proves it: its login, or else its token."""
        return self.login or self.token


@lru_cache(1_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))


class Authenticate(Protocol):
    """Proves who makes a request, before anything else of it is read."""

    async def __call__(self, connection: HTTPConnection) -> Caller:
        """The caller of a request.

        Raises:
            Unauthenticated: no token, or none that is valid now. The answer is 401.
            WrongOrigin: the Host or Origin header is not one that is expected. The answer is 403.
            TooManyRequests: wrong tokens came too often from there, or the caller asks too often. The answer is 429.
        """
        ...
