"""Searching the content of files. Owns patterns, lines and the bound on time; does not own reading the files.

The engine is RE2: whatever the pattern, its time grows with the text alone. A piece of content is searched at once, and
lines are found around the matches only: most pieces have none.
"""

from __future__ import annotations

import asyncio
import fnmatch
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from toolwright.errors import ServiceError
from toolwright.stores.contracts.sessions import Piece, Portion
from toolwright.tools.outcome import encodable
from toolwright.tools.service_protocols import GrepMatch

MAX_PATTERN = 4096
MAX_GLOB = 200
MAX_LIMIT = 100_000
MAX_PROGRAM = 20_000
"""Instructions of a pattern: the highest cost of a byte."""
SHOWN = 2_000
"""Bytes of a line that are shown."""
LONGEST = 8 * 1024 * 1024
"""Bytes of a line that are searched at once; a longer one is searched in parts."""
_SNIFFED = 8192
_NEWLINE = 10


class Search:
    """One search: fed with portions, it collects the lines that match. Used on one thread at a time."""

    def __init__(self, pattern: object, limit: object, glob: object = None) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
            raise ServiceError(f"The limit {limit!r:.100} is not usable; use 1 to {MAX_LIMIT} lines")
        self.pattern = pattern
        self.found: list[GrepMatch] = []
        self.until = float("inf")
        self._compiled = _compile(pattern)
        self._is_wanted = _path_filter(glob)
        self._limit = limit
        self._line = 1
        self._rest = b""
        self._skipped = False
        self._cut = False

    @property
    def full(self) -> bool:
        """True when there are as many lines as were asked for."""
        return len(self.found) >= self._limit

    @property
    def late(self) -> bool:
        """True when its time is up."""
        return time.monotonic() >= self.until

    def feed(self, portion: Portion) -> bool:
        """Search the read content, until the list is full; False when it ended before that, because of the time
        limit."""
        for piece in portion.pieces:
            if self.full:
                return True
            if self._cut or self.late:
                return False
            self._feed(piece)
        return not self._cut

    def _feed(self, piece: Piece) -> None:
        data = piece.content
        if piece.number == 0:
            self._line, self._rest = 1, b""
            self._skipped = not self._is_wanted(piece.path) or b"\0" in data[:_SNIFFED]
        if self._skipped:
            return
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if not piece.last:
            cut = data.rfind(b"\n") + 1
            if cut == 0 and len(data) >= LONGEST:
                cut = len(data)
            self._rest = data[cut:]
            data = data[:cut]
        self._search(piece, data)

    def _search(self, piece: Piece, data: bytes) -> None:
        place = counted = 0
        while (match := self._compiled.search(data, place)) is not None:
            start = match.start()
            if start == len(data) and data[-1:] in (b"", b"\n"):
                break  # Behind the last line there is no other.
            begin = data.rfind(b"\n", 0, start) + 1
            end = data.find(b"\n", start)
            end = len(data) if end < 0 else end
            self._line += data.count(b"\n", counted, begin)
            counted = begin
            self.found.append(GrepMatch(piece.path, self._line, _shown(data, begin, start, end)))
            place = end + 1
            if place > len(data) or self.full:
                break
            if self.late:
                self._cut = True
                break
        if not piece.last:
            self._line += data.count(b"\n", counted)


async def run_search(
    search: Search, seconds: float, read: Callable[[Portion | None], Awaitable[Portion]]
) -> list[GrepMatch]:
    """Read and search portion by portion, off the loop, within a bound on time.

    Raises:
        ServiceError: it took too long, with code "timeout".
    """
    search.until = time.monotonic() + seconds
    upcoming: asyncio.Future[Portion] | None = asyncio.ensure_future(read(None))
    try:
        while upcoming is not None and not search.full:
            portion = await upcoming
            # While this one is searched, the next is read.
            upcoming = None if portion.final else asyncio.ensure_future(read(portion))
            job = asyncio.get_running_loop().run_in_executor(None, search.feed, portion)
            # Not cancelled but left: a thread cannot be stopped, and ends soon by itself.
            await asyncio.wait((job,), timeout=max(0.0, search.until - time.monotonic()))
            if not job.done() or not job.result():
                raise _late(search, seconds, portion)
    finally:
        search.until = 0.0  # for a thread that still searches
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.wait((upcoming,))
            _ = upcoming.cancelled() or upcoming.exception()  # its result and its error are not needed any more
    return search.found


def _late(search: Search, seconds: float, last: Portion) -> ServiceError:
    at = last.pieces[-1].path if last.pieces else "its beginning"
    found = len(search.found)
    return ServiceError(
        f"The search for {search.pattern!r:.200} took longer than {seconds:g} s and came to {at!r} with {found} lines; "
        "search a smaller directory, or ask for fewer lines",
        "timeout",
    )


def _path_filter(glob: object) -> Callable[[str], bool]:
    """True for the paths of files that a shell-style pattern means: a name, or a whole path if it has a slash."""
    if glob is None:
        return lambda path: True
    if not isinstance(glob, str) or not glob or len(glob) > MAX_GLOB:
        raise ServiceError(f"The glob {glob!r:.200} is not usable; use 1 to {MAX_GLOB} characters, such as '*.py'")
    matches = re.compile(fnmatch.translate(glob)).match
    if "/" in glob:
        return lambda path: matches(path) is not None
    return lambda path: matches(path.rpartition("/")[2]) is not None


def _compile(pattern: object) -> Any:
    if not isinstance(pattern, str) or not pattern or encodable(pattern) != pattern or len(pattern) > MAX_PATTERN:
        raise ServiceError(f"The pattern {pattern!r:.200} is not usable; use 1 to {MAX_PATTERN} characters of text")
    try:
        import re2
    except ImportError as error:
        raise ServiceError(
            "Searching files needs google-re2; pip install 'toolwright[files]'", "not_installed"
        ) from error
    options = re2.Options()
    options.never_nl = True  # a match is within a line
    options.never_capture = True
    options.log_errors = False
    try:
        compiled = re2.compile(b"(?m)" + pattern.encode(), options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise ServiceError(f"The pattern {pattern!r:.200} is not a regular expression of RE2: {why}") from error
    re2.purge()  # It would hold the last 128 patterns, each with some MiB that it needs while it runs.
    if compiled.programsize > MAX_PROGRAM:
        raise ServiceError(f"The pattern {pattern!r:.200} is too large once its repetitions are written out; use fewer")
    return compiled


def _shown(data: bytes, begin: int, start: int, end: int) -> str:
    """The text of a line; of a long one the part around the match."""
    if end - begin <= SHOWN:
        return data[begin:end].decode(errors="replace")
    first = max(begin, min(start - SHOWN // 4, end - SHOWN))
    last = first + SHOWN
    text = data[first:last].decode(errors="ignore")  # a character may be cut in two
    return f"{'…' if first > begin else ''}{text}{'…' if last < end else ''}"
