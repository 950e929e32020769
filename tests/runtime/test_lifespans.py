"""A lifespan is entered where an app is opened and closed last, and its value is `ctx.deps` of every tool."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import fail_after
from toolwright import (
    App,
    MissingRequirement,
    Runtime,
    StoreError,
    Tool,
    ToolContext,
    ToolDefinitionError,
    ToolRegistry,
    ToolwrightError,
    overridden,
    tool,
)

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]


class Database:
    """What a lifespan opens."""

    def __init__(self) -> None:
        self.is_open = True

    def read(self) -> str:
        assert self.is_open
        return "a row"


def lifespan_of(log: list[str]) -> Any:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[Database]:
        log.append("entered")
        database = Database()
        try:
            yield database
        finally:
            log.append("closed")
            database.is_open = False

    return lifespan


@pytest.mark.promise("APP-02")
async def test_tools_on_the_loop_and_on_threads_get_the_value_of_the_lifespan():
    @tool
    async def on_the_loop(ctx: ToolContext[Database]) -> str:
        return ctx.deps.read()

    @tool
    def on_a_thread(ctx: ToolContext[Database]) -> str:
        return ctx.deps.read()

    @tool
    async def bare(ctx: ToolContext) -> str:
        return ctx.deps.read()

    @tool
    async def optional(ctx: ToolContext[Database] | None = None) -> str:
        assert ctx is not None
        return ctx.deps.read()

    async def handler(args: Any, ctx: ToolContext) -> str:
        return ctx.deps.read()

    log: list[str] = []
    raw = Tool.from_schema(name="raw", handler=handler)
    tools: list[Tool] = [on_the_loop, on_a_thread, bare, optional, raw]
    async with fail_after(5), App(tools=tools, lifespan=lifespan_of(log)).open() as runtime:
        session = runtime.session("s1")
        for one in tools:
            outcome = await session.call(one.name)
            assert (one.name, outcome.value) == (one.name, "a row")
            assert one.definition.input_schema.get("properties", {}) == {}
        assert log == ["entered"]
    assert log == ["entered", "closed"]


@pytest.mark.promise("APP-02")
async def test_a_type_of_dependencies_that_only_type_checkers_import_is_not_needed():
    @tool
    async def look(ctx: "ToolContext[Missing]", name: str) -> str:
        return f"{name} {ctx.deps.read()}"

    async with fail_after(5), App(tools=[look], lifespan=lifespan_of([])).open() as runtime:
        assert (await runtime.session("s1").call("look", name="ann")).value == "ann a row"


@pytest.mark.promise("APP-02")
async def test_each_opening_has_a_lifespan_of_its_own_and_runs_in_the_background_have_it_too(tmp_path: Path):
    @tool(supports_background=True)
    async def identify(ctx: ToolContext[Database]) -> int:
        return id(ctx.deps)

    log: list[str] = []
    app = App(tools=[identify], lifespan=lifespan_of(log))
    async with fail_after(10), app.open(tmp_path / "a.db") as one, app.open(tmp_path / "b.db") as two:
        first = (await one.session("s").call("identify")).value
        run = await one.session("s").spawn("identify")
        assert (await run.wait()).value == first
        assert (await two.session("s").call("identify")).value != first
    assert log == ["entered", "entered", "closed", "closed"]


@pytest.mark.promise("APP-02")
async def test_a_lifespan_that_fails_on_entry_fails_the_opening_with_its_error(tmp_path: Path):
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise ConnectionError("no database at db:5432")
        yield

    file = tmp_path / "agent.db"
    async with fail_after(5):
        with pytest.raises(ConnectionError, match="no database at db:5432"):
            await App(lifespan=lifespan).open(file)
        assert not file.exists()
        async with Runtime.open(file):
            pass


@pytest.mark.promise("APP-02")
async def test_a_store_that_cannot_be_opened_closes_the_lifespan(tmp_path: Path):
    (tmp_path / "agent.db").write_text("not a database, and long enough not to look like an empty one" * 20)
    log: list[str] = []
    with pytest.raises(StoreError):
        await App(lifespan=lifespan_of(log)).open(tmp_path / "agent.db")
    assert log == ["entered", "closed"]


@pytest.mark.promise("APP-02")
async def test_a_model_that_cannot_be_opened_closes_the_store_and_the_lifespan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    log: list[str] = []
    async with fail_after(5):
        with pytest.raises(MissingRequirement, match="OPENAI_API_KEY"):
            await App(model="openai:gpt-5.1", lifespan=lifespan_of(log)).open(tmp_path / "agent.db")
    assert log == ["entered", "closed"]
    assert [path.name for path in tmp_path.iterdir()] == ["agent.db"]  # no program has it open


@pytest.mark.promise("APP-02")
async def test_a_lifespan_is_closed_after_everything_else(tmp_path: Path):
    ended: list[str] = []
    began = asyncio.Event()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        # The store is closed by now: its log is gone from the directory with its last connection.
        ended.append("lifespan" if not (tmp_path / "agent.db-wal").exists() else "lifespan before the store")

    @tool
    async def endless() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("tool")

    async with fail_after(5):
        runtime = await App(tools=[endless], lifespan=lifespan).open(tmp_path / "agent.db")
        runtime.session("s").start_batch([{"name": "endless"}])
        await began.wait()
        await runtime.close()
        await runtime.close()
    assert ended == ["tool", "lifespan"]


@pytest.mark.promise("APP-02")
async def test_a_lifespan_may_use_a_task_group_whichever_tasks_open_and_close_the_runtime():
    ticked = asyncio.Event()

    async def tick() -> None:
        ticked.set()
        await asyncio.Event().wait()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            ticking = group.create_task(tick())
            yield "ready"
            ticking.cancel()
        ended.append("the group")

    ended: list[str] = []
    async with fail_after(5):
        runtime = await asyncio.create_task(_opened(App(lifespan=lifespan)))
        await ticked.wait()
        assert ended == []
        await asyncio.create_task(runtime.close())
    assert ended == ["the group"]


async def _opened(app: App) -> Runtime:
    return await app.open()


async def test_an_opening_that_is_cancelled_inside_of_the_lifespan_closes_it():
    inside, log = asyncio.Event(), []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        try:
            inside.set()
            await asyncio.Event().wait()
            yield
        finally:
            log.append("closed")

    async with fail_after(5):
        opening = asyncio.create_task(_opened(App(lifespan=lifespan)))
        await inside.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    assert log == ["closed"]


async def test_an_error_of_closing_a_lifespan_is_raised_once_everything_is_closed(tmp_path: Path):
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        raise OSError("the pool does not close")

    async with fail_after(5):
        runtime = await App(lifespan=lifespan).open(tmp_path / "agent.db")
        with pytest.raises(OSError, match="the pool does not close"):
            await runtime.close()
        async with Runtime.open(tmp_path / "agent.db"):
            pass


async def test_a_model_whose_connections_cannot_be_closed_keeps_nothing_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    class Model:
        name = "broken"

        def hold(self) -> None:
            pass

        async def release(self) -> None:
            raise ConnectionResetError("the connection is gone")

        async def complete(self, request: Any) -> str:
            return "an answer"

    log: list[str] = []
    async with fail_after(5), App(model=Model(), lifespan=lifespan_of(log)).open(tmp_path / "agent.db"):
        pass
    assert log == ["entered", "closed"]
    assert [path.name for path in tmp_path.iterdir()] == ["agent.db"]  # no program has it open
    assert "the connection is gone" in caplog.text


async def test_a_lifespan_that_ends_before_its_runtime_is_logged(caplog: pytest.LogCaptureFixture):
    broken = asyncio.Event()

    async def watch() -> None:
        await broken.wait()
        raise ConnectionError("the connection is gone")

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(watch())
            yield

    async with fail_after(5):
        runtime = await App(lifespan=lifespan).open()
        with caplog.at_level(logging.ERROR, "toolwright.runtime.lifespan"):
            broken.set()
            for _ in range(10):
                await asyncio.sleep(0)
        assert "ended while its runtime is open" in caplog.text
        with pytest.raises(ExceptionGroup):
            await runtime.close()


async def async_generator() -> AsyncIterator[None]:
    yield


async def coroutine() -> None: ...


@pytest.mark.promise("APP-02", "APP-05")
@pytest.mark.parametrize("given", [3, async_generator, coroutine, lambda app: app])
def test_a_lifespan_of_the_wrong_form_is_refused_when_the_app_is_made(given: Any):
    with pytest.raises(
        ToolwrightError, match=r"lifespan=.* use a function without parameters under @contextlib\.async"
    ):
        App(lifespan=given)


async def test_a_lifespan_that_gives_no_async_context_manager_fails_the_opening():
    @contextmanager
    def lifespan() -> Any:
        yield

    with pytest.raises(ToolwrightError, match="is not an async context manager; write it under @contextlib"):
        await App(lifespan=lifespan).open()  # type: ignore[arg-type]


@pytest.mark.promise("APP-02")
def test_a_parameter_without_a_schema_is_refused_with_a_hint_at_the_dependencies():
    with pytest.raises(ToolDefinitionError, match=r"parameter 'db' of a type .* lifespan of the app, .* ctx\.deps"):

        @tool
        async def look(db: Database, name: str) -> str:
            return name


@pytest.mark.promise("APP-02")
def test_a_tool_in_a_process_of_its_own_cannot_take_dependencies():
    with pytest.raises(ToolDefinitionError, match=r"'look' takes ToolContext\[...\] .*isolation='process'"):

        @tool(isolation="process")
        def look(ctx: ToolContext[Database]) -> str:
            return ctx.deps.read()

    @tool
    def read(ctx: ToolContext[Database]) -> str:
        return ctx.deps.read()

    with pytest.raises(ToolDefinitionError, match=r"'read' takes ToolContext\[...\] .*isolation='process'"):
        overridden(ToolRegistry([read]), {"read": {"isolation": "process"}}).names()


@pytest.mark.promise("APP-02")
async def test_dependencies_are_out_of_reach_in_another_process_and_without_a_lifespan(
    caplog: pytest.LogCaptureFixture,
):
    @tool(isolation="process")
    def far(ctx: ToolContext) -> str:
        return ctx.deps.read()

    @tool
    async def near(ctx: ToolContext) -> str:
        return ctx.deps.read()

    async with fail_after(20), App(tools=[far], lifespan=lifespan_of([])).open() as runtime:
        outcome = await runtime.session("s").call("far")
    assert outcome.status == "failure"
    assert "isolation='process' has no deps of its app; drop the isolation" in caplog.text
    caplog.clear()
    async with App(tools=[near]).open() as runtime:
        outcome = await runtime.session("s").call("near")
    assert outcome.status == "failure"
    assert "lifespan" not in outcome.text
    assert "asks for ctx.deps, and the app has no lifespan; give it one, App(lifespan=...)" in caplog.text
