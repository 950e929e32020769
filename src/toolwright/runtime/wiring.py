"""The parts of an opened runtime, wired in one function. Owns the references between parts; each part owns its work.

From below: the storage and the pools, the sessions over them, the background work over these, and the verbs of a
runtime. Nothing is assigned to a part after it was made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from toolwright.app_options import AppSettings, OpenOptions
from toolwright.background.background import Background
from toolwright.background.checks import limits_of
from toolwright.background.desk import Duty
from toolwright.background.handle import find_run
from toolwright.background.spawn import Runs
from toolwright.background.triggers import Triggers
from toolwright.calls.policy import Policy
from toolwright.calls.pools.process_pool import ProcessPool
from toolwright.calls.pools.thread_pool import ThreadPool
from toolwright.calls.record import MemoryCallLog
from toolwright.calls.schedule.admission import Limit
from toolwright.clock import Clock, Deadlines
from toolwright.drivers.contract import Driver
from toolwright.event_file import EventFile
from toolwright.runtime.agents import Agents
from toolwright.runtime.capabilities import Arranged, LateCapabilities
from toolwright.runtime.event_log import MOST, MemoryEventLog
from toolwright.runtime.late_recovery import LateRecovery
from toolwright.runtime.lifespan import LifespanTask
from toolwright.runtime.remote_tools import RemoteConnections
from toolwright.runtime.stores import Storage
from toolwright.schedules.firing import Scheduler
from toolwright.schedules.schedules import Schedules
from toolwright.session.archive.admin import Archives
from toolwright.session.core import BackgroundClients
from toolwright.session.inbox import Inbox
from toolwright.session.open_sessions import OpenSessions
from toolwright.session.parts import Lifetime, SharedParts, TurnDefaults
from toolwright.stores.contracts.event_log import EventLogStore
from toolwright.stores.contracts.sessions import Quotas
from toolwright.tools.model import HoldsConnections, ModelClient
from toolwright.tools.registry import ToolSource
from toolwright.tools.turn_protocols import Budget, ContextWindow
from toolwright.turns.memory_store import MemoryTurnStore
from toolwright.turns.turns import SessionTurnsClient, Turns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The parts of an opened runtime."""

    app: AppSettings
    arranged: Arranged
    late_capabilities: LateCapabilities
    lifespan: LifespanTask | None
    storage: Storage
    shared: SharedParts
    sessions: OpenSessions
    background: Background
    turns: Turns
    agents: Agents
    remote: RemoteConnections
    late_recovery: LateRecovery
    inbox: Inbox
    archives: Archives
    event_log: EventLogStore
    event_files: list[EventFile] = field(default_factory=list)
    closing: list[Callable[[], None]] = field(default_factory=list)
    """Called when everything else is closed."""


