"""`toolwright chat`: a conversation with the model at the terminal."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import typer
from rich.text import Text

from toolwright.app import App
from toolwright.cli.commands.ask import choose_view, in_place, left_for_people, new_session, say_how_to_continue
from toolwright.cli.display.output import Screen, set_up_log
from toolwright.cli.display.styles import readable
from toolwright.cli.display.turn_views import TurnView
from toolwright.cli.exits import FAILED, SUCCEEDED, UNFINISHED, complain, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import load_app_with_model
from toolwright.cli.input.lines import Lines
from toolwright.cli.input.stores import named_store
from toolwright.cli.run_turns import TurnDesk, opened_for_turns
from toolwright.errors import TurnError
from toolwright.runtime.runtime import Runtime
from toolwright.session.session import Session
from toolwright.tools.turn_protocols import Budget

_PROMPT = "> "


def chat(
    app: options.AppName = None,
    tools: options.Tools = None,
    model: options.Model = None,
    db: options.KeptIn = None,
    session: options.Conversation = None,
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
    """Talk with the model: each line is a message, and its answer comes as it is written, with the calls of tools.

    Approvals are asked for in place. Ctrl-C cancels the turn that runs; at the prompt it ends the program, as Ctrl-D
    does. With --db the conversation is stored: --session continues it, with a turn that was cut off.

    Without a terminal, the lines of stdin are the messages, and the command ends with 1 if one was not answered. A turn
    that waits for a person is left in the store then, and the command ends with 5.
    """
    with reported(), ExitStack() as stack:
        set_up_log(verbose)
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
        store, id = named_store(db), session or new_session()
        view = choose_view(stack, as_json)
        talk = Talk(id, view, store, budget, in_place=in_place(as_json))
        try:
            asyncio.run(talk.run(used, events))
        finally:
            if store is not None and talk.used and not as_json:
                say_how_to_continue(id, store)
        if talk.left:
            raise typer.Exit(UNFINISHED)
        raise typer.Exit(SUCCEEDED if talk.all_answered or talk.in_place else FAILED)


class Talk:
    """One conversation: reads messages, and lets the model answer each."""

    def __init__(
        self, session: str, view: TurnView, store: str | None, budget: Budget | None, *, in_place: bool
    ) -> None:
        self._session = session
        self._view = view
        self._store = store
        self._budget = budget
        self.in_place = in_place
        """True when a person is at the terminal."""
        self.used = False
        self.all_answered = True
        self.left = False
        """True when a turn was left waiting for a person."""

    async def run(self, app: App, events: Path | None) -> None:
        """Talk until there are no more messages."""
        lines = Lines()
        async with opened_for_turns(app, self._store, decided_here=self.in_place, events_file=events) as runtime:
            session = runtime.session(self._session)
            decided_at, leave = lines if self.in_place else None, left_for_people(self._store)
            desk = TurnDesk(runtime, session.id, self._view, self._store, decided_at, leave)
            await self._continue(runtime, session, desk)
            while not desk.ended and not self.left:
                if self.in_place:
                    Screen().print(Text(_PROMPT, style="bold cyan"), end="")
                message = await lines.next()
                if message is None:
                    return
                if message.strip():
                    await self._answer(session, desk, message)

    async def _answer(self, session: Session, desk: TurnDesk, message: str) -> None:
        try:
            turn = await session.start_turn(message, budget=self._budget)
        except TurnError as error:
            complain(str(error), error.code)
            self.all_answered = False
            return
        self.used = True
        outcome = await desk.follow(turn)
        self.all_answered = self.all_answered and outcome.ok
        self.left = desk.left

    async def _continue(self, runtime: Runtime, session: Session, desk: TurnDesk) -> None:
        """Show where the conversation is, and finish the turns that were cut off."""
        cut_off = await runtime.recover_turns(session.id)
        before = await session.turns(limit=len(cut_off) + 1)
        self.used = bool(before)
        ended = [turn for turn in before if turn.ended_at is not None]
        if ended and self.in_place:
            for text in (f"{_PROMPT}{ended[0].message}", ended[0].text):
                Screen().print(Text(readable(text), style="dim"), soft_wrap=True)
        for turn in cut_off:
            if self.in_place:
                asked = (await turn.info()).message
                Screen().print(Text(readable(f"{_PROMPT}{asked}"), style="dim"), soft_wrap=True)
            self.all_answered = (await desk.follow(turn)).ok and self.all_answered
            self.left = self.left or desk.left
