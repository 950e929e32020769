"""Our own stores of session services pass the suite that ships with the package."""

from pathlib import Path

import pytest

from tests.conformance.databases import BesideCalls, InFile, InPostgres
from tests.support import fail_after
from toolwright.testing.conformance import (
    ARCHIVES,
    ATTACHMENTS,
    CONNECTIONS,
    FILES,
    KEY_VALUES,
    MESSAGES,
    REQUEST_OWNERS,
    REQUESTS,
    RESOURCES,
    SECRETS,
    SERVICE_CASES,
    SERVICE_NEIGHBOURS,
    SERVICE_TEXT,
    SERVICES_AND_CALLS,
    TOKENS,
    Case,
    Database,
    InMemory,
)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def services(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "postgres":
        return InPostgres(request.getfixturevalue("postgres"))
    return BesideCalls() if request.param == "memory" else InFile(tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A store of calls and services, which several processes share."""
    return InPostgres(request.getfixturevalue("postgres")) if request.param == "postgres" else InFile(tmp_path)


async def check(case: Case[Database], database: Database) -> None:
    async with fail_after(20):
        await case.run(database)


@pytest.mark.promise("EFF-09", "SES-02", "SES-06")
@pytest.mark.parametrize("case", FILES, ids=str)
async def test_every_store_keeps_files(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "SES-03", "SES-06")
@pytest.mark.parametrize("case", KEY_VALUES, ids=str)
async def test_every_store_keeps_key_values(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "SES-01", "SES-06")
@pytest.mark.parametrize("case", MESSAGES, ids=str)
async def test_every_store_keeps_messages(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "SES-03", "SES-06")
@pytest.mark.parametrize("case", SECRETS, ids=str)
async def test_every_store_keeps_sealed_secrets(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "SES-04", "SES-06")
@pytest.mark.parametrize("case", ATTACHMENTS, ids=str)
async def test_every_store_keeps_attachments(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "SES-05", "SES-06")
@pytest.mark.parametrize("case", RESOURCES, ids=str)
async def test_every_store_keeps_resources(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "SES-07", "SES-06")
@pytest.mark.parametrize("case", CONNECTIONS, ids=str)
async def test_every_store_keeps_connections(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "SES-10", "SES-06")
@pytest.mark.parametrize("case", ARCHIVES, ids=str)
async def test_every_store_reads_and_fills_whole_sessions(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "HTTP-03")
@pytest.mark.parametrize("case", TOKENS, ids=str)
async def test_every_store_keeps_tokens(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "HTTP-04")
@pytest.mark.parametrize("case", REQUESTS, ids=str)
async def test_every_store_keeps_requests(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "EFF-19")
@pytest.mark.parametrize("case", SERVICE_TEXT, ids=str)
async def test_every_store_keeps_text_with_every_character(case, services):
    await check(case, services)


@pytest.mark.promise("EFF-09", "EFF-19")
@pytest.mark.parametrize("case", SERVICE_NEIGHBOURS, ids=str)
async def test_two_stores_in_one_directory_share_nothing(case, tmp_path):
    async with fail_after(20):
        await case.run(InFile(tmp_path, "agent.db"), InFile(tmp_path, "agent.db-2"))


@pytest.mark.promise("EFF-09", "HTTP-04")
@pytest.mark.parametrize("case", REQUEST_OWNERS, ids=str)
async def test_requests_have_one_owner(case, whole):
    await check(case, whole)


@pytest.mark.promise("EFF-09", "EFF-12", "SES-06")
@pytest.mark.parametrize("case", SERVICES_AND_CALLS, ids=str)
async def test_a_store_of_calls_and_services_lets_only_the_owner_of_a_call_change_anything_for_it(case, whole):
    await check(case, whole)


@pytest.mark.promise("EFF-09")
async def test_a_store_that_keeps_calls_only_is_told_that_the_cases_are_not_for_it():
    with pytest.raises(AssertionError, match="keeps calls only"):
        await FILES[0].run(InMemory())


def test_the_cases_have_names_of_their_own():
    every = [*SERVICE_CASES, *SERVICES_AND_CALLS]
    assert len({case.name for case in every}) == len(every) >= 60
