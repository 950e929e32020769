"""The services of a session, put together. Owns which there are; each has a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from toolwright.clock import Clock
from toolwright.session.secrets.redactor import KnownSecrets
from toolwright.session.secrets.secrets import Secrets
from toolwright.session.services.attachments import Attachments
from toolwright.session.services.connections import Connections
from toolwright.session.services.details import Details
from toolwright.session.services.files import Files
from toolwright.session.services.keyvalue import KeyValue
from toolwright.session.services.messages import SENDERS, Messages
from toolwright.session.services.quotas import Marker, Unmarked
from toolwright.session.services.resources import Resources
from toolwright.stores.contracts.sessions import Quotas
from toolwright.stores.contracts.store import ServiceStores
from toolwright.tools.background_protocols import RunsClient, SchedulesClient, TriggersClient
from toolwright.tools.session_protocols import CatalogueClient, SessionClient


class SessionServices:
    """The clients of one session, for the program or for one attempt of a call, each made when it is first asked for.

    `guard` wraps the stores: for a call, so that a fault of the store stops it and is never taken for the tool's.
    `grep_timeout` is how long a search of files may take, in seconds. `senders` are the senders it may use in the
    conversation. `runs`, `schedules`, `triggers` and `state` make the clients that only a call needs: for background
    work, and for the session itself.
    """

    def __init__(
        self,
        stores: ServiceStores,
        session: str,
        marker: Marker,
        clock: Clock,
        quotas: Quotas,
        grep_timeout: float,
        known: KnownSecrets,
        guard: Callable[[Any], Any] | None = None,
        catalogue: Callable[[KeyValue], CatalogueClient] | None = None,
        senders: tuple[str, ...] | None = None,
        runs: Callable[[], RunsClient] | None = None,
        schedules: Callable[[], SchedulesClient] | None = None,
        triggers: Callable[[], TriggersClient] | None = None,
        state: Callable[[SessionServices], SessionClient] | None = None,
    ) -> None:
        self._stores = stores
        self._session = session
        self._marker = marker
        self._clock = clock
        self._quotas = quotas
        self._grep_timeout = grep_timeout
        self._known = known
        self._guard = guard or (lambda store: store)
        self._catalogue = catalogue
        self._runs = runs
        self._schedules = schedules
        self._triggers = triggers
        self._state = state
        # A tool that could speak as the user or the runtime could give itself orders.
        self._senders = senders or (SENDERS if isinstance(marker, Unmarked) else ("tool",))

    @cached_property
    def files(self) -> Files:
        """The files of the session."""
        store = self._guard(self._stores.files)
        return Files(store, self._session, self._marker, self._clock, self._quotas, self._grep_timeout)

    @cached_property
    def kv(self) -> KeyValue:
        """Named values of the session."""
        return KeyValue(self._guard(self._stores.kv), self._session, self._marker, self._clock, self._quotas.key_values)

    @cached_property
    def details(self) -> Details:
        """The title and the locale of the session."""
        return Details(self.kv)

    @cached_property
    def secrets(self) -> Secrets:
        """Values that tools may use and models never see."""
        store = self._guard(self._stores.secrets)
        return Secrets(store, self._session, self._marker, self._clock, self._quotas.secrets, self._known)

    @cached_property
    def catalogue(self) -> CatalogueClient:
        """The tools of the session, and which of them the model sees in full."""
        assert self._catalogue is not None
        return self._catalogue(self.kv)

    @cached_property
    def messages(self) -> Messages:
        """The conversation of the session."""
        store = self._guard(self._stores.messages)
        return Messages(
            store, self._session, self._marker, self._clock, self._quotas.messages, self._senders, self._known
        )

    @cached_property
    def attachments(self) -> Attachments:
        """Content that travels with messages and outcomes."""
        store = self._guard(self._stores.attachments)
        quota, secrets = self._quotas.attachments, self._guard(self._stores.secrets)
        return Attachments(store, self._session, self._marker, self._clock, quota, self._known, secrets)

    @cached_property
    def resources(self) -> Resources:
        """The resources that the session uses or made outside."""
        store = self._guard(self._stores.resources)
        return Resources(store, self._session, self._marker, self._clock, self._quotas.resources)

    @cached_property
    def session(self) -> SessionClient:
        """A tool's view of the session."""
        assert self._state is not None
        return self._state(self)

    @cached_property
    def runs(self) -> RunsClient:
        """Tools that run in the background."""
        assert self._runs is not None
        return self._runs()

    @cached_property
    def schedules(self) -> SchedulesClient:
        """Tools that are started at instants."""
        assert self._schedules is not None
        return self._schedules()

    @cached_property
    def triggers(self) -> TriggersClient:
        """Tools that are started when something occurs."""
        assert self._triggers is not None
        return self._triggers()

    @cached_property
    def connections(self) -> Connections:
        """The providers that the session is connected to."""
        return Connections(self._guard(self._stores.connections), self._session)
