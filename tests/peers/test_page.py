"""The page in a real browser, driven as a person would, against a service in a process of its own."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from tests.peers.browser import AXE, Window, browser, window
from tests.peers.npm import npm_package
from tests.support import until

PATIENCE = 60.0
"""Seconds that a server may take to start on a busy machine."""
VIEWS = ("now", "sessions", "calls", "runs", "schedules", "approvals", "tools", "tools/pay", "sessions/s1", "nothing")
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
expect.set_options(timeout=20_000)


class Server:
    """The service of `page_app.py` on a port of its own, which a test kills and starts again."""

    def __init__(self, store: Path, fill: int = 0) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._command = [sys.executable, "-m", "tests.peers.page_app", str(store), str(self.port), "--fill", str(fill)]
        self._process: subprocess.Popen[str] | None = None
        self.batch = ""
        self.link = ""
        self.token = ""

    def start(self) -> None:
        """Start it, and wait until it is there."""
        process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        self._process = process
        assert process.stdout is not None
        for line in process.stdout:
            kind, _, said = line.strip().partition(" ")
            if kind == "batch":
                self.batch = said
            elif kind == "token":
                self.token = said
            elif kind == "link":
                self.link = said
                return
        pytest.fail("the service ended before it was there")

    def kill(self) -> None:
        """Kill it as a machine does that loses its power."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def post(self, path: str, body: object, **headers: str) -> Any:
        """Ask the service as a program would."""
        async with httpx.AsyncClient(base_url=self.address, timeout=PATIENCE) as client:
            headers = {"Authorization": f"Bearer {self.token}", **headers}
            answer = await client.post(f"/v1/{path}", json=body, headers=headers)
            assert answer.is_success, answer.text
            return answer.json()

    async def call(self, name: str, session: str = "s1", **arguments: object) -> Any:
        """Start one call; return its outcome, or "pending" where it waits."""
        answer = await self.post(f"sessions/{session}/batches", {"calls": [{"name": name, "arguments": arguments}]})
        return answer["results"][0]

    async def get(self, path: str) -> Any:
        async with httpx.AsyncClient(base_url=self.address, timeout=PATIENCE) as client:
            answer = await client.get(f"/v1/{path}", headers={"Authorization": f"Bearer {self.token}"})
            assert answer.is_success, answer.text
            return answer.json()


@contextmanager
def running(store: Path, fill: int = 0) -> Iterator[Server]:
    server = Server(store, fill)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running(tmp_path / "agent.db") as started:
        yield started


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    async with browser() as opened:
        yield opened


@pytest.fixture
async def desk(chromium: Browser, server: Server) -> AsyncIterator[Window]:
    """A window that is logged in."""
    async with window(chromium, server.link) as opened:
        yield opened


@asynccontextmanager
async def second(chromium: Browser, desk: Window) -> AsyncIterator[Window]:
    """Another window of the same person."""
    page = await desk.page.context.new_page()
    other = Window(page, desk.address)
    yield other
    await page.close()
    assert other.faults == []


def rows(page: Page) -> Any:
    return page.locator("main .rows .row")


# --- each view, as a person would use it


@pytest.mark.promise("UI-01")
async def test_now_shows_what_runs_and_what_waits_as_it_happens(desk: Window, server: Server) -> None:
    await desk.go("now")
    await expect(desk.page.get_by_text("Nothing runs now.")).to_be_visible()

    await server.post("sessions/s1/batches", {"calls": [{"name": "hang", "arguments": {}}]}, Prefer="respond-async")
    await server.call("pay", to="bob", amount=3)

    await expect(desk.page.locator("td", has_text="hang")).to_be_visible()
    await expect(desk.page.locator("section", has_text="Waits for a person").locator(".row")).to_have_count(1)
    await expect(desk.page.locator("header .waiting")).to_have_text("1 waiting for you")
    await desk.picture("now")


