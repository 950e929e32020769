"""A wrong definition fails when it is made, with a message that names the tool, the option and the remedy."""

from typing import Any

import pytest

from toolwright import (
    RetryPolicy,
    Tool,
    ToolDefinition,
    ToolDefinitionError,
    ToolRegistry,
    overridden,
    path,
    resource,
    tool,
)


def refusal(**options: Any) -> str:
    """What is said about a tool of two parameters that is defined with these options."""
    with pytest.raises(ToolDefinitionError) as caught:

        @tool(**options)
        async def copy(source: str, target: str) -> None: ...

    return str(caught.value)


@pytest.mark.promise("TOOL-05")
def test_an_unknown_option_is_refused_with_the_nearest_known_one():
    assert refusal(read_only=True) == "Tool 'copy' has an unknown option 'read_only'; did you mean 'readonly'?"
    assert "did you mean 'timeout'?" in refusal(timout=3)


@pytest.mark.promise("TOOL-05")
def test_an_unknown_option_like_no_other_is_refused_with_the_list():
    said = refusal(zzz=1)
    assert said.startswith("Tool 'copy' has an unknown option 'zzz'; the options are: approval, background,")


@pytest.mark.promise("TOOL-05")
@pytest.mark.parametrize("hint", ["readonly", "idempotent", "polling", "destructive", "parallel", "exclusive"])
@pytest.mark.parametrize("value", ["yes", 1, None])
def test_a_hint_is_true_or_false(hint: str, value: Any):
    assert refusal(**{hint: value}) == f"Tool 'copy' has {hint}={value!r}; use True or False"


@pytest.mark.promise("TOOL-05")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"kind": "plugin"},
            "Tool 'copy' has kind 'plugin'; use one of function, mcp, shell, custom, client",
        ),
        ({"approval": "maybe"}, "Tool 'copy' has approval 'maybe'; use auto, suggest or required"),
        ({"isolation": "thread"}, "Tool 'copy' has isolation 'thread'; use none or process"),
        ({"deferral": "later"}, "Tool 'copy' has deferral 'later'; use auto, never or always"),
        ({"on_crash": "retry"}, "Tool 'copy' has on_crash 'retry'; use rerun, fail, ask or a probe function"),
        ({"screen": "url"}, "Tool 'copy' has screen='url'; use a function of the arguments' JSON"),
        ({"timeout": "10"}, "Tool 'copy' has timeout '10'; use a number of seconds above 0"),
        ({"timeout": 0}, "Tool 'copy' has timeout 0; use a number of seconds above 0, or NO_TIMEOUT"),
        ({"timeout": -1.5}, "Tool 'copy' has timeout -1.5; use a number of seconds above 0, or NO_TIMEOUT"),
        ({"timeout": True}, "Tool 'copy' has timeout True; use a number of seconds above 0, or NO_TIMEOUT"),
        ({"timeout": float("nan")}, "Tool 'copy' has timeout nan; use a number of seconds above 0, or NO_TIMEOUT"),
        ({"max_concurrency": 0}, "Tool 'copy' has max_concurrency 0; use a whole number of at least 1"),
        ({"max_concurrency": True}, "Tool 'copy' has max_concurrency True; use a whole number of at least 1"),
        ({"max_concurrency": 1.5}, "Tool 'copy' has max_concurrency 1.5; use a whole number of at least 1"),
        ({"retry": 3}, "Tool 'copy' has retry=3; use RetryPolicy(attempts=...)"),
        ({"capabilities": "network"}, "Tool 'copy' has capabilities='network'; use a list of names"),
        ({"capabilities": None}, "Tool 'copy' has capabilities=None; use a list of names"),
        ({"capabilities": [["network"]]}, "Tool 'copy' has capabilities=[['network']]; use a list of names"),
        ({"key": ""}, "Tool 'copy' has key=''; use a name such as 'browser' or '{account}'"),
        ({"prepare": "x"}, "Tool 'copy' has prepare='x'; use a function of arguments and call"),
        ({"id": 5}, "Tool 'copy' has id=5; use a text, or leave it out"),
        ({"display_name": ""}, "Tool 'copy' has display_name=''; use a text, or leave it out"),
        ({"category": ["a"]}, "Tool 'copy' has category=['a']; use a text, or leave it out"),
        ({"description": 7}, "Tool 'copy' has description=7; use a text"),
    ],
    ids=str,
)
def test_an_option_of_the_wrong_kind_is_refused(options: dict[str, Any], message: str):
    assert refusal(**options) == message


@pytest.mark.promise("TOOL-05")
@pytest.mark.parametrize("option", ["reads", "writes"])
@pytest.mark.parametrize("value", [5, [5], [None], "", [path("")]])
def test_a_claim_is_on_a_parameter_or_a_resource(option: str, value: Any):
    said = refusal(**{option: value})
    assert said.startswith(f"Tool 'copy' has {option}={value!r}; use names of parameters, or path()")


