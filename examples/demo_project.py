"""The demo's third act: the tools in the box, over a small project that lies in the session's files.

Three answers that a model might give, as three batches: it looks around, it mends what it found, and it goes too far.
Nothing here touches the disk but the session's own store.
"""

import base64
import hashlib
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolwright import Policy, Rule, Runtime, ToolCall, ToolContext, ToolOutcome, tool
from toolwright.cli.display.styles import look_of
from toolwright.event_bus import Subscription
from toolwright.events import CallOutput

TAX = """\
RATE = 0.91  # 19 %


def gross(net: float) -> float:
    return round(net * (1 + RATE), 2)
"""
PROJECT = {
    "/till/orders.csv": "tea,3,4.20\nmilk,2,1.10\nbread,1,3.60\n",
    "/till/receipt.py": "from till.tax import RATE, gross\n\n\ndef line(item: str, net: float) -> str:\n"
    '    return f"{item:<10}{gross(net):>8.2f}  ({RATE:.0%} tax)"\n',
    "/till/tax.py": TAX,
}
READ = hashlib.sha256(TAX.encode()).hexdigest()
"""The hash of the file as read_file gives it, by which an edit says what it expects."""
TOKEN = "till-7Qz/4f+Wx2m9"

TOTAL = """\
total() {
  rate=$(sed -n 's/^RATE = \\([0-9.]*\\).*/\\1/p' till/tax.py)
  awk -F, -vrate="$rate" '{ net += $2 * $3 } END { print net, net * (1 + rate) }' till/orders.csv
}
total
"""
LOOK = [
    ToolCall(id="look-1", name="list_directory", arguments={"path": "/till"}),
    ToolCall(id="look-2", name="grep_files", arguments={"pattern": r"\bRATE\b", "path": "/till"}),
    ToolCall(id="look-3", name="read_file", arguments={"path": "/till/tax.py"}),
    ToolCall(id="look-4", name="bash", arguments={"command": TOTAL}),
]
MEND = [
    ToolCall(
        id="mend-1",
        name="edit_file",
        arguments={
            "path": "/till/tax.py",
            "edits": [{"old_text": "0.91", "new_text": "0.19"}],
            "expected_hash": READ,
        },
    ),
    ToolCall(
        id="mend-2",
        name="edit_file",
        arguments={
            "path": "/till/tax.py",
            "edits": [{"old_text": "RATE", "new_text": "TAX", "replace_all": True}],
            "expected_hash": READ,
        },
    ),
    ToolCall(id="mend-3", name="bash", arguments={"command": "total | tee till/total.txt"}),
]
GO_TOO_FAR = [
    ToolCall(id="far-1", name="publish", arguments={"path": "/till/total.txt"}),
    ToolCall(
        id="far-2",
        name="bash",
        arguments={"command": "find till -type f -exec sh -c 'r\\m \"$1\"' _ {} \\;"},
    ),
]


@tool(reads="path")
async def publish(ctx: ToolContext, path: str) -> str:
    """Show a file to the shop, with a token that no model sees. Like many a tool, it prints more than it should."""
    token = await ctx.secrets.get("till") or ""
    half = len(token) // 2
    await ctx.output("stdout", f"> Bearer {token[:half]}")
    await ctx.output("stdout", f"{token[half:]}\n")
    basic = base64.b64encode(f"till:{token}".encode()).decode()
    return f"sent {(await ctx.files.read(path)).strip()!r} with Basic {basic}"


