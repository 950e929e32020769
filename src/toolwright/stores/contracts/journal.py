"""The contract of the journal: calls and their effects. Owns the identity of a call and the verbs of its store.

A call's identity is its session, scope and id. Its intent is in the journal before its tool runs, its outcome before
its caller sees it. So after a crash each call is in one of three states: unknown (it never began), unfinished (it may
have run), or finished (its outcome stands for ever).
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from toolwright.tools.call import CallSource
from toolwright.tools.outcome import Failure, ToolOutcome

Cursor: TypeAlias = str
"""A position in the changes of a store, for a reader that looks for new ones. Only the store reads it."""
RUN_SCOPE = "process/"
"""Prefix of the scopes of background runs. Their calls are recovered by workers only, never by `Runtime.recover`.

Every stored call of a run has it, so it keeps the word that runs had at first, as the table `processes` does.
"""


class CallKey(NamedTuple):
    """The identity of one execution of a call."""

    session: str
    scope: str
    call_id: str


class Kept(Struct, frozen=True, gc=False):
    """The record of an effect. Without `done`, it began and may have happened.

    `payload` is the JSON of its result; `failure` stands for an error, with its code and message. A failure without
    `done` is one after which it may be tried again.
    """

    label: str
    input: bytes
    at: float
    done: bool = False
    payload: bytes = b"null"
    failure: Failure | None = None


class Intent(Struct, frozen=True, gc=False):
    """A call that is about to run. `position` is its place in its batch; `rerun` means that it may simply run again.

    `rerun` comes from the tool's present definition, and is not stored. `authority` is JSON of the permissions of its
    batch, where it has fewer than its program; it is stored until the call is finished. With `starts_at`, for a call
    that may not simply run again, the tool begins as soon as this is written, unless the call is known: it is marked as
    started with its intent. `trace` is the `traceparent` of its first execution, where that was traced; a call that is
    known keeps the one that it has.

    `claims` is text for other owners, which only they read: what the call does not share with them, from now on until
    it is finished. None means that it stands in the order of its session with the claims of a parallel call, and
    `NO_CLAIMS` that it does not stand there yet.
    """

    key: CallKey
    batch: str
    position: int
    tool: str
    tool_id: str
    arguments: bytes
    source: CallSource
    parent: str | None
    queued_at: float
    rerun: bool = False
    authority: bytes | None = None
    starts_at: float | None = None
    trace: str | None = None
    claims: str | None = None


NO_CLAIMS = "-"
"""The claims of a call that no other has to wait for: it does not stand in the order of its session, or not yet."""


class Holder(Struct, frozen=True, gc=False):
    """An unfinished call of another owner that lives, with its claims. `queued_at` is an instant of that owner, and
    `position` its place in its batch."""

    key: CallKey
    owner: str
    parent: str | None
    queued_at: float
    position: int
    claims: str | None


class Entry(Struct, frozen=True, gc=False):
    """A call the journal knows. Without an outcome it is unfinished, and belongs to `owner`.

    `cut_off` means that its former owner is dead: the reader owns the call now, and must decide how it continues.
    `pending` means that its completion decides its outcome: its tool has ended and waits for it, or it has come
    already. `crashes` counts how often it was running when its process died, since one of its effects was last done, or
    one of the calls that it made ended. A death while a call that it made was running counts for that one only.
    """

    intent: Intent
    owner: str
    outcome: ToolOutcome | None = None
    started_at: float | None = None
    finished_at: float | None = None
    cut_off: bool = False
    pending: bool = False
    crashes: int = 0


class Begun(list[Entry | None]):
    """The entries of calls that were begun, each in the place of its call; None for a call that was not known.

    `others` are the calls of other owners that have claims in the session, and had them before: these came first. Where
    there are any, no call was marked as started with its intent, since it may have to wait.
    """

    def __init__(self, entries: Iterable[Entry | None] = (), others: Sequence[Holder] = ()) -> None:
        super().__init__(entries)
        self.others = others


NOT_ALL = "One of the calls is no longer this process's to write about; finish each of them alone"
"""The message of a store that cannot finish calls together."""


class Ended(Struct, frozen=True, gc=False):
    """A finished call. Without `started_at`, as for a call that is not run again, its recorded start stays.

    `waited` means that it may have had a wait, here or elsewhere, which cannot be resolved from then on. With an
    `intent`, the call was refused before it could run: the journal gets its intent and its outcome together, unless it
    knows the call by then.

    `rerun` means that the call may simply run again, and that the caller writes something durable before it does
    anything lasting with the outcome. Until then the outcome need not survive a power cut, but a crash of the process.
    """

    key: CallKey
    outcome: ToolOutcome
    started_at: float | None
    finished_at: float
    waited: bool = False
    intent: Intent | None = None
    rerun: bool = False


class JournalStore(Protocol):
    """The contract of a journal in a database.

    Implemented by `stores/sql/calls/journal.py` and `effects/memory.py`.

    A write is durable once its method has returned, as durable as the store promises to be when it is opened. Several
    processes may use one store; `owner` names this one. An owner is alive until its process ends or closes the `Store`,
    and only the owner of an unfinished call may write to it. Requests are carried out and answered in their order.

    A fault of the store (a full disk, a lost lock) is raised as `StoreError` and is never an outcome. After
    `StoreUnavailable` it is not known whether the store wrote, and the owner may repeat every verb with the same
    values. Repeated, `begin` finds the calls as this owner's own, unfinished and not `cut_off`. The other verbs write
    nothing new, and give the answer that was lost: `keep`, `keep_all`, `start`, `start_all`, `finish`, `finish_all`,
    `forget`, `release` and `reopen`.

    Text (sessions, scopes, ids, names, labels) may have any character, U+0000 included, and comes back as it was.
    """

    owner: str
    longest_key: int | None
    """How many bytes of UTF-8 the session, the scope and the id of a call may have together, where U+0000 and U+0001
    count twice; None for any number. A call with more is refused before it gets here."""

    def begin(self, intents: Sequence[Intent], refused: Sequence[CallKey] = ()) -> Awaitable[Begun]:
        """Write the intents of a batch, and take over its calls that a dead owner left unfinished, all or none.

        Where a key is taken, nothing is written for it, and its entry is returned in its place; where it is taken over,
        that entry is `cut_off`, and its crash is counted: if it was marked as started since the crash before, or may
        simply run again and no crash of it was counted yet, unless it waits for something or was released. While
        another living owner runs one of the calls, nothing is written at all: a batch that waits must not hold calls
        that another owner may be waiting for.

        The entries of `refused`, calls that cannot run or that this process runs already, come last. They are only
        looked up. Calls of a background run are begun, and written with their outcome where they were refused, only
        while a worker of this owner has it.

        The calls of a session have one order for all owners. What is begun or held later finds this batch's calls, with
        the claims of their intents, among the `others`; what was there before is among the `others` of this one. Those
        with claims that no parallel call conflicts with may be left out where all calls are parallel. A call that was
        known and is unfinished has `NO_CLAIMS` from now on.
        """
        ...

    def hold(self, claims: Sequence[tuple[CallKey, str]]) -> Awaitable[list[Holder]]:
        """Let unfinished calls of this owner, all of one session, stand in its order with these claims from now on.

        They come after all that is there; claims that they had before are gone. Returns the calls of other owners that
        have claims in the session. Calls that are not this owner's stay as they are. A crash need not leave any of
        this: claims end with their owner.
        """
        ...

    def holders(self, sessions: Collection[str]) -> Awaitable[list[Holder]]:
        """The calls of other owners that have claims in these sessions now."""
        ...

    def start(self, key: CallKey, started_at: float) -> Awaitable[bool]:
        """Write that the tool of a call begins now. False when the call is not this process's to run."""
        ...

    def start_all(self, starts: Sequence[tuple[CallKey, float]]) -> Awaitable[None]:
        """Write that the tools of calls begin now, each at its instant, as `start` does, all or none.

        Raises:
            StoreError: one could not be written, or is not this process's to run; `start` says which.
        """
        ...

    def finish(
        self, key: CallKey, outcome: ToolOutcome, started_at: float | None, finished_at: float
    ) -> Awaitable[bool]:
        """Write the outcome of a call. False when it is no longer this process's to write.

        Repeated by its owner with the same outcome it is True again: after `StoreUnavailable` it is not known whether
        the first one was written.

        Without `started_at`, as for a call that a crash cut off and that is not run again, the recorded start stays.
        Its waits cannot be resolved from then on.
        """
        ...

    def finish_all(self, ended: Sequence[Ended]) -> Awaitable[None]:
        """Write the outcomes of calls as `finish` does, all or none.

        A call that has the same outcome from this owner already counts as written.

        Raises:
            StoreError: one could not be written, or is not this process's to write; `finish` says which.
        """
        ...

    def forget(self, key: CallKey) -> Awaitable[bool]:
        """Delete the intent of a call that this process owns and that did not run, with all its waits.

        True again when it is repeated by the owner that deleted it, as long as the call was not begun again. False when
        the call is finished, unknown, or not this process's.
        """
        ...

    async def reopen(self, key: CallKey) -> bool:
        """Delete the `connection_required` outcome of a call and make this process its owner, as if the call had not
        started.

        Its recorded effects and waits stay, and it has `NO_CLAIMS`. False when the call has no such outcome, or no
        longer; a call of this process that is unfinished and has not started is as if it had been reopened.
        """
        ...

    def release(self, key: CallKey) -> Awaitable[bool]:
        """Release an unfinished call that may have run: the next owner finds it `cut_off`.

        True again when it is repeated by the owner that released it, as long as the call was not taken over. False when
        it is finished, unknown, or not this process's.
        """
        ...

    async def unfinished(self, session: str | None = None) -> list[Entry]:
        """The unfinished calls of owners that are not alive, oldest first."""
        ...

    def effects(self, key: CallKey) -> Awaitable[list[Kept]]:
        """The recorded effects of a call, in any order."""
        ...

    def keep(self, key: CallKey, kept: Kept) -> Awaitable[bool]:
        """Write the state of an effect, replacing an earlier one. False when the call is not this process's."""
        ...

    def keep_all(self, effects: Sequence[tuple[CallKey, Kept]]) -> Awaitable[None]:
        """Write the states of effects as `keep` does, all or none. Of two with one call and label, the later stands.

        Raises:
            StoreError: one could not be written, or its call is not this process's; `keep` says which.
        """
        ...
