"""What belongs to a session: its tools, what it keeps, its secrets. Owns handing these to its host and to its calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from toolwright.argument_checks import require_text
from toolwright.calls.authorise.authority import Origin
from toolwright.calls.environment import CallEnvironment
from toolwright.calls.policy import Policy
from toolwright.calls.redact import Redactor
from toolwright.errors import RunError
from toolwright.session.children import SessionState
from toolwright.session.parts import Shared
from toolwright.session.secrets.redactor import KnownSecrets
from toolwright.session.secrets.secrets import Secrets
from toolwright.session.services.attachments import Attachments
from toolwright.session.services.details import Details
from toolwright.session.services.files import Files
from toolwright.session.services.keyvalue import KeyValue
from toolwright.session.services.messages import Messages
from toolwright.session.services.quotas import Marks, Unmarked
from toolwright.session.services.resources import Resources
from toolwright.session.services.session_services import SessionServices
from toolwright.session.services.spilled_outputs import save_output
from toolwright.session.tool_catalogue import Offer, SessionCatalogue
from toolwright.stores.contracts.journal import CallKey
from toolwright.tools.definition import ToolDefinition
from toolwright.tools.outcome import encodable
from toolwright.tools.registry import Snapshot
from toolwright.tools.scopes import ScopedRegistry
from toolwright.tools.tool import Tool


class Belongings:
    """The part of a session that has things."""

    id: str
    policy: Policy
    _restrictions: tuple[Policy, ...]
    """Of the call that opened the session, if a call did; they hold beside its policy."""
    tools: ScopedRegistry
    _shared: Shared
    _offer: Offer
    _run_offer: Offer
    _known: KnownSecrets
    _host: CallEnvironment
    _hosts: list[CallEnvironment]

    @property
    def files(self) -> Files:
        """The files of the session."""
        return self._services.files

    @property
    def kv(self) -> KeyValue:
        """What the session keeps under names it chose."""
        return self._services.kv

    @property
    def details(self) -> Details:
        """The title and the locale of the session."""
        return self._services.details

    @property
    def secrets(self) -> Secrets:
        """Values that tools may use and models never see."""
        return self._services.secrets

    @property
    def messages(self) -> Messages:
        """The conversation of the session."""
        return self._services.messages

    @property
    def attachments(self) -> Attachments:
        """Content that travels with messages and outcomes."""
        return self._services.attachments

    @property
    def resources(self) -> Resources:
        """What the session uses or made outside."""
        return self._services.resources

    # --- its tools

    @property
    def catalogue(self) -> SessionCatalogue:
        """The tools of the session, and which of them the model sees in full."""
        return self._catalogue(self.kv)

    async def offered(self) -> list[ToolDefinition]:
        """The definitions to give to the model for its next answer: a deferred tool is a stub until it was revealed."""
        return await self.catalogue.offered()

    def definitions(self) -> list[ToolDefinition]:
        """What the tools of the session say of themselves, by name."""
        return [tool.definition for _, tool in sorted(self.all_tools().items())]

    def all_tools(self) -> Snapshot:
        """The tools of the session."""
        return self._offer.complete(self.tools.snapshot())

    def tools_of_runs(self) -> Snapshot:
        """The tools of the session's background runs: those of the app, where another process may run them."""
        return self._run_offer.complete(self._shared.tools.snapshot()) if self._has_own_tools else self.all_tools()

    def require_in_every_process(self, tool: Tool) -> None:
        """Refuse a background run of a tool that only this process has.

        Raises:
            RunError: it is the session's own, and the store is shared.
        """
        if self._has_own_tools:
            found = self._shared.tools.snapshot().get(tool.name)
            if found is None or found.definition.id != tool.definition.id:
                raise RunError(
                    f"Tool {tool.name!r} belongs to session {self.id!r} in this process only, and a run may continue "
                    "in another; give the tool to the app: App(tools=[...])",
                    "own_tool",
                )

    @property
    def _has_own_tools(self) -> bool:
        """True when the session has tools that other processes on the same store do not have."""
        return self._shared.kept_before and self.tools.snapshot() is not self._shared.tools.snapshot()

    def _catalogue(self, kv: KeyValue) -> SessionCatalogue:
        return SessionCatalogue(self._offer, self.all_tools(), kv)

    # --- its services, for its host and for its calls

    @cached_property
    def _services(self) -> SessionServices:
        self._shared.require_open()
        shared = self._shared
        return SessionServices(
            shared.stores(),
            self.id,
            Unmarked(),
            shared.clock,
            shared.quotas,
            self.policy.grep_timeout,
            self._known,
            catalogue=self._catalogue,
        )

    def _call_services(self, origin: Origin, guard: Callable[[Any], Any]) -> SessionServices:
        assert origin.call is not None
        shared, marks = self._shared, Marks(origin.call)
        services = SessionServices(
            shared.stores(),
            self.id,
            marks,
            shared.clock,
            shared.quotas,
            origin.policy.grep_timeout,
            self._known,
            guard,
            self._catalogue,
        )
        services.session = SessionState(self.id, self.definitions, services)
        services.make_runs = lambda: shared.runs(self, marks, origin, guard)
        services.make_schedules = lambda: shared.schedules(self, marks, origin, guard)
        services.make_triggers = lambda: shared.triggers(self, marks, origin, guard)
        return services

    async def _keep_output(self, call: CallKey, text: str, known: bool) -> str:
        origin = Origin("tool", self.policy, (), call)
        files = self._call_services(origin, lambda store: store).files if known else self._services.files
        return await save_output(files, call, text)

    def enter(self, call: CallKey) -> None:
        """The call of a process may be spoken to from now on, also before it begins."""
        self._host.journal.uses_effects(call)

    # --- what must not be seen of it

    async def know_secrets(self) -> None:
        """Read the secrets that an earlier process wrote, once, so that `hides` knows them."""
        if self._shared.kept_before:
            await self._know()

    def hides(self, data: bytes) -> bool:
        """True when some JSON holds a secret of the session's in clear."""
        redactor = self._host.redactor
        return redactor is not None and redactor.json(data) != data

    async def redacted(self, text: str) -> str:
        """Text that somebody outside wrote about the session, without its secrets."""
        await self.know_secrets()
        redactor, text = self._host.redactor, encodable(require_text("reason", text))
        return text if redactor is None else redactor.text(text)

    async def redactor(self) -> Redactor | None:
        """What takes the secrets of the session out of values; None where it has none."""
        await self.know_secrets()
        return self._host.redactor

    async def _secret_names(self) -> list[str]:
        return [info.key for info in await self.secrets.list()]

    async def _know(self) -> None:
        await self._known.load(self._shared.stores().secrets)
        await self._known.catch_up()

    def _redact(self, redactor: Redactor) -> None:
        for host in self._hosts:
            host.redactor = redactor