@pytest.mark.promise("UI-01")
async def test_a_batch_is_a_timeline_and_a_call_says_where_its_time_went(desk: Window, server: Server) -> None:
    calls = [{"name": "book", "id": f"ann-{n}", "arguments": {"account": "ann", "amount": n}} for n in range(3)]
    calls.append({"name": "fail", "id": "broken", "arguments": {"why": "no luck"}})
    done = await server.post("sessions/s1/batches", {"calls": calls})

    await desk.go(f"batches/{done['batch']}")
    timeline = desk.page.locator("tw-timeline")
    await expect(timeline.get_by_role("row")).to_have_count(4)
    await expect(desk.page.locator("h1")).to_contain_text("4 calls")
    await expect(timeline.get_by_role("row").nth(2)).to_contain_text("for ann-1")
    await desk.picture("batch")

    await timeline.get_by_text("broken").click()
    await expect(desk.page.locator(".notice.bad")).to_contain_text("no luck")
    assert desk.page.url.endswith(f"#/batches/{done['batch']}/broken")

    await desk.page.locator(".below h2 a.mono").click()
    await expect(desk.page.get_by_text("Where the time went")).to_be_visible()
    await desk.page.go_back()
    await expect(timeline).to_be_visible()
    await desk.picture("call")


@pytest.mark.promise("UI-01")
async def test_a_tool_is_tried_with_a_form_made_from_its_schema(desk: Window) -> None:
    await desk.go("tools")
    await desk.page.locator("main").get_by_role("link", name="add", exact=True).click()
    await expect(desk.page.get_by_label("Arguments").get_by_text("one")).to_be_visible()

    await desk.page.get_by_label("one *").fill("two")
    await expect(desk.page.get_by_text("A whole number, please").first).to_be_visible()
    await desk.page.get_by_label("one *").fill("41")
    await desk.page.get_by_role("button", name="Run").click()

    await expect(desk.page.get_by_role("region", name="Value", exact=True)).to_contain_text("sum: 42")
    await desk.picture("tool")


@pytest.mark.promise("UI-01")
async def test_a_tool_that_an_earlier_call_holds_up_says_which(desk: Window, server: Server) -> None:
    asked = await server.call("ask_person", session="page")
    await desk.go("tools/book")
    await desk.page.get_by_label("account *").fill("ann")
    await desk.page.get_by_label("amount *").fill("1")
    await desk.page.get_by_role("button", name="Run").click()

    await expect(desk.page.get_by_text("an earlier call of the session has what it waits for")).to_be_visible()
    await expect(desk.page.get_by_role("link", name=asked["call_id"])).to_be_visible()


@pytest.mark.promise("UI-01")
async def test_wrong_arguments_are_told_as_the_model_reads_them(desk: Window) -> None:
    await desk.go("tools/add")
    await desk.page.get_by_role("button", name="Run").click()

    await expect(desk.page.locator(".notice.bad")).to_contain_text("invalid_arguments")


@pytest.mark.promise("UI-01")
async def test_an_approval_is_edited_in_a_form_and_approved_with_what_changed(desk: Window, server: Server) -> None:
    asked = await server.call("pay", to="ann", amount=120.5, note="for\ntea")
    await desk.go("approvals")
    await expect(desk.page.locator(".sentence")).to_contain_text("pay will run with amount 120.5, note for tea, to ann")
    await expect(desk.page.locator(".request")).to_contain_text("payments need a person")

    await desk.page.keyboard.press("e")
    await desk.page.get_by_label("amount *").fill("99")
    await expect(desk.page.locator(".diff .gone")).to_contain_text("120.5")
    await expect(desk.page.locator(".diff .new")).to_contain_text("99")
    await desk.picture("approval-edited")
    await desk.page.get_by_role("button", name="Approve as edited").click()

    await expect(rows(desk.page).filter(has_text="approved")).to_contain_text("edited")
    await expect(rows(desk.page).filter(has_text="approved")).to_contain_text("tester")
    call = await outcome_of(server, asked["call_id"])
    assert call["outcome"]["value"] == {"paid": 99, "to": "ann", "note": "for\ntea", "currency": "EUR"}
    assert call["outcome"]["decision"]["by"] == "tester"


