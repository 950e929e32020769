"""Pages become markdown or text, in a process that can be killed; and what else the tool says of itself and does."""

import importlib.util
import subprocess
import sys

import pytest

from tests.builtin.web.sites import PATIENCE, Exchange, Web, response
from tests.conftest import child_processes
from tests.support import fail_after, until
from toolwright import MissingRequirement
from toolwright.builtin.web import web_fetch
from toolwright.builtin.web.page_reading import Raw, read_page
from toolwright.clock import SystemClock
from toolwright.limited_children import ChildPool

PAGE = b"""<!doctype html><html><head><title> A
  page </title><style>p {color: red}</style></head><body>
<h1>Heading</h1><!-- a comment --><script>steal()</script><noscript>no script</noscript>
<p>Some <b>bold</b> text with a <a href="../other?a=1">link</a>,
<a href="javascript:steal()">a trap</a> and <img src="data:image/png;base64,AAAA" alt="a dot">.</p>
<ul><li>one</li><li>two</li></ul><svg><text>drawn</text></svg>
</body></html>"""


async def fetch_html(web: Web, html: bytes, form: str = "markdown", **options):
    site = await web.serve(response(html, type="text/html; charset=utf-8"))
    url = f"http://pages.example:{site.port}/deep/page"
    return await web.fetch(url, arguments={"format": form, "max_bytes": 3_000_000}, **options), site


@pytest.mark.promise("BLT-03")
async def test_a_page_becomes_markdown(web: Web):
    outcome, site = await fetch_html(web, PAGE)
    assert outcome.value == {
        "url": f"http://pages.example:{site.port}/deep/page",
        "status": 200,
        "content_type": "text/html",
        "format": "markdown",
        "title": "A page",
        "content": "# Heading\n\n"
        f"Some **bold** text with a [link](http://pages.example:{site.port}/other?a=1),\n"
        "a trap and ![a dot]().\n\n- one\n- two",
        "truncated": False,
        "bytes": len(PAGE),
        "redirects": 0,
    }


@pytest.mark.promise("BLT-03")
async def test_a_page_becomes_text(web: Web):
    outcome, _ = await fetch_html(web, PAGE, "text")
    assert outcome.value["content"].split("\n")[:4] == ["Heading", "Some", "bold", "text with a"]
    for hidden in ("steal", "color", "no script", "comment", "drawn"):
        assert hidden not in outcome.value["content"]


async def test_a_page_may_be_had_as_it_came(web: Web):
    outcome, _ = await fetch_html(web, PAGE, "html")
    assert (outcome.value["content"], outcome.value["format"]) == (PAGE.decode(), "html")


@pytest.mark.parametrize(
    "html",
    [b"", b"<", b"<!--", b"<p", b"</p></p>", b"<![CDATA[x", b"&#x110000;&#xd800;&nosuch;", b"\xff\xfe", b"a\0b<p>"],
    ids=repr,
)
async def test_broken_html_is_still_read(web: Web, html: bytes):
    outcome, _ = await fetch_html(web, html)
    assert outcome.ok


async def test_a_page_nested_beyond_measure_still_gives_its_text(web: Web):
    outcome, _ = await fetch_html(web, b"<div>" * 30_000 + b"the bottom", conversion=60.0)
    assert outcome.value["content"] == "the bottom"


@pytest.mark.parametrize(
    "html",
    [
        b"<title>T</title><p>hello",
        b"<html><head><title>T</title><style>x</style><body><p>hello</body></html>",
        b"<head><meta charset=utf-8><title>T</title><link rel=x href=y></head>hello",
        b"<TITLE>T</TITLE><BODY><SCRIPT>x</SCRIPT>hello",
    ],
)
async def test_what_stands_in_a_head_is_no_content_however_it_is_written(web: Web, html: bytes):
    outcome, _ = await fetch_html(web, html)
    assert (outcome.value["title"], outcome.value["content"]) == ("T", "hello")


async def test_a_page_may_not_grow_beyond_measure(web: Web):
    html = b"<a href=a>b</a>" * 1_000
    site = await web.serve(response(html, type="text/html"))
    outcome = await web.fetch(f"http://pages.example:{site.port}/{'x' * 1_900}/page")
    assert outcome.value["truncated"]
    assert len(outcome.value["content"]) < 5 * len(html)


async def test_paragraphs_that_are_never_closed_are_read(web: Web):
    outcome, _ = await fetch_html(web, b"<p>one line" * 800)
    assert outcome.value["content"].count("one line") == 800


@pytest.mark.promise("BLT-03")
@pytest.mark.parametrize("html", [b"<p>" + b" " * 1_000_000 + b"x", b"<!--" * 250_000, b"<a b='" * 150_000])
async def test_a_page_that_keeps_its_reader_busy_is_given_up(web: Web, html: bytes):
    outcome, _ = await fetch_html(web, html, conversion=0.5)
    if not outcome.ok:  # another version of the parser may have learned to read it
        assert (outcome.failure.category, outcome.failure.code) == ("resource_limit", "conversion_failed")
        assert "format 'html'" in outcome.failure.message
    raw, _ = await fetch_html(web, html, "html")
    assert len(raw.value["content"]) == len(html)


