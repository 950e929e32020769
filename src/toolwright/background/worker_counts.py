"""The actions of a worker on background runs. Owns counting them and telling listeners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from toolwright.stores.contracts.background_run import BackgroundRun, Status

WorkerAction = Literal["started", "taken_over", "completed", "failed", "cancelled", "abandoned", "handed_back", "lost"]
"""The actions of a worker on a run. A run that another worker had begun is "started" and "taken_over". A run that
another worker claimed meanwhile is "lost"."""

Listener = Callable[[WorkerAction, BackgroundRun], None]
"""Called at once, on the loop of the worker. The run is as it was when it was claimed."""


class WorkerCounts:
    """The actions of one worker, each with how often it was taken."""

    def __init__(self) -> None:
        # All of them from the beginning: a thread may read this while it changes, and finds the same keys.
        self.by_action: dict[WorkerAction, int] = dict.fromkeys(get_args(WorkerAction), 0)
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call this listener for every action from now on."""
        self._listeners.append(listener)

    def note(self, action: WorkerAction, run: BackgroundRun) -> None:
        """Count an action, and call the listeners."""
        self.by_action[action] += 1
        for listener in self._listeners:
            listener(action, run)

    def end(self, status: Status | None, run: BackgroundRun) -> None:
        """A run ended with this status, or with none: then it is lost."""
        self.note(next((action for action in self.by_action if action == status), "lost"), run)
