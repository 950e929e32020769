"""Temporal as a driver. Owns the workflows that it starts and tells, and the worker that Temporal brings work to.

A run, a turn or a schedule is a workflow, whose activity claims it in the store. Temporal brings it again, anywhere,
when the worker dies, stops or cannot do it. What of it is repeated is decided by the journal, and who may work on it by
the lease in the store: nothing depends on Temporal being right about either.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from datetime import timedelta
from typing import Any, cast

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from toolwright.clock import Clock
from toolwright.drivers.contract import Desk, HandedBack, Work, WorkKind
from toolwright.drivers.temporal.address import TemporalAddress
from toolwright.drivers.temporal.connection import TemporalConnection, away, not_served
from toolwright.drivers.temporal.workflows import CANCEL, FIRE, WORK, WORKFLOWS, Brought, Came
from toolwright.errors import DriverUnavailable, StoreError, ToolwrightError
from toolwright.log_fields import log_fields

log = logging.getLogger("toolwright.drivers")

LONGEST_ID = 300
"""Characters of an id that are part of a workflow's id; of a longer one it is a hash."""
LONGEST_SUMMARY = 200
"""Characters that a list of workflows shows of a title."""
TRY_AGAIN = 2.0
"""Seconds between two tries to reach a service that is away."""
MOST_LOOKED_AT = 10_000
"""Workflows that are remembered as those whose queue was looked at."""
CLOSING = 10.0
"""Seconds that the library gets to end, when all work is released."""
REPORT = timedelta(days=3_650)
"""How long activities may continue while the worker stops: the desk ends them, by its own grace."""


def workflow_id(store: str, kind: str, id: str) -> str:
    """The id of the workflow of some work: one for each in a store."""
    shown = id if len(id) <= LONGEST_ID else hashlib.sha256(id.encode()).hexdigest()
    return f"toolwright/{kind}/{shown}/{store}"


