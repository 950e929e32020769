"""Requests made up from the OpenAPI document: no answer is an error of the server, and every answer fits the document,
with and without a token."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from toolwright import App, Pending, Policy, ToolContext, tool
from toolwright.http import create_app
from toolwright.http.access.limits import Limits
from toolwright.http.openapi import openapi_document
from toolwright.http.routes import OPERATIONS
from toolwright.http.serve import serve
from toolwright.testing import FunctionModel
from toolwright.tools.model import ModelAnswer

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
STREAMS = ("/v1/events",)
"""They do not end by themselves; `test_events` has them."""


@tool(readonly=True, supports_background=True)
async def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@tool(approval="required")
async def launch(where: str) -> str:
    """Do something grave."""
    return where


@tool
async def order(ctx: ToolContext) -> Pending:
    """Wait for something outside."""
    return Pending()


async def answer(request: Any) -> ModelAnswer:
    return ModelAnswer(text="Hi.")


class Server:
    """A service on a port, in a thread with a loop of its own, and a token for everything."""

    def __init__(self) -> None:
        self.url = self.token = ""
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="service under test")
        self.thread.start()
        assert self.ready.wait(60)

    async def _serve(self) -> None:
        self.loop, self.stop = asyncio.get_running_loop(), asyncio.Event()
        app = App(tools=[add, launch, order], model=FunctionModel(answer), policy=Policy(session_concurrency=8))
        limits = Limits(requests_per_second=1e6, requests_at_once=10**6, wrong_tokens_per_minute=1e6)
        service = create_app(app, limits=limits)

        async def started(url: str) -> None:
            tokens = await service.sign_in.tokens()
            self.url, self.token = url, (await tokens.create("all", ["admin"])).value
            self.ready.set()

        await serve(service, port=0, stop=self.stop, started=started, grace=2)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join(60)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


schema = schemathesis.openapi.from_dict(openapi_document(OPERATIONS, "toolwright")).exclude(path=list(STREAMS))


@pytest.mark.promise("HTTP-01")
@schema.parametrize()
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
def test_every_answer_fits_the_document(case: schemathesis.Case, server: Server) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    response = case.call(base_url=server.url, headers=headers, timeout=60)
    case.validate_response(response, checks=CHECKS)


@pytest.mark.promise("HTTP-01", "HTTP-03")
@schema.parametrize()
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
def test_without_a_token_every_answer_fits_the_document_too(case: schemathesis.Case, server: Server) -> None:
    response = case.call(base_url=server.url, timeout=60)
    case.validate_response(response, checks=CHECKS)
    if "security" in case.operation.definition.raw:
        # It tries other methods and paths, too: whatever needs a token tells nothing without one.
        assert response.status_code in (400, 401, 404, 405)