@pytest.mark.promise("UI-01")
async def test_an_approval_is_denied_with_a_reason_that_the_model_reads(desk: Window, server: Server) -> None:
    asked = await server.call("pay", to="mallory", amount=1e6)
    await desk.go("approvals")
    await desk.page.locator(".request").wait_for()
    await desk.page.keyboard.press("d")
    await desk.page.keyboard.type("not to mallory")
    await desk.page.keyboard.press("Enter")

    await expect(rows(desk.page).filter(has_text="denied")).to_be_visible()
    call = await outcome_of(server, asked["call_id"])
    assert call["status"] == "failure"
    assert "not to mallory" in call["outcome"]["text"]


@pytest.mark.promise("UI-01")
async def test_always_lets_later_calls_run_without_a_question(desk: Window, server: Server) -> None:
    await server.call("pay", to="ann", amount=1)
    await desk.go("approvals")
    await desk.page.get_by_label("For which calls").select_option("any")
    await desk.page.get_by_role("button", name=re.compile("Approve")).click()
    await expect(rows(desk.page).filter(has_text="approved")).to_contain_text("always")

    assert (await server.call("pay", to="ann", amount=2))["status"] == "success"


@pytest.mark.promise("UI-01")
async def test_a_question_is_answered_in_a_form_made_from_its_schema(desk: Window, server: Server) -> None:
    asked = await server.call("ask_person")
    await desk.go("approvals")
    await desk.page.get_by_label("colour *").select_option(label="blue")
    await desk.page.get_by_role("button", name=re.compile("Answer")).click()

    await expect(rows(desk.page).filter(has_text="answered")).to_be_visible()
    assert (await outcome_of(server, asked["call_id"]))["outcome"]["value"] == {"colour": "blue"}


@pytest.mark.promise("UI-01")
async def test_a_session_is_chatted_with_and_its_calls_are_in_place(desk: Window, server: Server) -> None:
    await desk.go("sessions/talk")
    box = desk.page.get_by_label("Message to the model")
    await box.fill("hello there")
    await box.press("Enter")

    await expect(desk.page.locator(".message.assistant").last).to_contain_text("It is done.")
    await expect(desk.page.locator(".message.user").last).to_contain_text("hello there")
    folded = desk.page.locator(".called")
    await folded.locator("summary").first.click()
    await expect(folded).to_contain_text("hello there")
    await folded.get_by_role("link").click()
    await expect(desk.page.get_by_text("Where the time went")).to_be_visible()


@pytest.mark.promise("UI-01")
async def test_files_and_key_values_of_a_session_are_shown_and_followed(desk: Window, server: Server) -> None:
    await server.call("echo", text="so that the session is there")
    async with httpx.AsyncClient(
        base_url=server.address, headers={"Authorization": f"Bearer {server.token}"}
    ) as client:
        await client.put("/v1/sessions/s1/files/notes/plan.md", content=b"first\nsecond\n")
        await client.put("/v1/sessions/s1/kv/plan", json={"value": {"days": 3}})
        await desk.go("sessions/s1/files")
        await rows(desk.page).filter(has_text="/notes/plan.md").click()
        await expect(desk.page.get_by_label("Content of the file")).to_contain_text("second")

        await client.put("/v1/sessions/s1/files/notes/plan.md", content=b"first\nthird\n")
        await expect(desk.page.locator(".diff .new")).to_contain_text("third")
        await expect(desk.page.locator(".diff .gone")).to_contain_text("second")

    await desk.go("sessions/s1/kv")
    await rows(desk.page).filter(has_text="plan").click()
    await expect(desk.page.get_by_label("plan", exact=True)).to_contain_text("days: 3")


