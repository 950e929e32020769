"""Public values have a JSON form, and public objects can be read in a debugger; neither shows a secret."""

import json
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from toolwright import (
    App,
    Arguments,
    Capability,
    ConnectionRequired,
    Failure,
    Hints,
    Image,
    Pending,
    Quotas,
    RetryPolicy,
    Room,
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


def looks(call: object) -> bool:
    return True


@pytest.mark.promise("APP-06")
@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Pending(60), {"deadline": 60}),
        (ConnectionRequired("github"), {"provider": "github"}),
        (Room(3, 100), {"entries": 3, "bytes": 100}),
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
    assert Quotas(secrets=Room(1, 2)).to_json()["secrets"] == {"entries": 1, "bytes": 2}
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
