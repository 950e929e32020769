"""A model by its name: which provider it is of, and what is said when it cannot be had."""

import subprocess
import sys

import pytest

from toolwright.errors import MissingRequirement, ToolwrightError
from toolwright.providers import Anthropic, OpenAIChat, OpenAIResponses, Price, open_model
from toolwright.tools.model import Model

KEYS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.promise("TURN-02")
@pytest.mark.parametrize(
    ("spec", "key", "kind", "provider", "name"),
    [
        ("openai:gpt-5.1", "OPENAI_API_KEY", OpenAIResponses, "openai", "gpt-5.1"),
        ("openai-chat:gpt-4o", "OPENAI_API_KEY", OpenAIChat, "openai-chat", "gpt-4o"),
        ("openai-chat:qwen3:8b", "OPENAI_API_KEY", OpenAIChat, "openai-chat", "qwen3:8b"),
        ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY", Anthropic, "anthropic", "claude-sonnet-4-5"),
        ("anthropic:claude-sonnet-4-5", "ANTHROPIC_AUTH_TOKEN", Anthropic, "anthropic", "claude-sonnet-4-5"),
    ],
)
def test_a_model_is_named_by_its_provider_and_its_name(spec, key, kind, provider, name, monkeypatch):
    monkeypatch.setenv(key, "a-key-of-somebody")
    model = open_model(spec)
    assert type(model) is kind
    assert isinstance(model, Model)
    assert (model.provider, model.name) == (provider, name)
    assert "somebody" not in f"{model!r}{vars(model)!r}"


@pytest.mark.parametrize("spec", ["gpt-5", "openai", "openai:", "openai: ", "mistral:large", "", ":x", None, 3])
def test_a_name_without_a_known_provider_is_refused_with_the_ones_there_are(spec):
    with pytest.raises(
        ToolwrightError, match=r"is not known; write its provider and its name \(openai:\.\.\., openai-"
    ):
        open_model(spec)


@pytest.mark.promise("APP-05")
@pytest.mark.parametrize(
    ("spec", "library"), [("openai:a", "openai"), ("openai-chat:a", "openai"), ("anthropic:a", "anthropic")]
)
def test_a_missing_library_is_named_with_its_extra(spec, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingRequirement) as told:
        open_model(spec)
    assert str(told.value) == (
        f"Model {spec!r} needs libraries that are not installed ({library!r}); run: pip install 'toolwright[{library}]'"
    )


@pytest.mark.promise("APP-05")
def test_a_missing_key_is_told_when_the_model_is_opened():
    with pytest.raises(MissingRequirement, match="needs a key, and there is none; set OPENAI_API_KEY"):
        open_model("openai:gpt-5.1")
    with pytest.raises(MissingRequirement, match="set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"):
        open_model("anthropic:claude-sonnet-4-5")


def test_a_server_of_the_environment_needs_no_key(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:11434/v1")
    assert repr(open_model("openai-chat:llama3.2")) == "<OpenAIChat 'llama3.2' at localhost:11434>"


def test_a_price_may_come_with_the_name(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    price = Price(input=1.25, output=10)
    assert open_model("openai:gpt-5.1", price=price).price == price


@pytest.mark.promise("TURN-02")
def test_no_library_of_a_provider_is_imported_with_the_package():
    code = (
        "import os, sys; os.environ['OPENAI_API_KEY'] = os.environ['ANTHROPIC_API_KEY'] = 'k'\n"
        "import toolwright, toolwright.providers\n"
        "[toolwright.providers.open_model(each) for each in ('openai:a', 'openai-chat:a', 'anthropic:a')]\n"
        "print([name for name in ('openai', 'anthropic', 'httpx2', 'httpx') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": ""}, "Model name '' is not usable"),
        ({"timeout": 0}, "has timeout 0; use a number of seconds above 0"),
        ({"settings": {"messages": []}}, "has the setting 'messages', which a request sets; leave it out"),
    ],
)
def test_options_that_are_not_usable_are_refused_at_once(options, said):
    with pytest.raises(ToolwrightError, match=said):
        OpenAIChat(**{"name": "m", **options})
