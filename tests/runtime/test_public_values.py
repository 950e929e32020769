"""Public values have a JSON form, and public objects can be read in a debugger; neither shows a secret."""

import json
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

import toolwright
from toolwright import (
    Answer,
    App,
    Arguments,
    Capability,
    ConnectionRequired,
    Failure,
    Hints,
    HookCall,
    Image,
    MemoryCallLog,
    Pending,
    Policy,
    Quota,
    Quotas,
    ReplaceArguments,
    Request,
    RetryPolicy,
    Rule,
    Runtime,
    ScopedRegistry,
    Screened,
    Success,
    Tool,
    ToolContext,
    ToolRegistry,
    tool,
)

PASSWORD = "correct-horse-battery"

NO_JSON_FORM = {
    "App": "it holds code, a model and keys; its tools have definitions",
    "Batch": "a running thing; its outcomes have a JSON form",
    "Model": "a protocol",
    "MemoryCallLog": "a log; its records have a JSON form",
    "Runtime": "a running thing",
    "ScopedRegistry": "a collection of tools, whose definitions have a JSON form",
    "Session": "a running thing",
    "Tool": "code; its definition has a JSON form",
    "ToolContext": "the view that a running call has of the runtime",
    "ToolRegistry": "a collection of tools, whose definitions have a JSON form",
}
"""Public classes that are not values."""


def is_value(kind: object) -> bool:
    """True for a class that is neither an exception nor the type of options."""
    return isinstance(kind, type) and not issubclass(kind, BaseException) and not hasattr(kind, "__total__")


@pytest.mark.promise("APP-06")
def test_every_public_value_has_a_json_form() -> None:
    public = {name: getattr(toolwright, name) for name in toolwright.__all__}
    values = {name for name, kind in public.items() if is_value(kind)}

    assert {name for name in values if not hasattr(public[name], "to_json")} == set(NO_JSON_FORM)


def looks(call: object) -> bool:
    return True


@pytest.mark.promise("APP-06")
@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Answer({"at": Path("/a")}), {"value": {"at": "/a"}}),
        (ReplaceArguments({"n": 1}), {"arguments": {"n": 1}}),
        (Pending(60), {"deadline": 60}),
        (ConnectionRequired("github"), {"provider": "github"}),
        (Quota(3, 100), {"entries": 3, "bytes": 100}),
        (
            RetryPolicy(attempts=3, max_delay=float("inf"), on=(TimeoutError,)),
            {
                "attempts": 3,
                "base_delay": 0.2,
                "factor": 2.0,
                "max_delay": None,
                "jitter": 0.1,
                "on": ["TimeoutError"],
            },
        ),
        (
            Success(Path("/a"), images=[Image("YQ==")], metadata={"rows": 2}),
            {
                "value": "/a",
                "raw_output": None,
                "images": [{"data": "YQ==", "media_type": "image/png"}],
                "attachments": [],
                "metadata": {"rows": 2},
                "text": None,
            },
        ),
        (Arguments({"n": 1, "when": None}), {"n": 1, "when": None}),
    ],
)
def test_the_json_form_of_a_value_has_its_fields(value: Success, told: dict[str, object]) -> None:
    assert value.to_json() == told
    json.dumps(value.to_json(), allow_nan=False)


@pytest.mark.promise("APP-06")
def test_the_json_form_of_quotas_and_hints_has_every_field() -> None:
    assert Quotas(secrets=Quota(1, 2)).to_json()["secrets"] == {"entries": 1, "bytes": 2}
    assert Quotas().to_json().keys() == set(Quotas.__struct_fields__)
    assert Hints(readonly=True).to_json().items() >= {"readonly": True, "destructive": None}.items()


@pytest.mark.promise("APP-06")
def test_the_json_form_of_refused_arguments_has_only_their_replacement() -> None:
    screened = Screened(b'{"key":"[secret]"}', Failure(message="Not here", detail=PASSWORD))

    assert screened.to_json()["shown"] == {"key": "[secret]"}
    assert PASSWORD not in json.dumps(screened.to_json())


@pytest.mark.promise("APP-06")
def test_the_json_form_of_a_capability_names_its_code_and_hides_texts_among_its_settings() -> None:
    @tool
    def look(path: str) -> str:
        """Look."""
        return path

    told = Capability(
        name="eyes",
        tools=[look],
        prompt="It looks.",
        before=[looks, partial(looks)],
        settings={"proxy": f"http://me:{PASSWORD}@proxy", "limit": 3, "fast": True},
        requires=["files", Capability(name="hands")],
    ).to_json()

    assert told["tools"] == ["look"]
    assert told["before"] == [f"{__name__}.looks", f"{__name__}.looks"]
    assert told["settings"] == {"proxy": "str", "limit": 3, "fast": True}
    assert told["requires"] == ["files", "hands"]
    assert PASSWORD not in json.dumps(told)


