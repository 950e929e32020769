"""User names and passwords in URLs. Owns finding them before a call is recorded, and what is recorded in their place.

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
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
# The URL that an argument is, with any number of slashes, or none. A password may have a slash in it: what follows the
# first colon is no port then.
_WHOLE = re.compile(
    rf"(\s*(?:[a-z][a-z0-9+.-]*:)?[/\\]*)"
    rf"(?:[^/\\?#]*(?:{_ENDS})|[^/\\?#@:\[\]]+:(?!\d{{0,5}}(?:[/\\?#]|$)).*(?:{_ENDS}))",
    re.IGNORECASE | re.DOTALL,
)
# One inside of it, as archives and gateways have them, or in text that is no JSON.
_WITHIN = re.compile(rf"(?<=:)([/\\]{{2,}})[^/\\?#\s\"<>]*(?:{_ENDS})", re.IGNORECASE)


def screen_credentials(arguments: bytes) -> Screened | None:
    """Refuse arguments with credentials in a URL; they are recorded without."""
    if not any(each.encode() in arguments for each in _AT):
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