@pytest.mark.promise("BLT-05")
async def test_a_call_that_is_cancelled_ends_the_process_of_its_page(web: Web):
    site = await web.serve(response(b"<p>" + b" " * 1_000_000 + b"x", type="text/html"))
    runtime = await web.open(conversion=1_000)
    call = {"name": "web_fetch", "arguments": {"url": f"http://pages.example:{site.port}/"}}
    others = child_processes().keys()  # which the run of the tests keeps
    batch = runtime.session("s").start_batch([call])
    async with fail_after(PATIENCE):
        await until(lambda: child_processes().keys() - others)
        batch.cancel()
        await until(lambda: not child_processes().keys() - others)
        (outcome,) = await batch
    assert outcome.status == "cancelled"  # and the check around every test finds no process


async def test_robots_are_not_asked_unless_the_owner_wants_it(web: Web):
    site = await web.serve(response(b"hello"))
    assert (await web.fetch(f"http://pages.example:{site.port}/private")).ok
    assert [request.split(" ")[1] for request in site.requests] == ["/private"]


@pytest.mark.parametrize(
    ("robots", "allowed"),
    [
        (response(b"User-agent: *\nDisallow: /private"), False),
        (response(b"User-agent: toolwright-web-fetch\nDisallow: /"), False),
        (response(b"User-agent: *\nDisallow: /other"), True),
        (response(b"User-agent: somebody\nDisallow: /"), True),
        (response(b"\xff\xfe\0 nonsense"), True),
        (response(status="404 Not Found"), True),
        (response(status="403 Forbidden"), True),
        (response(status="503 Busy"), False),
    ],
)
async def test_robots_are_obeyed_where_the_owner_wants_it(web: Web, robots: bytes, allowed: bool):
    async def serve(exchange: Exchange) -> None:
        await exchange.send(robots if exchange.path == "/robots.txt" else response(b"hello"))

    site = await web.serve(serve)
    outcome = await web.fetch(f"http://pages.example:{site.port}/private", robots=True)
    assert outcome.ok is allowed
    assert outcome.failure is None or outcome.failure.code == "robots_refused"
    assert len(site.requests) == 1 + allowed


async def test_robots_hold_for_what_a_redirect_leads_to(web: Web):
    async def serve(exchange: Exchange) -> None:
        answers = {
            "/robots.txt": response(b"User-agent: *\nDisallow: /private"),
            "/open": response(status="302 Found", Location="/private"),
        }
        await exchange.send(answers.get(exchange.path) or response(b"caught"))

    site = await web.serve(serve)
    outcome = await web.fetch(f"http://pages.example:{site.port}/open", robots=True)
    assert outcome.failure.code == "robots_refused"


def test_the_tool_says_what_it_is():
    definition = web_fetch.definition
    assert (definition.name, definition.display_name) == ("web_fetch", "Fetch web page")
    assert (definition.hints.readonly, definition.hints.open_world) == (True, True)
    assert definition.capabilities == {"network"}
    assert definition.approval == "auto"


@pytest.mark.promise("APP-05")
async def test_a_missing_library_is_named_to_the_owner_with_the_extra_that_brings_it(web: Web, monkeypatch):
    for library in ("httpx", "markdownify"):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, missing=library: None if name == missing else 1)
        with pytest.raises(MissingRequirement, match=rf"{library}.*pip install 'toolwright\[web\]'"):
            await web.open()


@pytest.mark.parametrize("module", ["toolwright", "toolwright.builtin.web"])
def test_nothing_of_the_web_is_imported_before_it_is_used(module: str):
    program = f"import sys, {module}; print(sorted({{'httpx', 'httpcore', 'bs4', 'markdownify'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.promise("BLT-05", "BLT-03")
@pytest.mark.parametrize(
    ("charset", "byte"), [("gb18030", b"\x81"), ("iso-2022-jp", b"\xff"), ("utf-8", b"\xff"), ("big5", b"\x80a")]
)
@pytest.mark.parametrize("html", [False, True])
async def test_a_large_page_in_any_encoding_is_decoded_without_holding_up_the_program(loop_watch, charset, byte, html):
    size = 5 * 1024 * 1024
    raw = Raw(
        content=byte * (size // len(byte)),
        content_type=f"text/plain; charset={charset}",
        html=html,
        truncated=False,
        base="http://pages.example/",
    )
    children = ChildPool()
    async with fail_after(PATIENCE):
        page = await read_page(raw, "html", children=children, seconds=15, clock=SystemClock())
        await children.close()
    assert len(page.content) >= size // 2 // len(byte)
