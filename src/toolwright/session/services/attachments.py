"""Attachments. Owns content that travels with messages and outcomes, under its hash, and the verbs of its store."""

from __future__ import annotations

import asyncio
import base64
import builtins
import hashlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from toolwright.calls.redact import redact_content
from toolwright.clock import Clock
from toolwright.errors import ServiceError
from toolwright.session.services.quotas import Marker, require_name
from toolwright.stores.contracts.sessions import AttachmentStore, Quota
from toolwright.tools.outcome import GONE, Attachment, Image, ToolOutcome
from toolwright.tools.service_protocols import AttachmentInfo

if TYPE_CHECKING:
    from toolwright.session.secrets.redactor import KnownSecrets
    from toolwright.stores.contracts.sessions import SecretStore

Media = TypeVar("Media", Image, Attachment)
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}")
_HASH = re.compile(r"[0-9a-f]{64}")


class Attachments:
    """The attachments client of one session, for its host or for one attempt of a call."""

    def __init__(
        self,
        store: AttachmentStore,
        session: str,
        marker: Marker,
        clock: Clock,
        quota: Quota,
        known: KnownSecrets,
        secrets: SecretStore,
    ) -> None:
        self._store = store
        self._known = known
        self._secrets = secrets
        self._session = session
        self._marker = marker
        self._clock = clock
        self._quota = quota

    async def put(self, content: bytes, *, name: str, media_type: str) -> AttachmentInfo:
        """Store content. Content that the session has already is not stored twice, and gets the new name and type.

        Raises:
            ServiceError: something of it is not usable, or the session's quota is used up.
        """
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise ServiceError(f"The content of attachment {name!r:.200} is a {type(content).__name__}; use bytes")
        content = bytes(content)
        require_name("name of an attachment", name)
        if not isinstance(media_type, str) or not _MEDIA_TYPE.fullmatch(media_type):
            raise ServiceError(f"The media type {media_type!r:.200} is not usable; use one such as 'image/png'")
        self._quota.require("attachments", 1, len(content))  # before anything that large is written
        digest = hashlib.sha256(content).hexdigest()
        mark = self._marker.mark("attachments.put", digest, name, media_type)
        at = await self._store.put_attachment(
            self._session, content, name, media_type, self._clock.now(), self._quota, mark
        )
        return AttachmentInfo(digest, name, media_type, len(content), at)

    async def get(self, hash: str) -> bytes | None:
        """The content of a hash; None where the session has none of it."""
        return await self._store.get_attachment(self._session, _digest(hash))

    async def list(self) -> builtins.list[AttachmentInfo]:
        """The attachments of the session, the oldest first."""
        return await self._store.list_attachments(self._session)

    async def delete(self, hash: str) -> bool:
        """Remove an attachment; False when there was none."""
        digest = _digest(hash)
        return await self._store.delete_attachment(self._session, digest, self._marker.mark("attachments.delete", hash))

    async def fill_in(self, outcomes: Iterable[ToolOutcome]) -> builtins.list[ToolOutcome]:
        """The outcomes with the content of attachments that they name by hash, as a provider needs them.

        The content is redacted: it is as a tool stored it, and a model reads it now. An attachment that the session no
        longer has is left without content, and a model reads that it is gone.
        """
        await self._known.load(self._secrets)
        contents: dict[str, str | None] = {}

        async def fill(item: Media) -> Media:
            if item.hash is None:
                return item
            if item.hash not in contents:
                found = await self.get(item.hash) if _HASH.fullmatch(item.hash) else None
                contents[item.hash] = None if found is None else await asyncio.to_thread(self._shown, found)
            content = contents[item.hash]
            return replace(item, hash=GONE) if content is None else replace(item, data=content, hash=None)

        filled: builtins.list[ToolOutcome] = []
        for outcome in outcomes:
            images: tuple[Image, ...] = tuple([await fill(image) for image in outcome.images])
            files: tuple[Attachment, ...] = tuple([await fill(item) for item in outcome.attachments])
            filled.append(replace(outcome, images=images, attachments=files) if images or files else outcome)
        return filled

    def _shown(self, content: bytes) -> str:
        redactor = self._known.redactor
        return base64.b64encode(content if redactor is None else redact_content(redactor, content)).decode("ascii")


def _digest(hash: object) -> bytes:
    if not isinstance(hash, str) or not _HASH.fullmatch(hash):
        raise ServiceError(f"The hash {hash!r:.200} is not usable; use the 64 hexadecimal digits of a SHA-256")
    return bytes.fromhex(hash)
