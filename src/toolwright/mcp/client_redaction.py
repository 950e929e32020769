"""The secrets that a server was given. Owns taking them out of whatever the server says; the secrets of the session of
a call are taken out by the call itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolwright import jsonx
from toolwright.session.secrets.encodings import forms

SHORTEST = 6
"""Characters of the shortest value that is taken out: a shorter one would be found everywhere."""
MOST_TOKENS = 20
"""How many of the tokens that a server was given one after the other are taken out."""
_HEAD = 4
"""Bytes of the beginning of a form: no form is shorter."""
_SECRET_NAME = re.compile(r"key|token|secret|passw|auth|credential|cookie", re.IGNORECASE)
_UNSAFE = re.compile(r'["\\\[\]<>&%\'\s]')


def names_a_secret(name: str) -> bool:
    """True for the name of a variable or header whose value is a secret, such as GITHUB_TOKEN or Authorization."""
    return _SECRET_NAME.search(name) is not None


class ServerSecrets:
    """The secret values that one server was given, each under a name."""

    def __init__(self) -> None:
        self._handles: dict[str, bytes] = {}
        self._tokens: dict[str, None] = {}  # the values that are forgotten after a while, the latest last
        self._forms: dict[bytes, dict[bytes, bytes]] = {}  # by their beginnings, the longest first
        self._search: re.Pattern[bytes] | None = None

    def learn(self, name: str, value: str) -> None:
        """Take this value out from now on, in all its usual encodings."""
        self._tokens.pop(value, None)
        self._learn(name, value)

    def learn_token(self, name: str, value: str) -> None:
        """The same for a token that is replaced again and again: it is forgotten once there are `MOST_TOKENS` later
        ones."""
        if value in self._handles and value not in self._tokens:
            return
        self._tokens.pop(value, None)
        self._tokens[value] = None
        if len(self._tokens) > MOST_TOKENS:
            oldest = next(iter(self._tokens))
            del self._tokens[oldest]
            self._handles.pop(oldest, None)
        self._learn(name, value)

    def _learn(self, name: str, value: str) -> None:
        if len(value) < SHORTEST or value in self._handles:
            return
        self._handles[value] = f"[secret:{_UNSAFE.sub('_', name)}]".encode()
        owners: dict[bytes, bytes] = {}
        for known, handle in self._handles.items():
            found = forms(known)
            for form in found.whole | found.broken:
                owners.setdefault(form, handle)
        self._forms = {}
        for form in sorted(owners, key=len, reverse=True):
            self._forms.setdefault(form[:_HEAD], {})[form] = owners[form]
        # Their beginnings only: a pattern of whole forms takes megabytes, and seconds to compile.
        self._search = re.compile(b"|".join(map(re.escape, self._forms)))

    def __bool__(self) -> bool:
        return self._search is not None

    def learn_header(self, name: str, value: str) -> None:
        """The same for a header; of `Bearer x`, the value is `x`."""
        scheme, _, rest = value.partition(" ")
        self.learn(name, rest.strip() if rest and scheme.lower() in ("bearer", "basic", "token") else value)

    def text(self, text: str) -> str:
        """A text without the secrets."""
        if self._search is None:
            return text
        return self._out(text.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")

    def data(self, value: Any) -> Any:
        """Plain data without the secrets, also in keys."""
        if self._search is None:
            return value
        encoded = jsonx.encode(value)
        cleaned = self._out(encoded)
        if cleaned is encoded:
            return value
        try:
            return jsonx.decode(cleaned)
        except jsonx.DecodeError:  # it stands in a number, where a handle breaks the JSON
            return self._parts(value)

    def _parts(self, value: Any) -> Any:
        """Data with each part cleaned on its own; a number with a secret in it becomes text."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            written = jsonx.encode(value).decode()
            shown = self.text(written)
            return value if shown == written else shown
        if isinstance(value, dict):
            return {self.text(name): self._parts(each) for name, each in value.items()}
        return [self._parts(each) for each in value] if isinstance(value, list) else value

    def texts(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The same for an object."""
        cleaned: dict[str, Any] = self.data(dict(values))
        return cleaned

    def _out(self, content: bytes) -> bytes:
        assert self._search is not None
        parts, given, at = [], 0, 0
        while (found := self._search.search(content, at)) is not None:
            start = found.start()
            for form, handle in self._forms[found.group()].items():
                if content.startswith(form, start):
                    parts += [content[given:start], handle]
                    given = at = start + len(form)
                    break
            else:
                at = start + 1
        return b"".join([*parts, content[given:]]) if parts else content
