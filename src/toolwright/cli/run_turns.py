"""Running the turns of a command. Owns opening the runtime, Ctrl-C, and asking for approvals in place; does not own the
display."""

from __future__ import annotations

import asyncio
import getpass
import signal
import socket
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from toolwright.app import App
from toolwright.calls.policy import Policy
from toolwright.calls.suspend.approvals import Approval
from toolwright.calls.suspend.questions import Question
from toolwright.cli.display.output import Screen, echo
from toolwright.cli.display.styles import plain
from toolwright.cli.display.turn_views import TurnView
from toolwright.cli.exits import BadInput
from toolwright.cli.input.answer_in_place import ask_in_place
from toolwright.cli.input.decide_in_place import ask_person
from toolwright.cli.input.lines import Lines
from toolwright.cli.run_calls import end_what_waits, shown_command, told_wait
from toolwright.errors import KeyRefused
from toolwright.runtime.runtime import Runtime
from toolwright.stores.contracts.waits import INBOX
from toolwright.stores.opening import MEMORY
from toolwright.tools.turn_protocols import TurnClient, TurnEvent, TurnOutcome

_FRAME = 1 / 10
T = TypeVar("T")
Leave = Literal["never", "waiting for people", "waiting"]
"""Which turns a command does not wait for."""


@asynccontextmanager
async def opened_for_turns(
    app: App, store: str | None, *, decided_here: bool, events_file: Path | None = None
) -> AsyncIterator[Runtime]:
    """The app over a store, or in memory. In memory, waits that nobody can end are ended at once.

    Raises:
        BadInput: the events file cannot be written.
        StoreError: the store cannot be used.
    """
    if store is None and not decided_here:
        # No person could decide while the command waits: the call fails instead, and says how to let the tool run.
        app = app.but(policy=(app.policy or Policy()).but(on_ask="deny"))
    try:
        runtime = await app.open(store or MEMORY, events_file=events_file)
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(f"The events file {str(events_file)!r} cannot be written ({reason}); name another") from None
    ending: asyncio.Task[None] | None = None
    try:
        if store is None:
            events = runtime.subscribe()
            ending = asyncio.ensure_future(end_what_waits(events, runtime, decided_here=decided_here))
        yield runtime
    finally:
        if ending is not None:
            ending.cancel()
        await runtime.close()


