"""Requests that named a key: answered once, in whichever process."""

from __future__ import annotations

import asyncio

from toolwright.stores.contracts.requests import KeptAnswer, RequestState
from toolwright.testing.conformance.cases import Database, cases
from toolwright.testing.conformance.session_services import open_services, services_of

ANSWER = KeptAnswer(201, {"location": "/v1/turns/\u2600"}, b"\0\xff{}")


async def an_answer_is_given_again_to_everybody(database: Database) -> None:
    requests, other = (await open_services(database)).requests, (await open_services(database)).requests
    assert await requests.begin("k\0", "content", 100.0, 0.0) == RequestState("begun")
    await requests.finish("k\0", ANSWER)
    for one in (requests, other):
        assert await one.begin("k\0", "content", 200.0, 0.0) == RequestState("done", ANSWER)
        assert (await one.begin("k\0", "other", 200.0, 0.0)).state == "other"


async def one_of_many_begins_a_request(database: Database) -> None:
    stores = [(await open_services(database)).requests for _ in range(3)]
    states = await asyncio.gather(*(one.begin("k", "content", 100.0, 0.0) for one in stores))
    assert sorted(one.state for one in states) == ["begun", "running", "running"]


async def a_request_of_a_process_that_died_is_begun_again(database: Database) -> None:
    first, other = await database.open(), (await open_services(database)).requests
    assert (await services_of(first).requests.begin("k", "content", 100.0, 0.0)).state == "begun"
    assert (await other.begin("k", "content", 100.0, 0.0)).state == "running"
    await database.kill(first)
    assert (await other.begin("k", "content", 200.0, 0.0)).state == "again"
    await other.finish("k", ANSWER)
    assert (await other.begin("k", "content", 200.0, 0.0)).answer == ANSWER


async def a_request_that_was_forgotten_is_new(database: Database) -> None:
    requests = (await open_services(database)).requests
    await requests.begin("k", "content", 100.0, 0.0)
    await requests.forget("k")
    assert (await requests.begin("k", "other", 100.0, 0.0)).state == "begun"
    await requests.finish("k", ANSWER)
    await requests.forget("k")  # an answer stays
    assert (await requests.begin("k", "other", 100.0, 0.0)).state == "done"


async def old_requests_are_forgotten(database: Database) -> None:
    requests = (await open_services(database)).requests
    for key, at in (("old", 100.0), ("new", 200.0)):
        await requests.begin(key, "content", at, 0.0)
        await requests.finish(key, ANSWER)
    assert (await requests.begin("new", "content", 300.0, 150.0)).state == "done"
    assert (await requests.begin("old", "other", 300.0, 150.0)).state == "begun"


REQUESTS = cases(
    an_answer_is_given_again_to_everybody,
    a_request_that_was_forgotten_is_new,
    old_requests_are_forgotten,
)
REQUEST_OWNERS = cases(
    one_of_many_begins_a_request,
    a_request_of_a_process_that_died_is_begun_again,
)
"""For stores that several processes have open."""
