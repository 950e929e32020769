"""The sessions that are open in this process. Owns that each id has one, by whichever way it is first used."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakSet, WeakValueDictionary

from toolwright.calls.hooks import Hooks, Projector
from toolwright.calls.policy import Policy
from toolwright.calls.redactor import Redactor
from toolwright.errors import ToolwrightError
from toolwright.session.core import AgentParts, BackgroundClients, SessionCore
from toolwright.session.parts import SharedParts
from toolwright.session.session import Session
from toolwright.tools.outcome import encodable
from toolwright.tools.registry import ToolSource
from toolwright.tools.tool import Tool


def require_session_id(session_id: object) -> None:
    """Refuse a value that cannot be the id of a session.

    Raises:
        ToolwrightError: it is not text, or has no form in UTF-8.
    """
    if not isinstance(session_id, str) or not session_id or encodable(session_id) != session_id:
        raise ToolwrightError(
            f"The session id {session_id!r:.200} is not usable; use text that is not empty and has a form in UTF-8"
        )


class OpenSessions:
    """The sessions of a runtime.

    A session is opened by the program, by a background run of it, or by a call that opens a child session. The program
    may still give tools and a policy to a session that only background runs have used.
    """

    def __init__(self, shared: SharedParts, hooks: Hooks, background: Callable[[], BackgroundClients]) -> None:
        self._shared = shared
        self._hooks = hooks
        self._background = background
        self._cores: dict[str, SessionCore] = {}
        self._sessions: dict[str, Session] = {}
        self._only_runs: WeakSet[SessionCore] = WeakSet()  # sessions that only background runs have used
        # Child sessions live as long as their calls, or another reference to one.
        self._children: WeakValueDictionary[str, SessionCore] = WeakValueDictionary()
        # Sessions that others may still hold, for whom each stays the same.
        self._held_cores: WeakValueDictionary[str, SessionCore] = WeakValueDictionary()
        self._held_sessions: WeakValueDictionary[str, Session] = WeakValueDictionary()

    def session(
        self,
        session_id: str,
        tools: ToolSource | None = None,
        policy: Policy | None = None,
        projector: Projector | None = None,
    ) -> Session:
        """The session of an id, for the program; it is opened if it is not yet."""
        core = self.open(session_id, tools, policy, projector)
        session = self._sessions.get(session_id) or self._held_sessions.get(session_id)
        self._sessions[session_id] = session = Session(core) if session is None else session
        return session

    def open(
        self,
        session_id: str,
        tools: ToolSource | None = None,
        policy: Policy | None = None,
        projector: Projector | None = None,
    ) -> SessionCore:
        """The inside of the session of an id, which the program opens."""
        core = self._find(session_id)
        if core is None:
            core = self._make(session_id, policy or self._shared.policy, self._hooks.with_projector(projector))
        elif tools is not None or policy is not None or projector is not None:
            if core not in self._only_runs:
                raise ToolwrightError(
                    f"The session {session_id!r} is open already; give its tools and its policy when it is first made"
                )
            core.set_up(policy or core.policy, projector)
        if tools is not None:
            core.tools.push(tools)
        self._only_runs.discard(core)
        self._cores[session_id] = core
        return core

    def core(self, session_id: str) -> SessionCore:
        """The inside of the session of an id, for its background runs; it is opened if it is not yet."""
        core = self._cores.get(session_id)
        if core is None:
            self._shared.lifetime.require_open()
            require_session_id(session_id)
            core = self._children.get(session_id) or self._held_cores.get(session_id)
            if core is None:
                core = self._make(session_id, self._shared.policy, self._hooks)
                self._only_runs.add(core)
            elif session_id in self._children:
                self._only_runs.add(core)
            self._cores[session_id] = core
        return core

    def leave(self, core: SessionCore) -> None:
        """Work on a session has ended here. One that the program did not open need not stay in memory: a worker comes
        to very many."""
        if core in self._only_runs:
            self.hold_weakly(core)

    def hold_weakly(self, core: SessionCore) -> None:
        """Hold a session only as long as other code does, if all that it has is in the store. It is opened again by its
        id."""
        id = core.id
        if self._cores.get(id) is not core or core.hooks is not self._hooks or not core.is_plain:
            return
        del self._cores[id]
        self._held_cores[id] = core
        session = self._sessions.pop(id, None)
        if session is not None:
            self._held_sessions[id] = session

    def leave_idle(self, session_id: str) -> bool:
        """The same for the session of an id; False where it must stay in memory for now."""
        core = self._cores.get(session_id)
        if core is not None:
            self.hold_weakly(core)
        return session_id not in self._cores

    def get(self, session_id: str) -> SessionCore | None:
        """The inside of a session that is open, child sessions excepted."""
        return self._cores.get(session_id) or self._held_cores.get(session_id)

    def forget(self, session_id: str) -> None:
        """Forget a session: its policy, its own tools, and its calls that only this process remembers."""
        self._cores.pop(session_id, None)
        self._held_cores.pop(session_id, None)
        self._held_sessions.pop(session_id, None)
        self._sessions.pop(session_id, None)

    def all(self) -> set[SessionCore]:
        """Every session that is open, child sessions among them."""
        return {*self._cores.values(), *self._children.values(), *self._held_cores.values()}

    def tool(self, session_id: str, name: str) -> Tool | None:
        """The tool that the session of an id has here under a name."""
        core = self._find(session_id)
        return (self._shared.tools if core is None else core.tools).snapshot().get(name)

    def tool_names(self) -> list[str]:
        """The names of the tools that background runs can use here."""
        names = set(self._shared.tools.snapshot())
        if not self._shared.durable:
            for core in self._cores.values():
                names.update(core.tools.snapshot())
        return sorted(names)

    async def redacted(self, session_id: str, text: str, what: str = "reason") -> str:
        """A text that somebody outside wrote about a session, without the secrets of that session; `what` names it in
        an error."""
        core = self._children.get(session_id) or self.core(session_id)
        try:
            return await core.redacted(text, what)
        finally:
            self.leave(core)

    async def redactor(self, session_id: str) -> Redactor | None:
        """Removes the secrets of a session from values; None where it has none."""
        core = self._children.get(session_id) or self.core(session_id)
        try:
            return await core.redactor()
        finally:
            self.leave(core)

    def close(self) -> None:
        """Search log records no longer for the secrets of the sessions."""
        for core in (*self._cores.values(), *self._held_cores.values()):
            core.close()

    def _find(self, session_id: str) -> SessionCore | None:
        return self._cores.get(session_id) or self._children.get(session_id) or self._held_cores.get(session_id)

    def _make(
        self,
        session_id: str,
        policy: Policy,
        hooks: Hooks,
        tools: ToolSource | None = None,
        shared: SharedParts | None = None,
    ) -> SessionCore:
        return SessionCore(
            shared or self._shared,
            session_id,
            policy,
            hooks,
            background=self._background(),
            open_child=self._open_child,
            tools=tools,
        )

    def _open_child(
        self,
        parent: SessionCore,
        session_id: str,
        policy: Policy,
        restrictions: tuple[Policy, ...],
        agent: AgentParts | None,
    ) -> SessionCore:
        if agent is None:
            agent = AgentParts(parent.shared, parent.tools, parent.hooks, None)
            core = self._find(session_id)
        else:
            # A session that was opened in another way, such as to read its messages, has the tools of another app.
            core = self._children.get(session_id)
            core = None if core is None or core.shared is not agent.shared else core
        if core is None:
            core = self._make(session_id, policy, agent.hooks, agent.tools, agent.shared)
            self._children[session_id] = core
        core.follow(policy, restrictions)
        return core
