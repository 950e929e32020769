"""Messages. Owns a session's conversation, its senders, and the verbs a store must offer for it."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import Any, cast, get_args

from toolwright import jsonx
from toolwright.calls.redact import off_loop
from toolwright.clock import Clock
from toolwright.errors import ServiceError
from toolwright.session.secrets.redactor import KnownSecrets
from toolwright.session.services.quotas import Marker, Unmarked, to_json
from toolwright.stores.contracts.sessions import MessageStore, NewMessage, Quota
from toolwright.tools.service_protocols import Message, Sender

SENDERS: tuple[str, ...] = get_args(Sender)
PAGE = 1_000
"""How many messages are read at once: a conversation of any length is listed without one long read."""


class Messages:
    """The messages client of one session, for its host, or for one attempt of a call, which speaks as a tool only."""

    def __init__(
        self,
        store: MessageStore,
        session: str,
        marker: Marker,
        clock: Clock,
        quota: Quota,
        senders: tuple[str, ...],
        known: KnownSecrets,
    ) -> None:
        self._store = store
        self._session = session
        self._marker = marker
        self._clock = clock
        self._quota = quota
        self._senders = senders
        self._known = known

    async def append(
        self, content: object, *, sender: Sender = "tool", metadata: Mapping[str, Any] | None = None
    ) -> Message:
        """Add a message that has a JSON form at the end.

        Raises:
            ServiceError: the content is not usable, the sender is not one to speak as, or the quota is used up.
        """
        (message,) = await self.extend([{"content": content, "sender": sender, "metadata": metadata}])
        return message

    async def extend(self, messages: Iterable[Mapping[str, Any]]) -> builtins.list[Message]:
        """Add several messages at the end: all of them, one after another, or none.

        Each is a mapping with `content`, and optionally `sender` ("tool" by default) and `metadata`, as for `append`.

        Raises:
            ServiceError: one of the messages is not usable, or the quota is used up; then none is added.
        """
        new = [await self._checked(message) for message in messages]
        if not new:
            return []
        digests = [part for one in new for part in (one.sender, jsonx.digest(one.content), jsonx.digest(one.metadata))]
        mark = self._marker.mark("messages.append", *digests)
        first, at = await self._store.append_messages(self._session, new, self._clock.now(), self._quota, mark)
        return [
            Message(number, one.sender, jsonx.decode(one.content), jsonx.decode(one.metadata), at)
            for number, one in enumerate(new, first)
        ]

    async def _checked(self, message: object) -> NewMessage:
        known = {"content", "sender", "metadata"}
        if not isinstance(message, Mapping) or "content" not in message or not known.issuperset(message):
            raise ServiceError(
                f"The message {message!r:.200} is not usable; use a mapping with content, and sender and metadata"
            )
        content, sender, metadata = message["content"], message.get("sender", "tool"), message.get("metadata")
        if not isinstance(sender, str) or sender not in SENDERS:
            raise ServiceError(f"The sender {sender!r:.200} is not known; use one of {', '.join(SENDERS)}")
        if sender not in self._senders:
            raise ServiceError(
                f"A tool does not speak as {sender!r}; leave out sender=, or let the host append it",
                "permission_denied",
            )
        if metadata is not None and not isinstance(metadata, Mapping):
            raise ServiceError(f"The metadata {metadata!r:.200} of a message is not usable; use a mapping")
        data = to_json("content of a message", content)
        about = to_json("metadata of a message", {} if metadata is None else dict(metadata))
        redactor = None if isinstance(self._marker, Unmarked) else self._known.redactor
        if redactor is not None:
            # A model reads the messages of a conversation. The host may write any message.
            size = len(data) + len(about)
            data = await off_loop(size, redactor.json, data)
            about = to_json("metadata", await off_loop(size, redactor.value, jsonx.decode(about)))
        return NewMessage(cast("Sender", sender), data, about)

    async def list(self, *, after: int = 0, limit: int | None = None) -> builtins.list[Message]:
        """The messages beyond a number, in order, all or the first `limit`.

        Raises:
            ServiceError: one of the two is not a whole number of at least 0.
        """
        for name, value in (("after", after), ("limit", 0 if limit is None else limit)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ServiceError(f"{name}={value!r:.200} is not usable; use a whole number of at least 0")
        found: builtins.list[Message] = []
        # A number beyond the range of a store is beyond every message.
        after = min(after, 2**62)
        while limit is None or len(found) < limit:
            page = PAGE if limit is None else min(PAGE, limit - len(found))
            rows = await self._store.list_messages(self._session, after, page)
            found += [
                Message(number, sender, jsonx.decode(content), jsonx.decode(about), at)
                for number, sender, content, about, at in rows
            ]
            if len(rows) < page:
                break
            after = found[-1].number
        return found
