"""Models by their names, such as "anthropic:claude-sonnet-4-5". Owns the names of the providers, and the errors for a
name, an extra or a key that is missing; does not own any provider."""

from __future__ import annotations

from toolwright.errors import MissingRequirement, ToolwrightError
from toolwright.extras import how_to_install, missing_libraries
from toolwright.providers.anthropic import Anthropic
from toolwright.providers.openai_chat import OpenAIChat
from toolwright.providers.openai_responses import OpenAIResponses
from toolwright.providers.prices import Price
from toolwright.providers.provider_model import ProviderModel

PROVIDERS: dict[str, type[ProviderModel]] = {
    "openai": OpenAIResponses,
    "openai-chat": OpenAIChat,
    "anthropic": Anthropic,
}
"""The providers by the word before the colon."""


def open_model(spec: str, *, price: Price | None = None) -> ProviderModel:
    """The model of a name with its provider: "openai:gpt-5.1", "openai-chat:llama3.2", "anthropic:claude-sonnet-4-5".

    The key is read from the environment, as the provider's own library does: OPENAI_API_KEY or ANTHROPIC_API_KEY. An
    address in OPENAI_BASE_URL or ANTHROPIC_BASE_URL is another server that speaks the same protocol.

    Raises:
        MissingRequirement: the library of the provider is not installed, or its key is not set.
        ToolwrightError: there is no such provider, or the name is not of this form.
    """
    provider, colon, name = spec.partition(":") if isinstance(spec, str) else ("", "", "")
    kind = PROVIDERS.get(provider)
    if kind is None or not colon or not name.strip():
        known = ", ".join(f"{each}:..." for each in PROVIDERS)
        raise ToolwrightError(
            f"Model {spec!r:.200} is not known; write its provider and its name ({known}), or give a Model object"
        )
    if libraries := missing_libraries(kind.extra):
        raise MissingRequirement(
            f"Model {spec!r:.200} needs libraries that are not installed ({', '.join(map(repr, libraries))}); "
            f"run: {how_to_install([kind.extra])}"
        )
    model = kind(name.strip(), price=price)
    model.require_key()
    model.opened_by_name = price is None
    return model
