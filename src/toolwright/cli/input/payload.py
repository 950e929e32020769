"""A batch as it comes in, and its results as they go out. Owns reading the file; `wire` owns the shapes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.cli.exits import BadInput
from toolwright.tools.call import ToolCall
from toolwright.tools.outcome import ToolOutcome
from toolwright.wire.detect import PROVIDERS, Provider, detect


@dataclass(frozen=True, slots=True)
class Payload:
    """The calls of a batch and the shape they came in, which is that of their results."""

    calls: list[ToolCall]
    provider: Provider

    def write_results(self, outcomes: Iterable[ToolOutcome]) -> list[dict[str, Any]]:
        """The results, ready to be sent back to where the calls came from."""
        return self.provider.write_results(outcomes, self.calls)


def read_payload(name: str, provider: str | None) -> Payload:
    """Read the calls in a file, or on stdin for `-`, in the named shape or the one they show.

    Raises:
        BadInput: the file cannot be read or is not JSON, or the provider is not known.
        ConversionError: the JSON does not have the shape.
    """
    shape = None if provider is None else provider_named(provider)
    where = "on stdin" if name == "-" else f"in {name!r}"
    try:
        content = jsonx.decode(sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes())
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(f"The batch {name!r} cannot be read ({reason}); name a file, or - for stdin") from None
    except (jsonx.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(
            f"The batch {where} is not JSON ({error}); give a list of calls or a provider's response"
        ) from None
    shape = shape or PROVIDERS[detect(content)]
    calls = shape.read_calls(content)
    if shape is PROVIDERS["mcp"]:  # as a server reads them: the command runs its tools, of any kind
        calls = [replace(call, kind=None) for call in calls]
    return Payload(calls, shape)


def provider_named(name: str) -> Provider:
    """The shape of this name.

    Raises:
        BadInput: there is none.
    """
    found = PROVIDERS.get(name)
    if found is None:
        raise BadInput(f"There is no provider {name!r}; use one of {', '.join(sorted(PROVIDERS))}")
    return found
