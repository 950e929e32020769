"""The connection to Temporal: TLS both ways, an API key that is never shown, and clear words when it does not work."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import Client

from tests.drivers.temporal_server import TemporalServer
from tests.support import fail_after
from tests.tls import Authority, TlsServer
from toolwright import Runtime, tool
from toolwright.clock import SystemClock
from toolwright.drivers import open_driver
from toolwright.drivers.temporal.address import read_address
from toolwright.drivers.temporal.connection import TemporalConnection
from toolwright.errors import DriverError, DriverUnavailable

PATIENCE = 60.0
KEY = "aceiost012001122tats0e1c2"
# The codes of HTTP/2 for the characters of "Bearer" and of the key.
CODES = {"B": "1011101", "r": "101100", " ": "010100"} | {
    character: f"{code:05b}" for code, character in enumerate("012aceiost")
}


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEMPORAL_API_KEY", raising=False)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def tls(shared_temporal: TemporalServer, authority: Authority) -> Iterator[TlsServer]:
    """Temporal behind TLS, as a service of others is."""
    with TlsServer(shared_temporal.port, authority.context("localhost", protocol="h2")) as server:
        yield server


async def refusal(url: str) -> str:
    async with fail_after(30):
        with pytest.raises(DriverUnavailable) as raised:
            await TemporalConnection(read_address(url)).client()
    told = str(raised.value)
    assert told.startswith("Temporal at ")
    assert KEY not in told
    return told


class Warned(logging.Handler):
    """The warnings that were logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.words = ""
        self.once, self.twice = asyncio.Event(), asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        (self.twice if self.words else self.once).set()
        self.words += record.getMessage() + "\n"


def in_headers(text: str) -> bytes:
    """Text as HTTP/2 sends it, but for its last bits, which share a byte with others."""
    bits = "".join(CODES[character] for character in text)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))


@tool(supports_background=True)
async def work() -> str:
    """Work."""
    return "done"


