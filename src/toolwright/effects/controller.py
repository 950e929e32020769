"""The contract of effects. Owns the promises of a controller to a call; does not own how they are fulfilled.

A controller makes a call durable: it runs effects, or returns their recorded results. The default one records them in a
journal; an engine that has its own memory can take its place.

The promises of every controller, which the conformance suite in `toolwright.testing` proves:

*Addressed by key.* An effect is named by its call and its name, never by its position. Effects of one call may run
side by side, and find their past in any order.

*Once.* An effect that is done is not done again, in this process or a later one: it gives its recorded result, or
raises its recorded error, with the same code and message. The same name with another input is a `ReplayMismatch`, and
nothing runs.

*Doubt is not hidden.* An effect that began and did not end before a crash may have happened. If it can simply run
again, it does; if it has a probe, that is asked; a person may be asked, once for each crash; else it fails as
`interrupted`, once and for all.

*Recorded before released.* A result is durable before the tool sees it. A fault of the store is raised, and never
recorded as the result of anything.

*Instants are absolute.* A sleep and a deadline keep their instant through a restart.

*First wins.* A wait is resolved once, by the first answer, also before it begins; a later caller gets the resolution
that stands. An acknowledged resolution decides: a call whose completion was resolved ends with that, also when its
process dies or the call is cancelled before it has seen it. Signals of one name come in the order they were sent, and
none is lost.

*Only the owner writes.* A call belongs to one process at a time; writes of a stale owner are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple, Protocol

from toolwright.effects.effect import Effect
from toolwright.stores.contracts.journal import CallKey
from toolwright.stores.contracts.waits import Remembered, Resolution, Standing, Wait, WaitKey
from toolwright.tools.outcome import Failure


class AskPerson(NamedTuple):
    """A person decides about an effect that a crash cut off.

    `ask` gets the instant at which the effect began. It gives None if the effect may run again, or the failure that it
    ends with.
    """

    ask: Callable[[float], Awaitable[Failure | None]]


StepPolicy = Literal["rerun", "fail"] | Callable[[], Awaitable[Any]] | AskPerson
"""The crash policy of an effect: it runs again, fails as interrupted, is looked up by a probe, or a person decides."""


Opened = Callable[[float | None], None]
"""Called, with the deadline, once a wait is durable and there is something to wait for."""


class EffectFailed(Exception):
    """An effect ended with an error; raised when it is run and again whenever it is replayed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class EffectController(Protocol):
    """Runs the effects of calls, and records them. The docstring of the module has its promises. Implementations:
    `JournaledController`, and engines."""

    def enter(self, call: CallKey, *, fresh: bool) -> CallEffects:
        """The effects of one call of this process; `fresh` means that it never ran before."""
        ...

    def write_key(self, wait: WaitKey) -> str:
        """The key of a wait, to be handed out."""
        ...

    def read_key(self, text: str) -> WaitKey:
        """The wait that a key names.

        Raises:
            KeyRefused: it is not a key of this store.
        """
        ...

    def watch(
        self, wait: Wait, waiter: Any, then: Callable[[Any, Resolution | Exception], None], opened: Opened
    ) -> Watch:
        """Wait without a task: `then` gets the waiter with the resolution or the error, once, unless the watch is ended
        before. So one function serves all waiters: very many may wait at once.
        """
        ...

    async def wait(self, wait: Wait, opened: Opened) -> Resolution:
        """Begin a wait, or continue one that began before, until it is resolved."""
        ...

    async def resolve(self, key: WaitKey, resolution: Resolution, remember: Remembered | None = None) -> Standing:
        """Resolve a wait.

        Raises:
            KeyRefused: its call is not known, its session is revoked, or it is finished without a resolution.
        """
        ...

    async def end_wait(self, key: WaitKey, reason: str) -> Resolution | None:
        """End a wait of a call of this process that ends without it, with the reason; an earlier resolution is
        returned.

        Without one it is cancelled, and cannot be resolved from then on.
        """
        ...

    async def signal(self, key: WaitKey, payload: bytes) -> int:
        """Send a signal, and return how many of its name were sent.

        Raises:
            KeyRefused: as for `resolve`.
        """
        ...


class Watch(Protocol):
    """A wait that someone watches."""

    def leave(self) -> None:
        """Watch it no longer. It stays open."""
        ...


class CallEffects(Protocol):
    """The effects of one call, while this process runs it."""

    def begin_attempt(self, attempt: int) -> None:
        """The tool's code starts again, and may use its names again."""
        ...

    async def run(self, effect: Effect, function: Callable[[], Awaitable[bytes]], on_crash: StepPolicy) -> bytes:
        """Do something once. `function` gives the JSON of a result, or raises `EffectFailed`.

        Raises:
            EffectFailed: it failed, now or when it ran.
            ReplayMismatch: it ran before with another input.
            StoreError: it could not be recorded.
        """
        ...

    async def sleep(self, effect: Effect, seconds: float, opened: Opened) -> None:
        """Wait until an instant that is set when this is first asked."""
        ...

    async def wait(self, wait: Wait, opened: Opened) -> Resolution:
        """Begin a wait, or continue one that began before, until it is resolved."""
        ...

    async def ask(self, effect: Effect, wait: Wait, opened: Opened) -> Resolution:
        """Wait for a person's answer: `wait` is the request, and `effect` has what is asked as its input.

        Raises:
            ReplayMismatch: something else was asked before under its name.
            StoreError: it could not be recorded.
        """
        ...

    async def receive(self, name: str, seconds: float | None, opened: Opened) -> bytes | None:
        """The next signal of a name that this call has not received; None when none came in time.

        Raises:
            EffectFailed: there is none, and the waits of the session were cancelled.
        """
        ...
