"""User names and passwords in URLs. Owns finding them before a call is recorded, and their replacement in the record.

It errs on the side of finding: a URL that is written so oddly that parsers differ is not fetched either.
"""

from __future__ import annotations

import re

from toolwright import jsonx
from toolwright.tools.outcome import Failure
from toolwright.tools.tool import Screened

CODE = "credentials_refused"
MESSAGE = "The URL has a user name or password; leave them out."
_INSTEAD = "[credentials]@"
_AT = ("@", "%40", "\N{FULLWIDTH COMMERCIAL AT}")
_ENDS = "|".join(_AT)
# Some sign that there may be credentials: an @ in any of its spellings.
_SIGNS = (b"@", b"40", b"a0", b"A0", "\N{FULLWIDTH COMMERCIAL AT}".encode())
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
# The URL that an argument is, with any number of slashes, or none. A password may have a slash in it: then the text
# after the first colon is not a port.
_WHOLE = re.compile(
    rf"(\s*(?:[a-z][a-z0-9+.-]*:)?[/\\]*)"
    rf"(?:[^/\\?#]*(?:{_ENDS})|[^/\\?#@:\[\]]+:(?!\d{{0,5}}(?:[/\\?#]|$)).*(?:{_ENDS}))",
    re.IGNORECASE | re.DOTALL,
)
# One inside of it, as archives and gateways have them, or in text that is no JSON. Inside a query it is
# percent-encoded, and inside the query of that one, once more.
_COLON, _SLASH = r"(?::|%(?:25)*3a)", r"(?:[/\\]|%(?:25)*(?:2f|5c))"
_AT_WITHIN = r"(?:@|%(?:25)*40|\uff20|%(?:25)*ef%(?:25)*bc%(?:25)*a0)"
_OVER = rf"{_SLASH}|[?#\s\"<>]|%(?:25)*(?:3f|23|20|22|3c|3e)"
_WITHIN = re.compile(rf"({_COLON}{_SLASH}{{2,}})(?:(?!{_OVER}).)*{_AT_WITHIN}", re.IGNORECASE)


def screen_credentials(arguments: bytes) -> Screened | None:
    """Refuse arguments with credentials in a URL; they are recorded without."""
    if not any(each in arguments for each in _SIGNS):
        return None
    shown = _TEXT.sub(_without, arguments)
    if shown == arguments:
        return None
    return Screened(shown, Failure(category="permission_denied", code=CODE, message=MESSAGE, source="tool"))


def _without(literal: re.Match[bytes]) -> bytes:
    text = jsonx.decode(literal[0])
    cleaned = _WHOLE.sub(rf"\1{_INSTEAD}", text, count=1) if _WHOLE.match(text) else text
    cleaned = _WITHIN.sub(rf"\1{_INSTEAD}", cleaned)
    return literal[0] if cleaned == text else jsonx.encode(cleaned)
