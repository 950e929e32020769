"""Notices of change. Owns the callbacks that hear of a change of tools; does not own what has changed."""

from __future__ import annotations

import logging
from collections.abc import Callable

from toolwright.log_fields import log_fields

log = logging.getLogger("toolwright.tools")

Callback = Callable[[], object]
"""Called after a change, in the thread that made it."""
Unsubscribe = Callable[[], None]


class ChangeNotices:
    """The callbacks of one registry, scope or view, in the order in which they came."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: dict[object, Callback] = {}  # by an object each, so that one callback may be there twice

    def add(self, callback: Callback) -> Unsubscribe:
        """Call this after each change, until the function that is returned is called."""
        if not callable(callback):
            raise TypeError(f"{callback!r:.200} cannot be told about changes; use a function without parameters")
        entry = object()
        self._callbacks[entry] = callback

        def remove() -> None:
            self._callbacks.pop(entry, None)

        return remove

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def tell(self) -> None:
        """The change was made: call each. One that raises is logged, and the others are called."""
        for entry, callback in list(self._callbacks.items()):
            if entry not in self._callbacks:  # another callback ended it
                continue
            try:
                callback()
            except Exception:  # the host's code: the change stands
                log.exception(
                    "The callback %r for changes of tools failed",
                    callback,
                    extra=log_fields("tools.callback_failed"),
                )


def follow(source: object, callback: Callback) -> Unsubscribe:
    """Hear of the changes of a source of tools; of one that has no notices, nothing is heard."""
    subscribe = getattr(source, "on_change", None)
    return subscribe(callback) if callable(subscribe) else _nothing


def _nothing() -> None:
    pass