@pytest.mark.promise("UI-01")
async def test_a_run_is_followed_signalled_and_its_log_searched(desk: Window, server: Server) -> None:
    await server.post("sessions/s1/runs", {"tool": "count_up", "arguments": {"until": 30}, "title": "Counting"})
    await desk.go("runs")
    await desk.page.get_by_role("link", name="Counting").click()
    await expect(desk.page.get_by_role("log")).to_contain_text("number 30")
    await desk.page.get_by_label("Search the log").fill("number 7")
    await expect(desk.page.get_by_role("log")).to_have_text("number 7")
    await desk.picture("run")

    await desk.page.get_by_label("Name of a signal").fill("go")
    await desk.page.get_by_role("button", name="Send a signal").click()
    await expect(desk.page.locator(".facts")).to_contain_text("completed")


@pytest.mark.promise("UI-01")
async def test_a_schedule_shows_its_instants_and_is_paused_and_run_now(desk: Window, server: Server) -> None:
    body = {"tool": "count_up", "arguments": {}, "title": "Nightly", "cron": "0 3 * * *", "timezone": "Europe/Prague"}
    await server.post("sessions/s1/schedules", body)
    await desk.go("schedules")
    await desk.page.get_by_role("link", name="Nightly").click()
    await expect(desk.page.locator("tbody tr")).to_have_count(5)
    await expect(desk.page.locator("tbody tr").first).to_contain_text("03:00:00")

    await desk.page.get_by_role("button", name="Pause").click()
    await expect(desk.page.locator(".facts")).to_contain_text("paused")
    await desk.page.get_by_role("button", name="Resume").click()
    await expect(desk.page.locator(".facts")).to_contain_text("active")
    await desk.page.get_by_role("button", name="Run now").click()
    await expect(desk.page.locator("h1")).to_contain_text("Run")


# --- what goes wrong


@pytest.mark.promise("UI-01", "UI-02")
async def test_two_windows_decide_the_same_approval_and_the_slower_is_told(
    chromium: Browser, desk: Window, server: Server
) -> None:
    asked = await server.call("pay", to="ann", amount=5)
    await desk.go("approvals")
    await desk.page.locator(".request").wait_for()
    async with second(chromium, desk) as other:
        # What happens elsewhere does not reach the second window: it decides what it still sees.
        await other.page.route("**/v1/events", lambda route: route.abort())
        await other.go("approvals")
        await other.page.locator(".request").wait_for()

        await desk.page.get_by_role("button", name=re.compile("Approve")).click()
        await expect(rows(desk.page).filter(has_text="approved")).to_be_visible()
        await other.page.get_by_label("Reason for a denial").fill("too late")
        await other.page.get_by_role("button", name=re.compile("Deny")).click()

        await expect(other.page.get_by_text("Somebody else was faster.")).to_be_visible()
        await expect(other.page.locator("[role=alert]")).to_contain_text("tester")
        await other.picture("somebody-was-faster")
    assert (await outcome_of(server, asked["call_id"]))["status"] == "success"


@pytest.mark.promise("UI-02")
async def test_a_request_that_somebody_else_decides_while_it_is_read_says_so(desk: Window, server: Server) -> None:
    await server.call("pay", to="ann", amount=5)
    await desk.go("approvals")
    await desk.page.locator(".request").wait_for()
    waiting = (await server.get("approvals"))["items"][0]
    await server.post(f"approvals/{waiting['key']}/approve", {})

    await expect(desk.page.get_by_role("alert")).to_contain_text("Somebody else was faster. program: ✓ approved pay")
    await expect(desk.page.get_by_text("Nothing waits for a person.")).to_be_visible()


@pytest.mark.promise("UI-02")
async def test_the_page_goes_on_when_its_server_is_killed_and_started_again(desk: Window, server: Server) -> None:
    await server.call("pay", to="ann", amount=1)
    await desk.go("now")
    await expect(desk.page.locator("header .waiting")).to_have_text("1 waiting for you")

    server.kill()
    await expect(desk.page.locator(".offline")).to_contain_text("Offline")
    await desk.picture("offline")
    server.start()

    await expect(desk.page.locator(".connection")).to_contain_text("live")
    await expect(desk.page.locator(".offline")).to_have_count(0)
    await server.call("pay", to="bob", amount=2)
    await expect(desk.page.locator("header .waiting")).to_have_text("2 waiting for you")