async def run(console: Console, desk: Path) -> None:
    """Run the act, and print what each call asked for and what became of it."""
    console.print("\n[bold]Third act: the tools in the box, over a project in the session's files[/]")
    console.print(
        f"{len(PROJECT)} files, a token among the session's secrets, and a rule: no script may run rm. "
        "All of it is in the session's store, and nothing else of the machine can be reached.",
        highlight=False,
    )
    rule = Rule("deny", "bash", commands=["rm"], name="no rm")
    opening = Runtime.open(
        desk / "till.db",
        tools=[publish],
        capabilities=["virtual_bash"],
        policy=Policy(rules=[rule]),
        events_file=desk / "till.jsonl",
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True, header_style="bold")
    table.add_column("what the model calls", ratio=4, overflow="fold")
    table.add_column("what it reads", ratio=5, overflow="fold")
    async with opening as runtime:
        session = runtime.session("till")
        for path, content in PROJECT.items():
            await session.files.write(path, content)
        await session.secrets.set("till", TOKEN)
        events = session.subscribe()
        shown = ""
        for calls in (LOOK, MEND, GO_TOO_FAR):
            outcomes = await session.run_batch(calls)
            said = live_output(events)
            for call, outcome in zip(calls, outcomes, strict=True):
                table.add_row(asked(call), answered(outcome, said.get(call.id or "", "")))
            table.add_section()
            shown += repr(outcomes) + repr(said)
        shown += repr(list(runtime.log))
    console.print(table)
    console.print(verdict(shown.encode(), desk), highlight=False)


def live_output(events: Subscription) -> dict[str, str]:
    """What the calls of a batch printed while they ran, by call."""
    said: dict[str, str] = {}
    while (event := events.take()) is not None:
        if isinstance(event, CallOutput):
            said[event.call_id] = said.get(event.call_id, "") + event.text
    return said


def asked(call: ToolCall) -> Text:
    """A call as a person would write it down."""
    given = dict(call.arguments) if isinstance(call.arguments, dict) else {}
    expected = given.pop("expected_hash", None)
    lines = [str(given.pop(name)) for name in ("command", "pattern", "path") if name in given]
    lines += [f"{edit['old_text']} → {edit['new_text']}" for edit in given.pop("edits", [])]
    lines += [f"if its hash is {expected[:8]}…"] if expected else []
    return Text.assemble((call.name, "cyan"), "\n", "\n".join(lines).rstrip())


def answered(outcome: ToolOutcome, said: str) -> Text:
    """What a model reads of an outcome, the part that matters; and what watchers saw before, if it was printed live."""
    look = look_of(outcome.status)
    text = Text.assemble((look.sign, look.style), " ")
    if outcome.failure is not None:
        return text.append(outcome.failure.message)
    value = outcome.value
    if outcome.tool == "list_directory":
        return text.append("\n  ".join(f"{entry['name']:<12}{entry['size']:>5} B" for entry in value["entries"]))
    if outcome.tool == "grep_files":
        found = (f"{match['path']}:{match['line']}: {match['text'].strip()}" for match in value["matches"])
        return text.append("\n  ".join(found))
    if outcome.tool == "read_file":
        lines = [line.replace("\t", "  ").removeprefix("    ") for line in value["content"].splitlines()]
        return text.append(f"hash {value['hash'][:8]}…\n" + "\n".join(lines))
    if outcome.tool == "edit_file":
        text.append(f"hash {value['hash'][:8]}…")
        for line in value["diff"].splitlines()[2:]:
            text.append(f"\n{line}", style={"+": "green", "-": "red", "@": "dim"}.get(line[:1], ""))
        return text
    if outcome.tool == "bash":
        return text.append(value["stdout"].strip())
    return text.append(f"{outcome.text}\n").append(f"live: {said.strip()}", style="dim")


def verdict(shown: bytes, desk: Path) -> str:
    """Where the token is found, plain or in base64: in what was shown, or in a file that the act wrote."""
    files = [path for path in sorted(desk.glob("till*")) if path.suffix != ".key"]
    texts = {"what was shown": shown, **{path.name: path.read_bytes() for path in files}}
    forms = (TOKEN.encode(), base64.b64encode(f"till:{TOKEN}".encode()))
    found = [name for name, data in texts.items() if any(form in data for form in forms)]
    return (
        "The edit that expected the file as it had been was refused, and so was rm, wherever the script hid it. "
        f"The token was looked for in every outcome, record and event and in {', '.join(path.name for path in files)}: "
        + (f"[bold red]it is in {', '.join(found)}[/]" if found else "[bold]it is nowhere[/].")
    )
