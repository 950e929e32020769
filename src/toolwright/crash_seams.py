"""Where the crash kit gets into a runtime. Owns the places; `toolwright.testing.crash_points` fills them.

They are filled only in a process that the crash kit started. In every other process they are None, and are looked at
when something is opened or planned, not when a call runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

Mode = Literal["async", "thread"]
"""How the function that runs the code of a tool is called."""


class CommitSeam(Protocol):
    """Stands around the transactions of a SQLite store."""

    def around(self, commit: Callable[[list[Any]], None]) -> Callable[[list[Any]], None]:
        """The function that the writer calls in place of `commit`."""
        ...

    def committed(self) -> None:
        """Called on the writer's thread when a transaction is committed, before anybody hears of it."""
        ...


class CrashSeams:
    """The places of one process. A name that is not among them cannot be set."""

    __slots__ = ("commits", "store", "tool_code")

    store: Callable[[Any], Any] | None
    """Takes each store that a runtime opens, and returns the one that it uses."""
    tool_code: Callable[[Callable[..., Any], Mode], Callable[..., Any]] | None
    """Takes the function that runs the code of a tool, and returns the one that is called in its place."""
    commits: CommitSeam | None
    """For the writer of each SQLite store that is opened."""

    def __init__(self) -> None:
        self.store = None
        self.tool_code = None
        self.commits = None


crash_seams = CrashSeams()
"""The places of this process."""
