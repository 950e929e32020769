"""A session. Owns what it is made of and how it is set up; each of its parts has a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolwright.calls.authorise.loop_detection import LoopWatch
from toolwright.calls.batch import Batch
from toolwright.calls.context import BatchContext
from toolwright.calls.environment import CallEnvironment
from toolwright.calls.execute.execute import ActiveCall
from toolwright.calls.hooks import Hooks, Projector
from toolwright.calls.policy import Policy
from toolwright.calls.schedule.admission import Admission
from toolwright.calls.schedule.tickets import Limit
from toolwright.calls.suspend.suspend import enter
from toolwright.errors import ToolwrightError
from toolwright.event_bus import Subscription
from toolwright.session.background import Background
from toolwright.session.batches import Batching
from toolwright.session.children import SENDERS, ChildSession, child_id
from toolwright.session.connecting import Connecting
from toolwright.session.parts import Shared
from toolwright.session.read_only import ReadOnlySession
from toolwright.session.secrets.log_filter import unguard_logs
from toolwright.session.secrets.redactor import KnownSecrets
from toolwright.session.services.quotas import Marks
from toolwright.session.services.session_services import SessionServices
from toolwright.session.tool_catalogue import Offer
from toolwright.tools.capability import Capability
from toolwright.tools.outcome import encodable
from toolwright.tools.registry import ToolSource
from toolwright.tools.scopes import ScopedRegistry


def require_session_id(session_id: Any) -> None:
    """Refuse what cannot be the id of a session.

    Raises:
        ToolwrightError: it is not text, or has no form in UTF-8.
    """
    if not isinstance(session_id, str) or not session_id or encodable(session_id) != session_id:
        raise ToolwrightError(f"The session id {session_id!r:.200} is not usable; use non-empty text")


class Session(Batching, Background, Connecting):
    """One conversation's calls: they keep their order among each other, in and across batches."""

    def __init__(
        self, shared: Shared, session_id: str, policy: Policy, hooks: Hooks, tools: ToolSource | None = None
    ) -> None:
        self.id = session_id
        self.policy = policy
        self._restrictions: tuple[Policy, ...] = ()
        self._under: dict[int, tuple[tuple[Policy, ...], BatchContext]] = {}
        self.tools = ScopedRegistry(shared.tools if tools is None else tools)
        self._offer = Offer(policy.defer_tools_from, shared.late_capabilities)
        self._run_offer = Offer(policy.defer_tools_from, shared.late_capabilities)
        self._late: tuple[Capability, ...] = ()
        self._shared = shared
        self._hooks = hooks
        self._limit = Limit(f"a slot of session {session_id!r}", policy.session_concurrency)
        self._known = KnownSecrets(
            session_id, shared.vault, self._redact, shared.stores().secrets if shared.kept_before else None
        )
        self._host = CallEnvironment(
            session_id=session_id,
            clock=shared.clock,
            deadlines=shared.deadlines,
            channel=shared.hub.channel(session_id),
            threads=shared.threads,
            processes=shared.processes,
            limited_children=shared.limited_children,
            admission=Admission(shared.running),
            lingering=shared.lingering,
            tasks=shared.tasks,
            journal=shared.journal(),
            effects=shared.effects,
            connected_since=self._connected_since,
            services=self._call_services,
            save_output=self._keep_output,
            run_nested=self._run_nested,
            keeper=self._known,
            secret_names=self._secret_names,
            view=ReadOnlySession(self),
            know=self._know if shared.kept_before else None,
            open_child=self._open_child,
            model=shared.model,
            deps=shared.deps,
        )
        # Those of processes, each apart from the others; they redact what the session's own redacts.
        self._hosts: list[CallEnvironment] = [self._host]
        self._loops = LoopWatch()
        self._setting = self._make_setting(policy)
        self._batches: dict[Batch, None] = {}  # in the order they were started
        # Of background runs and what they call: nobody who waits for the session, or cancels it, means these.
        self._apart: dict[Batch, None] = {}

    def subscribe(self, *, limit: int = 10_000) -> Subscription:
        """Watch this session's events; close the subscription when done."""
        self._shared.require_open()
        return self._shared.hub.subscribe(self.id, limit)

    async def cancel_waits(self, reason: str = "the waits of the session were cancelled") -> int:
        """Cancel whatever the session's calls wait for outside, in every process; return how many waits there were."""
        self._shared.require_open()
        return await self._shared.effects.room.cancel_all(self.id, await self.redacted(reason), revoke=False)

    async def revoke(self, reason: str = "the session was revoked") -> int:
        """Cancel the waits of the session, and refuse its keys and waits from now on, for good.

        Nothing from outside reaches its calls any more. They still run, and may be started: `cancel` stops its batches,
        and the `cancel` of each run that run.
        """
        self._shared.require_open()
        return await self._shared.effects.room.cancel_all(self.id, await self.redacted(reason), revoke=True)

    def forget_calls(self) -> None:
        """Let calls that are over run again, where only this process remembers them."""
        self._host.journal.forget_finished()

    def set_up(self, policy: Policy, projector: Projector | None) -> None:
        """Be as whoever first asks for the session wants it; background runs that began before stay as they are."""
        self._limit = Limit(f"a slot of session {self.id!r}", policy.session_concurrency)
        if projector is not None:
            self._hooks = Hooks(self._hooks.before, self._hooks.after, projector)
        self.follow(policy)

    def follow(self, policy: Policy, restrictions: tuple[Policy, ...] = ()) -> None:
        """Continue under another policy, and the restrictions of whoever opened it; what runs keeps the old ones."""
        self.policy = policy
        self._restrictions = restrictions
        self._under.clear()
        self._setting = self._make_setting(policy)

    def child(self, session_id: str, policy: Policy) -> Session:
        """A session of its own that begins with the tools and hooks of this one."""
        return Session(self._shared, session_id, policy, self._hooks, self.tools)

    def _open_child(self, run: ActiveCall, name: str, guard: Callable[[Any], Any]) -> ChildSession:
        """The child session of a call, under the policy of its batch."""
        shared, call = self._shared, enter(run)
        known = run.opened.get(name)
        if known is None:
            id, setting = child_id(call, name, len(run.opened)), run.owner.context
            known = shared.open_child(self, id, run.owner.policy, setting.authority)
            run.opened = {**run.opened, name: known}
        stores, marks = shared.stores(), Marks(call, known.id)
        services = SessionServices(
            stores,
            known.id,
            marks,
            shared.clock,
            shared.quotas,
            run.owner.policy.grep_timeout,
            known._known,
            guard,
            known._catalogue,
            SENDERS,
        )
        return ChildSession(known, services)

    def close(self) -> None:
        """The runtime closes: nothing of the session is written to a log any more."""
        unguard_logs(self._known)
