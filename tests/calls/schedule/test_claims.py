"""What may overlap within one batch: exclusive, keyed, path, tree and named claims."""

from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.calls.schedule.stage import Stage, call
from tests.support import fail_after
from toolwright import Runtime, Tool, ToolContext, ToolDefinitionError, path, resource, tool, tree


def file_tools(stage: Stage) -> list[Tool]:
    @tool(reads="path")
    async def read(ctx: ToolContext, path: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool(writes="path")
    async def write(ctx: ToolContext, path: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool(reads=tree("folder"))
    async def search(ctx: ToolContext, folder: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool(writes=tree("folder"))
    async def wipe(ctx: ToolContext, folder: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool(reads="source", writes="target")
    async def copy(ctx: ToolContext, source: str, target: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool(reads="paths")
    async def read_all(ctx: ToolContext, paths: list[str]) -> str:
        return await stage.visit(ctx.call_id)

    @tool(writes="path")
    async def maybe_write(ctx: ToolContext, path: str | None = None) -> str:
        return await stage.visit(ctx.call_id)

    @tool(parallel=True)
    async def look(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool
    async def everything(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    return [read, write, search, wipe, copy, read_all, maybe_write, look, everything]


async def overlap(*calls: tuple) -> bool:
    """Run two calls of the file tools; whichever way, they must keep their order."""
    stage = Stage()
    first, second = (call(id, name, **arguments) for id, (name, arguments) in zip("ab", calls, strict=True))
    async with fail_after(5), Runtime.open(tools=file_tools(stage)) as runtime:
        batch = runtime.session("s").start_batch([first, second])
        inside = await stage.settled()
        assert "a" in inside, "the first call never waits"
        if inside == ["a"]:
            assert await stage.after("a") == ["b"], "the second starts as soon as the first is over"
        stage.open()
        assert [outcome.value for outcome in await batch] == ["a", "b"]
        return stage.peak == 2


READ, WRITE, SEARCH, WIPE, COPY, MAYBE = "read", "write", "search", "wipe", "copy", "maybe_write"
LOOK, EVERYTHING = ("look", {}), ("everything", {})


@pytest.mark.promise("SCHED-01")
@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        # Exclusive calls overlap nothing, parallel ones whatever is not exclusive.
        (EVERYTHING, EVERYTHING, False),
        (EVERYTHING, LOOK, False),
        (LOOK, EVERYTHING, False),
        (LOOK, LOOK, True),
        (LOOK, (WRITE, {"path": "a"}), True),
        (LOOK, (WIPE, {"folder": "/"}), True),
        (EVERYTHING, (READ, {"path": "a"}), False),
        ((READ, {"path": "a"}), EVERYTHING, False),
        ((WIPE, {"folder": "a"}), EVERYTHING, False),
        # One path: readers overlap, a writer does not.
        ((READ, {"path": "a"}), (READ, {"path": "a"}), True),
        ((READ, {"path": "a"}), (WRITE, {"path": "a"}), False),
        ((WRITE, {"path": "a"}), (READ, {"path": "a"}), False),
        ((WRITE, {"path": "a"}), (WRITE, {"path": "a"}), False),
        ((WRITE, {"path": "a"}), (WRITE, {"path": "b"}), True),
        # A path is not the tree below it, and a name that begins alike is another name.
        ((WRITE, {"path": "a"}), (WRITE, {"path": "a/b"}), True),
        ((WRITE, {"path": "a/b"}), (WRITE, {"path": "a/bc"}), True),
        # A tree is everything below it, and itself.
        ((SEARCH, {"folder": "a"}), (WRITE, {"path": "a/b/c"}), False),
        ((WRITE, {"path": "a/b/c"}), (SEARCH, {"folder": "a"}), False),
        ((SEARCH, {"folder": "a"}), (WRITE, {"path": "a"}), False),
        ((WRITE, {"path": "a"}), (SEARCH, {"folder": "a"}), False),
        ((SEARCH, {"folder": "a"}), (READ, {"path": "a/b"}), True),
        ((SEARCH, {"folder": "a"}), (SEARCH, {"folder": "a/b"}), True),
        ((SEARCH, {"folder": "a"}), (WRITE, {"path": "ab"}), True),
        ((SEARCH, {"folder": "a/b"}), (WRITE, {"path": "a"}), True),
        ((WIPE, {"folder": "a"}), (READ, {"path": "a/b"}), False),
        ((READ, {"path": "a/b"}), (WIPE, {"folder": "a"}), False),
        ((READ, {"path": "a"}), (WIPE, {"folder": "a"}), False),
        ((WIPE, {"folder": "a/b"}), (SEARCH, {"folder": "a"}), False),
        ((SEARCH, {"folder": "a"}), (WIPE, {"folder": "a/b"}), False),
        ((SEARCH, {"folder": "a/b"}), (WIPE, {"folder": "a"}), False),
        ((WIPE, {"folder": "a"}), (WIPE, {"folder": "a/b"}), False),
        ((WIPE, {"folder": "a/b"}), (WIPE, {"folder": "a"}), False),
        ((WIPE, {"folder": "a/b"}), (WIPE, {"folder": "a/c"}), True),
        ((SEARCH, {"folder": "/"}), (WRITE, {"path": "deep/below/x"}), False),
        # Two claims of one call: it never waits for itself, and others see both.
        ((COPY, {"source": "a", "target": "a"}), (READ, {"path": "a"}), False),
        ((COPY, {"source": "a", "target": "b"}), (READ, {"path": "a"}), True),
        ((COPY, {"source": "a", "target": "b"}), (READ, {"path": "b"}), False),
        ((COPY, {"source": "a", "target": "b"}), (WRITE, {"path": "a"}), False),
        ((COPY, {"source": "a", "target": "b"}), (COPY, {"source": "a", "target": "c"}), True),
        ((COPY, {"source": "a", "target": "b"}), (COPY, {"source": "b", "target": "c"}), False),
        # A list of paths is a claim on each; none at all is a claim on none.
        (("read_all", {"paths": ["a", "b"]}), (WRITE, {"path": "b"}), False),
        (("read_all", {"paths": ["a", "b"]}), (WRITE, {"path": "c"}), True),
        (("read_all", {"paths": []}), (WRITE, {"path": "c"}), True),
        (("read_all", {"paths": []}), EVERYTHING, False),
        # A path that was left out may be any.
        ((MAYBE, {}), (READ, {"path": "a/b"}), False),
        ((MAYBE, {"path": None}), (READ, {"path": "a/b"}), False),
        ((MAYBE, {}), LOOK, True),
    ],
)
async def test_two_calls_overlap_unless_their_claims_conflict(first, second, together):
    assert await overlap(first, second) is together


@pytest.mark.promise("SCHED-01")
@pytest.mark.parametrize(
    "spelling",
    [
        "notes/a.txt",
        "/notes/a.txt",
        "./notes//a.txt",
        "notes/../notes/a.txt",
        "/workspace/notes/a.txt",
        "notes\\a.txt",
        "../notes/a.txt",
        "notes/a.txt/",
        "/workspace/../workspace/notes/./a.txt",
    ],
)
async def test_one_file_is_one_claim_however_it_is_spelled(spelling):
    assert not await overlap((WRITE, {"path": "notes/a.txt"}), (WRITE, {"path": spelling}))
    assert not await overlap((WRITE, {"path": spelling}), (SEARCH, {"folder": "/workspace/notes"}))
    assert await overlap((WRITE, {"path": spelling}), (WRITE, {"path": "notes/b.txt"}))


@pytest.mark.promise("SCHED-01")
async def test_calls_with_one_key_keep_order_and_other_keys_overlap():
    stage = Stage()

    @tool(key="browser")
    async def browse(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(key="browser")
    async def screenshot(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(key="printer")
    async def print_page(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[browse, screenshot, print_page]) as runtime:
        batch = runtime.session("s").start_batch(
            [call("b1", "browse"), call("b2", "screenshot"), call("p1", "print_page"), call("b3", "browse")]
        )
        assert await stage.settled() == ["b1", "p1"]
        assert await stage.after("b1") == ["b2", "p1"]
        assert await stage.after("b2") == ["b3", "p1"]
        stage.open()
        await batch


@pytest.mark.promise("SCHED-01")
async def test_a_key_is_filled_from_the_arguments_and_shared_between_tools():
    stage = Stage()

    @tool(key="{account}")
    async def pay(ctx: ToolContext, account: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool(key="{owner}")
    async def close(ctx: ToolContext, owner: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool(key="{account}/{year}")
    async def audit(ctx: ToolContext, account: str, year: int) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[pay, close, audit]) as runtime:
        batch = runtime.session("s").start_batch(
            [
                call("ada1", "pay", account="ada"),
                call("bob1", "pay", account="bob"),
                call("ada2", "close", owner="ada"),
                call("audit1", "audit", account="ada", year=1),
                call("audit2", "audit", account="ada", year=2),
                call("audit3", "audit", account="ada", year=1),
            ]
        )
        assert await stage.settled() == ["ada1", "audit1", "audit2", "bob1"]
        assert await stage.after("ada1") == ["ada2", "audit1", "audit2", "bob1"]
        assert await stage.after("audit1") == ["ada2", "audit2", "audit3", "bob1"]
        stage.open()
        await batch


@pytest.mark.promise("SCHED-01")
async def test_a_key_whose_argument_was_left_out_may_be_any_key():
    stage = Stage()

    @tool(key="{account}")
    async def pay(ctx: ToolContext, account: str = "main") -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[pay]) as runtime:
        batch = runtime.session("s").start_batch([call("a", "pay"), call("b", "pay", account="main")])
        assert await stage.settled() == ["a"]
        assert await stage.after("a") == ["b"]
        stage.open()
        await batch


@pytest.mark.promise("SCHED-01", "RUN-07")
async def test_a_key_whose_argument_has_no_text_may_be_any_key():
    stage = Stage()

    class Account(BaseModel):
        number: int

        def __str__(self) -> str:
            raise RuntimeError("nothing to say")

    @tool(key="{account}")
    async def pay(ctx: ToolContext, account: Account) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[pay]) as runtime:
        calls = [call(name, "pay", account={"number": number}) for number, name in enumerate("ab")]
        batch = runtime.session("s").start_batch(calls)
        assert await stage.settled() == ["a"]
        assert await stage.after("a") == ["b"]
        stage.open()
        await batch


@pytest.mark.promise("SCHED-01")
@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        (int, 1, 1.0),
        (float, 1, 1.0),
        (int, 7, "7"),
        (int, 7, "07"),
        (Decimal, "1.0", "1.00"),
        (set[int], [0, 8], [8, 0]),
    ],
    ids=["one as 1.0", "1.0 as one", "seven as text", "seven with a zero", "a decimal", "a set in another order"],
)
async def test_one_value_is_one_key_however_it_is_written(kind, first, second):
    stage = Stage()

    @tool(key="{account}")
    async def pay(ctx: ToolContext, account: kind) -> str:  # type: ignore[valid-type]
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[pay]) as runtime:
        batch = runtime.session("s").start_batch([call("a", "pay", account=first), call("b", "pay", account=second)])
        inside = await stage.settled()
        stage.open()
        outcomes = await batch
    assert inside == ["a"]
    assert [outcome.status for outcome in outcomes] == ["success", "success"]


@pytest.mark.promise("SCHED-01")
@pytest.mark.parametrize(
    "first",
    [
        ("read_all", {"paths": [f"many/{number}" for number in range(1001)]}),
        (SEARCH, {"folder": "/".join(["deep"] * 100_000)}),
        (READ, {"path": "/".join(["deep"] * 1000)}),
    ],
    ids=["many paths", "a deep tree", "a deep path"],
)
async def test_paths_beyond_all_measure_claim_more_than_they_name_and_cost_no_more(first):
    below = "/".join(["deep"] * 2000)
    conflicting = (WRITE, {"path": "other" if first[0] == "read_all" else below})
    assert not await overlap(first, conflicting)
    assert await overlap(first, LOOK)


@pytest.mark.promise("SCHED-01")
@pytest.mark.parametrize(
    "key", ["{account!r}", "{account:>8}", "{account:{width}}", "{}", "{account.name}", "{a", "{0}"]
)
def test_a_key_is_made_of_parameter_names_only(key):
    with pytest.raises(ToolDefinitionError, match="'pay'"):

        @tool(key=key)
        async def pay(account: str, width: int) -> None: ...


@pytest.mark.promise("SCHED-01")
def test_a_claim_on_a_parameter_that_is_not_there_is_refused():
    for claims in (
        {"key": "{acount}"},
        {"reads": "acount"},
        {"writes": tree("acount")},
        {"reads": resource("{acount}")},
    ):
        with pytest.raises(ToolDefinitionError, match="'acount'"):

            @tool(**claims)
            async def pay(account: str) -> None: ...


@pytest.mark.promise("SCHED-01")
async def test_named_resources_are_read_together_and_written_alone():
    stage = Stage()

    @tool(reads=resource("calendar"))
    async def show(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(writes=resource("calendar"))
    async def invite(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(writes=resource("mail/{box}"), reads=[resource("calendar"), path("file")])
    async def send(ctx: ToolContext, box: str, file: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool(writes="file")
    async def edit(ctx: ToolContext, file: str) -> str:
        return await stage.visit(ctx.call_id)

    @tool(key="calendar")
    async def keyed(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[show, invite, send, edit, keyed]) as runtime:
        batch = runtime.session("s").start_batch(
            [
                call("show1", "show"),
                call("show2", "show"),
                call("send1", "send", box="in", file="x"),
                call("send2", "send", box="out", file="x"),
                call("keyed", "keyed"),  # a key and a resource of one name are two things
                call("invite", "invite"),
                call("send3", "send", box="other", file="y"),
                call("edit", "edit", file="x"),
            ]
        )
        assert await stage.settled() == ["keyed", "send1", "send2", "show1", "show2"]
        assert await stage.after("show1", "show2", "send1", "keyed") == ["send2"]
        assert await stage.after("send2") == ["edit", "invite"]
        assert await stage.after("invite") == ["edit", "send3"]
        stage.open()
        await batch


@pytest.mark.promise("SCHED-01")
async def test_a_call_waits_for_every_earlier_conflict_and_for_no_later_one():
    stage = Stage()
    async with fail_after(5), Runtime.open(tools=file_tools(stage)) as runtime:
        batch = runtime.session("s").start_batch(
            [
                call("r1", "read", path="a"),
                call("r2", "read", path="a"),
                call("w1", "write", path="a"),
                call("r3", "read", path="a"),
                call("r4", "read", path="a"),
                call("w2", "write", path="a"),
                call("other", "write", path="b"),
            ]
        )
        assert await stage.settled() == ["other", "r1", "r2"]
        assert await stage.after("r2") == ["other", "r1"]
        assert await stage.after("r1") == ["other", "w1"]
        assert await stage.after("w1") == ["other", "r3", "r4"]
        assert await stage.after("other", "r3") == ["r4"]
        assert await stage.after("r4") == ["w2"]
        stage.open()
        outcomes = await batch
    assert [outcome.call_id for outcome in outcomes] == ["r1", "r2", "w1", "r3", "r4", "w2", "other"]


@pytest.mark.promise("SCHED-01")
async def test_what_a_call_waited_for_is_in_its_record():
    stage = Stage()
    async with fail_after(5), Runtime.open(tools=file_tools(stage)) as runtime:
        batch = runtime.session("s").start_batch(
            [call("r1", "read", path="a"), call("r2", "read", path="a"), call("w", "write", path="a")]
        )
        await stage.settled()
        stage.open()
        await batch
        records = {record.call_id: record.waited_for for record in runtime.log}
    assert records == {"r1": (), "r2": (), "w": ("r1", "r2")}


@pytest.mark.promise("SCHED-01")
async def test_a_path_may_come_as_a_path_object():
    stage = Stage()

    @tool(writes="path")
    async def write(ctx: ToolContext, path: Path) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[write]) as runtime:
        batch = runtime.session("s").start_batch(
            [call("a", "write", path="x/y"), call("b", "write", path="x/./y"), call("c", "write", path="x")]
        )
        assert await stage.settled() == ["a", "c"]
        stage.open()
        await batch


@pytest.mark.promise("SCHED-01")
async def test_a_failed_call_frees_its_claims():
    stage = Stage()

    @tool
    async def break_down() -> None:
        raise RuntimeError("broken")

    @tool
    async def go_on(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    stage.open()
    async with fail_after(5), Runtime.open(tools=[break_down, go_on]) as runtime:
        outcomes = await runtime.session("s").run_batch([call("a", "break_down"), call("b", "go_on")])
    assert [outcome.status for outcome in outcomes] == ["failure", "success"]


@pytest.mark.promise("SCHED-02")
async def test_a_tool_that_says_nothing_is_exclusive():
    stage = Stage()

    @tool
    async def quiet(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    @tool(readonly=True)
    async def peek(ctx: ToolContext) -> str:
        return await stage.visit(ctx.call_id)

    async def handle(arguments, ctx):
        return await stage.visit(ctx.call_id)

    raw = Tool.from_schema(name="raw", handler=handle)
    async with fail_after(5), Runtime.open(tools=[quiet, peek, raw]) as runtime:
        batch = runtime.session("s").start_batch(
            [call("p1", "peek"), call("q", "quiet"), call("raw", "raw"), call("p2", "peek"), call("p3", "peek")]
        )
        assert await stage.settled() == ["p1"]
        assert await stage.after("p1") == ["q"]
        assert await stage.after("q") == ["raw"]
        assert await stage.after("raw") == ["p2", "p3"]
        stage.open()
        await batch


@pytest.mark.promise("SCHED-02", "REG-05")
async def test_calls_that_never_run_conflict_with_nothing():
    stage = Stage()

    @tool
    async def exclusive(ctx: ToolContext, number: int) -> str:
        return await stage.visit(ctx.call_id)

    async with fail_after(5), Runtime.open(tools=[exclusive]) as runtime:
        session = runtime.session("s")
        batch = session.start_batch(
            [
                call("a", "exclusive", number=1),
                call("unknown", "exclusiv", number=1),
                call("invalid", "exclusive", number="one"),
                call("b", "exclusive", number=2),
            ]
        )
        assert await stage.settled() == ["a"]
        # Beside a running exclusive call they are answered at once.
        unknown, invalid = await session.run_batch([call("u", "nothing"), call("i", "exclusive", number=[])])
        assert unknown.failure is not None
        assert unknown.failure.category == "not_found"
        assert invalid.failure is not None
        assert invalid.failure.category == "invalid_arguments"
        assert await stage.after("a") == ["b"]
        stage.open()
        outcomes = await batch
    assert [outcome.status for outcome in outcomes] == ["success", "failure", "failure", "success"]
