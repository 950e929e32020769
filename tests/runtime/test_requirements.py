"""What an app lacks is told to its owner when it is opened, and not first to a model."""

import asyncio
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import (
    App,
    MissingRequirement,
    Policy,
    Runtime,
    Tool,
    ToolContext,
    ToolDefinitionError,
    ToolRegistry,
    tool,
)
from toolwright.builtin import default_tools
from toolwright.errors import SecretsError
from toolwright.extras import EXTRAS
from toolwright.session.secrets.master_keys import GivenKeys

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes modules look as if they were not installed."""

    def hide(*modules: str) -> None:
        for name in modules:
            for known in [name, *(loaded for loaded in sys.modules if loaded.startswith(f"{name}."))]:
                monkeypatch.setitem(sys.modules, known, None)

    return hide


def test_the_extras_are_those_of_the_package():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = {name for name in project["optional-dependencies"] if name not in ("all", "builtin", "providers")}
    assert set(EXTRAS) == extras


@pytest.mark.promise("APP-05")
@pytest.mark.parametrize(
    ("library", "options", "said"),
    [
        (
            "bashkit",
            {"capabilities": ["virtual_bash"]},
            "Tool 'bash' needs libraries that are not installed ('bashkit'); run: pip install 'toolwright[bash]', or "
            "leave these tools out",
        ),
        ("re2", {"capabilities": ["files"]}, "Tool 'grep_files' needs libraries that are not installed ('re2'); run: "),
        ("httpx", {"tools": default_tools()}, "('httpx'); run: pip install 'toolwright[web]'"),
        ("cryptography", {"capabilities": ["session_storage"]}, "pip install 'toolwright[secrets]'"),
        (
            "bm25s",
            {"capabilities": ["todo"], "policy": Policy(defer_tools_from=1)},
            "Tool 'tool_search' needs libraries that are not installed ('bm25s'); run: "
            "pip install 'toolwright[search]'",
        ),
    ],
)
def test_a_missing_extra_is_told_when_the_app_is_opened(library: str, options: Any, said: str, without: Any):
    without(library)
    app = App(**options)
    with pytest.raises(MissingRequirement) as refused:
        app.open()
    assert said in str(refused.value)


@pytest.mark.promise("APP-05")
def test_all_that_is_missing_is_told_at_once(without: Any):
    without("httpx", "re2")
    with pytest.raises(MissingRequirement) as refused:
        Runtime.open(tools=default_tools())
    assert str(refused.value) == (
        "The tools 'grep_files', 'web_fetch' need libraries that are not installed ('re2', 'httpx'); "
        "run: pip install 'toolwright[files,web]', or leave these tools out"
    )


@pytest.mark.promise("APP-05")
async def test_a_missing_model_or_lifespan_is_told_when_the_app_is_opened():
    @tool(needs=["model"])
    async def summarise(ctx: ToolContext, text: str) -> str:
        return str(await ctx.complete("sum", text))

    @tool
    async def read(ctx: ToolContext[dict[str, str]]) -> str:
        return ctx.deps["a"]

    with pytest.raises(MissingRequirement, match=r"'summarise' needs a model, and .*: App\(model=\.\.\.\)"):
        App(tools=[summarise]).open()
    with pytest.raises(MissingRequirement, match=r"'read' needs the dependencies .*: App\(lifespan=\.\.\.\)"):
        App(tools=[read]).open()
    async with fail_after(5), Runtime.open() as runtime:
        with pytest.raises(MissingRequirement, match="'summarise' needs a model"):
            runtime.session("s", tools=[summarise])
        with pytest.raises(MissingRequirement, match="'read' needs the dependencies"):
            runtime.session("s", tools=ToolRegistry([read]))


@pytest.mark.promise("APP-05")
@pytest.mark.parametrize("needs", ["model", ["modle"], 3, [[]]])
def test_a_need_that_does_not_exist_is_refused_when_the_tool_is_defined(needs: Any):
    with pytest.raises(ToolDefinitionError, match=r"Tool 'x' has needs=.*; use a list of any of bash, deps, files"):
        Tool.from_schema(name="x", handler=lambda args: None, needs=needs)


async def with_a_secret(file: Path, key: bytes | None = None) -> None:
    async with Runtime.open(file, master_key=None if key is None else GivenKeys(key)) as runtime:
        await runtime.session("s").secrets.set("token", "correct horse battery staple")


@tool
async def greet() -> str:
    return "hello"


@pytest.mark.promise("APP-05")
@pytest.mark.parametrize("library", ["cryptography", "ahocorasick_rs"])
async def test_a_store_with_secrets_is_not_opened_without_the_libraries_for_them(
    library: str, tmp_path: Path, without: Any
):
    async with fail_after(10):
        await with_a_secret(tmp_path / "agent.db")
        without(library)
        with pytest.raises(MissingRequirement) as refused:
            await Runtime.open(tmp_path / "agent.db", tools=[greet])
        assert str(refused.value) == (
            f"The store has secrets, and libraries for them are not installed ({library!r}); "
            "run: pip install 'toolwright[secrets]'"
        )
        # A program without tools may look after the rest of the store.
        async with Runtime.open(tmp_path / "agent.db") as runtime:
            assert [info.id for info in await runtime.sessions()] == ["s"]
            with pytest.raises(SecretsError, match=r"pip install 'toolwright\[secrets\]'"):
                await runtime.session("s").secrets.get("token")


@pytest.mark.promise("APP-05")
async def test_a_store_whose_master_key_is_not_known_is_not_opened_for_tools(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    file = tmp_path / "agent.db"
    async with fail_after(10):
        await with_a_secret(file, KEY)
        with pytest.raises(
            MissingRequirement, match=r"which is not known here; set TOOLWRIGHT_MASTER_KEY .*master_key="
        ):
            await App(tools=[greet], master_key=GivenKeys(OTHER)).open(file)
        with pytest.raises(MissingRequirement, match="which is not known here"):
            await App(tools=[greet], master_key=GivenKeys(KEY)).open(file, master_key=GivenKeys(OTHER))
        async with App(tools=[greet], master_key=GivenKeys(KEY)).open(file) as runtime:
            assert (await runtime.session("s").call("greet")).value == "hello"
        # A key that is lost for some secrets does not stop the rest.
        async with Runtime.open(file, master_key=GivenKeys(OTHER)) as runtime:
            await runtime.session("t").secrets.set("token", "another long value")
        async with App(tools=[greet], master_key=GivenKeys(OTHER)).open(file) as runtime:
            assert (await runtime.session("t").call("greet")).value == "hello"
        assert "sealed with master keys that are not known here" in caplog.text


@pytest.mark.promise("APP-05")
def test_keys_of_the_environment_that_are_not_usable_are_told_at_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TOOLWRIGHT_MASTER_KEY", "c2hvcnQ=")

    async def opened() -> None:
        await Runtime.open(tmp_path / "agent.db", tools=[greet])

    with pytest.raises(SecretsError, match="TOOLWRIGHT_MASTER_KEY is not usable"):
        asyncio.run(opened())
