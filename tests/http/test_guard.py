"""What is checked around every request: hosts, origins, sizes, speed, rates, streams, and headers of answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.responses import StreamingResponse

from tests.http.client import Client, client_of
from tests.support import fail_after
from toolwright import App, ToolwrightError
from toolwright.http import Service, create_app
from toolwright.http.access.limits import Limits, Rate
from toolwright.http.access.tokens import Tokens
from toolwright.http.operations import Operation, ServiceRequest
from toolwright.http.routes import OPERATIONS
from toolwright.testing import FakeClock

pytestmark = pytest.mark.promise("HTTP-03")


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[Client, Tokens, Service]]:
    service = create_app(App(), **options)
    async with service.lifespan(), client_of(service) as client:
        yield client, await service.sign_in.tokens(), service


def bearer(value: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {value}"}


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8700", True),
        ("127.0.0.1", True),
        ("LOCALHOST:1", True),
        ("[::1]:8700", True),
        ("agent.example.com", True),
        ("Agent.Example.com:443", True),
        ("evil.example", False),
        ("agent.example.com.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("127.0.0.1@evil.example", False),
        ("evil.example#127.0.0.1", False),
        ("127.0.0.2", False),
        ("0.0.0.0:8700", False),
        ("", False),
        ("127.0.0.1:", False),
        ("127.0.0.1:port", False),
        ("127.0.0.1, evil.example", False),
    ],
)
async def test_a_request_for_another_host_is_refused(host: str, allowed: bool) -> None:
    async with served(hosts=["agent.example.com"]) as (client, tokens, _):
        token = bearer((await tokens.create("root", ["admin"])).value)
        for path in ("/v1/health", "/v1/sessions", "/"):
            answer = await client.http.get(path, headers={**token, "Host": host})
            assert (answer.status_code == 200) is allowed, path
            if not allowed:
                assert answer.status_code == 403
                assert answer.json()["code"] == "wrong_origin"


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://127.0.0.1:8700", True),
        ("https://127.0.0.1:8700", True),  # a proxy in front may speak TLS
        ("https://desk.example.com", True),
        ("http://desk.example.com", False),
        ("https://desk.example.com:444", False),
        ("http://127.0.0.1:9999", False),
        ("http://127.0.0.1", False),
        ("http://localhost:8700", False),
        ("http://evil.example", False),
        ("http://127.0.0.1:8700.evil.example", False),
        ("null", False),
        ("", False),
        ("file://", False),
        ("chrome-extension://abc", False),
    ],
)
async def test_a_page_of_another_server_is_refused(origin: str, allowed: bool) -> None:
    async with served(origins=["https://desk.example.com"]) as (client, tokens, _):
        token = bearer((await tokens.create("root", ["admin"])).value)
        for method in ("GET", "POST"):
            answer = await client.http.request(method, "/v1/sessions", headers={**token, "Origin": origin})
            assert answer.status_code == ({"GET": 200, "POST": 201}[method] if allowed else 403)
            other = allowed and "desk" in origin
            assert answer.headers.get("access-control-allow-origin") == (origin if other else None)
            assert "access-control-allow-credentials" not in answer.headers


async def test_a_browser_asks_first_whether_a_page_of_another_server_may_use_the_service() -> None:
    async with served(origins=["https://desk.example.com"]) as (client, tokens, _):
        asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        told = await client.http.options("/v1/sessions", headers={**asks, "Origin": "https://desk.example.com"})
        assert (told.status_code, told.headers["vary"]) == (204, "Origin")
        assert told.headers["access-control-allow-origin"] == "https://desk.example.com"
        assert "POST" in told.headers["access-control-allow-methods"]
        assert "Authorization" in told.headers["access-control-allow-headers"]
        for origin, status in (("https://evil.example", 403), ("http://127.0.0.1:8700", 405)):
            told = await client.http.options("/v1/sessions", headers={**asks, "Origin": origin})
            assert told.status_code == status
            assert "access-control-allow-origin" not in told.headers
        # The login of a browser is not for that page, whatever the browser sends.
        made = await tokens.create("root", ["admin"])
        await client.post("/v1/login", json={"token": made.value}, headers={"Origin": "http://127.0.0.1:8700"})
        forged = await client.post("/v1/sessions", json={}, headers={"Origin": "https://desk.example.com"})
        assert (forged.status_code, forged.json()["code"]) == (403, "wrong_origin")


async def test_the_default_port_is_left_out_of_an_origin() -> None:
    async with served(hosts=["agent.example.com"]) as (client, *_):
        for host, origin in (
            ("agent.example.com", "https://agent.example.com"),
            ("agent.example.com:443", "https://agent.example.com"),
            ("agent.example.com:80", "http://agent.example.com"),
        ):
            answer = await client.http.get("/v1/health", headers={"Host": host, "Origin": origin})
            assert answer.status_code == 200, (host, origin)


async def test_a_browser_that_says_that_another_page_asks_is_refused_but_for_a_link_to_the_page() -> None:
    async with served() as (client, *_):
        for site in ("cross-site", "same-site"):
            headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
            assert (await client.http.get("/v1/health", headers=headers)).status_code == 403
            link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
            assert (await client.http.get("/", headers=link)).status_code == 200
            framed = {**link, "Sec-Fetch-Dest": "iframe"}
            assert (await client.http.get("/", headers=framed)).status_code == 403
        for site in ("same-origin", "none"):
            assert (await client.http.get("/v1/health", headers={"Sec-Fetch-Site": site})).status_code == 200


async def test_the_login_of_a_browser_changes_things_from_our_page_only() -> None:
    async with served() as (client, tokens, _):
        made = await tokens.create("root", ["admin"])
        own = {"Origin": "http://127.0.0.1:8700"}
        assert (await client.post("/v1/login", json={"token": made.value})).status_code == 403
        assert (await client.post("/v1/login", json={"token": made.value}, headers=own)).status_code == 200
        assert (await client.get("/v1/sessions")).status_code == 200
        for method, path, body in (
            ("POST", "/v1/sessions", {}),
            ("DELETE", "/v1/sessions/s", None),
            ("POST", "/v1/tokens", {"name": "x", "scopes": ["admin"]}),
            ("DELETE", "/v1/login", None),
        ):
            for headers in ({}, {"Sec-Fetch-Site": "none"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
                forged = await client.request(method, path, json=body, headers=headers)
                assert (forged.status_code, forged.json()["code"]) == (403, "wrong_origin"), (method, path, headers)
        assert (await client.post("/v1/sessions", json={}, headers=own)).status_code == 201
        page = {"Sec-Fetch-Site": "same-origin"}
        assert (await client.post("/v1/sessions", json={}, headers=page)).status_code == 201
        assert len(await tokens.list()) == 1


async def test_every_answer_has_the_security_headers() -> None:
    async with served() as (client, *_):
        for path, code in (("/v1/health", 200), ("/v1/sessions", 401), ("/v1/none", 404), ("/", 200), ("/none", 404)):
            answer = await client.http.get(path)
            assert answer.status_code == code
            headers = answer.headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            if path.startswith("/v1"):
                assert "sandbox" in policy
                assert "script-src" not in policy
                assert headers["cache-control"] == "no-store"


async def test_no_path_leads_a_browser_to_a_file_of_a_session_as_a_page() -> None:
    page, place = b"<script src='/v1/sessions/s/files/a.js'></script>", "sessions/s/files/a.html"
    async with served() as (client, tokens, _):
        token = bearer((await tokens.create("root", ["admin"])).value)
        await client.http.put(f"/v1/{place}", content=page, headers=token)
        answer = await client.http.get(f"/v1/{place}", headers=token)
        assert (answer.status_code, answer.content) == (200, page)
        assert "sandbox" in answer.headers["content-security-policy"]
        for path in ("//v1/", "///v1/", "/%76%31/"):
            answer = await client.http.get(f"http://127.0.0.1:8700{path}{place}", headers=token)
            assert (answer.status_code, page in answer.content) == (404, False)


async def test_headers_that_are_too_much_or_come_twice_are_refused() -> None:
    async with served() as (client, *_):
        many = [(f"x-{number}", "1") for number in range(100)]
        assert (await client.http.get("/v1/health", headers=many)).status_code == 431
        assert (await client.http.get("/v1/health", headers={"x-long": "a" * 33_000})).status_code == 431
        assert (await client.http.get("/v1/health?" + "a" * 33_000)).status_code == 431
        for name in ("Authorization", "Origin", "Cookie", "Idempotency-Key", "Content-Type"):
            twice = await client.http.get("/v1/health", headers=[(name, "a=1"), (name, "b=1")])
            assert (twice.status_code, twice.json()["code"]) in ((400, "header_twice"), (403, "wrong_origin"))
        assert (await client.http.get("/v1/health", headers={"x-long": "a" * 20_000})).status_code == 200


async def test_a_body_that_is_too_large_is_refused_whatever_it_declares() -> None:
    async with served(limits=Limits(body_bytes=1000)) as (client, tokens, _):
        token = bearer((await tokens.create("root", ["admin"])).value)
        large = b'{"title": "' + b"a" * 1000 + b'"}'

        async def chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(large), 100):
                yield large[start : start + 100]

        for options in ({"content": large}, {"content": chunks()}):
            answer = await client.http.post(
                "/v1/sessions", headers={**token, "Content-Type": "application/json"}, **options
            )
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        assert (await client.http.get("/v1/sessions", headers=token)).json()["items"] == []


async def ask(service: Service, receive: Any, *headers: tuple[bytes, bytes]) -> tuple[int, dict[bytes, bytes]]:
    """Send a request whose body the test makes, and return the status and the headers of the answer."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/login",
        "raw_path": b"/v1/login",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"origin", b"http://127.0.0.1"), *headers],
        "client": ("10.0.0.7", 5),
        "server": ("127.0.0.1", 8700),
        "scheme": "http",
        "root_path": "",
    }
    async with fail_after(10):
        await service(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"])


async def test_a_body_that_does_not_come_or_drips_is_given_up() -> None:
    async with served(limits=Limits(body_seconds=0.05, body_rate=10**9)) as (_, _, service):

        async def silent() -> Any:
            await asyncio.Event().wait()

        status, headers = await ask(service, silent, (b"content-length", b"10"))
        assert (status, headers[b"connection"]) == (408, b"close")

        async def drips() -> Any:
            for _ in range(100):  # so that it does not reach the limit of bytes first
                await asyncio.sleep(0)
            return {"type": "http.request", "body": b"a", "more_body": True}

        status, _ = await ask(service, drips, (b"transfer-encoding", b"chunked"))
        assert status == 408


async def test_a_caller_that_asks_too_often_is_told_when_to_come_back() -> None:
    clock = FakeClock()
    limits = Limits(requests_per_second=0.5, requests_at_once=3)
    async with served(clock=clock, limits=limits) as (client, tokens, _):
        ann = bearer((await tokens.create("ann", ["read"])).value)
        bob = bearer((await tokens.create("bob", ["read"])).value)
        got = [(await client.get("/v1/sessions", headers=ann)).status_code for _ in range(5)]
        assert got == [200, 200, 200, 429, 429]
        refused = await client.get("/v1/sessions", headers=ann)
        assert (refused.json()["code"], refused.headers["retry-after"]) == ("too_many_requests", "2")
        assert (await client.get("/v1/sessions", headers=bob)).status_code == 200
        await clock.advance(2)
        assert (await client.get("/v1/sessions", headers=ann)).status_code == 200
        assert (await client.get("/v1/sessions", headers=ann)).status_code == 429


@pytest.mark.parametrize(
    ("name", "value", "use"),
    [
        *((name, 0, "a number above 0") for name in ("body_rate", "requests_per_second", "wrong_tokens_per_minute")),
        ("requests_per_second", math.nan, "a number above 0"),
        ("body_seconds", math.nan, "a number, 0 or more"),
        ("streams", -1, "a number, 0 or more"),
        ("connections", True, "a number, 0 or more"),
        ("header_bytes", "32 KiB", "a number, 0 or more"),
    ],
)
def test_limits_that_cannot_be_are_refused_when_they_are_given(name: str, value: Any, use: str) -> None:
    with pytest.raises(ToolwrightError, match=f"Limits {name}={value!r} is not usable; use {use}"):
        Limits(**{name: value})


async def test_limits_may_be_none_at_all() -> None:
    limits = Limits(
        requests_per_second=math.inf, wrong_tokens_per_minute=math.inf, body_seconds=math.inf, answer_seconds=0
    )
    async with served(limits=limits) as (client, tokens, _):
        ann = bearer((await tokens.create("ann", ["run"])).value)
        for _ in range(50):
            assert (await client.get("/v1/sessions", headers=bearer("tw_none"))).status_code == 401
            assert (await client.post("/v1/sessions", json={"id": "s"}, headers=ann)).status_code in (200, 201)


async def test_a_thousand_wrong_tokens_open_nothing_and_hold_nobody_up() -> None:
    clock = FakeClock()
    async with served(clock=clock) as (client, tokens, _service):
        made = await tokens.create("ann", ["read"])
        right, id = made.value, made.info.id
        wrong = [
            *(f"tw_{id}_{'A' * 42}{last}" for last in "ABCDEFGH"),
            *(right[:-1] + last for last in "AB01" if right[-1] != last),
            right.upper(),
            right + "A",
            right.replace("tw_", "twc_"),
            right.replace(id, "0" * 16),
            "",
            "tw_" + "\u00e9" * 10,
        ]
        statuses: dict[int, int] = {}
        for number in range(1000):
            value = wrong[number % len(wrong)]
            headers = [(b"Authorization", b"Bearer " + value.encode())]
            answer = await client.http.get("/v1/sessions", headers=headers)
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
            assert "items" not in answer.text
        assert set(statuses) == {401, 429}
        assert statuses[401] == 20
        assert (await client.get("/v1/sessions", headers=bearer(right))).status_code == 200
        await clock.advance(60)
        assert (await client.get("/v1/sessions", headers=bearer(wrong[0]))).status_code == 401
        for path in (f"/login?link={right}", "/login?link=twl_x"):
            assert (await client.http.get(path)).status_code == 401


def test_a_rate_remembers_the_names_that_were_used_last() -> None:
    rate = Rate(1.0, 1, most=2)
    assert [rate.take(name, 0.0) for name in ("a", "b", "a")] == [0.0, 0.0, 1.0]
    assert rate.take("c", 0.0) == 0.0  # b is forgotten
    assert rate.take("a", 0.0) == 1.0
    assert rate.take("b", 0.0) == 0.0
    assert rate.take("b", 0.25) == 0.75
    assert rate.take("b", -100.0) > 0


# --- streams


class Ticks:
    """A stream that says something when it is told to."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0
        self.next = asyncio.Event()

    async def stream(self, request: ServiceRequest) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            self.opened += 1
            try:
                yield b"data: first\n\n"
                await self.next.wait()
                yield b"data: last\n\n"
            finally:
                self.closed += 1

        return StreamingResponse(parts(), media_type="text/event-stream")


@asynccontextmanager
async def streaming(ticks: Ticks, **options: Any) -> AsyncIterator[tuple[Service, Tokens]]:
    operation = Operation(
        method="GET", path="/ticks", handler=ticks.stream, scope="read", summary="Ticks", tag="test", name="ticks"
    )
    limits = options.pop("limits", Limits())
    service = Service(App(), ":memory:", options, limits=limits, operations=(*OPERATIONS, operation))
    async with service.lifespan():
        yield service, await service.sign_in.tokens()


class Listener:
    """A client of a stream, which reads while the stream is open."""

    def __init__(self, service: Service, value: str) -> None:
        self.sent: list[Any] = []
        self.left = asyncio.Event()
        headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer " + value.encode())]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "method": "GET",
            "path": "/v1/ticks",
            "raw_path": b"/v1/ticks",
            "query_string": b"",
            "headers": headers,
            "client": ("10.0.0.7", 5),
            "server": ("127.0.0.1", 8700),
            "scheme": "http",
            "root_path": "",
        }
        self.begun = False
        self.task = asyncio.ensure_future(service(scope, self.receive, self.send))

    async def receive(self) -> Any:
        if not self.begun:
            self.begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.sent[1:])

    async def first(self) -> None:
        """Wait until the stream said something, or was refused."""
        while len(self.sent) < 2:
            assert not self.task.done() or len(self.sent) >= 2, self.task
            await asyncio.sleep(0)


async def test_no_more_streams_are_open_than_may_be() -> None:
    ticks = Ticks()
    async with streaming(ticks, limits=Limits(streams=3, streams_per_caller=2)) as (service, tokens), _ten():
        ann, bob = [(await tokens.create(name, ["read"])).value for name in ("ann", "bob")]
        listeners = []
        for value in (ann, ann, ann, bob, bob):
            listeners.append(Listener(service, value))
            await listeners[-1].first()
        assert [one.status for one in listeners] == [200, 200, 429, 200, 429]
        assert b"close some" in listeners[2].body
        assert len(service.guard.streams) == 3
        listeners[0].left.set()
        await listeners[0].task
        again = Listener(service, ann)
        await again.first()
        assert again.status == 200
        ticks.next.set()
        await asyncio.gather(*(one.task for one in (*listeners, again)))
        assert again.body == b"data: first\n\ndata: last\n\n"
        assert len(service.guard.streams) == 0
        assert ticks.opened == ticks.closed


async def test_a_stream_ends_when_its_token_is_revoked_or_expires() -> None:
    clock, ticks = FakeClock(), Ticks()
    async with streaming(ticks, clock=clock) as (service, tokens), _ten():
        made = await tokens.create("ann", ["read"])
        brief = await tokens.create("bob", ["read"], expires_at=clock.now() + 1e7)
        other = await tokens.create("cyd", ["read"])
        listeners = [Listener(service, each.value) for each in (made, brief, other)]
        for one in listeners:
            await one.first()
        await tokens.revoke(made.info.id)
        await _until(clock, listeners[0])
        assert listeners[0].task.exception() is None
        assert listeners[0].sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        assert [one.task.done() for one in listeners] == [True, False, False]
        await clock.advance(1e7)
        await _until(clock, listeners[1])
        assert not listeners[2].task.done()
        refused = Listener(service, made.value)
        await refused.first()
        assert refused.status == 401
        await refused.task
        ticks.next.set()
        await listeners[2].task
        assert listeners[2].body == b"data: first\n\ndata: last\n\n"
        assert (len(service.guard.streams), ticks.opened, ticks.closed) == (0, 3, 3)


async def test_a_stream_whose_server_stops_is_cancelled_as_any_request() -> None:
    ticks = Ticks()
    async with streaming(ticks) as (service, tokens), _ten():
        listener = Listener(service, (await tokens.create("ann", ["read"])).value)
        await listener.first()
        listener.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listener.task
        assert len(service.guard.streams) == 0


def _ten() -> Any:
    return fail_after(10)


async def _until(clock: FakeClock, listener: Listener) -> None:
    """Let a second pass, until a listener is told the end."""
    while not listener.task.done():
        await clock.advance(1)


@pytest.mark.parametrize("host", ["agent.example.com:80", "http://agent", "a b", "", "ä.example"])
def test_a_name_of_the_service_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(ToolwrightError, match="is not a name; use one without a port"):
        create_app(App(), hosts=[host])


@pytest.mark.parametrize("origin", ["desk.example.com", "ftp://desk", "https://", "https://a/b", "null"])
def test_an_origin_that_is_none_is_refused(origin: str) -> None:
    with pytest.raises(ToolwrightError, match="write it as https://"):
        create_app(App(), origins=[origin])


async def test_a_client_that_does_not_take_its_answer_is_given_up() -> None:
    async with served(limits=Limits(send_seconds=0.05)) as (_, _, service):

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        sent: list[str] = []

        async def never(message: Any) -> None:
            sent.append(message["type"])
            await asyncio.Event().wait()

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/v1/health",
            "raw_path": b"/v1/health",
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1")],
            "client": None,
            "server": None,
            "scheme": "http",
            "root_path": "",
        }
        async with fail_after(10):
            await service(scope, receive, never)
        assert sent == ["http.response.start"]


def test_httpx_sends_what_these_tests_ask_for() -> None:
    request = httpx.Request("GET", "http://127.0.0.1:8700/", headers={"Host": "evil.example"})
    assert request.headers.get_list("host") == ["evil.example"]