@pytest.mark.promise("UI-02")
async def test_hostile_output_is_shown_as_text_everywhere(desk: Window, server: Server) -> None:
    done = await server.post("sessions/s1/batches", {"calls": [{"name": "hostile", "id": "h", "arguments": {}}]})
    await server.call("ask_person", session="s2")  # it holds its claim while it waits
    await server.call("fail", why="<img src=x onerror='window.broken = 1'>\u202e")
    await server.post("sessions/s1/messages", {"content": "<script>window.broken = 1</script>\u202e\x1b[31m"})
    call = f"sessions/s1/calls/h?scope={done['scope']}"
    for view in ("now", "calls", f"batches/{done['batch']}/h", call, "sessions/s1", "approvals"):
        await desk.go(view)
        await expect(desk.page.locator("main")).to_contain_text(re.compile("<script>|<img"))
        assert await desk.page.evaluate("window.broken") is None, view
        assert await desk.page.evaluate("({}).polluted") is None, view
        assert await desk.page.locator("main script, main svg, main img[src=x]").count() == 0, view
        text = await desk.page.locator("main").inner_text()
        assert re.findall("[\u202a-\u202e\u2066-\u2069\x00\x07\x1b]", text) == [], view
        width = await desk.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert width <= 0, f"{view} is {width} pixels too wide"
    await desk.picture("hostile")


@pytest.mark.promise("UI-02")
async def test_a_megabyte_on_one_line_is_opened_in_parts(desk: Window, server: Server) -> None:
    done = await server.post("sessions/s1/batches", {"calls": [{"name": "hostile", "id": "h", "arguments": {}}]})
    await desk.go(f"sessions/s1/calls/h?scope={done['scope']}")
    more = desk.page.get_by_role("button", name=re.compile("KiB more|MiB more")).first
    await expect(more).to_be_visible()
    assert await desk.page.evaluate("document.body.innerText.length") < 100_000


async def test_somebody_without_a_login_is_asked_for_a_token_and_stays_where_they_wanted(
    chromium: Browser, server: Server
) -> None:
    page = await (await chromium.new_context()).new_page()
    await page.goto(f"{server.address}/#/tools/add")
    await page.get_by_label("Token").fill("tw_wrong")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    await page.get_by_label("Token").fill(server.token)
    await page.get_by_role("button", name="Log in").click()

    await expect(page.locator("h1")).to_contain_text("add")
    assert server.token not in await page.evaluate("JSON.stringify([document.cookie, localStorage, sessionStorage])")


async def test_somebody_who_may_only_read_is_told_so_and_changes_nothing(chromium: Browser, server: Server) -> None:
    reader = await server.post("tokens", {"name": "reader", "scopes": ["read"]})
    await server.call("pay", to="ann", amount=1)
    page = await (await chromium.new_context()).new_page()
    await page.goto(f"{server.address}/#/approvals")
    await page.get_by_label("Token").fill(reader["value"])
    await page.get_by_role("button", name="Log in").click()
    await page.get_by_role("button", name=re.compile("Approve")).click()

    await expect(page.get_by_role("alert")).to_contain_text("has not the scope 'approve'")
    assert len((await server.get("approvals"))["items"]) == 1
    await page.get_by_role("button", name="Keys, and who you are").click()
    await expect(page.get_by_role("dialog")).to_contain_text("You are reader (read).")
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("Token")).to_be_visible()


async def test_views_that_are_not_there_say_so(desk: Window) -> None:
    for view, words in (
        ("nothing/at/all", "There is no view at"),
        ("runs/bg_none", "Gone"),
        ("batches/none", "Gone"),
        ("sessions/s1/calls/none", "Gone"),
        ("tools/none", "Gone"),
        ("schedules/none", "Gone"),
    ):
        await desk.go(view)
        await expect(desk.page.locator("main")).to_contain_text(words)


