"""An app says once what belongs together, and each way of opening it gives the same runtime."""

from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from tests.support import fail_after
from tests.test_argument_checks import OPTIONS
from toolwright import (
    App,
    HookCall,
    Policy,
    RegistryError,
    ReplaceArguments,
    Rule,
    Runtime,
    ToolContext,
    ToolDefinitionError,
    ToolOutcome,
    ToolRegistry,
    ToolwrightError,
    tool,
)
from toolwright.app_options import APP_OPTIONS, OPEN_OPTIONS, RuntimeOptions


class Parrot:
    """A model that repeats the question."""

    async def complete(self, request: Any) -> str:
        return f"{request.messages[0]['content']}!"


def make_app() -> App:
    @tool
    async def ask(ctx: ToolContext, question: str) -> str:
        return str(await ctx.complete("ask", question))

    @tool
    async def wipe() -> None:
        raise AssertionError("it ran")

    def louder(call: HookCall) -> ReplaceArguments | None:
        asked: Mapping[str, Any] = call.arguments
        return ReplaceArguments({"question": asked["question"].upper()}) if call.tool.name == "ask" else None

    def noted(call: HookCall, outcome: ToolOutcome) -> None:
        seen.append(call.tool.name)

    seen: list[str] = []
    return App(
        tools=[ask, wipe],
        capabilities=["todo"],
        policy=Policy(rules=[Rule("deny", "wipe", name="keep it")]),
        before=[louder],
        after=[noted],
        projector=lambda outcome: f"<{outcome.value if outcome.ok else outcome.failure.code}>",
        model=Parrot(),
    )


@pytest.mark.promise("APP-01")
async def test_using_a_runtime_that_is_not_open_yet_says_how_to_open_it():
    for opening in (Runtime.open(), App().open()):
        with pytest.raises(
            AttributeError, match=r"The runtime is not open yet.*'session'; use `async with .*, or await"
        ):
            opening.session("s")  # type: ignore[attr-defined]


@pytest.mark.promise("APP-01")
async def test_an_app_holds_for_every_call_of_a_runtime_that_is_opened_from_it(tmp_path: Path):
    app = make_app()
    async with fail_after(5), app.open(tmp_path / "agent.db") as runtime:
        session = runtime.session("s1")
        assert (await session.call("ask", question="who")).text == "<WHO!>"
        assert (await session.call("wipe")).failure.code == "denied"
        assert "write_todos" in session.tools.names()
        assert runtime.app is app


@pytest.mark.promise("APP-01")
async def test_an_app_may_be_opened_more_than_once_and_runtimes_do_not_share_what_is_registered_in_one():
    @tool
    async def extra() -> int:
        return 1

    app = make_app()
    async with fail_after(5), app.open() as one, app.open() as two:
        one.tools.register(extra)
        assert (await one.session("s").call("extra")).value == 1
        assert (await two.session("s").call("extra")).failure.code == "unknown_tool"


@pytest.mark.promise("APP-01")
async def test_a_registry_that_an_app_is_given_is_followed():
    @tool
    async def late() -> str:
        return "here"

    registry = ToolRegistry()
    async with fail_after(5), App(tools=registry).open() as runtime:
        registry.register(late)
        assert (await runtime.session("s").call("late")).value == "here"


@pytest.mark.promise("APP-01")
def test_an_app_opens_for_code_that_is_not_async():
    with make_app().open_blocking() as runtime:
        assert runtime.session("s1").call("ask", question="who").text == "<WHO!>"


@pytest.mark.promise("APP-01")
async def test_runtime_open_takes_the_options_of_an_app_and_of_opening_it(tmp_path: Path):
    app = make_app()
    of_app = {name: getattr(app, name) for name in APP_OPTIONS}
    async with Runtime.open(tmp_path / "agent.db", **of_app, sync="normal", worker=False) as runtime:
        assert (await runtime.session("s1").call("ask", question="who")).text == "<WHO!>"
        assert {name: getattr(runtime.app, name) for name in APP_OPTIONS} == of_app


def test_the_options_of_a_runtime_are_those_of_an_app_and_of_opening_it():
    assert frozenset(App.__dataclass_fields__) == APP_OPTIONS
    assert frozenset(RuntimeOptions.__annotations__) == APP_OPTIONS | OPEN_OPTIONS
    assert {"master_key"} == APP_OPTIONS & OPEN_OPTIONS


OF_APP = [(options, said) for options, said in OPTIONS if next(iter(options)) in APP_OPTIONS]


@pytest.mark.promise("APP-05")
@pytest.mark.parametrize(("options", "said"), OF_APP, ids=[str(options) for options, _ in OF_APP])
def test_an_option_of_the_wrong_kind_is_refused_when_the_app_is_made(options: dict[str, Any], said: str):
    with pytest.raises(ToolwrightError) as refused:
        App(**options)
    assert str(refused.value) == said


@pytest.mark.promise("APP-05")
def test_tools_and_capabilities_that_cannot_be_are_refused_when_the_app_is_made():
    @tool
    def look() -> None: ...

    with pytest.raises(ToolDefinitionError, match="is not a tool"):
        App(tools=[3])
    with pytest.raises(RegistryError, match="'look' is registered already"):
        App(tools=[look, look.with_definition(description="another")])
    with pytest.raises(ToolwrightError, match="'tod' is not known; did you mean 'todo'"):
        App(capabilities=["tod"])


def test_an_app_does_not_change_but_gives_another_with_changes():
    app = make_app()
    with pytest.raises(FrozenInstanceError):
        app.policy = Policy()  # type: ignore[misc]
    other = app.but(policy=Policy(read_only=True))
    assert other.policy is not None
    assert other.policy.read_only
    assert (other.tools, other.model) == (app.tools, app.model)
    assert not app.policy.read_only
    assert repr(other) == "<App: 2 tools, capabilities, policy, before, after, projector, model>"


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda: Runtime.open(**{"tool": []}), "Runtime.open() has no option 'tool'; did you mean 'tools'?"),
        (lambda: App().open(**{"tools": []}), "App.open() has no option 'tools'; it has call_log, "),
        (lambda: App().but(**{"sink": "x"}), "App has no option 'sink'; it has "),
    ],
    ids=["runtime", "open", "but"],
)
def test_an_option_that_does_not_exist_is_refused_with_the_names_that_do(use: Any, said: str):
    with pytest.raises(TypeError) as refused:
        use()
    assert str(refused.value).startswith(said)
