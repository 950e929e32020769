"""Models of real providers, over the providers' own libraries. Owns the requests, the streams and the errors of each;
does not own the loop that asks them, nor retries.

A library is imported when the first request is sent, never with this package.
"""

from toolwright.providers.anthropic import Anthropic
from toolwright.providers.fallback import FallbackModel
from toolwright.providers.openai_chat import OpenAIChat
from toolwright.providers.openai_responses import OpenAIResponses
from toolwright.providers.opening import open_model
from toolwright.providers.prices import Price

__all__ = ["Anthropic", "FallbackModel", "OpenAIChat", "OpenAIResponses", "Price", "open_model"]
