"""The title and the locale of a session."""

from pathlib import Path

import pytest

from toolwright import PrepareCall, ToolContext, tool
from toolwright.errors import ServiceError
from toolwright.tools.service_protocols import SessionDetails


@pytest.mark.promise("SES-10")
async def test_a_session_has_a_title_and_a_locale_that_its_tools_read(place, open_runtime):
    async def prepare(arguments: dict, call: PrepareCall) -> str | None:
        return (await call.view.details.get()).title

    @tool(prepare=prepare)
    async def greet(ctx: ToolContext) -> list:
        """Greet."""
        before = await ctx.session.details.get()
        after = await ctx.session.details.set(title="Greeted")
        return [ctx.prepared, before.title, before.locale, after.title, after.locale]

    session = (await open_runtime(place, greet)).session("s")
    assert await session.details.get() == SessionDetails()
    assert await session.details.set(title=" Trip  to\nRome ", locale="pt-BR") == SessionDetails(
        "Trip to Rome", "pt-BR"
    )
    assert (await session.call("greet")).value == ["Trip to Rome", "Trip to Rome", "pt-BR", "Greeted", "pt-BR"]
    assert await session.details.set(locale="") == SessionDetails("Greeted", None)
    assert (await session.details.get()).to_json() == {"title": "Greeted", "locale": None}


@pytest.mark.promise("SES-10", "SES-06")
async def test_sessions_are_listed_exported_and_imported_with_their_title_and_locale(
    place, open_runtime, tmp_path: Path
):
    runtime = await open_runtime(place)
    await runtime.session("a").details.set(title="First", locale="de")
    await runtime.session("b").kv.set("k", 1)
    listed = {info.id: (info.title, info.locale) for info in await runtime.sessions()}
    assert listed == {"a": ("First", "de"), "b": (None, None)}
    await runtime.export_session("a", tmp_path / "a.zip")
    await runtime.import_session(tmp_path / "a.zip", as_id="c")
    assert await runtime.session("c").details.get() == SessionDetails("First", "de")
    assert [info.to_json()["title"] for info in await runtime.sessions()] == ["First", None, "First"]


@pytest.mark.promise("SES-10")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"title": 3}, "title 3 of a session"),
        ({"title": "x" * 201}, "has 201 characters, and may have 200"),
        ({"locale": "not a locale"}, "use a language tag, such as 'de'"),
        ({"locale": 3}, "locale 3"),
    ],
)
async def test_a_title_or_locale_that_is_not_usable_is_refused(open_runtime, given, says):
    session = (await open_runtime(":memory:")).session("s")
    with pytest.raises(ServiceError, match=says):
        await session.details.set(**given)


async def test_a_title_that_another_program_spoiled_is_none(open_runtime):
    runtime = await open_runtime(":memory:")
    await runtime.session("s").kv.set("toolwright:title", [1])
    await runtime.session("s").kv.set("toolwright:locale", "../x")
    assert await runtime.session("s").details.get() == SessionDetails()
    assert [(info.title, info.locale) for info in await runtime.sessions()] == [(None, None)]
