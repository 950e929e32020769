"""What a name stands for is checked once, and the connection goes there and nowhere else."""

import ipaddress
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.builtin.web.sites import Exchange, Web, redirect, response
from toolwright.builtin.web import web_fetch_tool
from toolwright.builtin.web.addresses import kind_of
from toolwright.errors import ToolwrightError

REFUSED = {
    "unspecified": "0.0.0.0 0.1.2.3 ::",
    "loopback": "127.0.0.1 127.255.255.254 ::1",
    "private": "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 fc00::1 fd12::1 fec0::1",
    "carrier-grade NAT": "100.64.0.1 100.127.255.255",
    "link-local": "169.254.0.1 169.254.169.254 100.100.100.200 168.63.129.16 fe80::1 fe80::1%eth0 2606:4700::1%eth0 "
    "fd00:ec2::254 fd20:ce::254",
    "multicast": "224.0.0.1 239.255.255.255 ff02::1",
    "reserved": "192.0.0.1 192.0.2.1 192.88.99.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 240.0.0.1 "
    "255.255.255.255 100::1 200::1 2001:db8::1 2001:2::1 2001:20::1 3ffe::1 3fff::1 4000::1 5f00::1",
    "IPv4 in IPv6": "::ffff:8.8.8.8 ::ffff:10.0.0.1 ::8.8.8.8 64:ff9b::8.8.8.8 64:ff9b:1::808:808 2002:808:808::1 "
    "2001:0:53aa::1",
}
PUBLIC = (
    "8.8.8.8 1.1.1.1 93.184.216.34 172.15.255.255 172.32.0.1 100.63.255.255 100.128.0.1 192.167.255.255 192.169.0.1 "
    "169.253.0.1 198.17.0.1 223.255.255.255 126.255.255.255 2606:4700:4700::1111 2a00:1450:4001:80b::200e "
    "2001:4860:4860::8888 2003::1 2400:cb00::1"
)


@pytest.mark.promise("BLT-03")
@pytest.mark.parametrize(
    ("kind", "address"), [(kind, address) for kind, addresses in REFUSED.items() for address in addresses.split()]
)
async def test_a_name_of_an_address_that_is_not_public_is_refused(web: Web, kind: str, address: str):
    web.names["trap.example"] = [[address]]
    outcome = await web.fetch("http://trap.example/")
    assert (outcome.failure.category, outcome.failure.code) == ("permission_denied", "address_refused")
    assert kind in outcome.failure.message
    assert address not in outcome.text  # what stands behind a name inside is not the model's business
    assert web.lookups == ["trap.example"]


@pytest.mark.parametrize("address", PUBLIC.split())
def test_a_public_address_is_allowed(address: str):
    assert kind_of(ipaddress.ip_address(address)) is None


