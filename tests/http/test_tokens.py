"""Tokens and logins over HTTP: scopes, sessions, expiry, revocation, and the login of a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

from tests.http.client import Client, client_of
from toolwright import App, Runtime, ToolwrightError
from toolwright.http import Service, create_app
from toolwright.http.access.tokens import Tokens
from toolwright.testing import FakeClock

pytestmark = pytest.mark.promise("HTTP-03")


@asynccontextmanager
async def served(store: Any = ":memory:", **options: Any) -> AsyncIterator[tuple[Client, Tokens, Service]]:
    """A client of a service that asks for tokens, and these."""
    service = create_app(App(), store, **options)
    async with service.lifespan(), client_of(service) as client:
        yield client, await service.sign_in.tokens(), service


def bearer(value: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {value}"}


async def status(client: Client, path: str, value: str) -> int:
    return (await client.get(path, headers=bearer(value))).status_code


async def test_a_request_needs_a_token_and_the_scope_of_its_route() -> None:
    async with served() as (client, tokens, _):
        missing = await client.get("/v1/sessions")
        assert (missing.status_code, missing.headers["www-authenticate"]) == (401, "Bearer")
        assert "toolwright tokens create" in missing.json()["detail"]
        reader = (await tokens.create("ann", ["read"])).value
        runner = (await tokens.create("bob", ["run"])).value
        admin = (await tokens.create("root", ["admin"])).value
        assert [await status(client, "/v1/sessions", each) for each in (reader, runner, admin)] == [200, 403, 200]
        made = await client.post("/v1/sessions", json={"id": "s"}, headers=bearer(reader))
        assert (made.status_code, made.json()["code"]) == (403, "forbidden")
        assert (await client.post("/v1/sessions", json={"id": "s"}, headers=bearer(runner))).status_code == 201
        for wrong in (
            "Basic YW5uOng=",
            "Bearer",
            "bearer ",
            f"Bearer {reader}x",
            f"Bearer {reader[:-1]}",
            "Bearer tw_",
        ):
            refused = await client.get("/v1/sessions", headers={"Authorization": wrong})
            assert refused.status_code == 401, wrong
        assert (await client.get("/v1/sessions", headers={"Authorization": f"BEARER {reader}"})).status_code == 200


async def test_a_token_is_valid_in_its_sessions_only() -> None:
    async with served() as (client, tokens, _):
        root = bearer((await tokens.create("root", ["admin"])).value)
        for id in ("team-1", "team-2", "other"):
            await client.post("/v1/sessions", json={"id": id}, headers=root)
        team = bearer((await tokens.create("ann", ["read", "run"], ["team-*"])).value)
        listed = (await client.get("/v1/sessions", headers=team)).json()["items"]
        assert [one["id"] for one in listed] == ["team-1", "team-2"]
        assert (await client.get("/v1/sessions/team-1", headers=team)).status_code == 200
        assert (await client.get("/v1/sessions/other", headers=team)).status_code == 403
        assert (await client.get("/v1/sessions/none", headers=team)).status_code == 403  # as if it were there
        assert (await client.post("/v1/sessions", json={"id": "more"}, headers=team)).status_code == 403


async def test_only_hashes_of_tokens_logins_and_links_are_in_the_store(tmp_path: Path) -> None:
    file = tmp_path / "agent.db"
    async with served(file) as (client, tokens, _):
        value = (await tokens.create("ann", ["read"])).value
        link = await tokens.link("ann", ["read"])
        answer = await client.post("/v1/login", json={"token": value}, headers={"Origin": "http://127.0.0.1:8700"})
        cookie = next(iter(answer.cookies.values()))
        assert cookie.startswith("twc_")
    for each in (value, link, cookie):
        for part in tmp_path.iterdir():
            assert each[-20:].encode() not in part.read_bytes()


async def test_a_token_that_is_revoked_is_refused_at_once_in_every_process(tmp_path: Path) -> None:
    file = tmp_path / "agent.db"
    async with served(file) as (client, tokens, _), served(file) as (other, others, _):
        made = await tokens.create("ann", ["read"])
        assert (
            await status(client, "/v1/sessions", made.value) == await status(other, "/v1/sessions", made.value) == 200
        )
        revoked = await others.revoke(made.info.id)
        assert (revoked.state, revoked.name) == ("revoked", "ann")
        assert (
            await status(client, "/v1/sessions", made.value) == await status(other, "/v1/sessions", made.value) == 401
        )
        assert await others.revoke("unknown") is None


async def test_a_token_expires() -> None:
    clock = FakeClock()
    async with served(clock=clock) as (client, tokens, _):
        made = await tokens.create("ann", ["read"], expires_at=clock.now() + 60)
        assert await status(client, "/v1/sessions", made.value) == 200
        await clock.advance(61)
        assert await status(client, "/v1/sessions", made.value) == 401
        assert [one.state for one in await tokens.list()] == ["expired"]


async def test_tokens_are_made_listed_and_revoked_by_an_administrator_of_all_sessions() -> None:
    async with served() as (client, tokens, _):
        root = bearer((await tokens.create("root", ["admin"])).value)
        body = {"name": "ann", "scopes": ["approve", "read"], "sessions": ["a*"], "expires_in": 60}
        answer = await client.post("/v1/tokens", json=body, headers=root)
        made, value = answer.json()["token"], answer.json()["value"]
        assert answer.status_code == 201
        assert (made["name"], made["scopes"], made["sessions"]) == ("ann", ["read", "approve"], ["a*"])
        assert (made["state"], made["created_by"]) == ("valid", "root")
        assert answer.headers["cache-control"] == "no-store"
        assert await status(client, "/v1/sessions", value) == 200
        listed = (await client.get("/v1/tokens", headers=root)).json()["items"]
        assert [one["name"] for one in listed] == ["root", "ann"]
        assert "value" not in listed[1]
        assert value not in (await client.get("/v1/tokens", headers=root)).text
        gone = await client.delete(f"/v1/tokens/{made['id']}", headers=root)
        assert (gone.status_code, gone.json()["state"]) == (200, "revoked")
        assert await status(client, "/v1/sessions", value) == 401
        assert (await client.delete("/v1/tokens/unknown", headers=root)).status_code == 404
        some = bearer((await tokens.create("some", ["admin"], ["a*"])).value)
        for refused in (
            await client.get("/v1/tokens", headers=some),
            await client.post("/v1/tokens", json=body, headers=some),
            await client.delete(f"/v1/tokens/{made['id']}", headers=some),
        ):
            assert refused.status_code == 403


async def test_a_token_is_made_once_under_an_idempotency_key_and_its_value_is_not_kept(tmp_path: Path) -> None:
    async with served(tmp_path / "agent.db") as (client, tokens, _):
        root = bearer((await tokens.create("root", ["admin"])).value)
        body, key = {"name": "ann", "scopes": ["read"]}, {"Idempotency-Key": "k1"}
        first = await client.post("/v1/tokens", json=body, headers={**root, **key})
        again = await client.post("/v1/tokens", json=body, headers={**root, **key})
        assert (first.status_code, again.status_code) == (201, 409)
        assert again.json()["stands"]["id"] == first.json()["token"]["id"]
        assert first.json()["value"] not in again.text
        assert len(await tokens.list()) == 2


@pytest.mark.parametrize(
    ("change", "about"),
    [
        ({"name": ""}, "name"),
        ({"name": "a" * 101}, "name"),
        ({"name": "ann\nbob"}, "name"),
        ({"name": "an\u202en"}, "name"),
        ({"scopes": []}, "scope"),
        ({"scopes": ["write"]}, "scope"),
        ({"sessions": []}, "session pattern"),
        ({"sessions": [""]}, "session pattern"),
        ({"sessions": ["a" * 201]}, "session pattern"),
        ({"sessions": ["a"] * 101}, "session pattern"),
        ({"expires_at": 1.0}, "expired already"),
    ],
)
async def test_a_token_of_no_use_is_refused(change: dict[str, Any], about: str) -> None:
    async with Runtime.open() as runtime:
        from toolwright.runtime.runtime import tokens_of

        tokens = Tokens(tokens_of(runtime), runtime.clock)
        with pytest.raises(ToolwrightError, match=about):
            await tokens.create(**{"name": "ann", "scopes": ["read"], **change})
        assert await tokens.list() == []


OWN = {"Origin": "http://127.0.0.1:8700"}


async def log_in(client: Client, value: str) -> httpx.Response:
    return await client.post("/v1/login", json={"token": value}, headers=OWN)


async def test_a_browser_logs_in_by_a_token_and_out() -> None:
    async with served(clock=FakeClock()) as (client, tokens, _):
        made = await tokens.create("ann", ["read", "run"], ["team-*"])
        answer = await log_in(client, made.value)
        assert answer.json() == {"name": "ann", "scopes": ["read", "run"], "sessions": ["team-*"], "login": True}
        cookie = answer.headers["set-cookie"].lower()
        for attribute in ("httponly", "samesite=strict", "path=/", "max-age=43200"):
            assert attribute in cookie
        assert "secure" not in cookie  # over plain HTTP, on loopback
        assert made.value not in answer.headers["set-cookie"]
        assert (await client.get("/v1/sessions")).status_code == 200
        assert (await client.get("/v1/login")).json()["name"] == "ann"
        assert (await client.post("/v1/sessions", json={"id": "team-1"}, headers=OWN)).status_code == 201
        kept = dict(client.http.cookies)
        assert (await client.delete("/v1/login", headers=OWN)).status_code == 204
        assert dict(client.http.cookies) == {}
        for name, value in kept.items():  # and the server forgot it
            client.http.cookies.set(name, value)
        assert (await client.get("/v1/login")).status_code == 401
        assert (await client.get("/v1/login", headers=bearer(made.value))).json()["login"] is False
        assert (await log_in(client, "tw_wrong")).status_code == 401


async def test_the_cookie_of_a_browser_is_no_token_and_a_token_no_cookie() -> None:
    async with served() as (client, tokens, _):
        made = await tokens.create("ann", ["read"])
        await log_in(client, made.value)
        ((name, cookie),) = client.http.cookies.items()
        client.http.cookies.clear()
        assert await status(client, "/v1/sessions", cookie) == 401
        client.http.cookies.set(name, made.value)
        assert (await client.get("/v1/sessions")).status_code == 401


async def test_a_login_ends_with_its_token_and_by_itself() -> None:
    clock = FakeClock()
    async with served(clock=clock) as (client, tokens, _):
        short = await tokens.create("ann", ["read"], expires_at=clock.now() + 600)
        assert "max-age=600" in (await log_in(client, short.value)).headers["set-cookie"].lower()
        await clock.advance(601)
        assert (await client.get("/v1/login")).status_code == 401
        client.http.cookies.clear()
        made = await tokens.create("bob", ["read"])
        await log_in(client, made.value)
        assert (await client.get("/v1/login")).status_code == 200
        await tokens.revoke(made.info.id)
        assert (await client.get("/v1/login")).status_code == 401
        assert (await log_in(client, made.value)).status_code == 401


async def test_a_link_logs_one_browser_in_once_and_soon() -> None:
    clock = FakeClock()
    async with served(clock=clock) as (client, tokens, _):
        link = await tokens.link("ann", ["admin"])
        answer = await client.http.get("/login", params={"link": link})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert (await client.get("/v1/login")).json()["scopes"] == ["admin"]
        client.http.cookies.clear()
        again = await client.http.get("/login", params={"link": link})
        assert (again.status_code, "set-cookie" in again.headers) == (401, False)
        late = await tokens.link("ann", ["admin"])
        await clock.advance(601)
        assert (await client.http.get("/login", params={"link": late})).status_code == 401
        made = await tokens.create("ann", ["read"])
        assert (await client.http.get("/login", params={"link": made.value})).status_code == 401


async def test_who_decided_is_told_with_the_token_and_the_address() -> None:
    async with served() as (_, tokens, _):
        made = await tokens.create("ann", ["approve"])
        caller = await tokens.verify(made.value, "10.0.0.7")
        assert (caller.by, caller.via) == ("ann", f"http {made.info.id} 10.0.0.7")
        login = await tokens.login(made.value, "10.0.0.7")
        assert login.caller.via == f"page {made.info.id} 10.0.0.7"
        for secret in (made.value, login.cookie):
            assert secret not in repr((made, login, caller))


async def test_a_store_that_is_full_of_tokens_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwright.http.access.tokens.MOST_VALID", {"token": 1, "login": 1, "link": 1})
    async with served() as (client, tokens, _):
        made = await tokens.create("ann", ["read"])
        with pytest.raises(ToolwrightError, match="the maximum; revoke some"):
            await tokens.create("bob", ["read"])
        assert (await log_in(client, made.value)).status_code == 200
        assert (await log_in(client, made.value)).status_code == 422
        await tokens.link("ann", ["read"])
        with pytest.raises(ToolwrightError, match="the maximum; wait"):
            await tokens.link("ann", ["read"])


async def test_tokens_can_be_checked_while_the_store_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "agent.db"
    async with served(file) as (client, tokens, _):
        made = await tokens.create("ann", ["admin"])
        other = apsw.Connection(str(file))
        other.execute("BEGIN EXCLUSIVE")
        assert await status(client, "/v1/login", made.value) == 200
        other.execute("ROLLBACK")
        other.close()
