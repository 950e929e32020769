"""`${NAME}` in the settings of a server. Owns finding the values, in the environment and among the secrets of the
app."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from toolwright.errors import ToolwrightError
from toolwright.mcp.client_redaction import ServerSecrets, names_a_secret
from toolwright.tools.remote_tools import RemoteHost

SESSION = "mcp"
"""The session whose secrets hold the values and the OAuth tokens of MCP servers."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_.-]{0,254})(?::-([^}]*))?\}")


class Variables:
    """The variables of one server's settings, as they are when it is connected."""

    def __init__(self, server: str, host: RemoteHost, secrets: ServerSecrets) -> None:
        self._server = server
        self._host = host
        self._secrets = secrets

    async def fill(self, text: str) -> str:
        """A text with the values of its variables: of the environment first, then of the secrets, else the default
        after `:-`.

        Raises:
            ToolwrightError: one has no value.
        """
        if "${" not in text:
            return text
        pieces, end = [], 0
        for match in _VARIABLE.finditer(text):
            pieces += [text[end : match.start()], await self._value(match[1], match[2])]
            end = match.end()
        return "".join([*pieces, text[end:]])

    async def fill_all(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The same for each value of a mapping. A value under the name of a secret is one from now on."""
        filled = {name: await self.fill(text) for name, text in texts.items()}
        for name, value in filled.items():
            if names_a_secret(name):
                self._secrets.learn_header(name, value)
        return filled

    async def _value(self, name: str, default: str | None) -> str:
        value = os.environ.get(name)
        if value is not None:
            if names_a_secret(name):
                self._secrets.learn(name, value)
            return value
        value = await self._host.secrets(SESSION).get(name)
        if value is not None:
            self._secrets.learn(name, value)
            return value
        if default is not None:
            return default
        raise ToolwrightError(
            f"The settings of the MCP server {self._server!r} have ${{{name}}}, which is neither in the environment "
            f"nor among the secrets of the session {SESSION!r}; set it, or write ${{{name}:-default}}"
        )
