"""`toolwright tokens`: made, listed and revoked; the value is printed once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from toolwright import Runtime
from toolwright.http.access.refusals import Unauthenticated
from toolwright.http.access.tokens import Tokens
from toolwright.runtime.runtime import tokens_of

pytestmark = pytest.mark.promise("HTTP-03")
DB = ("--db", "agent.db")


def verified(value: str) -> str:
    """Whom a token proves."""

    async def ask() -> str:
        async with Runtime.open("agent.db") as runtime:
            return (await Tokens(tokens_of(runtime), runtime.clock).verify(value)).name

    return asyncio.run(ask())


def test_a_token_is_made_listed_and_revoked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "root")
    made = run("tokens", "create", "ann", "--scope", "read", "--scope", "approve", "--session", "team-*", *DB)
    assert made.code == 0
    value = made.out.removesuffix("\n")
    assert value.startswith("tw_")
    assert "not shown again" in made.err
    assert value not in made.err
    assert verified(value) == "ann"

    (info,) = run("tokens", "list", *DB, "--json").json
    assert (info["name"], info["scopes"], info["sessions"]) == ("ann", ["read", "approve"], ["team-*"])
    assert (info["state"], info["created_by"], info["expires_at"]) == ("valid", "root", None)
    table = run("tokens", "list", *DB)
    for said in (info["id"], "ann", "read, approve", "team-*", "root", "valid"):
        assert said in table.out
    for shown in (table.out, Path("agent.db").read_bytes().decode("latin-1")):
        assert value[-20:] not in shown

    revoked = run("tokens", "revoke", "ann", *DB)
    assert revoked.out == f"The token {info['id']} of ann is revoked\n"
    with pytest.raises(Unauthenticated):
        verified(value)
    assert run("tokens", "list", *DB).err == "There are no tokens.\n"
    (listed,) = run("tokens", "list", "--all", *DB, "--json").json
    assert listed["state"] == "revoked"
    assert listed["revoked_at"] is not None


def test_a_token_is_printed_as_json_with_its_expiry(run: Run) -> None:
    made = run("tokens", "create", "ci", "--scope", "run", "--expires", "90m", *DB, "--json").json
    assert set(made) == {"token", "value"}
    assert made["token"]["expires_at"] > made["token"]["created_at"]
    assert verified(made["value"]) == "ci"
    gone = run("tokens", "revoke", made["token"]["id"], *DB, "--json").json
    assert gone["state"] == "revoked"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ("create", "ann", "--scope", "write"),
            "The scope 'write' is not known; use some of read, run, approve, admin",
        ),
        (("create", "", "--scope", "read"), "The name ''"),
        (("create", "ann", "--scope", "read", "--session", ""), "The session pattern ''"),
        (("create", "ann", "--scope", "read", "--expires", "soon"), "--expires is 'soon'; use a duration such as 30d"),
        (("create", "ann", "--scope", "read", "--expires", "0d"), "expired already"),
        (("revoke", "bob"), "There is no token 'bob'; see toolwright tokens list"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_way_out(run: Run, given: tuple[str, ...], said: str) -> None:
    assert run("tokens", "create", "ann", "--scope", "read", *DB).code == 0
    refused = run("tokens", *given, *DB)
    assert refused.code == 2
    assert said in refused.err
    assert len(run("tokens", "list", *DB, "--json").json) == 1


def test_of_tokens_of_one_name_each_is_revoked_by_its_id(run: Run) -> None:
    for _ in range(2):
        run("tokens", "create", "ann", "--scope", "read", *DB)
    ids = [one["id"] for one in run("tokens", "list", *DB, "--json").json]
    refused = run("tokens", "revoke", "ann", *DB)
    assert refused.code == 2
    assert ", ".join(ids) in refused.err
    assert run("tokens", "revoke", ids[0], *DB).code == 0
    assert run("tokens", "revoke", "ann", *DB).out == f"The token {ids[1]} of ann is revoked\n"