def wire(
    app: AppSettings,
    arranged: Arranged,
    options: OpenOptions,
    storage: Storage,
    clock: Clock,
    lifespan: LifespanTask | None,
    deps: object,
    driver: Driver,
) -> Parts:
    """Make the parts of a runtime, each with the parts that it uses."""
    policy, quotas, call_log = app.policy or Policy(), app.quotas or Quotas(), options.get("call_log")
    late = LateCapabilities(app, arranged.active)
    shared = SharedParts(
        lifetime=Lifetime(asyncio.get_running_loop()),
        tools=arranged.tools,
        late_capabilities=late.of,
        policy=policy,
        authority=policy.authority,
        quotas=quotas,
        clock=clock,
        call_log=MemoryCallLog() if call_log is None else call_log,
        model=_model(app.model),
        turn_defaults=TurnDefaults(
            budget=app.budget or Budget(),
            instructions=lambda: instructions(app, arranged, late, shared.tools),
            context=app.context or ContextWindow(),
        ),
        deps=deps,
        tracing=app.telemetry,
        effects=storage.effects,
        news=storage.news,
        new_journal=storage.new_journal,
        stores=storage.stores,
        forget_session=storage.forget_session,
        alone=storage.store is None,
        durable=storage.durable,
        vault=storage.vault,
        deadlines=Deadlines(clock),
        threads=ThreadPool(policy.runtime_concurrency),
        processes=ProcessPool(),
        limit=Limit("a slot of the runtime", policy.runtime_concurrency),
    )
    remote = RemoteConnections(clock, storage.durable)
    agents = Agents(
        app.lifespan,
        _model,
        lambda app, own, late: lambda: instructions(app, own, late, own.tools),
        lambda app, own: remote.open(app, own, sessions),
    )
    # Sessions start background work, which runs in sessions: each session is given its clients when it is opened.
    sessions = OpenSessions(
        shared,
        app.hooks.and_those_of(arranged.active),
        lambda: BackgroundClients(
            partial(Runs, background),
            partial(Schedules, background),
            partial(Triggers, background),
            partial(SessionTurnsClient, turns),
            turns.left_turn,
            agents.parts,
            turns.end_agents,
            lambda: inbox,
        ),
    )
    inbox = Inbox(shared, sessions)
    scheduler = Scheduler(lambda: storage.stores().schedules, limits_of(policy, quotas.resources, queue=True))
    in_memory = None if storage.durable else MemoryTurnStore(storage.memory.messages)
    turns = Turns(
        shared,
        lambda: sessions,
        lambda: storage.stores().turns if in_memory is None else in_memory,
        poke_worker=lambda begin: background.poke(begin),
        has_worker=lambda: background.worker is not None,
        note=lambda action, turn, session: background.note_turn(action, turn, session),
        are_brought=not driver.claims,
        told_woken=lambda turn: background.told_woken("turn", turn),
        told_cancelled=lambda turn, reason: background.told_cancelled("turn", turn, reason),
    )
    background = Background(
        shared,
        sessions,
        worker=options.get("worker"),
        duties=_duties(scheduler, turns, clock),
        driver=driver,
        cancel_run=lambda id, reason: _cancel_run(background, id, reason),
        next_duty=lambda: scheduler.next_at,
    )
    return Parts(
        app=app,
        arranged=arranged,
        late_capabilities=late,
        lifespan=lifespan,
        storage=storage,
        shared=shared,
        sessions=sessions,
        background=background,
        turns=turns,
        agents=agents,
        remote=remote,
        late_recovery=LateRecovery(shared.tools),
        inbox=inbox,
        archives=Archives(shared, sessions, in_memory),
        event_log=(
            shared.stores().events
            if storage.durable
            else MemoryEventLog(lambda: shared.events.subscribe(None, MOST), storage.memory.event_log)
        ),
    )


def _duties(scheduler: Scheduler, turns: Turns, clock: Clock) -> list[Duty]:
    """The work of a worker beside background runs, in the order in which it is looked for."""

    async def cancel_turn(id: str, reason: str) -> None:
        await (await turns.get(id)).cancel(reason)

    return [
        Duty(
            kind="schedule",
            take=scheduler.fire_due,
            waiting=scheduler.waiting,
            work=lambda id: scheduler.work(id, clock),
            cancel=lambda id, reason: scheduler.cancel(id),
        ),
        Duty(kind="turn", take=turns.take_free, waiting=turns.waiting, work=turns.bring, cancel=cancel_turn),
    ]


async def _cancel_run(background: Background, id: str, reason: str) -> None:
    await (await find_run(background, id)).cancel(reason)


def _model(given: str | ModelClient | None) -> ModelClient | None:
    """The model of an app; one that is named is opened by its provider. Its connections are kept until the closing."""
    if isinstance(given, str):
        from toolwright.providers import open_model

        given = open_model(given)
    if isinstance(given, HoldsConnections):
        given.hold()
    return given


def prompt_of(arranged: Arranged, late: LateCapabilities, tools: ToolSource) -> str:
    """The prompts of the active capabilities, those of tools that were registered since the opening included."""
    active = (*arranged.active, *late.of(tools.snapshot()))
    return "\n\n".join(one.prompt.strip() for one in active if one.prompt.strip())


def instructions(app: AppSettings, arranged: Arranged, late: LateCapabilities, tools: ToolSource) -> str:
    """What the model is told before every conversation: the owner's words, then the prompts of the capabilities."""
    return "\n\n".join(text for text in (app.instructions.strip(), prompt_of(arranged, late, tools)) if text)
