"""Text with every character in runs, schedules, triggers and what sessions keep: a store gives it back as it was.

Ids of runs have no odd characters, which are refused before a store sees them; all other text may have any.
"""

from __future__ import annotations

from msgspec.structs import replace

from toolwright.stores.contracts.background_run import Progress
from toolwright.stores.contracts.run_store import Piece, Report, Telling
from toolwright.stores.contracts.triggers import Occurrence, Start
from toolwright.testing.conformance.any_text import NEAR, ODD
from toolwright.testing.conformance.background import (
    LEASE,
    PLENTY,
    QUOTAS,
    current,
    ending,
    open_services,
    registration,
    schedule,
    scheduled,
    trigger,
)
from toolwright.testing.conformance.cases import Database, cases
from toolwright.testing.conformance.session_services import WIDE, content, sealed, writing


async def odd_text_in_a_run_comes_back_as_it_was(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    given = replace(
        registration(session=ODD, tool=ODD), title=ODD, arguments=b'{"a\\u0000":"\\u0000"}', provenance=b'"\\u0000"'
    )
    await stores.runs.register([given, *(registration(f"n{n}", session=s) for n, s in enumerate(NEAR))], PLENTY, None)
    assert [run.id for run in await other.runs.list(ODD)] == ["p1"]
    (claimed,) = await stores.runs.claim(ODD, [ODD], 100.0, 100.0 + LEASE, 5)
    run = claimed.run
    assert (run.worker, run.title, run.tool, run.arguments) == (ODD, ODD, ODD, {"a\0": "\0"})
    report = Report(
        id="p1",
        token=run.token,
        at=101.0,
        pieces=[Piece(ODD, ODD)],
        progress=Progress(1, 2, ODD, ODD),
        status_text=ODD,
        tail=ODD,
    )
    assert await stores.runs.report([report]) == []
    number = await stores.runs.append("p1", None, ODD, b'"\\u0000"', ODD, 102.0, Telling(b'"\\u0000"', WIDE))
    assert await other.runs.append("p1", None, ODD, b'"\\u0000"', ODD, 103.0) == number
    found = await current(other)
    assert (found.status_text, found.tail) == (ODD, ODD)
    assert found.progress == Progress(1, 2, ODD, ODD)
    assert [event.payload for event in await other.runs.events("p1", 0, 100) if event.type == ODD] == ["\0"]
    await other.runs.cancel("p1", ODD, 104.0)
    assert await stores.runs.cancelled(ODD) == {"p1": ODD}
    end = replace(ending(run), summary=ODD, files=[("/a.txt", b"\0")], tell=b'"\\u0000"', evidence=b'{"a":"\\u0000"}')
    assert await stores.runs.finish(end, QUOTAS)
    assert (await current(other)).outcome == end.outcome


async def odd_text_in_schedules_and_triggers_comes_back_as_it_was(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    plan = replace(schedule(ODD, session=ODD), tool=ODD, title=ODD, arguments={"a\0": "\0"})
    assert await stores.schedules.add(plan, 9, None) == ODD
    assert await scheduled(other, ODD) == plan
    assert [each.id for each in await other.schedules.list(ODD)] == [ODD]
    assert await other.schedules.find("a") is None
    given = replace(trigger(ODD, session=ODD, topic=ODD, title=ODD), arguments={"a": "\0"}, match={"a": ODD})
    assert await stores.triggers.add_trigger(given, 9) == given
    assert await other.triggers.list_triggers(ODD) == await other.triggers.triggers_of(ODD) == [given]
    assert await other.triggers.triggers_of("a") == []
    for near in (ODD, *NEAR):
        occurrence = Occurrence(topic=ODD, key=near, digest=ODD, at=100.0)
        known = await stores.triggers.triggers_of(ODD)
        run = f"run-{len(near)}-{near.encode().hex()}"
        starts = [Start(replace(registration(run, session=ODD), title=near), PLENTY)]
        assert await stores.triggers.occur(occurrence, known, starts) == [run]
        assert await other.triggers.occur(occurrence, known, []) == [run]
    assert await other.triggers.remove_trigger(ODD, ODD)


async def odd_text_that_a_session_keeps_comes_back_as_it_was(database: Database) -> None:
    stores, other = await open_services(database), await open_services(database)
    await stores.files.write_file(ODD, "/a.txt", content(b"\0text"), writing(), None)
    await stores.resources.upsert_resource(ODD, "r1", "page", ODD, "open", b'"\\u0000"', 100.0, WIDE, None)
    await stores.connections.set_connection(ODD, "mail", b'"\\u0000"', 100.0, 9)
    await stores.secrets.set_secret(ODD, "token", sealed(b"\0"), 100.0, WIDE, None)
    await stores.attachments.put_attachment(ODD, b"\0", ODD, "text/plain", 100.0, WIDE, None)
    assert [info.path for info in await other.files.list_files(ODD, "/")] == ["/a.txt"]
    row = await other.resources.get_resource(ODD, "r1")
    assert row is not None
    assert (row[2], row[4]) == (ODD, b'"\\u0000"')
    assert await other.connections.get_connection(ODD, "mail") == (b'"\\u0000"', 100.0)
    assert await other.secrets.get_secret(ODD, "token") == sealed(b"\0")
    assert [info.name for info in await other.attachments.list_attachments(ODD)] == [ODD]
    for near in NEAR:
        assert await other.files.list_files(near, "/") == []
        assert await other.resources.list_resources(near, None, None) == []
        assert await other.connections.list_connections(near) == []
        assert await other.secrets.list_secrets(near) == []
        assert await other.attachments.list_attachments(near) == []
    assert [each.id for each in await other.archives.list_sessions()] == [ODD]


SERVICE_TEXT = cases(
    odd_text_in_a_run_comes_back_as_it_was,
    odd_text_in_schedules_and_triggers_comes_back_as_it_was,
    odd_text_that_a_session_keeps_comes_back_as_it_was,
)
