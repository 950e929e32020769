"""The program of the demo's fifth act: an agent that mends a small project with the built-in tools.

`demo_turn.py` starts it twice, on the same directory. As `run` it is killed in the middle of its turn, by a tool that
it calls. As `again` it opens what is left: asking with the same id continues the turn. Each request to the model and
each receipt adds a line to a ledger, a plain file that the store knows nothing of.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from demo_project import PROJECT, READ, TOTAL
from toolwright import App, Budget, ToolCall, ToolContext, tool
from toolwright.testing import ScriptedModel
from toolwright.tools.model import ModelAnswer, ModelRequest

TASK = (
    "The till in /till computes a wrong tax: 19 % is meant. Find the mistake and mend it, write the net and the gross "
    "total of the orders to /till/total.txt, and print a receipt for each order."
)
SCRIPTED = "scripted"
ITEMS = ("tea", "milk", "bread")
ANSWERS: list[str | list[ToolCall]] = [
    [
        ToolCall(id="look-1", name="list_directory", arguments={"path": "/till"}),
        ToolCall(id="look-2", name="read_file", arguments={"path": "/till/tax.py"}),
        ToolCall(id="look-3", name="bash", arguments={"command": TOTAL}),
    ],
    [
        ToolCall(
            id="mend-1",
            name="edit_file",
            arguments={
                "path": "/till/tax.py",
                "edits": [{"old_text": "0.91", "new_text": "0.19"}],
                "expected_hash": READ,
            },
        ),
        ToolCall(id="mend-2", name="bash", arguments={"command": "total | tee till/total.txt"}),
    ],
    [ToolCall(id=f"print-{item}", name="print_receipt", arguments={"item": item}) for item in ITEMS],
    "The rate was 0.91 in place of 0.19; it is mended, the total is in /till/total.txt, and the receipts are printed.",
]
MODE, DESK, MODEL = sys.argv[1], Path(sys.argv[2]), sys.argv[3]


def note(line: str) -> None:
    """Write down an effect at the moment it happens."""
    with (DESK / "turn-ledger.txt").open("a") as ledger:
        ledger.write(f"{line}\n")


def printed() -> int:
    """How many receipts the ledger has."""
    ledger = DESK / "turn-ledger.txt"
    return ledger.read_text().count("receipt: ") if ledger.exists() else 0


@tool(key="printer", on_crash="rerun")
async def print_receipt(ctx: ToolContext, item: str) -> str:
    """Print a receipt for an item of the orders, on paper: one at a time."""
    if MODE == "run" and printed() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    await ctx.step("print", lambda: note(f"receipt: {item}"))
    return f"a receipt for {item} is printed"


class NotedModel(ScriptedModel):
    """A script that writes down each request, as a provider would put it on the bill."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """The next answer of the script."""
        note(f"model: answer {request.number + 1}")
        return await super().complete(request)


app = App(
    tools=[print_receipt],
    capabilities=["virtual_bash"],
    model=NotedModel(ANSWERS) if MODEL == SCRIPTED else MODEL,
    instructions="You mend small programs with the tools that you have. Change nothing but what is wrong.",
    budget=Budget(model_calls=25),
)


async def main() -> None:
    """Ask for the task, or continue it, and say how it ended."""
    async with app.open(DESK / "turn.db") as runtime:
        session = runtime.session("till")
        if MODE == "run":
            for path, content in PROJECT.items():
                await session.files.write(path, content)
        turn = await session.start_turn(TASK, id="mend the till")
        outcome = await turn
    said = {
        "status": outcome.status,
        "text": outcome.text or outcome.reason,
        "model_calls": outcome.model_calls,
        "calls": [f"{call.tool} {call.status}" for call in outcome.calls],
    }
    print(json.dumps(said))


if __name__ == "__main__":
    asyncio.run(main())
