"""URLs that a model wrote. Owns which spellings are fetched; does not own which hosts may be reached.

A spelling that two parsers might read in two ways is refused, not interpreted. No message repeats the URL: it may hold
a secret.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urljoin

import httpx
from msgspec import Struct

from toolwright.builtin.web import url_credentials as credentials
from toolwright.tools.outcome import ToolError

LONGEST = 4_096
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SHAPE = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<rest>[/?#].*)?", re.ASCII | re.IGNORECASE | re.DOTALL
)
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^\[\]:]+)(?::(?P<port>[0-9]{1,5})?)?", re.ASCII | re.IGNORECASE)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
# The last label decides: resolvers take such a name for an address, in one of many spellings.
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)


class Target(Struct, frozen=True):
    """A URL that may be asked for, once the address of its host is found to be allowed."""

    url: httpx.URL
    scheme: str
    host: str
    port: int

    @property
    def shown(self) -> str:
        """The URL as the model may see it. It has no credentials, and no fragment."""
        return str(self.url)

    def follow(self, location: str) -> Target:
        """Where a redirect leads.

        Raises:
            ToolError: to a URL that is refused.
        """
        _check_text(location)
        try:
            joined = urljoin(str(self.url), location)
        except ValueError:
            raise refused("cannot be read") from None
        return read_url(joined)


def read_url(text: str) -> Target:
    """Read a URL.

    Raises:
        ToolError: the URL cannot be fetched.
    """
    _check_text(text)
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise refused("is not absolute; write it in full, as in 'https://example.com/page'")
    scheme = shape["scheme"].lower()
    if scheme not in _DEFAULT_PORTS:
        raise refused("has another scheme than http and https", "scheme_refused", "permission_denied")
    if "@" in shape["authority"]:
        raise ToolError(credentials.MESSAGE, category="permission_denied", code=credentials.CODE)
    authority = _AUTHORITY.fullmatch(shape["authority"])
    if authority is None:
        raise refused("has no host that can be read; write it as in 'https://example.com:8080/page'")
    port = int(authority["port"] or _DEFAULT_PORTS[scheme])
    if not 0 < port < 65_536:
        raise refused("has a port that does not exist; use 1 to 65535")
    try:
        url = httpx.URL(text).copy_with(fragment=None)
        host = url.raw_host.decode("ascii")
    except (httpx.InvalidURL, UnicodeError, ValueError):
        raise refused("has a host or path that cannot be read") from None
    _check_host(host, authority["host"].startswith("["))
    if url.scheme != scheme or (url.port or _DEFAULT_PORTS[scheme]) != port or url.userinfo:
        raise refused("can be read in two ways")
    return Target(url, scheme, host, port)


def _check_text(text: str) -> None:
    if len(text) > LONGEST:
        raise refused(f"is too long; use at most {LONGEST} characters")
    if any(not character.isprintable() or character.isspace() for character in text):
        raise refused("has spaces or control characters; percent-encode them")
    if "\\" in text:
        raise refused("has a backslash, which browsers and servers read in different ways; percent-encode it as %5C")


def _check_host(host: str, bracketed: bool) -> None:
    if bracketed:
        return  # an IPv6 address, which httpx has read
    labels = host.split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        # 2130706433, 0x7f.1 and 0177.0.0.1 all mean 127.0.0.1 to a resolver, and something else to a careless check.
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise refused(
                "has an address in an unusual spelling; write four decimal numbers, as in 93.184.216.34",
                "address_refused",
                "permission_denied",
            ) from None
    elif len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise refused("has a host name that does not exist; use letters, digits, hyphens and single dots")


def refused(why: str, code: str = "invalid_url", category: str = "invalid_arguments") -> ToolError:
    """The failure for a URL that is not fetched."""
    return ToolError(f"The URL {why}.", category=category, code=code)