@pytest.mark.promise("TOOL-05")
def test_a_claim_on_a_parameter_that_is_not_there_is_refused_with_those_that_are():
    assert refusal(reads="sourse") == (
        "Tool 'copy' claims the parameter 'sourse', which it does not have; its parameters are: source, target"
    )
    assert "'account'" in refusal(key="{account}")
    assert "'account'" in refusal(writes=resource("db/{account}"))


@pytest.mark.promise("TOOL-05")
def test_an_unknown_capability_is_refused_with_the_known_ones():
    assert refusal(capabilities=["netwrok"]) == (
        "Tool 'copy' has unknown capabilities ['netwrok']; "
        "use executes_code, network, read_only, requires_approval, sandboxable, writes_files"
    )


@pytest.mark.promise("TOOL-05")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readonly": True, "destructive": True}, "both readonly and destructive; drop one of the two"),
        ({"readonly": True, "writes": "target"}, "readonly and claims to write; drop readonly or writes"),
        ({"readonly": True, "capabilities": ["writes_files"]}, "readonly and can write files; drop readonly"),
        ({"capabilities": ["read_only", "writes_files"]}, "readonly and can write files"),
        ({"exclusive": True, "parallel": True}, "more than one of exclusive, parallel, and key/reads/writes"),
        ({"exclusive": True, "key": "browser"}, "more than one of exclusive, parallel, and key/reads/writes"),
        ({"parallel": True, "reads": "source"}, "more than one of exclusive, parallel, and key/reads/writes"),
    ],
    ids=lambda item: "+".join(item) if isinstance(item, dict) else "",
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], message: str):
    said = refusal(**options)
    assert "'copy'" in said
    assert message in said


@pytest.mark.promise("TOOL-05")
def test_a_retry_of_a_tool_that_may_not_run_twice_is_refused():
    said = refusal(retry=RetryPolicy(attempts=3))
    assert said.startswith("Tool 'copy' has a retry policy but may not be run twice; mark it idempotent=True")


@pytest.mark.promise("TOOL-05")
@pytest.mark.parametrize("name", ["", "two words", "a" * 129, "naïve", "semi;colon", "line\nbreak"])
def test_a_name_that_models_cannot_call_is_refused(name: str):
    with pytest.raises(ToolDefinitionError, match="is not usable; use 1 to 128 letters, digits"):
        Tool.from_schema(name=name, handler=lambda args: None)


@pytest.mark.promise("TOOL-05")
def test_a_lambda_needs_a_name_of_its_own():
    with pytest.raises(ToolDefinitionError, match="Tool name '<lambda>' is not usable"):
        tool(lambda: None)
    assert tool(name="nothing")(lambda: None).name == "nothing"


@pytest.mark.promise("TOOL-05")
def test_the_same_options_are_checked_for_raw_schemas():
    with pytest.raises(ToolDefinitionError, match="'raw' has an unknown option 'readOnly'; did you mean"):
        Tool.from_schema(name="raw", handler=lambda args: None, readOnly=True)  # type: ignore[call-arg]
    with pytest.raises(ToolDefinitionError, match="'raw' claims the parameter 'path'"):
        Tool.from_schema(
            name="raw",
            input_schema={"type": "object", "properties": {"file": {"type": "string"}}},
            handler=lambda args: None,
            reads="path",
        )


@pytest.mark.promise("TOOL-05")
def test_the_same_things_are_checked_in_a_definition_made_by_hand():
    with pytest.raises(ToolDefinitionError, match="'greet' has kind 'plugin'"):
        ToolDefinition(name="greet", id="greet", input_schema={}, kind="plugin")  # type: ignore[arg-type]
    with pytest.raises(ToolDefinitionError, match="'greet' has timeout 0"):
        ToolDefinition(name="greet", id="greet", input_schema={}, timeout=0)


@pytest.mark.promise("TOOL-05", "REG-03")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"timeout": "10"}, "has timeout '10'; use a number of seconds above 0"),
        ({"timeout": 10**400}, "has timeout 10000"),
        ({"hints": {"readonly": True}}, "has hints {'readonly': True}; use Hints"),
        ({"capabilities": "network"}, "has capabilities 'network'; use a set of names"),
        ({"retry": 3}, "has retry 3; use RetryPolicy"),
        ({"concurrency": "parallel"}, "has concurrency 'parallel'; use Concurrency"),
        ({"events": ["found"]}, r"has events \['found'\]; use a dict of names and schemas"),
    ],
)
def test_a_part_of_a_wrong_type_is_refused_in_a_definition_made_by_hand_and_in_a_view(change, said):
    with pytest.raises(ToolDefinitionError, match=f"'greet' {said}"):
        ToolDefinition(name="greet", id="greet", input_schema={}, **change)

    @tool
    def greet(name: str) -> str:
        return f"Hello {name}"

    view = overridden(ToolRegistry([greet]), {"greet": change})
    with pytest.raises(ToolDefinitionError, match=f"'greet' {said}"):
        view.snapshot()


@pytest.mark.promise("TOOL-07")
def test_an_output_schema_that_cannot_be_used_is_refused():
    assert "'copy' has an invalid JSON Schema" in refusal(output_schema={"type": "text"})
    assert "'copy' has an output type" in refusal(output_schema=object())