@pytest.mark.promise("APP-06")
async def test_arguments_show_a_placeholder_in_place_of_the_secret_one() -> None:
    seen: list[tuple[str, object, str]] = []

    def log_in(arguments: Arguments) -> None:
        seen.append((repr(arguments), arguments.to_json(), arguments.require("password", str)))

    schema = {"type": "object", "properties": {"user": {"type": "string"}, "password": {"type": "string"}}}
    given = Tool.from_schema(name="log_in", input_schema=schema, handler=log_in, secret="password")
    async with Runtime.open(tools=[given]) as runtime:
        await runtime.session("s").run_batch([{"name": "log_in", "arguments": {"password": PASSWORD, "user": "a"}}])

    shown = {"password": "[secret]", "user": "a"}
    assert seen == [(f"Arguments({shown!r})", shown, PASSWORD)]


def one_line(thing: object) -> str:
    text = repr(thing)
    assert " object at 0x" not in text
    assert "\n" not in text
    assert PASSWORD not in text
    return text


@pytest.mark.promise("APP-06")
async def test_public_objects_have_one_readable_line(tmp_path: Path) -> None:
    lines: list[str] = []

    @tool
    def look(ctx: ToolContext, path: str) -> str:
        """Look."""
        lines.append(one_line(ctx))
        return path

    @asynccontextmanager
    async def lifespan():
        yield PASSWORD

    app = App(tools=[look], lifespan=lifespan)
    assert one_line(app) == "<App: 1 tools, lifespan>"
    async with app.open() as runtime:
        assert one_line(runtime) == "<Runtime in memory: 1 tools, 0 sessions>"
        session = runtime.session("s")
        assert one_line(session) == "<Session 's'>"
        await session.run_batch([{"id": "c1", "name": "look", "arguments": {"path": PASSWORD}}])
        assert one_line(runtime) == "<Runtime in memory: 1 tools, 1 sessions>"
    assert one_line(runtime).endswith(", closed>")
    assert lines == ["<ToolContext of 'look', call 'c1', attempt 1 of 1>"]
    async with app.open(tmp_path / "runs.db") as runtime:
        assert one_line(runtime) == "<Runtime over SqliteStore: 1 tools, 0 sessions>"


@pytest.mark.promise("APP-06")
def test_a_scoped_registry_shows_how_many_tools_and_layers_it_has() -> None:
    @tool
    def look(path: str) -> str:
        """Look."""
        return path

    scoped = ScopedRegistry(ToolRegistry([look]))
    scoped.push()

    assert one_line(scoped) == "<ScopedRegistry: 1 tools, 1 layers over ToolRegistry>"


@pytest.mark.promise("APP-06")
def test_the_json_form_of_a_policy_names_the_functions_of_its_rules() -> None:
    told = Policy(timeout=5, rules=[Rule("deny", "rm_*", when=looks, capabilities={"network"})]).to_json()

    assert told["timeout"] == 5
    assert told["rules"] == [
        {
            "effect": "deny",
            "tools": ["rm_*"],
            "name": "deny rm_*",
            "reason": None,
            "level": 0,
            "source": None,
            "mutating": None,
            "capabilities": ["network"],
            "when": f"{__name__}.looks",
            "commands": [],
            "writes": [],
            "unknown": None,
        }
    ]
    assert json.loads(json.dumps(told, allow_nan=False)) == told


@pytest.mark.promise("APP-06")
async def test_the_json_form_of_a_call_hides_the_secret_argument_from_rules_and_hooks() -> None:
    seen: list[dict[str, object]] = []

    @tool(secret="password")
    def log_in(user: str, password: str) -> str:
        """Log in."""
        return user

    def rule(request: Request) -> bool:
        assert request.arguments["password"] == PASSWORD
        seen.append(request.to_json())
        return False

    def hook(call: HookCall) -> None:
        assert call.arguments["password"] == PASSWORD
        seen.append(call.to_json())

    async with Runtime.open(tools=[log_in], before=[hook], policy=Policy(rules=[Rule("deny", when=rule)])) as runtime:
        call = {"name": "log_in", "arguments": {"user": "a", "password": PASSWORD}}
        [outcome] = await runtime.session("s").run_batch([call])

    assert outcome.ok
    assert [one["arguments"] for one in seen] == [{"user": "a", "password": "[secret]"}] * 2
    assert PASSWORD not in json.dumps(seen)


@pytest.mark.promise("APP-06")
def test_a_policy_shows_only_the_settings_that_differ_from_the_default() -> None:
    assert one_line(Policy()) == "Policy()"
    shown = one_line(Policy(timeout=5, spill_dir=Path("/out"), rules=[Rule("deny", "rm", reason=PASSWORD)]))
    assert shown == "Policy(timeout=5, rules=['deny rm'], spill_dir='/out')"


@pytest.mark.promise("APP-06")
async def test_a_batch_and_a_call_log_show_how_much_is_in_them() -> None:
    @tool
    def look(path: str) -> str:
        """Look."""
        return path

    log = MemoryCallLog(limit=10)
    async with Runtime.open(tools=[look], call_log=log) as runtime:
        batch = runtime.session("s").start_batch([{"name": "look", "arguments": {"path": PASSWORD}}])
        assert one_line(batch) == f"<Batch {batch.id!r}: 0 of 1 calls finished>"
        await batch
        assert one_line(batch) == f"<Batch {batch.id!r}: 1 of 1 calls finished>"

    assert one_line(log) == "<MemoryCallLog: 1 records of at most 10>"