@pytest.mark.promise("ENG-04")
async def test_work_is_brought_over_tls_with_a_key_that_nobody_is_shown(
    file: Path, tls: TlsServer, authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TEMPORAL_API_KEY", KEY)
    driver = f"temporal://localhost:{tls.port}/default?queue={uuid4().hex}&heartbeat=2&tls_ca={authority.file}"
    async with fail_after(PATIENCE), Runtime.open(file, tools=[work], worker=True, driver=driver) as runtime:
        run = await runtime.session("s").spawn("work")
        assert (await run.wait(PATIENCE)).value == "done"
    assert in_headers(f"Bearer {KEY}") in tls.seen
    assert KEY not in caplog.text


@pytest.mark.promise("ENG-04")
async def test_a_key_is_never_sent_in_clear_text(shared_temporal: TemporalServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TEMPORAL_API_KEY", KEY)
    told = await refusal(f"temporal://localhost:{shared_temporal.port}")
    assert told.endswith("it does not speak TLS; leave tls= out, or check the port")


@pytest.mark.promise("ENG-04")
async def test_the_certificate_of_the_service_is_checked(tls: TlsServer, authority: Authority, tmp_path: Path):
    theirs = Authority(tmp_path, "theirs")
    place = f"localhost:{tls.port}"
    async with fail_after(30):
        await TemporalConnection(read_address(f"temporal://{place}?tls_ca={authority.file}")).client()
        elsewhere = f"temporal://127.0.0.1:{tls.port}?tls_ca={authority.file}"
        await TemporalConnection(read_address(f"{elsewhere}&tls_name=localhost")).client()
    not_known = "its certificate is not one of the authority that is known here; check tls_ca="
    assert not_known in await refusal(f"temporal://{place}?tls=true")
    assert not_known in await refusal(f"temporal://{place}?tls_ca={theirs.file}")
    assert "its certificate is another host's; check the host, or name it by tls_name=" in await refusal(elsewhere)
    assert "perhaps it speaks TLS, then add tls=true" in await refusal(f"temporal://{place}")


@pytest.mark.promise("ENG-04")
async def test_a_client_certificate_is_shown_to_the_service(
    shared_temporal: TemporalServer, authority: Authority, tmp_path: Path
):
    theirs = Authority(tmp_path, "theirs")
    certificate, key = authority.issue("app")
    strange, its_key = theirs.issue("stranger")
    context = authority.context("localhost", clients=authority, protocol="h2")
    with TlsServer(shared_temporal.port, context) as server:
        url = f"temporal://localhost:{server.port}?tls_ca={authority.file}"
        async with fail_after(30):
            await TemporalConnection(read_address(f"{url}&tls_cert={certificate}&tls_key={key}")).client()
        assert server.names == ["app"]
        # Whether the reason comes before the service hangs up is a matter of luck.
        for wrong in (url, f"{url}&tls_cert={strange}&tls_key={its_key}"):
            told = await refusal(wrong)
            assert "certificate of this program" in told
            assert "tls_cert=" in told
        told = await refusal(f"{url}&tls_cert={certificate}&tls_key={its_key}")
        assert "tls_key= is not the key of tls_cert=; check both files" in told
        told = await refusal(f"{url}&tls_cert={key}&tls_key={certificate}")
        assert "cannot be read; use files in the form PEM" in told


@pytest.mark.promise("ENG-04")
async def test_a_service_that_is_not_there_is_told(file: Path):
    nowhere = "nobody listens there; check that the service runs, and the address"
    assert nowhere in await refusal("temporal://127.0.0.1:1")
    assert "there is no such host; check the address" in await refusal("temporal://no-such-host.invalid")


@pytest.mark.promise("ENG-04")
async def test_a_namespace_that_is_not_there_is_told_and_the_work_waits_in_the_store(
    file: Path, shared_temporal: TemporalServer
):
    warned = Warned()
    logging.getLogger("toolwright.drivers").addHandler(warned)
    wrong = shared_temporal.url(uuid4().hex).replace("/default?", "/nowhere?")
    async with fail_after(PATIENCE):
        async with Runtime.open(file, tools=[work], worker=True, driver=wrong) as runtime:
            run = await runtime.session("s").spawn("work")
            assert (await run.refresh()).status == "queued"
            await warned.twice.wait()  # of the offer of the work, and of the worker
        assert warned.words.count("create it, or check the URL") >= 2
        assert "details" not in warned.words
        right = shared_temporal.url(uuid4().hex)
        async with Runtime.open(file, tools=[work], worker=True, driver=right) as runtime:
            assert (await (await runtime.run(run.id)).wait(PATIENCE)).value == "done"
    logging.getLogger("toolwright.drivers").removeHandler(warned)


@pytest.mark.promise("ENG-04")
async def test_work_in_a_queue_that_no_worker_has_is_told_and_comes_when_its_workflow_is_terminated(
    file: Path, shared_temporal: TemporalServer
):
    warned = Warned()
    logging.getLogger("toolwright.drivers").addHandler(warned)
    wrong, right = uuid4().hex, uuid4().hex
    async with fail_after(PATIENCE):
        async with Runtime.open(file, tools=[work], worker=False, driver=shared_temporal.url(wrong)) as runtime:
            client = await Client.connect(f"127.0.0.1:{shared_temporal.port}")
            run = await runtime.session("s").spawn("work")
            (waiting,) = await until_found(client, f"TaskQueue = '{wrong}'")
        async with Runtime.open(file, tools=[work], worker=True, driver=shared_temporal.url(right)) as runtime:
            await warned.once.wait()
            assert f"waits in the queue {wrong!r} of Temporal, and this process uses {right!r}" in warned.words
            assert (await (await runtime.run(run.id)).refresh()).status == "queued"
            await client.get_workflow_handle(waiting).terminate()
        # Offered again within a minute, and at once by a worker that begins.
        async with Runtime.open(file, tools=[work], worker=True, driver=shared_temporal.url(right)) as runtime:
            assert (await (await runtime.run(run.id)).wait(PATIENCE)).value == "done"
    logging.getLogger("toolwright.drivers").removeHandler(warned)


async def until_found(client: Client, query: str) -> list[str]:
    """The ids of the workflows of a query, when there are some."""
    while not (found := [each.id async for each in client.list_workflows(query)]):
        pass
    return found


@pytest.mark.promise("ENG-04")
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("temporal://h?tls_ca=/no/such/file", "There is no file '/no/such/file' for tls_ca"),
        ("temporal://h?tls_cert={file}", "give both, or none"),
        ("temporal://h?tls_key={file}", "give both, or none"),
    ],
)
def test_files_of_tls_that_cannot_be_used_are_refused(url: str, message: str, authority: Authority):
    with pytest.raises(DriverError, match=message):
        open_driver(url.format(file=authority.file), SystemClock())
