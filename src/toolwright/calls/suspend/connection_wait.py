"""A call that needs a connection. Owns waiting for it, and the meaning of that wait after a crash; not connecting.

A tool that returns `ConnectionRequired` declares that it did nothing, and would if the session were connected. So the
call is run again once it is, in the same process or a later one, without regard to its crash policy: the journal
records that it waits until it is about to run again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from toolwright import jsonx
from toolwright.calls.active_call import ActiveCall, Suspension
from toolwright.calls.suspend.suspend import enter
from toolwright.effects.wait_keys import failure_of
from toolwright.errors import KeyRefused, StoreError
from toolwright.stores.contracts.journal import Kept
from toolwright.stores.contracts.waits import Resolution, Wait, WaitKey
from toolwright.tools.outcome import ConnectionRequired

_LABEL = "connection:"


async def wait_for_connection(call: ActiveCall, provider: str, opened: Callable[[float | None], None]) -> object:
    """Wait until the session is connected again; None to run the call again, else its end.

    `opened` is called when there is something to wait for.

    Raises:
        StoreError: it could not be written down.
    """
    env, suspension = call.env, enter(call)
    times, known = suspension.connecting.get(provider, (0, None))
    times += 1
    suspension.connecting = {**suspension.connecting, provider: (times, known)}
    await _keep(call, suspension, provider, waits=True)
    status, resolution = "ok", None
    if not await _is_new(call, provider, known):
        seconds = call.owner.policy.approval_timeout
        now = env.clock.now()
        key = WaitKey(suspension.key, "connection", f"{provider}:{times}")
        wait = Wait(key, now, None if seconds is None else now + seconds, jsonx.encode({"provider": provider}))
        look: list[asyncio.Task[None]] = []

        def waits(deadline: float | None) -> None:
            opened(deadline)
            # Somebody may have connected after we looked, and before there was anybody to tell.
            look.append(env.loop.create_task(_look_again(call, key, provider, known)))
            env.hold_task(look[0])

        try:
            resolution = await env.effects.wait(wait, waits)
        finally:
            for task in look:
                task.cancel()
        status = resolution.status
    if status == "expired":
        return ConnectionRequired(provider)
    if resolution is not None and status != "ok":
        return failure_of(resolution, f"a connection to {provider!r}")
    since = await env.connected_since(provider)
    suspension.connecting = {**suspension.connecting, provider: (times, since)}
    # From here on it may do something: after a crash its own policy decides again.
    await _keep(call, suspension, provider, waits=False)
    return None


async def _is_new(call: ActiveCall, provider: str, known: float | None) -> bool:
    """True when the session is connected, by another connection than the one the tool was last run with."""
    since = await call.env.connected_since(provider)
    return since is not None and since != known


async def _look_again(call: ActiveCall, key: WaitKey, provider: str, known: float | None) -> None:
    # A store that fails here fails the wait as well, and is reported there; a finished call needs nothing.
    with contextlib.suppress(StoreError, KeyRefused):
        if await _is_new(call, provider, known):
            await call.env.effects.resolve(key, Resolution("ok", call.env.clock.now()))


async def _keep(call: ActiveCall, suspension: Suspension, provider: str, *, waits: bool) -> None:
    kept = Kept(
        f"{_LABEL}{provider}",
        b"null",
        call.env.clock.now(),
        done=not waits,
        payload=jsonx.encode(suspension.connecting[provider]),
    )
    if not await call.env.effects.keep(suspension.key, kept):
        raise StoreError(f"The call {call.call_id!r} is not owned by this process any more, and cannot be recorded")


def restore_connections(call: ActiveCall, effects: list[Kept]) -> str | None:
    """Remember the connection waits of a call before it was cut off; the provider of the one that was open."""
    waits: str | None = None
    for kept in effects:
        if kept.label.startswith(_LABEL):
            provider = kept.label.removeprefix(_LABEL)
            times, known = jsonx.decode(kept.payload)
            suspension = enter(call)
            suspension.connecting = {**suspension.connecting, provider: (times, known)}
            if not kept.done:
                waits = provider
    return waits


def provider_of(key: WaitKey) -> str:
    """The provider that a wait for a connection is for."""
    return key.name.rpartition(":")[0]