# --- keyboard, screen readers, colours, a phone


@pytest.mark.promise("UI-02")
async def test_every_view_is_reached_by_the_keyboard(desk: Window, server: Server) -> None:
    await server.call("echo", session="findme", text="x")
    await desk.go("now")
    for keys, title in (("gs", "Sessions"), ("gc", "Calls"), ("gr", "Runs"), ("gh", "Schedules"), ("gp", "Approvals")):
        await desk.page.keyboard.type(keys)
        await expect(desk.page.locator("h1")).to_have_text(title)
    await desk.page.keyboard.press("?")
    await expect(desk.page.get_by_role("dialog")).to_contain_text("go to Tools")
    await desk.page.keyboard.press("Escape")
    await expect(desk.page.get_by_role("dialog")).to_have_count(0)

    await desk.page.keyboard.press("/")
    await desk.page.keyboard.type("findme")
    await expect(desk.page.get_by_role("option").first).to_contain_text("findme")
    await desk.page.keyboard.press("Enter")
    await expect(desk.page.locator("h1")).to_contain_text("findme")
    await desk.page.keyboard.press("/")
    await desk.page.keyboard.type("nowhere to be found")
    await expect(desk.page.get_by_role("option")).to_contain_text("Nothing among the newest")
    await desk.page.keyboard.press("Escape")
    await desk.page.go_back()
    await expect(desk.page.locator("h1")).to_have_text("Approvals")


@pytest.mark.promise("UI-02")
@pytest.mark.parametrize("colours", ["dark", "light"])
async def test_no_view_has_a_fault_that_axe_finds(chromium: Browser, server: Server, colours: str) -> None:
    axe = (npm_package("axe-core", AXE) / "axe.min.js").read_text()
    done = await server.post("sessions/s1/batches", {"calls": [{"name": "add", "id": "a", "arguments": {"one": 1}}]})
    await server.call("fail")
    await server.call("pay", to="ann", amount=1)
    await server.post("sessions/s1/runs", {"tool": "count_up", "arguments": {}, "title": "Counting"})
    views = (*VIEWS, f"batches/{done['batch']}/a", f"sessions/s1/calls/a?scope={done['scope']}", "sessions/s1/files")
    found: dict[str, list[str]] = {}
    async with window(chromium, server.link, color_scheme=colours) as desk:
        for view in views:
            await desk.go(view)
            await expect(desk.page.locator("main")).not_to_contain_text("Loading…")
            await desk.page.evaluate(axe)
            said = await desk.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            wrong = [f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in said["violations"]]
            if wrong:
                found[view] = wrong
            await desk.picture(f"{re.sub(r'[^a-z0-9]+', '-', view)}-{colours}")
    assert found == {}, json.dumps(found, indent=1)


@pytest.mark.promise("UI-02")
async def test_nothing_is_wider_than_a_phone(chromium: Browser, server: Server) -> None:
    done = await server.post("sessions/s1/batches", {"calls": [{"name": "add", "id": "a", "arguments": {"one": 1}}]})
    await server.call("pay", to="ann", amount=1)
    async with window(chromium, server.link, **PHONE) as desk:
        for view in (*VIEWS, f"batches/{done['batch']}/a", f"sessions/s1/calls/a?scope={done['scope']}"):
            await desk.go(view)
            await expect(desk.page.locator("main")).not_to_contain_text("Loading…")
            width = await desk.page.evaluate("document.documentElement.scrollWidth")
            assert width <= 390, f"{view} is {width} pixels wide"
            await desk.picture(f"{re.sub(r'[^a-z0-9]+', '-', view)}-phone")


async def outcome_of(server: Server, call_id: str) -> Any:
    """The record of a call, once it has an outcome."""

    async def ended() -> Any:
        calls = (await server.get("calls?session=s1&limit=100"))["items"]
        call = next(one for one in calls if one["call_id"] == call_id)
        return call if call["outcome"] is not None else None

    return await until(ended, PATIENCE)