@dataclass(slots=True)
class TurnDesk:
    """Follows turns of a session for the person, or the program, that runs the command."""

    runtime: Runtime
    session: str
    view: TurnView
    store: str | None = None
    lines: Lines | None = None
    """Where decisions are read from; None where nobody is there to decide."""
    leave: Leave = "never"
    """Which turns that wait are left in the store: none, those that wait for people, or all."""
    left: bool = False
    """True once a turn was left waiting."""
    interrupted: bool = False
    """True once a Ctrl-C has stopped a turn."""
    ended: bool = False
    """True when stdin has ended while a decision was asked for."""
    _told: set[tuple[str, str]] = field(default_factory=set)

    async def follow(self, turn: TurnClient) -> TurnOutcome:
        """Show a turn until it has ended, or is left waiting. The first Ctrl-C cancels it; the second ends the program.

        Raises:
            ToolwrightError: it cannot continue here.
        """
        moving = asyncio.ensure_future(self._move())
        try:
            with cancelled_by_ctrl_c(turn) as stop:
                async with aclosing(turn.follow()) as events:
                    async for event in events:
                        self.view.show(turn.id, event)
                        if event.kind in ("call.waiting", "turn.waiting", "agent.call.waiting"):
                            await self._see_to(event, stop)
                        self.left = await self._leaves(event)
                        if self.ended or self.left:
                            break
                outcome = await turn if self.ended or self.left else await turn.wait()
                self.interrupted = self.interrupted or stop.is_set()
        finally:
            moving.cancel()
        assert outcome is not None
        self.view.end(outcome)
        if self.left and self.leave == "waiting for people" and self.store is not None:
            command = shown_command("recover", self.store)
            echo(f"There is no terminal to decide at, so the turn is left; after the decision: {command}", err=True)
        return outcome

    async def _leaves(self, event: TurnEvent) -> bool:
        if event.kind != "turn.waiting" or self.leave == "never":
            return False
        if self.leave == "waiting":
            return True
        for wait in event.data.get("waits") or ():
            if wait["what"] in INBOX and wait["call_id"] in await self._asking(wait["session"]):
                return True
        return False

    async def _asking(self, session: str) -> set[str]:
        """The calls of a session that wait for a person now: of those in an event, some may have been decided since."""
        approvals = {request.call_id for request in await self.runtime.approvals(session)}
        return approvals | {question.call_id for question in await self.runtime.questions(session)}

    async def _move(self) -> None:
        while True:
            self.view.tick()
            await asyncio.sleep(_FRAME)

    async def _see_to(self, event: TurnEvent, stop: asyncio.Event) -> None:
        """Ask for the decisions that calls wait for, or say who can let them continue."""
        data = event.data
        if self.lines is not None:
            of_agent = event.kind == "agent.call.waiting"
            session = data["session"] if of_agent else self.session
            for request in await self.runtime.approvals(session):
                if not stop.is_set() and not self.ended:
                    await self._decide(request, self.lines, stop)
            for question in await self.runtime.questions(session):
                if not stop.is_set() and not self.ended:
                    await self._answer(question, self.lines, stop)
        elif event.kind == "turn.waiting":
            for wait in data.get("waits") or ():
                self._tell(wait["call_id"], wait["tool"], wait["what"])
        elif data["what"] != "sleep":
            self._tell(data["call_id"], data["tool"], data["what"], data.get("name") or "")

    def _tell(self, call_id: str, tool: str, what: str, name: str = "") -> None:
        if self.store is not None and (call_id, what) not in self._told:
            self._told.add((call_id, what))
            self.view.pause()
            echo(told_wait(call_id, tool, what, name, self.store), err=True)

    async def _asked(self, asking: Coroutine[Any, Any, T | None], screen: Screen, stop: asyncio.Event) -> T | None:
        """What the person says; None where Ctrl-C stopped the turn, or stdin has ended."""
        said = asyncio.ensure_future(asking)
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((said, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not said.done():
                said.cancel()
        if stop.is_set():
            screen.print()
            return None
        self.ended = said.result() is None
        return said.result()

    async def _answer(self, question: Question, lines: Lines, stop: asyncio.Event) -> None:
        self.view.pause()
        screen = Screen()
        reply = await self._asked(ask_in_place(question, screen, lines), screen, stop)
        if reply is None:
            return
        try:
            if reply.declined:
                stands = await self.runtime.decline(question.key, reply.reason, by=user_name(), via=this_terminal())
            else:
                stands = await self.runtime.answer(question.key, reply.value, by=user_name(), via=this_terminal())
        except KeyRefused as refused:  # such as a call that was finished meanwhile
            echo(str(refused), err=True)
            return
        if not stands.first:
            echo(plain(f"Somebody else was first: {question.call_id} has its answer ({stands.status})"), err=True)

    async def _decide(self, request: Approval, lines: Lines, stop: asyncio.Event) -> None:
        self.view.pause()
        screen = Screen()
        verdict = await self._asked(ask_person(request, screen, lines), screen, stop)
        if verdict is None:
            return
        try:
            if verdict.word == "deny":
                stands = await self.runtime.deny(
                    request.key, reason=verdict.reason, by=user_name(), via=this_terminal()
                )
            else:
                always: dict[str, Any] | None = {} if verdict.word == "always" else None
                stands = await self.runtime.approve(request.key, always=always, by=user_name(), via=this_terminal())
        except KeyRefused as refused:  # such as a call that was finished meanwhile
            echo(str(refused), err=True)
            return
        if not stands.first:
            echo(plain(f"Somebody else was first: {request.call_id} was decided already ({stands.status})"), err=True)


@contextmanager
def cancelled_by_ctrl_c(turn: TurnClient) -> Iterator[asyncio.Event]:
    """Let the first Ctrl-C cancel the turn instead of ending the program; yields an event that it sets."""
    stop = asyncio.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    loop, cancelling = asyncio.get_running_loop(), []
    before = signal.getsignal(signal.SIGINT)

    def cancel() -> None:
        stop.set()
        cancelling.append(asyncio.ensure_future(_cancel(turn)))

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        loop.call_soon_threadsafe(cancel)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


async def _cancel(turn: TurnClient) -> None:
    await turn.cancel("interrupted by Ctrl-C")


def user_name() -> str | None:
    """The name of the user who runs the command; None for one without a name, as in a container."""
    with suppress(OSError, KeyError):
        return plain(getpass.getuser())[:200] or None
    return None


def this_terminal() -> str:
    """From where somebody decides who uses a command: this machine."""
    return f"terminal of {plain(socket.gethostname())[:200] or 'this machine'}"
