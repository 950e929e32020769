"""Starting processes. Owns what is asked of a tool that is to run in the background, and every refusal."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any, cast, get_args

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.background.handle import Desk, Run
from toolwright.background.tracked import tracked_tool
from toolwright.calls.authorise.authority import Origin, RuleBook, require_allowed
from toolwright.calls.policy import Policy
from toolwright.errors import InvalidArguments, RunError, ServiceError
from toolwright.session.services.quotas import Marker, to_json
from toolwright.stores.contracts.background_run import Disposition, Options, Registration, new_run_id, require_run_id
from toolwright.stores.contracts.run_store import Limits
from toolwright.stores.contracts.sessions import Mark, Room
from toolwright.tools.outcome import encodable
from toolwright.tools.registry import Snapshot, find
from toolwright.tools.tool import Tool

ITSELF = "spawn_background"
LONGEST = 366 * 24 * 3600.0
"""Seconds that a run may take at most."""


class Runs:
    """The runs client of one session, for its host or for one attempt of a call.

    `parent` is the process that the call belongs to, if it does; `origin` says who starts its runs, and what they may.
    """

    def __init__(
        self,
        desk: Desk,
        session: str,
        marker: Marker,
        tools: Callable[[], Snapshot],
        origin: Origin,
        rules: RuleBook,
        *,
        parent: str | None = None,
        hides: Callable[[bytes], bool] = lambda data: False,
        entered: Callable[[Any], None] = lambda key: None,
        require_in_every_process: Callable[[Tool], None] = lambda tool: None,
    ) -> None:
        self._desk = desk
        self._session = session
        self._marker = marker
        self._tools = tools
        self._origin = origin
        self._rules = rules
        self._parent = parent
        self._hides = hides
        self._entered = entered
        self._require_in_every_process = require_in_every_process

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
            title: what people call the run; by default the display name of the tool.
            timeout: seconds that the whole run may take, from when it first starts; without it, the tool's own timeout
                holds for each attempt, if it says one.
            signal_on_completion: append a message to the session when it is over.
            disposition: what becomes of it when its worker is gone: "resume" goes on as the tool's crash policy says,
                with its durable steps; "rerun" begins it anew; "abandon" ends it.
            id: an id of the caller's choice; a run of the same id and content is the same run.

        Raises:
            RunRefused: the policy of whoever starts it does not let it run.
            RunError: the tool cannot run in the background, there are too many runs, or something is not usable.
        """
        found, origin = backgroundable(self._tools(), tool, self._origin.policy), self._origin
        self._require_in_every_process(found)
        registration = Registration(
            id=new_run_id() if id is None else require_run_id(id),
            session=self._session,
            tool=found.name,
            arguments=require_fitting(found, require_arguments(args, self._hides)),
            title=title_of(found, title, self._hides),
            options=options_of(timeout, signal_on_completion, disposition),
            at=self._desk.clock.now(),
            parent=self._parent,
            provenance=jsonx.encode(provenance_of(origin, self._session)),
            authority=self._rules.write(origin),
        )
        require_allowed(origin, self._session, found, registration.arguments, id=registration.id)
        mark = self._marker.mark(
            "runs.spawn", found.name, registration.arguments.decode(), registration.title, timeout, disposition, id
        )
        run = await self._register(registration, mark)
        if not run.process.over:
            self._entered(run.process.call)
        self._desk.poke()
        return run

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

        No worker takes it: whoever does the work says how it stands, with `report`, `append`, `finish` and `fail` of a
        handle, from any process. It is running from now on, and has no timeout.

        Args:
            name: what the work is called, for rules and lists, as the name of a tool is for other runs.
            input: what it is about, as JSON; it is kept and shown.
            title: what people call the run; by default its name.
            signal_on_completion: append a message to the session when it is over.
            id: an id of the caller's choice; a run of the same id and content is the same run.

        Raises:
            RunRefused: the policy of whoever starts it denies work of this name, or would ask a person first.
            RunError: there are too many tracked runs, or something is not usable.
        """
        found, origin = tracked_tool(name), self._origin
        options = options_of(None, signal_on_completion, "resume")
        registration = Registration(
            id=new_run_id() if id is None else require_run_id(id),
            session=self._session,
            tool=found.name,
            arguments=require_arguments(input, self._hides),
            title=title_of(found, title, self._hides),
            options=replace(options, tracked=True),
            at=self._desk.clock.now(),
            parent=self._parent,
            provenance=jsonx.encode(provenance_of(origin, self._session)),
            authority=self._rules.write(origin),
        )
        require_allowed(origin, self._session, found, registration.arguments, id=registration.id, outright=True)
        mark = self._marker.mark("runs.track", name, registration.arguments.decode(), registration.title, id)
        return await self._register(registration, mark)

    async def _register(self, registration: Registration, mark: Mark | None) -> Run:
        limits = limits_of(self._origin.policy, self._desk.quotas.resources)
        try:
            (started,) = await self._desk.store.register([registration], limits, mark)
        except RunError as refused:
            if refused.code == "over" and self._parent is not None:
                await self._desk.stop(self._parent)
            raise
        process = await self._desk.store.find(started)
        if process is None:
            raise RunError(f"The run {started!r} was started before, and removed since", "not_found")
        return Run(self._desk, process)

    async def list(self, *, active: bool = False) -> builtins.list[Run]:
        """The runs of the session, the newest first: all, or those that are not over."""
        return [Run(self._desk, process) for process in await self._desk.store.list(self._session, active=active)]

    async def get(self, id: str) -> Run:
        """The handle of a run of this session, or of one that was granted to it.

        Raises:
            RunError: there is none, or it is another session's.
        """
        known = isinstance(id, str) and encodable(id) == id
        process = await self._desk.store.find(id) if known else None
        if process is None or not await self._desk.store.granted(id, self._session):
            # The same for both: who was not given a run learns nothing of it.
            raise RunError(f"There is no run {id!r:.200} in this session; list its runs to see their ids", "not_found")
        return Run(self._desk, process, granted=process.session != self._session)


def provenance_of(origin: Origin, session: str) -> dict[str, Any]:
    """Where what an origin starts in a session comes from, as it is stored."""
    call = origin.call
    if call is None:
        return {"by": "host"}
    elsewhere = {} if call.session == session else {"session": call.session}
    return {"by": "call", **elsewhere, "scope": call.scope, "call_id": call.call_id, "source": origin.source}


def backgroundable(tools: Snapshot, name: Any, policy: Policy) -> Tool:
    """The tool of a name, which may run in the background.

    Raises:
        RunError: there is none, or it may not.
    """
    if not isinstance(name, str) or not name.strip():
        raise RunError("Missing required parameter: tool")
    name = name.strip()
    if name == ITSELF:
        raise RunError(f"{ITSELF} cannot target itself recursively")
    tool = find(tools, name)
    if tool is None:
        raise RunError(f"Unknown tool: {name}", "not_found")
    require_background(tools, name, policy)
    if tool.definition.secret is not None:
        raise RunError(
            f"Tool {name!r} takes a secret as {tool.definition.secret!r}, and what a run is given is kept; "
            "let it take the name of a secret of the session"
        )
    return tool


def require_background(tools: Snapshot, name: str, policy: Policy) -> None:
    """Refuse a tool that may not run in the background, also when a run of it is there since it might.

    Raises:
        RunError: it may not.
    """
    tool = find(tools, name)
    marked = tool is None or tool.definition.hints.supports_background
    if not marked and policy.background_tools != "all":
        raise RunError(f"Tool does not support background execution: {name}")


def require_arguments(args: Any, hides: Callable[[bytes], bool]) -> bytes:
    """The JSON of the arguments of a run.

    Raises:
        RunError: they are not an object, or hold a secret in clear.
    """
    if args is None or not isinstance(args, Mapping):
        if args is not None:
            raise RunError("Missing required parameter: args (object expected)")
        args = {}
    try:
        data = to_json("arguments of a run", dict(args))
    except ServiceError as error:
        raise RunError(str(error)) from error
    if hides(data):
        raise RunError("The arguments hold the value of a secret, and would be kept; give the tool its name")
    return data


def require_fitting(tool: Tool, arguments: bytes) -> bytes:
    """The same arguments, which fit the tool: what can never run is refused now, and not when nobody looks.

    Raises:
        RunError: they do not.
    """
    try:
        tool.validate(arguments)
    except InvalidArguments as error:
        raise RunError(f"The arguments do not fit tool {tool.name!r}: {error}") from error
    return arguments


def title_of(tool: Tool, title: Any, hides: Callable[[bytes], bool]) -> str:
    """What a run is called.

    Raises:
        RunError: it is not text, or holds a secret in clear.
    """
    if title is not None and (not isinstance(title, str) or encodable(title) != title):
        raise RunError(f"The title {title!r:.200} of a run is not usable; use text")
    if title and hides(jsonx.encode(title)):
        raise RunError("The title holds the value of a secret, and would be shown; use another")
    text = " ".join((title or "").split()) or tool.definition.display_name or f"Background {tool.name}"
    return text[:200]


def options_of(timeout: Any, signal_on_completion: Any, disposition: Any) -> Options:
    """How a run is to be run.

    Raises:
        RunError: something of it is not usable.
    """
    wrong = isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= LONGEST
    if timeout is not None and wrong:
        raise RunError(f"The timeout {timeout!r:.100} of a run is not usable; use seconds, up to {LONGEST:g}")
    if not isinstance(signal_on_completion, bool):
        raise RunError(f"signal_on_completion is {signal_on_completion!r:.100}; use True or False")
    if not isinstance(disposition, str) or disposition not in get_args(Disposition):
        known = ", ".join(get_args(Disposition))
        raise RunError(f"The disposition {disposition!r:.100} of a run is not known; use one of {known}")
    return Options(
        timeout=None if timeout is None else float(timeout),
        signal_on_completion=signal_on_completion,
        disposition=cast("Disposition", disposition),
    )


def limits_of(policy: Policy, resources: Room) -> Limits:
    """How many runs a policy allows; `resources` is the room for showing them."""
    queue = policy.on_background_limit == "queue"
    return Limits(
        policy.background_per_session, policy.background_per_worker, queue, resources, policy.tracked_per_session
    )
