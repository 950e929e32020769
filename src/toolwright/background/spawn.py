"""Starting background runs. Owns the client by which a session starts and finds them, for the program or for a call."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from toolwright.background.background import Background
from toolwright.background.checks import (
    backgroundable,
    limits_of,
    not_fitting,
    options_of,
    provenance_of,
    require_arguments,
    require_no_secret,
    title_of,
)
from toolwright.background.handle import Run
from toolwright.background.tracked import tracked_tool
from toolwright.calls.authorise.authority import Origin, require_allowed
from toolwright.errors import InvalidArguments, RunError
from toolwright.session.core import Guard, SessionCore
from toolwright.session.services.quotas import Marker, Marks
from toolwright.stores.contracts.background_run import (
    BackgroundRun,
    Disposition,
    Options,
    Registration,
    new_run_id,
    require_run_id,
)
from toolwright.stores.contracts.journal import RUN_SCOPE
from toolwright.stores.contracts.run_store import RunStore
from toolwright.stores.contracts.sessions import Mark
from toolwright.tools.outcome import encodable
from toolwright.tools.tool import Tool


class Runs:
    """`RunsClient` of one session, for the program or for one attempt of a call.

    `origin` is the starter of its runs, with their permissions.
    """

    def __init__(
        self, background: Background, session: SessionCore, marker: Marker, origin: Origin, guard: Guard | None
    ) -> None:
        self._background = background
        self._session = session
        self._marker = marker
        self._origin = origin
        self._store: RunStore = background.store if guard is None else guard(background.store)
        scope = "" if origin.call is None or not isinstance(marker, Marks) else origin.call.scope
        self._parent = scope.removeprefix(RUN_SCOPE) if scope.startswith(RUN_SCOPE) else None

    @property
    def current(self) -> str | None:
        """The id of the run that the call is part of, if it runs in the background."""
        return self._parent

    async def spawn(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        title: str | None = None,
        timeout: float | None = None,
        signal_on_completion: bool = False,
        disposition: Disposition = "resume",
        id: str | None = None,
    ) -> Run:
        """Start a tool that supports it in the background, and return the handle of its run.

        Args:
            tool: its name.
            args: its arguments.
            title: the title of the run, for people; by default the display name of the tool.
            timeout: seconds that the whole run may take, from when it first starts; without it, the tool's own timeout
                holds for each attempt, if it has one.
            signal_on_completion: append a message to the session when it is finished.
            disposition: what happens when its worker dies: "resume" continues by the crash policy of the tool, with its
                durable steps; "rerun" starts it again without them; "abandon" ends it.
            id: an id of the caller's choice; a run of the same id and content is the same run.

        Raises:
            RunRefused: the policy of its starter does not let it run.
            RunError: the tool cannot run in the background, there are too many runs, or something is not usable.
        """
        background, session, origin = self._background, self._session, self._origin
        found = backgroundable(session, tool, origin.policy)
        options = options_of(timeout, signal_on_completion, disposition)
        registration = self._registration(found, args, title, options, id)
        try:
            require_allowed(origin, session.id, found, registration.arguments, id=registration.id)
        except InvalidArguments as error:
            raise not_fitting(found, error) from error
        mark = self._marker.mark(
            "runs.spawn",
            registration.tool,
            registration.arguments.decode(),
            registration.title,
            timeout,
            disposition,
            id,
        )
        run = await self._register(registration, mark)
        if background.shared.alone and not run.over:
            session.enter(run.call)
        background.poke()
        return Run(background, run, self._store)

    async def track(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,
        *,
        title: str | None = None,
        signal_on_completion: bool = False,
        id: str | None = None,
    ) -> Run:
        """Register work that happens elsewhere, such as a deployment, and return the handle of its run.

        No worker takes it: the program that does the work reports on it, with `report`, `append`, `finish` and `fail`
        of a handle, from any process. It is running from now on, and has no timeout.

        Args:
            name: the name of the work, for rules and lists, as the name of a tool is for other runs.
            input: its input, as JSON; it is stored and shown.
            title: the title of the run, for people; by default its name.
            signal_on_completion: append a message to the session when it is finished.
            id: an id of the caller's choice; a run of the same id and content is the same run.

        Raises:
            RunRefused: the policy of its starter denies work of this name, or would ask a person first.
            RunError: there are too many tracked runs, or something is not usable.
        """
        origin, found = self._origin, tracked_tool(name)
        require_no_secret("name", found.name, self._session.hides)
        options = replace(options_of(None, signal_on_completion, "resume"), tracked=True)
        registration = self._registration(found, input, title, options, id)
        require_allowed(origin, self._session.id, found, registration.arguments, id=registration.id, outright=True)
        mark = self._marker.mark("runs.track", name, registration.arguments.decode(), registration.title, id)
        return self._handle(await self._register(registration, mark))

    def _registration(
        self, tool: Tool, args: Mapping[str, Any] | None, title: str | None, options: Options, id: str | None
    ) -> Registration:
        session, origin = self._session, self._origin
        hides = None if session.environment.redactor is None else session.hides
        tracing = self._background.shared.tracing
        return Registration(
            id=new_run_id() if id is None else require_no_secret("id", require_run_id(id), hides),
            session=session.id,
            tool=tool.definition.name,
            arguments=require_arguments(args, hides, origin.policy),
            title=title_of(tool, title, hides),
            options=options,
            at=self._background.shared.clock.now(),
            parent=self._parent,
            provenance=provenance_of(origin, session.id, "" if tracing is None else tracing.current()),
            authority=session.written_authority(origin),
        )

    async def _register(self, registration: Registration, mark: Mark | None) -> BackgroundRun:
        limits = limits_of(self._origin.policy, self._background.shared.quotas.resources)
        try:
            (started,) = await self._store.register([registration], limits, mark)
        except RunError as refused:
            if refused.code == "over" and self._parent is not None:
                await self._background.stop(self._parent)
            raise
        run = await self._store.find(started)
        if run is None:
            raise RunError(f"The run {started!r} was started before, and removed since", "not_found")
        return run

    async def list(self, *, active: bool = False) -> builtins.list[Run]:
        """The runs of the session, the newest first: all, or only the unfinished ones."""
        return [self._handle(run) for run in await self._store.list(self._session.id, active=active)]

    async def get(self, id: str) -> Run:
        """The handle of a run of this session, or of a run that was granted to it.

        Raises:
            RunError: there is none, or it is another session's.
        """
        known = isinstance(id, str) and encodable(id) == id
        run = await self._store.find(id) if known else None
        if run is None or not await self._store.granted(id, self._session.id):
            # The same for both: a session that was not granted a run learns nothing of it.
            raise RunError(f"There is no run {id!r:.200} in this session; list its runs to see their ids", "not_found")
        return self._handle(run)

    def _handle(self, run: BackgroundRun) -> Run:
        return Run(self._background, run, self._store, granted=run.session != self._session.id)
