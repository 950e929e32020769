"""The fifth act of the demo with a real model: an agent that is killed in the middle of its turn, and continues.

Set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name a model: `python examples/real_agent.py openai:gpt-5`. Without a key it
says what is missing. The model is asked a few times; a recorded answer is not paid for again after the kill.
"""

import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console

import demo_turn
from toolwright import ToolwrightError
from toolwright.providers import open_model

MODELS = {"ANTHROPIC_API_KEY": "anthropic:claude-sonnet-4-5", "OPENAI_API_KEY": "openai:gpt-5"}
"""The variable with the key of a provider, and the model that is taken then."""
PATIENCE = 600
"""Seconds that a process of the act may take."""


def main() -> int:
    """Run the act with the model that is named, or whose key is set."""
    spec = sys.argv[1] if len(sys.argv) > 1 else next((MODELS[key] for key in MODELS if os.environ.get(key)), None)
    if spec is None:
        print(f"There is no key of a provider; set {' or '.join(MODELS)}, and run it again.")
        return 0
    try:
        open_model(spec)
    except ToolwrightError as error:
        print(f"The model cannot be used: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="toolwright-agent-") as desk:
        demo_turn.run(Console(), Path(desk), spec, PATIENCE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
