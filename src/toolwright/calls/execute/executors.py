"""Where a tool's code runs when it is not the event loop. Owns starting it there and stopping it; not when to."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable
from typing import Any

from toolwright.calls.active_call import ActiveCall
from toolwright.calls.around import Around, InChild
from toolwright.calls.execute.cancel import start_time
from toolwright.calls.execute.enclose import attempt_of
from toolwright.calls.failures import NotBegun
from toolwright.calls.pools.process_messages import Key, Progress, Report, Status
from toolwright.calls.pools.process_pool import Child
from toolwright.calls.prepare.prepare import own_arguments
from toolwright.calls.suspend.context_services import ActiveCallServices, describe, make_context
from toolwright.calls.suspend.suspend import enter
from toolwright.crash_seams import crash_seams
from toolwright.errors import MachineError


class ThreadExecutor:
    """A sync tool on a thread. A thread can be asked to stop, through its context, but not made to."""

    def __init__(self, call: ActiveCall) -> None:
        self._call = call
        self._future: asyncio.Future[Any] | None = None
        self._after: Awaitable[Any] | None = None
        self._given_up = False
        self._begun = False

    async def run(self) -> object:
        call, plan = self._call, self._call.plan
        context = make_context(call) if plan.needs_context else None
        arguments = own_arguments(call, plan.tool) if plan.repeats else call.arguments or {}
        function = functools.partial(plan.invoke, arguments, context)
        self._future = call.env.threads.run(
            function, self._begins, beyond=call.ticket is not None and call.ticket.parent is not None
        )
        try:
            result = await self._future
        except MachineError as fault:
            if self._begun:  # it is the tool's own
                raise
            raise NotBegun(fault) from fault
        if inspect.isawaitable(result):
            self._after = result
            return await result
        return result

    def _begins(self) -> None:
        self._begun = True
        _code_begins(self._call)

    def stop(self) -> None:
        assert self._future is not None
        assert self._call.task is not None
        if self._after is not None or self._call.env.threads.withdraw(self._future):
            self._call.task.cancel()

    def abandon(self) -> bool:
        if self._after is None:
            self._given_up = True
            self._call.env.threads.give_up()
        return False

    def released(self) -> None:
        if self._given_up:
            self._call.env.threads.take_back()


class ChildProcessExecutor:
    """A tool in a process of its own, which can be killed."""

    def __init__(self, call: ActiveCall) -> None:
        self._call = call
        self._child: Child | None = None

    async def run(self) -> object:
        call, plan = self._call, self._call.plan
        described = None
        if plan.needs_context:
            suspension = enter(call)
            taken = suspension.key_taken  # by an earlier attempt
            described = describe(call) | {"completion_key": ActiveCallServices(call).wait_key("completion", "")}
            suspension.key_taken = taken  # else not until the child reports that the tool took it
        try:
            in_child = call.env.processes.run
            if crash_seams.tool_code is not None:  # Around the child: it is this process that is killed.
                in_child = crash_seams.tool_code(in_child, "async")
            around: tuple[Around, ...] = plan.around
            if call.span is not None and (inside := call.span.in_child()) is not None:
                around = (inside, *around)
            code = InChild(around, attempt_of(call), plan.invoke) if around else plan.invoke
            return await in_child(code, call.arguments or {}, described, self._hear, self._hold, name=call.name)
        except MachineError as fault:
            raise NotBegun(fault) from fault
        finally:
            self._child = None

    def stop(self) -> None:
        if self._child is not None:
            self._child.terminate()
        elif self._call.task is not None:
            self._call.task.cancel()  # The child is still starting.

    def abandon(self) -> bool:
        if self._child is None:
            return False
        self._child.kill()
        return True

    def released(self) -> None:
        pass

    def _hold(self, child: Child) -> None:
        self._child = child
        _code_begins(self._call)

    def _hear(self, message: Report) -> None:
        services = ActiveCallServices(self._call)
        if isinstance(message, Key):
            enter(self._call).key_taken = True
        elif isinstance(message, Progress):
            services.report_progress(message.current, message.total, message.label, message.unit)
        elif isinstance(message, Status):
            services.report_status(message.text)
        else:
            services.report_output(message.stream, message.text)


def _code_begins(call: ActiveCall) -> None:
    """The tool's code has its thread or process, and begins now: so does its time."""
    call.ran = True
    start_time(call)
