"""Authorisation of HTTP servers. Owns bearer tokens, and storing the tokens of OAuth among the secrets of the session
"mcp"; the flows are those of the SDK's provider."""

from __future__ import annotations

import json
from typing import Any

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import ValidationError

from toolwright.errors import ToolwrightError
from toolwright.mcp.client_redaction import ServerSecrets
from toolwright.mcp.client_settings import OAuth, ServerSettings
from toolwright.mcp.client_variables import SESSION, Variables
from toolwright.tools.remote_tools import RemoteHost
from toolwright.tools.service_protocols import SecretsClient


class SecretTokens:
    """`TokenStorage` of the SDK, over the secrets of a session: `oauth.<server>.tokens` and `oauth.<server>.client`."""

    def __init__(self, server: str, store: SecretsClient, secrets: ServerSecrets) -> None:
        self._server = server
        self._store = store
        self._secrets = secrets

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens of the last authorisation."""
        stored = await self._store.get(f"oauth.{self._server}.tokens")
        try:
            tokens = None if stored is None else OAuthToken.model_validate_json(stored)
        except ValidationError:
            return None  # of another version: the person is asked again
        self._learn(tokens)
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store new tokens."""
        self._learn(tokens)
        await self._store.set(f"oauth.{self._server}.tokens", tokens.model_dump_json(exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """How the client is registered."""
        stored = await self._store.get(f"oauth.{self._server}.client")
        try:
            client = None if stored is None else OAuthClientInformationFull.model_validate_json(stored)
        except ValidationError:
            return None
        if client is not None:
            self._learn_client(client)
        return client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store how the client is registered."""
        self._learn_client(client_info)
        await self._store.set(f"oauth.{self._server}.client", client_info.model_dump_json(exclude_none=True))

    def _learn_client(self, client: OAuthClientInformationFull) -> None:
        if client.client_secret:
            self._secrets.learn(f"oauth.{self._server}", client.client_secret)

    def _learn(self, tokens: OAuthToken | None) -> None:
        if tokens is not None:
            for token in filter(None, (tokens.access_token, tokens.refresh_token)):
                self._secrets.learn_token(f"oauth.{self._server}", token)


async def authorisation(
    settings: ServerSettings, url: str, variables: Variables, host: RemoteHost, secrets: ServerSecrets
) -> str | httpx2.Auth | None:
    """A bearer token, or the authorisation of each request.

    Raises:
        ToolwrightError: the settings are not enough for it.
    """
    given = settings.auth
    if isinstance(given, str):
        token = await variables.fill(given)
        secrets.learn(f"auth.{settings.name}", token)
        return token
    if not isinstance(given, OAuth):
        return given
    storage = SecretTokens(settings.name, host.secrets(SESSION), secrets)
    client_secret = None if given.client_secret is None else await variables.fill(given.client_secret)
    if client_secret is not None:
        secrets.learn(f"oauth.{settings.name}", client_secret)
    if given.redirect is None:
        if given.client_id is None or client_secret is None or given.issuer is None:
            raise ToolwrightError(
                f"The MCP server {settings.name!r} has OAuth(...) with neither a client's credentials nor a way to ask "
                "a person; give client_id, client_secret and issuer, or redirect and callback"
            )
        return ClientCredentialsOAuthProvider(
            url, storage, given.client_id, client_secret, scope=given.scope, issuer=given.issuer
        )
    if given.client_id is not None and await storage.get_client_info() is None:
        known: dict[str, Any] = {"client_id": given.client_id, "redirect_uris": [given.redirect_uri]}
        if client_secret is not None:
            known |= {"client_secret": client_secret, "token_endpoint_auth_method": "client_secret_basic"}
        await storage.set_client_info(OAuthClientInformationFull.model_validate(known))
    metadata = {"client_name": given.client_name, "redirect_uris": [given.redirect_uri], "scope": given.scope}

    async def callback() -> AuthorizationCodeResult:
        return _read_callback(await given.callback())

    return OAuthClientProvider(
        url,
        OAuthClientMetadata.model_validate(metadata),
        storage,
        redirect_handler=given.redirect,
        callback_handler=callback,
        client_metadata_url=given.client_metadata_url,
    )


def _read_callback(url: str) -> AuthorizationCodeResult:
    from urllib.parse import parse_qs, urlsplit

    query = parse_qs(urlsplit(url).query)
    first = {name: values[0] for name, values in query.items()}
    if "code" not in first:
        raise ToolwrightError(f"The authorisation failed: {json.dumps(first.get('error', 'no code came back'))}")
    return AuthorizationCodeResult(code=first["code"], state=first.get("state"), iss=first.get("iss"))
