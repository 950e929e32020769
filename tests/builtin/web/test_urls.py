"""No spelling of a URL gets through to a host that may not be reached."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builtin.web.sites import Web, redirect, response
from toolwright import Runtime, ToolError
from toolwright.builtin.web import web_fetch
from toolwright.builtin.web.urls import Target, read_url

SECRET = "hunter2-s3cret"

# {port} is where the trap listens, on 127.0.0.1 and only there.
SPELLINGS = [
    # loopback, plainly
    "http://127.0.0.1:{port}/",
    "http://127.1.2.3:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST:{port}/",
    "http://trap.example:{port}/",
    "http://TRAP.example:{port}/",
    "http://[::1]:{port}/",
    "http://[0:0:0:0:0:0:0:1]:{port}/",
    "http://[0000:0000:0000:0000:0000:0000:0000:0001]:{port}/",
    # loopback as a number
    "http://2130706433:{port}/",
    "http://017700000001:{port}/",
    "http://0x7f000001:{port}/",
    "http://0X7F000001:{port}/",
    "http://0x7f.1:{port}/",
    "http://0x7f.0x0.0x0.0x1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://0177.0.0.01:{port}/",
    "http://00000177.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://127.0.1:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://127.0.0.0x1:{port}/",
    "http://127.000.000.001:{port}/",
    "http://127.65535.1:{port}/",
    "http://4294967297:{port}/",
    "http://340282366920938463463374607431768211457:{port}/",
    # nothing at all, which connects to this machine
    "http://0:{port}/",
    "http://0.0.0.0:{port}/",
    "http://0x0:{port}/",
    "http://00:{port}/",
    "http://[::]:{port}/",
    # IPv4 inside IPv6
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[::FFFF:7F00:0001]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[64:ff9b::127.0.0.1]:{port}/",
    "http://[64:ff9b:1::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://[2001:0:7f00:1::80ff:fffe]:{port}/",
    # zones
    "http://[fe80::1%25eth0]:{port}/",
    "http://[fe80::1%eth0]:{port}/",
    "http://[::1%25lo]:{port}/",
    # digits and dots of other scripts
    "http://\uff11\uff12\uff17.\uff10.\uff10.\uff11:{port}/",
    "http://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460:{port}/",
    "http://127\u30020\u30020\u30021:{port}/",
    "http://127\uff0e0\uff0e0\uff0e1:{port}/",
    "http://\u0661\u0662\u0667.0.0.1:{port}/",
    "http://loc\u00adalhost:{port}/",
    "http://\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3:{port}/",
    "http://127.0.0.1:\uff18\uff10/",
    # encoded
    "http://127.0.0.%31:{port}/",
    "http://%6c%6f%63%61%6c%68%6f%73%74:{port}/",
    "http://%31%32%37.0.0.1:{port}/",
    "http://127.0.0.1%00.example:{port}/",
    "http://127.0.0.1%2f.example:{port}/",
    # credentials, and what looks like them
    "http://user@127.0.0.1:{port}/",
    "http://user:pass@pages.example:{port}/",
    "http://pages.example@127.0.0.1:{port}/",
    "http://pages.example:80@127.0.0.1:{port}/",
    "http://@pages.example:{port}/",
    "http://:@pages.example:{port}/",
    "http://a@b@127.0.0.1:{port}/",
    "http://pages.example\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@pages.example/",
    "http:\\\\127.0.0.1:{port}\\",
    "http:/\\127.0.0.1:{port}/",
    "http://pages.example:{port}/a\\b",
    # slashes and shapes
    "http:127.0.0.1:{port}/",
    "http:/127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "http:////127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "/etc/passwd",
    "127.0.0.1:{port}",
    "trap.example:{port}/",
    "http://",
    "http://:{port}/",
    "http://?{port}",
    "http://#{port}",
    "http://.:{port}/",
    "http://..:{port}/",
    "http://trap.example.:{port}/",
    "http://trap..example:{port}/",
    "http://-trap.example:{port}/",
    "http://[127.0.0.1]:{port}/",
    "http://[::1:{port}/",
    "http://::1:{port}/",
    "http://[::1]x:{port}/",
    "http://[v1.127]:{port}/",
    "http://trap.example:{port}:80/",
    "http://trap.example:0/",
    "http://trap.example:65536/",
    "http://trap.example:-1/",
    "http://trap.example:+{port}/",
    "http://trap.example:8_0/",
    "http://trap.example: 80/",
    "http://trap.example:0x50/",
    # white space and controls
    " http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/ ",
    "http://127.0.0.1\t:{port}/",
    "http://127.0.\n0.1:{port}/",
    "ht\ntp://127.0.0.1:{port}/",
    "http://pages.example:{port}/\r\nHost: trap.example\r\n\r\n",
    "http://pages.example:{port}/a b",
    "http://pages.example:{port}/\x00",
    "http://pages.example:{port}/\u2028",
    "http://pages.example:{port}/\ud800",
    "http://trap.example\u200b:{port}/",
    "\ufeffhttp://127.0.0.1:{port}/",
    # other schemes
    "file:///etc/passwd",
    "file://127.0.0.1:{port}/",
    "FILE:///etc/passwd",
    "ftp://127.0.0.1:{port}/",
    "gopher://127.0.0.1:{port}/_GET",
    "dict://127.0.0.1:{port}/",
    "ldap://127.0.0.1:{port}/",
    "ws://127.0.0.1:{port}/",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
    "unix:///var/run/docker.sock",
    "jar:http://127.0.0.1:{port}/!/",
    "view-source:http://127.0.0.1:{port}/",
    "url:http://127.0.0.1:{port}/",
    "data:text/html,hello",
    "javascript:alert(1)",
    "about:blank",
    "https+http://127.0.0.1:{port}/",
    "hTTp ://127.0.0.1:{port}/",
    # names and addresses of machines that hold keys
    "http://169.254.169.254/latest/meta-data/",
    "http://metadata.example/computeMetadata/v1/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://100.100.100.200/latest/meta-data/",
    "http://168.63.129.16/metadata",
    # too long
    "http://pages.example:{port}/" + "a" * 5_000,
    "http://" + "a" * 300 + ".example:{port}/",
    "http://" + "a" * 64 + ".example:{port}/",
]
NAMES = [f"{number} {ascii(spelling)[:50]}" for number, spelling in enumerate(SPELLINGS)]


@pytest.mark.promise("BLT-03")
@pytest.mark.parametrize("spelling", SPELLINGS, ids=NAMES)
async def test_a_bad_spelling_reaches_nobody(web: Web, spelling: str):
    trap = await web.serve(response(b"caught"))
    web.names |= {
        "localhost": [["127.0.0.1", "::1"]],
        "trap.example": [["127.0.0.1"]],
        "metadata.example": [["169.254.169.254"]],
    }
    outcome = await web.fetch(spelling.replace("{port}", str(trap.port)))
    assert outcome.failure is not None
    assert outcome.failure.category in ("invalid_arguments", "permission_denied")
    assert trap.connections == 0


@pytest.mark.promise("BLT-03")
@pytest.mark.parametrize("spelling", SPELLINGS, ids=NAMES)
async def test_a_bad_spelling_reaches_nobody_by_a_redirect(web: Web, spelling: str):
    spelling = spelling.partition("\r\n")[0].replace("/pages.example", "/trap.example")  # a line ends the header
    trap = await web.serve(response(b"caught"))
    web.names |= {
        "localhost": [["127.0.0.1", "::1"]],
        "trap.example": [["127.0.0.1"]],
        "metadata.example": [["169.254.169.254"]],
    }
    location = spelling.replace("{port}", str(trap.port)).encode("utf-8", "surrogatepass")
    site = await web.serve(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n")
    outcome = await web.fetch(f"http://pages.example:{site.port}/start")
    assert trap.connections == 0
    # Some of them are paths on the same site when they come by redirect, and it redirects for ever.
    assert outcome.failure is not None


@pytest.mark.parametrize(
    "url",
    [
        "http://me:{secret}@pages.example/",
        "http://{secret}@pages.example/",
        "http://me:{secret}@127.0.0.1/",
        "ftp://me:{secret}@pages.example/",
        "http:me:{secret}@pages.example/",
        "//me:{secret}@pages.example/",
        "me:{secret}@pages.example",
        "http://me:{secret}%40pages.example/",
        "http://me:{secret}\\@pages.example/",
        "http://me:{secret}@pages.example:99999/",
        "http://me:{secret}@pages example/",
        "http://127.0.0.1/?token={secret}",
        "http://pages.example:1/?token={secret}",
        "http://pages.example:1/{secret}#{secret}",
    ],
)
@pytest.mark.parametrize("by_redirect", [False, True])
async def test_a_failure_does_not_repeat_what_the_url_should_have_kept(web: Web, url: str, by_redirect: bool):
    url = url.replace("{secret}", SECRET)
    if by_redirect:
        site = await web.serve(redirect(url))
        url = f"http://pages.example:{site.port}/"
    outcome = await web.fetch(url)
    assert outcome.failure is not None
    assert SECRET not in repr(outcome)
    assert SECRET not in outcome.text


@pytest.mark.promise("BLT-03")
@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("file:///etc/passwd", "scheme_refused"),
        ("gopher://pages.example/", "scheme_refused"),
        ("http://me:pass@pages.example/", "credentials_refused"),
        ("pages.example", "invalid_url"),
        ("http://pages.example/\\a", "invalid_url"),
        ("http://pages.example/" + "a" * 5_000, "invalid_url"),
        ("http://0x7f.1/", "address_refused"),
        ("http://pages.example:22/", "port_refused"),
    ],
    ids=lambda value: value[:30],
)
async def test_the_code_says_why_a_url_is_refused(url: str, code: str):
    async with Runtime.open(tools=[web_fetch]) as runtime:
        outcome = await runtime.session("s").call("web_fetch", url=url)
    assert outcome.failure.code == code


WORDS = "http https :// // localhost a.example 127.0.0.1 ::1 0x7f 1 %2f %40 80 99999 xn-- xn--a .."
PIECES = st.sampled_from(
    [*WORDS.split(), *"/:?#[]@\\.%&=-+ \t\0", "\u3002", "\uff0f", "\uff20", "\u00ad", "\u0130", "\ud800"]
)


def check_reading(target: Target) -> None:
    """Another parser reads what is accepted in the same way."""
    other = urlsplit(target.shown)
    assert (other.scheme, other.hostname) == (target.scheme, target.host)
    assert (other.port or {"http": 80, "https": 443}[other.scheme]) == target.port
    assert "@" not in other.netloc
    assert target.shown.isascii()
    assert not set(target.shown) & set(" \t\r\n\0\\")


@given(st.lists(PIECES, max_size=12).map("".join) | st.text(), st.lists(PIECES, max_size=8).map("".join))
def test_any_text_is_refused_or_read_the_way_others_read_it(text: str, location: str):
    for url in (text, f"http://{text}", f"http://a.example{text}"):
        try:
            target = read_url(url)
        except ToolError:
            continue
        check_reading(target)
    start = read_url("https://a.example/b/c?d")
    try:
        check_reading(start.follow(location))
    except ToolError:
        return


@pytest.mark.promise("BLT-03")
async def test_only_the_usual_ports_are_asked_unless_the_owner_says_otherwise(web: Web):
    site = await web.serve(response(b"hello"))
    url = f"http://pages.example:{site.port}/"
    refused = await web.fetch(url, ports=(80, 443))
    assert refused.failure.code == "port_refused"
    assert "80, 443" in refused.failure.message
    assert (site.connections, web.lookups) == (0, [])
    assert (await web.fetch(url, ports=[site.port])).value["content"] == "hello"


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://pages.example:{port}", "/"),
        ("HTTP://PAGES.example:{port}/A%20b?q=%2F&r=1#part", "/A%20b?q=%2F&r=1"),
        ("http://pages.example:{port}?q", "/?q"),
        ("http://pages.example:{port}/grüße?ß=ü", "/gr%C3%BC%C3%9Fe?%C3%9F=%C3%BC"),
        ("http://pages.example:{port}/a/../b/./c", "/b/c"),
        ("http://pages.example:{port}/user@example.com?mail=a@b", "/user@example.com?mail=a@b"),
    ],
)
async def test_a_good_spelling_asks_for_what_it_says(web: Web, url: str, path: str):
    site = await web.serve(response(b"hello"))
    outcome = await web.fetch(url.replace("{port}", str(site.port)))
    assert outcome.value["content"] == "hello"
    assert site.requests[0].startswith(f"GET {path} HTTP/1.1\r\n")
    assert f"\r\nHost: pages.example:{site.port}\r\n" in site.requests[0]
    assert "#" not in outcome.value["url"]


async def test_an_international_name_is_found_by_its_ascii_form(web: Web):
    site = await web.serve(response(b"hello"))
    web.names["xn--bcher-kva.example"] = [["127.0.0.1"]]
    outcome = await web.fetch(f"http://bücher.example:{site.port}/", allow_hosts=["xn--bcher-kva.example"])
    assert outcome.value["content"] == "hello"
    assert web.lookups == ["xn--bcher-kva.example"]
