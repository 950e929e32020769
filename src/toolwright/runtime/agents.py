"""Apps that run as sub-agents inside an opened app. Owns their parts, and their lifespans in this process.

A sub-agent has the tools, hooks, instructions and budget of its own app. It uses the store, the pools and the limits of
the runtime that it runs in, and the model, the dependencies and the policy of its caller where its app has none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

from toolwright.app_options import AppSettings, Lifespan
from toolwright.calls.environment import NO_LIFESPAN
from toolwright.errors import ToolwrightError, TurnError
from toolwright.log_fields import log_fields
from toolwright.runtime.capabilities import Arranged, LateCapabilities, arrange
from toolwright.runtime.lifespan import LifespanTask
from toolwright.session.core import AgentParts
from toolwright.session.parts import SharedParts, TurnDefaults
from toolwright.tools.context import ToolContext
from toolwright.tools.definition import NO_TIMEOUT
from toolwright.tools.model import HoldsConnections, ModelClient
from toolwright.tools.options import ToolOptions
from toolwright.tools.outcome import ToolError
from toolwright.tools.tool import Tool
from toolwright.tools.turn_protocols import Budget, ContextWindow, TurnOutcome

log = logging.getLogger("toolwright.runtime")

LONGEST_TEXT = 2_000
"""Characters of the last words of a sub-agent that programs find in the failure of its call."""
MakeInstructions = Callable[[AppSettings, Any, LateCapabilities], Callable[[], str]]
OpenModel = Callable[[Any], ModelClient | None]

INPUT = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "The task, with all that is needed for it."}},
    "required": ["message"],
    "additionalProperties": False,
}


def agent_tool(app: AppSettings, name: str, description: str, budget: Budget | None, options: ToolOptions) -> Tool:
    """The tool whose calls run an app as a sub-agent.

    Raises:
        ToolDefinitionError: the name or an option is not usable.
        CapabilityError: a capability of the app cannot be used.
    """
    if budget is not None and not isinstance(budget, Budget):
        raise ToolwrightError(f"budget={budget!r:.200} is not usable; use Budget(...)")

    async def ask(arguments: Any, ctx: ToolContext) -> str:
        try:
            outcome = await ctx._services.ask_agent(app, arguments["message"], {"budget": budget})
        except TurnError as error:
            raise ToolError(f"The agent {name!r} cannot run: {error}", code=error.code) from error
        if outcome.status != "answered":
            raise _failed(name, outcome)
        return outcome.text

    needs = {need for tool in arrange(app).tools.snapshot().values() for need in tool.needs}
    needs -= {"model"} if app.model is not None else set()
    needs -= {"deps"} if app.lifespan is not None else set()
    given: ToolOptions = {"id": f"agent.{name}", "on_crash": "rerun", "timeout": NO_TIMEOUT, "needs": sorted(needs)}
    if not options.keys() & {"parallel", "exclusive", "key", "reads", "writes"}:
        given["parallel"] = True
    return Tool.from_schema(
        name=name,
        description=description or f"Give a task to the agent {name!r}, which works on its own, and get its answer.",
        input_schema=INPUT,
        handler=ask,
        **cast("ToolOptions", {**given, **options}),
    )


def _failed(name: str, outcome: TurnOutcome) -> ToolError:
    """The failure of a call whose sub-agent did not answer."""
    if outcome.status == "out_of_budget":
        return ToolError(
            f"The agent {name!r} did not finish: {outcome.reason}",
            category="resource_limit",
            code="out_of_budget",
            data={"limit": outcome.limit, "text": outcome.text[:LONGEST_TEXT]},
        )
    return ToolError(
        f"The agent {name!r} did not answer: {outcome.reason or outcome.status}",
        category="external" if outcome.status == "failed" else "interrupted",
        code=outcome.code or outcome.status,
    )


class Agents:
    """The sub-agents of a runtime, each made when it is first called."""

    def __init__(
        self,
        lifespan: Lifespan | None,
        open_model: OpenModel,
        instructions: MakeInstructions,
        open_remote: Callable[[AppSettings, Arranged], Awaitable[None]],
    ) -> None:
        self._lifespan = lifespan
        self._open_model = open_model
        self._instructions = instructions
        self._open_remote = open_remote
        self._made: dict[tuple[int, int], tuple[AppSettings, SharedParts, AgentParts]] = {}
        self._lifespans: dict[Lifespan, tuple[LifespanTask, Any]] = {}
        self._opening = asyncio.Lock()

    async def parts(self, app: AppSettings, caller: SharedParts) -> AgentParts:
        """The parts of an app that runs as the sub-agent of a session with these shared parts."""
        found = self._made.get((id(app), id(caller)))
        if found is None:
            deps = await self._deps(app, caller)
            async with self._opening:  # the remote tools of an app are opened once
                found = self._made.get((id(app), id(caller)))
                if found is None:
                    arranged = arrange(app)
                    await self._open_remote(app, arranged)
                    found = self._make(app, arranged, caller, deps)
        return found[2]

    def _make(
        self, app: AppSettings, arranged: Arranged, caller: SharedParts, deps: object
    ) -> tuple[AppSettings, SharedParts, AgentParts]:
        late = LateCapabilities(app, arranged.active)
        policy = app.policy or caller.policy
        own = self._open_model(app.model)
        shared = replace(
            caller,
            late_capabilities=late.of,
            policy=policy,
            authority=policy.authority,
            quotas=app.quotas or caller.quotas,
            model=own or caller.model,
            turn_defaults=TurnDefaults(
                budget=app.budget or Budget(),
                instructions=self._instructions(app, arranged, late),
                context=app.context or (ContextWindow() if own is not None else caller.turn_defaults.context),
                model=own,
            ),
            deps=deps,
        )
        parts = AgentParts(shared, arranged.tools, app.hooks.and_those_of(arranged.active), app.policy)
        made = self._made[id(app), id(caller)] = app, caller, parts  # holding both keeps their ids theirs
        return made

    async def _deps(self, app: AppSettings, caller: SharedParts) -> object:
        lifespan = app.lifespan
        if lifespan is None or lifespan is self._lifespan:
            return caller.deps if lifespan is None or caller.deps is not NO_LIFESPAN else NO_LIFESPAN
        async with self._opening:
            if lifespan not in self._lifespans:
                task = LifespanTask(lifespan)
                self._lifespans[lifespan] = task, await task.enter()
            return self._lifespans[lifespan][1]

    async def close(self) -> None:
        """Release their models, and leave their lifespans, the newest first. An error of one is logged."""
        for _, _, parts in self._made.values():
            await release_model(parts.shared.turn_defaults.model)
        for task, _ in reversed(self._lifespans.values()):
            try:
                await task.exit()
            except Exception:
                log.exception("The lifespan of a sub-agent failed at its end", extra=log_fields("lifespan.failed"))
        self._lifespans.clear()


async def release_model(model: ModelClient | None) -> None:
    """Close the connections of a model, if it holds some. An error of it is logged: the rest is closed all the same."""
    if isinstance(model, HoldsConnections):
        try:
            await model.release()
        except Exception:
            log.exception("The connections of a model could not be closed", extra=log_fields("model.not_released"))
