"""What a worker did. Owns counting it, and telling whoever listens; decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from toolwright.stores.contracts.background_run import BackgroundRun, Status

Deed = Literal["started", "taken_over", "completed", "failed", "cancelled", "abandoned", "handed_back", "lost"]
"""What a worker may do with a process. What another worker had begun is started, and "taken_over"; "lost" is
what became another's meanwhile."""

Listener = Callable[[Deed, BackgroundRun], None]
"""Is told at once, on the loop of the worker. The process is as it was when it was claimed."""


class Tally:
    """The deeds of one worker, each with how often it was done."""

    def __init__(self) -> None:
        # All of them from the beginning: a thread may read this while it changes, and finds the same keys.
        self.counts: dict[Deed, int] = dict.fromkeys(get_args(Deed), 0)
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Tell this listener of every deed from now on."""
        self._listeners.append(listener)

    def note(self, deed: Deed, process: BackgroundRun) -> None:
        """Count a deed, and tell of it."""
        self.counts[deed] += 1
        for listener in self._listeners:
            listener(deed, process)

    def end(self, status: Status | None, process: BackgroundRun) -> None:
        """A process ended with this status, or with none: then it is lost."""
        self.note(next((deed for deed in self.counts if deed == status), "lost"), process)
