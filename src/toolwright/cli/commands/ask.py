"""`toolwright ask`: one message to the model, and its answer."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from toolwright.app import App
from toolwright.cli.display.output import Screen, own_stdout, set_up_log
from toolwright.cli.display.turn_views import JsonView, LinesView, ScreenView, TurnView
from toolwright.cli.exits import FAILED, INTERRUPTED, SUCCEEDED, UNFINISHED, BadInput, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import load_app_with_model
from toolwright.cli.input.lines import Lines, read_text
from toolwright.cli.input.stores import named_store
from toolwright.cli.run_calls import shown_command
from toolwright.cli.run_turns import Leave, TurnDesk, opened_for_turns
from toolwright.ids import uuid7
from toolwright.tools.turn_protocols import Budget, TurnOutcome


def ask(
    message: Annotated[str, typer.Argument(metavar="MESSAGE|-", help="The message to the model; - reads stdin.")],
    app: options.AppName = None,
    tools: options.Tools = None,
    model: options.Model = None,
    db: options.KeptIn = None,
    session: options.Conversation = None,
    turn_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="An id for the turn: with a store, asking again with it is the same turn."
        ),
    ] = None,
    wait: Annotated[
        bool | None,
        typer.Option(
            "--wait/--no-wait",
            help="Wait with a turn that waits for something outside, or leave it in the store and end with 5. By "
            "default it waits, but without a terminal not for a person.",
            show_default=False,
        ),
    ] = None,
    as_json: options.JsonLines = False,
    budget_model_calls: options.BudgetModelCalls = None,
    budget_tool_calls: options.BudgetToolCalls = None,
    budget_tokens: options.BudgetTokens = None,
    budget_cost: options.BudgetCost = None,
    budget_seconds: options.BudgetSeconds = None,
    timeout: options.Timeout = None,
    read_only: options.ReadOnly = False,
    approve: options.Approve = None,
    spill_dir: options.SpillDir = None,
    events: options.Events = None,
    verbose: options.Verbose = False,
) -> None:
    """Send a message to the model, run the tools that it calls, and print its answer as it comes.

    The answer goes to stdout; the calls, and how the turn ended, to stderr. On a terminal, approvals are asked for in
    place; without one, a turn that waits for a person is left in the store, and the command ends with 5. Ctrl-C cancels
    the turn.

    With --db the turn is durable: killed anywhere, it continues by `toolwright recover`, by a worker, or with the next
    message of its session.
    """
    with reported(), ExitStack() as stack:
        set_up_log(verbose)
        text = read_text() if message == "-" else as_text(message)
        used = options.with_policy(
            load_app_with_model(app, tools, model),
            timeout=timeout,
            read_only=read_only,
            approve=approve,
            spill_dir=spill_dir,
        )
        budget = options.read_budget(
            used,
            model_calls=budget_model_calls,
            tool_calls=budget_tool_calls,
            tokens=budget_tokens,
            cost=budget_cost,
            seconds=budget_seconds,
        )
        store = named_store(db)
        if wait is False and store is None:
            raise BadInput("--no-wait leaves a turn in its store, and there is none; name one with --db FILE")
        view = choose_view(stack, as_json)
        lines = None if wait is False or not in_place(as_json) else Lines()
        leave: Leave = "never" if wait else "waiting" if wait is False else left_for_people(store)
        asking = _ask(used, text, budget, turn_id, store, session, view, lines, leave, events)
        outcome, interrupted = asyncio.run(asking)
        if store is not None and not as_json and outcome.status != "waiting":
            say_how_to_continue(outcome.session, store)
        raise typer.Exit(INTERRUPTED if interrupted else exit_code_of(outcome))


def choose_view(stack: ExitStack, as_json: bool) -> TurnView:
    """The view for the output of the command; until the stack is closed, other output goes to stderr in a pipe."""
    screen = Screen()
    if screen.is_terminal and not as_json:
        return ScreenView(screen)
    out = stack.enter_context(own_stdout())
    return JsonView(out) if as_json else LinesView(out)


def in_place(as_json: bool) -> bool:
    """True when a person is at the terminal to decide about approvals."""
    return not as_json and sys.stdin.isatty() and sys.stdout.isatty()


def left_for_people(store: str | None) -> Leave:
    """Without a terminal nobody answers here: a turn that waits for a person is left to the next command."""
    return "never" if store is None or sys.stdin.isatty() else "waiting for people"


def as_text(word: str) -> str:
    """A word of the command line as text in UTF-8; what is not UTF-8 in it is replaced."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def new_session() -> str:
    """The id of a new conversation."""
    return f"chat-{uuid7()[-12:]}"


def say_how_to_continue(session: str, store: str) -> None:
    """Print to stderr how the conversation is continued."""
    command = shown_command("chat", store, "--session", session)
    Screen(stderr=True).print(f"Continue with: {command}", style="dim", soft_wrap=True, highlight=False)


def exit_code_of(outcome: TurnOutcome) -> int:
    """The exit code for the outcome of a turn."""
    if outcome.status == "waiting":
        return UNFINISHED
    return SUCCEEDED if outcome.ok else FAILED


async def _ask(
    app: App,
    text: str,
    budget: Budget | None,
    turn_id: str | None,
    store: str | None,
    session: str | None,
    view: TurnView,
    lines: Lines | None,
    leave: Leave,
    events: Path | None,
) -> tuple[TurnOutcome, bool]:
    async with opened_for_turns(app, store, decided_here=lines is not None, events_file=events) as runtime:
        opened = runtime.session(session or new_session())
        desk = TurnDesk(runtime, opened.id, view, store, lines, leave)
        outcome = await desk.follow(await opened.start_turn(text, budget=budget, id=turn_id))
        return outcome, desk.interrupted