class TemporalDriver:
    """`Driver` by workflows of one namespace and one task queue."""

    claims = False

    def __init__(self, address: TemporalAddress, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._connection = TemporalConnection(address)
        self._desk: Desk | None = None
        self._serving: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._away = False
        self._looked_at: set[str] = set()
        self._other_queues: set[str] = set()

    def open(self, desk: Desk) -> None:
        self._desk = desk

    def serve(self) -> None:
        if self._serving is None:
            self._serving = asyncio.get_running_loop().create_task(self._serve())

    async def look(self) -> None:
        """Temporal brings work by itself."""

    async def offer(self, work: Work) -> None:
        store, client = self._store, await self._connection.client()
        # Without a signal: an offer that comes twice leaves no trace in the history of the workflow.
        signal = {"start_signal": "wake"} if work.begun else {}
        title = work.title if work.title != work.tool else ""
        summary = ": ".join(text for text in (work.tool, title) if text) or f"session {work.session}"
        try:
            handle = await client.start_workflow(
                f"toolwright.{work.kind}",
                Brought(work.kind, work.id, store, self._address.heartbeat, work.not_before),
                id=workflow_id(store, work.kind, work.id),
                task_queue=self._address.queue,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                memo={
                    "id": _cut(work.id),
                    "session": _cut(work.session),
                    "tool": _cut(work.tool),
                    "title": _cut(title),
                },
                static_summary=_cut(summary),
                **cast("dict[str, Any]", signal),
            )
            # The library shows it nowhere else.
            answer = getattr(handle, "_start_workflow_response", None)
            if answer is not None and not answer.started and handle.id not in self._looked_at:
                await self._look_at_queue(handle)
        except WorkflowAlreadyStartedError:
            pass
        except RPCError as error:
            raise away(self._address, error) from error

    async def _look_at_queue(self, handle: WorkflowHandle[Any, Any]) -> None:
        """Tell of a workflow that another process has put into another queue: no worker of this one gets it."""
        if len(self._looked_at) >= MOST_LOOKED_AT:
            self._looked_at.clear()
        self._looked_at.add(handle.id)
        queue = (await handle.describe()).task_queue
        if queue != self._address.queue and queue not in self._other_queues:
            self._other_queues.add(queue)
            log.warning(
                "Work of this store waits in the queue %r of Temporal, and this process uses %r; use one queue for all "
                "processes of a store, and terminate these workflows: their work is offered again",
                queue,
                self._address.queue,
                extra=log_fields("driver.other_queue"),
            )

    async def cancel(self, kind: WorkKind, id: str, reason: str) -> None:
        await self._tell(kind, id, "cancel")

    async def wake(self, kind: WorkKind, id: str) -> None:
        await self._tell(kind, id, "wake")

    async def _tell(self, kind: WorkKind, id: str, verb: str) -> None:
        client = await self._connection.client()
        handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(workflow_id(self._store, kind, id))
        try:
            await (handle.cancel() if verb == "cancel" else handle.signal("wake"))
        except RPCError as error:
            # It has ended, or was never offered: the store has all that there is to know.
            if error.status != RPCStatusCode.NOT_FOUND:
                raise away(self._address, error) from error

    def stop(self) -> None:
        self._stopped.set()

    async def close(self) -> None:
        self._stopped.set()
        if self._serving is not None:
            await asyncio.wait({self._serving}, timeout=CLOSING)
            if not self._serving.done():
                log.warning(
                    "Temporal does not release its worker, and brings its work to another one later",
                    extra=log_fields("driver.not_closed"),
                )
                self._serving.cancel()
                await asyncio.wait({self._serving}, timeout=CLOSING)

    # --- the worker that Temporal brings work to

    @property
    def _store(self) -> str:
        assert self._desk is not None
        return self._desk.store

    async def _serve(self) -> None:
        """Have a worker of the library as long as this is not stopped; a service that is away is waited for."""
        while not self._stopped.is_set():
            try:
                await self._serve_once()
            except (DriverUnavailable, RuntimeError) as error:
                fault = error if isinstance(error, DriverUnavailable) else not_served(self._address, error)
                level = logging.DEBUG if self._away else logging.WARNING
                log.log(level, "%s; it is tried until it does", fault, extra=log_fields("driver.unavailable"))
                self._away = True
            except Exception:  # the library: whatever it is, work must be brought again
                log.exception("The worker of Temporal ended, and is begun again", extra=log_fields("driver.failed"))
            if not self._stopped.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), TRY_AGAIN)

    async def _serve_once(self) -> None:
        desk = self._desk
        assert desk is not None
        client = await self._connection.client()
        self._away = False
        worker = Worker(
            client,
            task_queue=self._address.queue,
            workflows=list(WORKFLOWS),
            activities=[self._work, self._fire, self._cancelled],
            max_concurrent_activities=desk.capacity + 1,  # one for a run that a turn waits for
            max_heartbeat_throttle_interval=timedelta(seconds=self._address.heartbeat / 3),
            default_heartbeat_throttle_interval=timedelta(seconds=self._address.heartbeat / 3),
            graceful_shutdown_timeout=REPORT,
        )
        running = asyncio.ensure_future(worker.run())
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await worker.shutdown()
            await running
        finally:
            stopped.cancel()
            running.cancel()

    @activity.defn(name=WORK)
    async def _work(self, work: Brought) -> Came:
        self._require_store(work)
        desk = self._desk
        assert desk is not None
        doing = asyncio.ensure_future(desk.work(cast("WorkKind", work.kind), work.id))
        cancelled = False
        try:
            while not doing.done():
                try:
                    # Short work ends without a heartbeat, which is a write of the server.
                    await asyncio.wait({doing}, timeout=work.heartbeat / 4)
                    if not doing.done():
                        activity.heartbeat()
                except asyncio.CancelledError:
                    details = activity.cancellation_details()
                    if details is None or not details.cancel_requested or cancelled:
                        raise  # such as heartbeats that came too late: another worker watches this one's work
                    cancelled = True
                    await self._cancel_in_store(work)
            came = doing.result()
        except (HandedBack, StoreError) as error:
            raise _again(error) from None
        finally:
            doing.cancel()
        if cancelled and came.status == "cancelled":
            raise asyncio.CancelledError
        return Came(came.state, came.status, came.again_at)

    @activity.defn(name=FIRE)
    async def _fire(self, work: Brought) -> Came:
        self._require_store(work)
        desk = self._desk
        assert desk is not None
        try:
            came = await desk.work("schedule", work.id)
        except (HandedBack, StoreError) as error:
            raise _again(error) from None
        return Came(came.state, came.status, came.again_at)

    @activity.defn(name=CANCEL)
    async def _cancelled(self, work: Brought) -> None:
        self._require_store(work)
        await self._cancel_in_store(work)

    async def _cancel_in_store(self, work: Brought) -> None:
        desk = self._desk
        assert desk is not None
        try:
            await desk.cancel(cast("WorkKind", work.kind), work.id, "it was cancelled in Temporal")
        except StoreError as error:
            raise _again(error) from None
        except ToolwrightError as error:  # such as a run that was removed
            log.info("Nothing to cancel: %s", error, extra=log_fields("driver.nothing_to_cancel"))

    def _require_store(self, work: Brought) -> None:
        if work.store != self._store:
            raise ApplicationError(
                f"The {work.kind} {work.id!r:.200} is in another store than the one of this worker; give the "
                "workers of each store a queue of their own",
                type="toolwright.other_store",
            )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SUMMARY else f"{text[: LONGEST_SUMMARY - 1]}…"


def _again(error: ToolwrightError) -> ApplicationError:
    """The error that lets Temporal bring work again; its text is in the history, and short."""
    return ApplicationError(
        f"{error!s:.300}", type=f"toolwright.{type(error).__name__}", category=ApplicationErrorCategory.BENIGN
    )
