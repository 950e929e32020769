"""A disk that is full: what needs it is refused with the time to try again, and the rest goes on."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support import fail_after
from toolwright import App, tool
from toolwright.http import create_app
from toolwright.stores import SqliteStore
from toolwright.testing.sqlite_store import run_on_connection

pytestmark = pytest.mark.promise("HTTP-03")


@tool
async def echo(text: str) -> str:
    return text


async def set_pages(store: SqliteStore, most: int) -> None:
    """Let the file have so many pages at most: SQLite then says of it what it says of a disk that is full."""
    pragma = f"PRAGMA max_page_count = {most}"
    await run_on_connection(store, lambda connection: connection.execute(pragma).fetchall(), writes=False)


async def test_a_full_disk_refuses_what_is_written_and_nothing_else(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "agent.db")
    service = create_app(App(tools=[echo]), store)
    async with fail_after(60), service.lifespan():
        tokens = await service.sign_in.tokens()
        made = await tokens.create("root", ["admin"])
        headers = {"Authorization": f"Bearer {made.value}", "Origin": "http://127.0.0.1:8700"}
        transport = httpx.ASGITransport(service)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as http:
            assert (await http.post("/v1/sessions", json={"id": "before"})).status_code == 201
            await set_pages(store, 1)  # SQLite takes the pages that there are
            message = {"content": "a" * 200_000}
            refused = await http.post("/v1/sessions/before/messages", json=message)
            assert refused.status_code == 503, refused.text
            assert refused.headers["retry-after"]
            assert refused.headers["content-type"] == "application/problem+json"
            token = await http.post(
                "/v1/tokens", json={"name": "a" * 100, "scopes": ["read"], "sessions": ["b" * 200] * 99}
            )
            assert token.status_code in (201, 503)  # a token may fit into a page that is there
            assert "value" not in token.json() or token.status_code == 201
            assert (await http.get("/v1/health")).status_code == 200
            assert (await http.get("/v1/login")).json()["name"] == "root"
            listed = (await http.get("/v1/sessions/before/messages")).json()["items"]
            assert listed == []
            assert (await http.get("/v1/sessions", headers={"Authorization": "Bearer tw_wrong"})).status_code == 401
            await set_pages(store, 1_000_000)
            assert (await http.post("/v1/sessions/before/messages", json=message)).status_code == 201
            assert len((await http.get("/v1/sessions/before/messages")).json()["items"]) == 1
