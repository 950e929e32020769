"""Which hosts and which pages a request may name. Owns the checks of the Host and Origin headers, which keep web pages
of others out: a page whose name leads to this machine (DNS rebinding), and one that uses the login of a browser."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

from toolwright.errors import ToolwrightError
from toolwright.http.access.refusals import WrongOrigin

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""The names of this machine, by which it can always be reached."""
_HOST = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""


class Origins:
    """The names of a service, and the pages that may use it.

    `hosts` are names without a port, such as "agent.example.com"; those of loopback are always among them. `origins`
    are pages of other servers that may use the service, such as "https://desk.example.com".
    """

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._hosts = frozenset(_host_name(each) for each in (*LOOPBACK, *hosts))
        self._origins = frozenset(_origin(each) for each in origins)

    def require(self, headers: Mapping[str, str], method: str = "GET") -> None:
        """Refuse a request for another server, and one of another server's page.

        Raises:
            WrongOrigin: it is one.
        """
        host = headers.get("host", "")
        name = _HOST.fullmatch(host)
        if name is None or name[1].lower() not in self._hosts:
            raise WrongOrigin(
                f"The host {host!r:.200} is not a name of this server; if it is to be one, start it with that name: "
                "toolwright serve --allowed-host NAME"
            )
        origin = headers.get("origin")
        if origin is not None and not self.allows(origin) and not _is_same(origin.lower(), host):
            raise WrongOrigin(f"A page of {origin!r:.200} may not use this server; --allowed-origin lets it")
        # A browser says so of itself, also for requests without an Origin, such as those for pictures.
        site = headers.get("sec-fetch-site", "none")
        if origin is None and site in ("cross-site", "same-site") and not _is_navigation(headers, method):
            raise WrongOrigin("A page of another server may not use this one")

    def require_own_page(self, headers: Mapping[str, str], method: str) -> None:
        """Refuse a request with the login of a browser that is not by our own page, where it could change something.

        Raises:
            WrongOrigin: it is one.
        """
        if method in SAFE:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        own = site == "same-origin" if origin is None else _is_same(origin.lower(), headers.get("host", ""))
        if not own:
            raise WrongOrigin(
                "A request with the login of a browser must come from the page of this server; a program uses a token"
            )

    def allows(self, origin: str | None) -> bool:
        """True for the origin of another server whose pages may use the service."""
        return origin is not None and origin.lower() in self._origins


def _is_navigation(headers: Mapping[str, str], method: str) -> bool:
    """True for a link that a person follows to a page of ours."""
    return (
        method in SAFE and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )


def _is_same(origin: str, host: str) -> bool:
    scheme, _, place = origin.partition("://")
    if scheme not in _DEFAULT_PORTS:
        return False  # such as "null", of a page without an origin
    # Not the scheme: a proxy in front may speak another one to us than to the browser.
    return _without_port(place, scheme) == _without_port(host.lower(), scheme)


def _without_port(place: str, scheme: str) -> str:
    return place.removesuffix(f":{_DEFAULT_PORTS[scheme]}")


def _host_name(host: str) -> str:
    name = host.strip().lower()
    try:
        if ipaddress.ip_address(name).version == 6:
            name = f"[{name}]"
    except ValueError:
        pass
    found = _HOST.fullmatch(name)
    if found is None or found[2] is not None:
        raise ToolwrightError(f"The host {host!r:.200} is not a name; use one without a port, as in agent.example.com")
    return name


def _origin(origin: str) -> str:
    written = origin.strip().lower()
    scheme, _, place = written.partition("://")
    if scheme not in _DEFAULT_PORTS or _HOST.fullmatch(place) is None:
        raise ToolwrightError(f"The origin {origin!r:.200} is not usable; write it as https://desk.example.com")
    return written
