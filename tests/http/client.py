"""A client of the service that compares every answer with the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import jsonschema
from starlette.requests import HTTPConnection

from toolwright import App, Runtime
from toolwright.http import Service, create_app
from toolwright.http.access.caller import Caller, Scope

ROOT = Caller("root", frozenset[Scope]({"admin"}))


def everyone(caller: Caller = ROOT) -> Any:
    """Takes every request for that of one caller."""

    async def authenticate(connection: HTTPConnection) -> Caller:
        return caller

    return authenticate


class Client:
    """Sends requests to a service in this process; an answer that does not fit the document fails the test."""

    def __init__(self, http: httpx.AsyncClient, service: Service, runtime: Runtime, document: dict[str, Any]) -> None:
        self.http = http
        self.service = service
        self.runtime = runtime
        self.document = document

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = await self.http.request(method, path, **options)
        check_answer(self.document, method, path, answer)
        return answer

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.request("GET", path, **options)

    async def post(self, path: str, **options: Any) -> httpx.Response:
        return await self.request("POST", path, **options)

    async def delete(self, path: str, **options: Any) -> httpx.Response:
        return await self.request("DELETE", path, **options)


def check_answer(document: dict[str, Any], method: str, path: str, answer: httpx.Response) -> None:
    """Compare an answer with the document: its status, its media type, and its body with the schema of both."""
    if answer.status_code in (404, 405) and _operation(document, method, path) is None:
        return
    operation = _operation(document, method, path)
    assert operation is not None, f"{method} {path} is not in the document"
    responses = operation["responses"]
    said = responses.get(str(answer.status_code), responses["default"])
    content = said.get("content", {})
    media_type = answer.headers.get("content-type", "").partition(";")[0]
    if not content:
        assert answer.content == b""
        return
    assert media_type in content or "*/*" in content, f"{method} {path} answered {media_type!r}: {answer.text[:200]}"
    if media_type in content and media_type.endswith("json"):
        schema = {**content[media_type]["schema"], "components": document["components"]}
        jsonschema.Draft202012Validator(schema).validate(answer.json())


def _operation(document: dict[str, Any], method: str, path: str) -> dict[str, Any] | None:
    path = path.partition("?")[0]
    for last in ("([^/]+)", "(.+)"):  # a path of a file has slashes
        order = (lambda one: one.count("{")) if last == "([^/]+)" else (lambda one: -len(one))
        for template in sorted(document["paths"], key=order):
            pattern = re.sub(r"\\{\w+\\}$", last, re.escape(template))
            pattern = re.sub(r"\\{\w+\\}", "([^/]+)", pattern)
            if re.fullmatch(pattern, path) and method.lower() in document["paths"][template]:
                found: dict[str, Any] = document["paths"][template][method.lower()]
                return found
    return None


@asynccontextmanager
async def opened(
    tools: Iterable[Any] = (), store: Any = ":memory:", *, caller: Caller = ROOT, app: App | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A client of the service of an app with these tools."""
    service = create_app(app or App(tools=tools), store, authenticate=everyone(caller), **options)
    async with service.lifespan(), client_of(service) as client:
        yield client


@asynccontextmanager
async def client_of(service: Service) -> AsyncIterator[Client]:
    """A client of a service that is open."""
    transport = httpx.ASGITransport(service, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as http:
        document = (await http.get("/v1/openapi.json")).json()
        yield Client(http, service, await service.open(), document)
