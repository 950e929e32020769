"""The commands on a store in PostgreSQL: what they print has no password, and no traceback."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.postgres_server import PostgresServer

PASSWORD = "s3same"


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    postgres.execute(
        f"CREATE ROLE with_password LOGIN PASSWORD '{PASSWORD}'; GRANT CREATE ON DATABASE postgres TO with_password"
    )
    yield f"postgresql://with_password:{PASSWORD}@127.0.0.1:{postgres.port}/postgres?schema=of_commands"
    postgres.execute("DROP OWNED BY with_password; DROP ROLE with_password")


@pytest.mark.promise("ENG-01")
def test_no_command_shows_the_password(run: Run, project: Path, url: str):
    told = [run("db", "check", "--db", url)]
    assert "There is no store 'postgresql://…@127.0.0.1:" in told[0].err
    told.append(run("call", "add", "a=1", "--tools", "kit.py", "--db", url))
    assert told[-1].code == 0
    for command, said in (("check", "is sound"), ("migrate", "is up to date")):
        told.append(run("db", command, "--db", url))
        assert said in told[-1].out
    told.append(run("doctor", "--db", url))
    assert "is sound, at version" in told[-1].out
    for wrong, said in (
        (url.replace(PASSWORD, f"no-{PASSWORD}"), "the password is wrong"),
        (url.replace(PASSWORD, f"{PASSWORD}/{PASSWORD}"), "is not encoded"),
        (url.replace("/postgres?", "/nowhere?"), "There is no store"),
        (f"postgresql://x:{PASSWORD}@127.0.0.1:1/x", "check that the server runs"),
        (f"mysql://x:{PASSWORD}@127.0.0.1:1/x", "not known"),
    ):
        for words in ("db check", "batches", "call add a=1 --tools kit.py"):
            told.append(run(*words.split(), "--db", wrong))
            assert told[-1].code != 0
            assert (said if words != "call add a=1 --tools kit.py" else ";") in told[-1].err
    for ended in told:
        assert PASSWORD not in ended.out + ended.err
        assert "Traceback" not in ended.err


@pytest.mark.promise("ENG-01")
def test_doctor_says_whether_this_user_can_open_the_store_and_changes_nothing(
    run: Run, project: Path, url: str, postgres: PostgresServer
):
    def told(url: str) -> tuple[int, str]:
        ended = run("doctor", "--db", url, "--json")
        (found,) = [each for each in ended.json if each["subject"] == "store"]
        return ended.code, f"{found['said']}; {found['remedy']}"

    said = told(url)
    assert said[0] == 0
    assert "it is made when it is first opened" in said[1]
    assert postgres.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'of_commands'") == []
    said = told(url.replace("/postgres?", "/nowhere?"))
    assert said[0] == 2
    assert "there is no such database; create it" in said[1]
    postgres.execute("REVOKE CREATE ON DATABASE postgres FROM with_password")
    said = told(url)
    assert said[0] == 2
    assert "this user may not do that (permission denied" in said[1]
    postgres.execute("GRANT CREATE ON DATABASE postgres TO with_password")
    assert run("call", "add", "a=1", "--tools", "kit.py", "--db", url).code == 0
    said = told(url)
    assert said[0] == 0
    assert "is sound" in said[1]
    postgres.execute("REVOKE INSERT ON of_commands.calls FROM with_password")
    said = told(url)
    assert said[0] == 2
    assert "this user has not SELECT, INSERT, UPDATE, DELETE on 'calls'" in said[1]
