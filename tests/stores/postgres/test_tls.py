"""A PostgreSQL store over TLS: the certificate of the server is checked as the URL says, and one's own is shown."""

from pathlib import Path

import pytest

from tests.support import fail_after
from tests.tls import POSTGRES, Authority, TlsServer
from toolwright import Runtime, ToolCall, tool
from toolwright.errors import StoreError, StoreUnavailable
from toolwright.stores import open_store


def url_of(port: int, host: str = "db.example", **options: Path | str) -> str:
    given = {"schema": "over_tls", "hostaddr": "127.0.0.1", "sslmode": "verify-full", **options}
    shown = "&".join(f"{name}={value}" for name, value in given.items())
    return f"postgresql://postgres:s3same@{host}:{port}/postgres?{shown}"


async def refusal(url: str) -> str:
    async with fail_after(30):
        with pytest.raises(StoreError) as raised:
            await open_store(url)
    assert not isinstance(raised.value, StoreUnavailable)
    assert "s3same" not in str(raised.value)
    return str(raised.value)


@pytest.mark.promise("ENG-01")
async def test_a_store_over_tls_wants_the_certificate_that_the_url_says(postgres, tmp_path):
    @tool
    async def add(a: int) -> int:
        return a + 1

    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    with TlsServer(postgres.port, ours.context("db.example"), POSTGRES) as server:
        async with fail_after(30), Runtime.open(url_of(server.port, sslrootcert=ours.file), tools=[add]) as runtime:
            (outcome,) = await runtime.session("s").run_batch([ToolCall(id="1", name="add", arguments={"a": 1})])
            assert outcome.value == 2
            await runtime.session("s").kv.set("k", 1)
            assert await runtime.session("s").kv.get("k") == 1
        assert b"user\0postgres\0" in server.seen  # it did come this way
        told = await refusal(url_of(server.port, sslrootcert=theirs.file))
        assert "the certificate of the server is not one of sslrootcert" in told
        told = await refusal(url_of(server.port, "other.example", sslrootcert=ours.file))
        assert "the certificate of the server is another host's" in told
        assert 'server certificate for "db.example" does not match host name "other.example"' in told
        told = await refusal(url_of(server.port, sslrootcert=tmp_path / "nowhere.crt"))
        assert "sslrootcert cannot be read" in told
        assert told.endswith("name the file of the authority")
        await (await open_store(url_of(server.port, "other.example", sslmode="require"))).close()
    postgres.execute("DROP SCHEMA over_tls CASCADE")


@pytest.mark.promise("ENG-01")
async def test_a_client_certificate_is_shown_to_the_server_and_the_lack_of_one_is_told(postgres, tmp_path):
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    certificate, key = ours.issue("app")
    with TlsServer(postgres.port, ours.context("db.example", clients=ours), POSTGRES) as server:
        mine = {"sslrootcert": ours.file, "sslcert": certificate, "sslkey": key}
        async with fail_after(30):
            await (await open_store(url_of(server.port, **mine))).close()
        assert set(server.names) == {"app"}
        told = await refusal(url_of(server.port, sslrootcert=ours.file))
        assert "the server wants a client certificate; set sslcert and sslkey" in told
        strange, its_key = theirs.issue("stranger")
        told = await refusal(url_of(server.port, sslrootcert=ours.file, sslcert=strange, sslkey=its_key))
        assert "the server does not know the client certificate" in told
        told = await refusal(url_of(server.port, sslrootcert=ours.file, sslcert=certificate, sslkey=its_key))
        assert "sslkey" in told
        key.chmod(0o644)
        told = await refusal(url_of(server.port, **mine))
        assert "sslkey cannot be used" in told
        assert "has group or world access" in told
    postgres.execute("DROP SCHEMA over_tls CASCADE")