@pytest.mark.promise("BLT-03")
@pytest.mark.parametrize("addresses", [["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["2606:4700::1", "::1"]])
async def test_one_private_address_among_public_ones_spoils_the_name(web: Web, addresses: list[str]):
    trap = await web.serve(response(b"caught"))
    web.names["trap.example"] = [addresses]
    outcome = await web.fetch(f"http://trap.example:{trap.port}/")
    assert outcome.failure.code == "address_refused"
    assert trap.connections == 0


@pytest.mark.promise("BLT-03")
async def test_an_answer_that_changes_between_check_and_use_changes_nothing(web: Web, monkeypatch):
    trap = await web.serve(response(b"caught"))
    await web.serve(response(b"the checked one"), host="127.0.0.2", port=trap.port)
    web.names["rebind.example"] = [["127.0.0.2"], ["127.0.0.1"]]

    def never(*args, **options):
        raise AssertionError("resolved behind the tool's back")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    outcome = await web.fetch(f"http://rebind.example:{trap.port}/", allow_hosts=["127.0.0.2"])
    assert outcome.value["content"] == "the checked one"
    assert web.lookups == ["rebind.example"]
    again = await web.fetch(f"http://rebind.example:{trap.port}/", allow_hosts=["127.0.0.2"])
    assert again.failure.code == "address_refused"
    assert trap.connections == 0


@pytest.mark.promise("BLT-03")
async def test_each_redirect_is_resolved_and_checked_anew(web: Web):
    async def forever(exchange: Exchange) -> None:
        await exchange.send(redirect("/next"))

    site = await web.serve(forever, host="127.0.0.2")
    web.names["rebind.example"] = [["127.0.0.2"], ["127.0.0.2"], ["127.0.0.1"]]
    outcome = await web.fetch(f"http://rebind.example:{site.port}/", allow_hosts=["127.0.0.2"])
    assert outcome.failure.code == "address_refused"
    assert outcome.failure.message.startswith("Redirect 2 is not followed.")
    assert (site.connections, len(web.lookups)) == (2, 3)


@pytest.mark.promise("BLT-03")
async def test_redirects_are_followed_and_counted(web: Web):
    async def step(exchange: Exchange) -> None:
        number = int(exchange.path[1:])
        await exchange.send(redirect(f"/{number - 1}") if number else response(b"the end"))

    site = await web.serve(step)
    outcome = await web.fetch(f"http://pages.example:{site.port}/5")
    assert (outcome.value["content"], outcome.value["redirects"]) == ("the end", 5)
    assert outcome.value["url"] == f"http://pages.example:{site.port}/0"
    outcome = await web.fetch(f"http://pages.example:{site.port}/6")
    assert outcome.failure.code == "too_many_redirects"
    assert len(site.requests) == 6 + 6


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_every_redirect_asks_again_without_what_the_first_site_gave(web: Web, status: int):
    second = await web.serve(response(b"hello"))
    first = await web.serve(
        response(
            status=f"{status} Go",
            Location=f"http://pages.example:{second.port}/",
            Set_Cookie="id=1",
            WWW_Authenticate="Basic",
        )
    )
    outcome = await web.fetch(f"http://pages.example:{first.port}/")
    assert outcome.value["content"] == "hello"
    sent = {line.partition(":")[0].lower() for line in second.requests[0].splitlines()[1:] if line}
    assert sent == {"host", "user-agent", "accept", "accept-encoding", "connection"}


@pytest.mark.parametrize("status", ["300 Choose", "304 Not Modified", "302 Found"])
async def test_a_status_without_a_place_to_go_is_an_answer(web: Web, status: str):
    site = await web.serve(response(b"", status=status))
    outcome = await web.fetch(f"http://pages.example:{site.port}/")
    assert outcome.value["status"] == int(status[:3])


@pytest.mark.promise("BLT-03")
async def test_the_proxies_of_the_environment_are_not_asked(web: Web, monkeypatch):
    proxy = await web.serve(response(b"from the proxy"))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    site = await web.serve(response(b"hello"))
    outcome = await web.fetch(f"http://pages.example:{site.port}/")
    assert (outcome.value["content"], proxy.connections) == ("hello", 0)


@pytest.mark.promise("BLT-03")
async def test_the_owner_may_allow_an_intranet_but_link_local_only_by_name(web: Web):
    site = await web.serve(response(b"hello"))
    url = f"http://127.0.0.1:{site.port}/"
    assert (await web.fetch(url)).failure.code == "address_refused"
    assert (await web.fetch(url, allow_private=True)).value["content"] == "hello"
    assert (await web.fetch(url, allow_hosts=["127.0.0.0/8"])).value["content"] == "hello"
    assert (await web.fetch(url, allow_hosts=["127.0.0.1"])).value["content"] == "hello"
    assert (await web.fetch(url, allow_hosts=["127.0.0.2"])).failure.code == "address_refused"
    web.names["metadata.example"] = [["169.254.169.254"]]
    outcome = await web.fetch("http://metadata.example/", allow_private=True)
    assert outcome.failure.code == "address_refused"


@pytest.mark.parametrize(
    "options",
    [
        {"allow_hosts": "pages.example"},
        {"allow_hosts": ["http://pages.example"]},
        {"allow_hosts": ["pages.example:80"]},
        {"allow_hosts": ["*.example"]},
        {"allow_hosts": ["bücher.example"]},
        {"allow_hosts": [""]},
        {"allow_hosts": [3]},
        {"total": 0},
        {"first_byte": float("inf")},
        {"max_bytes": 0},
        {"max_redirects": -1},
        {"user_agent": "a\r\nb"},
        {"user_agent": " "},
    ],
    ids=str,
)
def test_a_setting_that_is_not_usable_is_refused(options):
    with pytest.raises(ToolwrightError, match=next(iter(options))):
        web_fetch_tool(**options)


async def test_a_name_that_nobody_knows_is_a_clear_failure(web: Web):
    outcome = await web.fetch("http://nowhere.example/")
    assert (outcome.failure.code, outcome.failure.retry) == ("name_not_resolved", True)
    web.names["empty.example"] = [[]]
    assert (await web.fetch("http://empty.example/")).failure.code == "name_not_resolved"


async def test_a_second_address_is_tried_when_the_first_does_not_answer(web: Web):
    site = await web.serve(response(b"hello"))
    web.names["pages.example"] = [["127.0.0.3", "127.0.0.1"]]
    assert (await web.fetch(f"http://pages.example:{site.port}/")).value["content"] == "hello"
    web.names["pages.example"] = [["127.0.0.3"]]
    assert (await web.fetch(f"http://pages.example:{site.port}/")).failure.code == "connection_failed"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Key and certificate of pages.example, which vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pages.example")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("pages.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path / "pages.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.promise("BLT-03")
async def test_tls_is_spoken_with_the_name_and_not_with_the_address(web: Web, certificate: Path):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    asked: list[str | None] = []
    tls.sni_callback = lambda connection, name, context: asked.append(name)
    site = await web.serve(response(b"hello"), tls=tls)
    trusting = ssl.create_default_context(cafile=str(certificate))
    outcome = await web.fetch(f"https://pages.example:{site.port}/", ssl_context=trusting)
    assert outcome.value["content"] == "hello"
    assert asked == ["pages.example"]
    assert f"\r\nHost: pages.example:{site.port}\r\n" in site.requests[0]

    web.names["other.example"] = [["127.0.0.1"]]
    url = f"https://other.example:{site.port}/"
    other = await web.fetch(url, ssl_context=trusting, allow_hosts=["other.example"])
    assert other.failure.code == "tls_failed"
    unknown = await web.fetch(f"https://pages.example:{site.port}/")
    assert unknown.failure.code == "tls_failed"
    assert len(site.requests) == 1


@pytest.mark.promise("BLT-03")
async def test_a_redirect_from_https_to_http_is_not_followed_unless_the_owner_says_so(web: Web, certificate: Path):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))
    plain = await web.serve(response(b"in the clear"))
    site = await web.serve(redirect(f"http://pages.example:{plain.port}/"), tls=tls)
    url = f"https://pages.example:{site.port}/"
    outcome = await web.fetch(url, ssl_context=trusting)
    assert (outcome.failure.code, plain.connections) == ("downgrade_refused", 0)
    outcome = await web.fetch(url, ssl_context=trusting, allow_downgrade=True)
    assert outcome.value["content"] == "in the clear"
