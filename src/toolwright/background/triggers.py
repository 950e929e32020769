"""Triggers start background runs when something occurs. Owns their options, which of them match, and the runs they
start.

An occurrence and all the runs that it starts are written in one transaction. So it either occurred, once, or it did
not, and a program that was interrupted reports it again under the same key.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from toolwright import jsonx
from toolwright.background.background import Background
from toolwright.background.checks import backgroundable, limits_of, options_of, require_arguments, title_of
from toolwright.background.handle import Run
from toolwright.calls.authorise.argument_patterns import matches
from toolwright.calls.authorise.authority import Origin, combine, require_not_denied, source_of
from toolwright.errors import RunError, ServiceError
from toolwright.ids import uuid7
from toolwright.session.core import Guard, SessionCore
from toolwright.session.services.quotas import Marker, require_name, to_json
from toolwright.stores.contracts.background_run import Options, Registration, new_run_id
from toolwright.stores.contracts.triggers import Occurrence, Start, TriggerStore
from toolwright.tools.background_protocols import Trigger
from toolwright.tools.tool import Tool

MOST = 100
"""How many triggers a session may have."""
LARGEST = 256 * 1024
"""The largest payload, and the largest pattern of a trigger, in bytes."""


class Triggers:
    """`TriggersClient` of one session, for the program or for one attempt of a call."""

    def __init__(
        self, background: Background, session: SessionCore, marker: Marker, origin: Origin, guard: Guard | None
    ) -> None:
        self._background = background
        self._session = session
        self._marker = marker
        self._origin = origin
        self._store: TriggerStore = background.shared.stores().triggers
        if guard is not None:
            self._store = guard(self._store)

    async def add(
        self,
        topic: str,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        match: Mapping[str, Any] | None = None,
        payload_as: str | None = None,
        title: str | None = None,
        timeout: float | None = None,
        signal_on_completion: bool = False,
        id: str | None = None,
    ) -> Trigger:
        """Start a tool each time something occurs under a topic with a payload that matches.

        Args:
            topic: the topic of the occurrence, exactly.
            tool: the name of a tool that supports background runs.
            args: its arguments.
            match: fields that the payload must have: each of these, equal, or for text matching as a shell-style
                pattern.
            payload_as: the parameter that gets the payload; without it the tool is not given the payload.
            title: the title of the runs, for people; by default the display name of the tool.
            timeout: seconds that each run may take.
            signal_on_completion: append a message to the session when a run is finished.
            id: an id of the caller's choice, in this session. A trigger of the same id and content is the same, so
                that a program may add it each time it starts.

        Raises:
            RunRefused: the caller's policy does not let the tool run.
            RunError: the tool cannot run in the background, there are too many triggers, or something is not
                usable.
        """
        await self._session.know_secrets()
        found = backgroundable(self._session, tool, self._origin.policy)
        hides = self._session.hides
        arguments = jsonx.decode(require_arguments(args, hides, self._origin.policy))
        options = options_of(timeout, signal_on_completion, "resume")
        pattern = _require_pattern(match)
        if hides(jsonx.encode(pattern)):
            raise RunError("The pattern of the trigger holds the value of a secret, and would be stored; leave it out")
        if payload_as is not None:
            _require_parameter(found, payload_as, arguments)
        # If the payload is among the arguments, rules that look at them can only decide when it runs.
        require_not_denied(self._origin, self._session.id, found)
        trigger = Trigger(
            id=self._new_id(topic, tool, arguments, pattern) if id is None else _name("id of a trigger", id),
            session=self._session.id,
            topic=_name("topic", topic),
            tool=found.name,
            arguments=arguments,
            match=pattern,
            payload_as=payload_as,
            title=title_of(found, title, hides),
            timeout=options.timeout,
            signal_on_completion=options.signal_on_completion,
            created_at=self._background.shared.clock.now(),
            authority=self._session.written_authority(self._origin),
        )
        return await self._store.add_trigger(trigger, MOST)

    async def occur(self, topic: str, payload: object = None, *, key: str | None = None) -> builtins.list[Run]:
        """Report an occurrence: the triggers of this session that match start their tools. Return these runs.

        Triggers of other sessions are not started; `runtime.occur` does that. Said again by the same call, or in this
        session under the same key, it occurs once.

        Raises:
            RunError: the key was used for another payload ("conflict"), or something is not usable.
        """
        named = self._new_id("occur", topic, payload) if key is None else _name("key of an occurrence", key)
        # The keys of a session are its own: it must not take a key that the program, or another session, will use.
        key = f"in session {self._session.id}: {named}"
        return await occur(self._background, _name("topic", topic), payload, key, self._session.id)

    def _new_id(self, *what: object) -> str:
        """An id that no other trigger has: for a call, the same when it runs again."""
        mark = self._marker.mark("triggers", *what)
        if mark is None:
            return f"trg_{uuid7().replace('-', '')}"
        return f"trg_{jsonx.digest(jsonx.encode([*mark.call, mark.label]))[:32]}"

    async def list(self) -> builtins.list[Trigger]:
        """The triggers of the session, the oldest first."""
        return await self._store.list_triggers(self._session.id)

    async def remove(self, id: str) -> bool:
        """Start nothing more by a trigger; False when there was none."""
        return await self._store.remove_trigger(self._session.id, _name("id of a trigger", id))


async def occur(
    background: Background, topic: str, payload: object, key: str | None, session: str | None = None
) -> list[Run]:
    """Enter an occurrence, with a run for each trigger that matches, of a session or of all; return these runs.

    The authority of the call that reports it, if a call does, applies beside that of each trigger.

    Raises:
        RunError: it occurred with another payload, or something is not usable.
    """
    shared, under = background.shared, background.caller_authority()
    store = shared.stores().triggers
    _name("topic", topic)
    data = _json("payload of an occurrence", payload)
    if len(data) > LARGEST:
        raise RunError(
            f"The payload has {len(data)} bytes, and may have {LARGEST}; store it elsewhere, and pass its address",
            "too_large",
        )
    occurrence = Occurrence(
        topic=topic,
        key=uuid7() if key is None else _name("key of an occurrence", key),
        digest=jsonx.digest(jsonx.canonical(jsonx.decode(data))),
        at=shared.clock.now(),
    )
    while True:
        known = await store.triggers_of(topic)
        fields = jsonx.decode(data)
        chosen = [one for one in known if session in (None, one.session) and _is_for(one, fields)]
        starts = [await _started_in(background, trigger, occurrence, data, under) for trigger in chosen]
        ids = await store.occur(occurrence, known, starts)
        if ids is not None:  # else a trigger came or went since they were read
            break
    runs = [run for run in [await background.store.find(id) for id in ids] if run is not None]
    for run in runs:
        core = background.sessions.core(run.session)
        if not run.over:
            core.enter(run.call)
        background.sessions.leave(core)
    if runs:
        background.poke()
    return [Run(background, run) for run in runs]


def _is_for(trigger: Trigger, payload: object) -> bool:
    return not trigger.match or (isinstance(payload, dict) and matches(trigger.match, payload))


async def _started_in(
    background: Background, trigger: Trigger, occurrence: Occurrence, payload: bytes, under: bytes | None
) -> Start:
    """The start of a run in the session of a trigger, which need not stay in memory for that."""
    session = background.sessions.core(trigger.session)
    try:
        return await _start(background, session, trigger, occurrence, payload, under)
    finally:
        background.sessions.leave(session)


async def _start(
    background: Background,
    session: SessionCore,
    trigger: Trigger,
    occurrence: Occurrence,
    payload: bytes,
    under: bytes | None,
) -> Start:
    arguments = dict(trigger.arguments)
    if trigger.payload_as is not None:
        await session.know_secrets()
        if session.hides(payload):
            raise RunError(
                f"The payload holds the value of a secret of session {trigger.session!r:.200}, and would be stored; "
                "leave it out"
            )
        arguments[trigger.payload_as] = jsonx.decode(payload)
    origin = {
        "by": "trigger",
        "trigger": trigger.id,
        "topic": occurrence.topic,
        "key": occurrence.key,
    }
    if (source := source_of(trigger.authority)) not in (None, "host"):
        origin["source"] = source
    registration = Registration(
        id=new_run_id(),
        session=trigger.session,
        tool=trigger.tool,
        arguments=jsonx.encode(arguments),
        title=trigger.title,
        options=Options(timeout=trigger.timeout, signal_on_completion=trigger.signal_on_completion),
        at=occurrence.at,
        provenance=jsonx.encode(origin),
        authority=trigger.authority if under is None else combine(trigger.authority, under),
    )
    limits = limits_of(session.policy, background.shared.quotas.resources, queue=True)
    return Start(registration, limits)


def _name(what: str, name: object) -> str:
    try:
        return require_name(what, name)
    except ServiceError as error:
        raise RunError(str(error)) from error


def _json(what: str, value: object) -> bytes:
    try:
        return to_json(what, value)
    except ServiceError as error:
        raise RunError(str(error)) from error


def _require_pattern(match: object) -> dict[str, Any]:
    if match is not None and not isinstance(match, Mapping):
        raise RunError(f"The match {match!r:.200} of a trigger is not usable; use a mapping of fields")
    data = _json("match of a trigger", dict(match or {}))
    if len(data) > LARGEST:
        raise RunError(f"The match of a trigger has {len(data)} bytes, and may have {LARGEST}; match less of it")
    pattern: dict[str, Any] = jsonx.decode(data)
    return pattern


def _require_parameter(tool: Tool, name: object, arguments: Mapping[str, Any]) -> None:
    if not isinstance(name, str) or not name:
        raise RunError(f"payload_as is {name!r:.200}; use the name of a parameter of {tool.name!r}")
    if name in arguments:
        raise RunError(f"The payload would replace the argument {name!r}; give it another parameter, or leave one")
    schema = tool.definition.input_schema
    if schema.get("additionalProperties") is False and name not in schema.get("properties", {}):
        raise RunError(f"Tool {tool.name!r} has no parameter {name!r} for the payload; name one that it has")
