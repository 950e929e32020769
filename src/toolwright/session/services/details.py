"""The title of a session, and its language. Owns these, stored among its named values.

They lie under reserved keys, so that they go into an archive with the rest and count for its quota.
"""

from __future__ import annotations

from toolwright.errors import ServiceError
from toolwright.session.services.keyvalue import KeyValue
from toolwright.stores.contracts.archives import LOCALE, LOCALE_KEY, LONGEST_TITLE, TITLE_KEY, details_of
from toolwright.tools.outcome import encodable
from toolwright.tools.service_protocols import SessionDetails


class Details:
    """`DetailsClient` of one session, for its host or for one attempt of a call."""

    def __init__(self, kv: KeyValue) -> None:
        self._kv = kv

    async def get(self) -> SessionDetails:
        """The title and the locale; None for one that was not set."""
        return details_of({key: await self._kv.get(key) for key in (TITLE_KEY, LOCALE_KEY)})

    async def set(self, *, title: str | None = None, locale: str | None = None) -> SessionDetails:
        """Set the title, the locale, or both; a missing argument changes nothing, and empty text removes.

        Raises:
            ServiceError: the title or the locale is not usable.
        """
        if title is not None:
            title = _require_title(title)
        if locale is not None and (not isinstance(locale, str) or (locale and not LOCALE.fullmatch(locale))):
            raise ServiceError(f"The locale {locale!r:.100} is not usable; use a language tag, such as 'de' or 'pt-BR'")
        for key, text in ((TITLE_KEY, title), (LOCALE_KEY, locale)):
            if text:
                await self._kv.set(key, text)
            elif text is not None:
                await self._kv.delete(key)
        return await self.get()


def _require_title(title: object) -> str:
    if not isinstance(title, str) or encodable(title) != title:
        raise ServiceError(f"The title {title!r:.200} of a session is not usable; use text")
    line = " ".join(title.split())
    if len(line) > LONGEST_TITLE:
        raise ServiceError(f"The title has {len(line)} characters, and may have {LONGEST_TITLE}; use a shorter one")
    return line
