"""A fair queue of the programs that write to one file. Owns the order in which they write; SQLite ensures that only one
does.

SQLite lets a program that finds the file locked look again after a while. On a slow disk the program that has just
written is there first, and another may wait for ever. So each writer draws a number from a file beside the store, and
holds a lock on the byte of that number until it has written. It is first when no byte below is locked. The operating
system releases the locks of a program that ends, wherever it was in the queue.

A writer that is alone needs no number. Each has a lock on one byte behind all numbers while its store is open, and sees
there whether another has, too.

Only fairness depends on this: SQLite still separates programs that write out of order. So a program that is stopped in
the queue blocks no other: a program that has waited for a while without the queue moving may try out of order.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import struct
import threading
import time
import weakref

from toolwright.private_files import private_mode
from toolwright.stores.sqlite.core.store_file import StorePlace

ENDING = "-turns"
"""How the name of the file ends."""
_COUNTER = struct.Struct("<q")
_LOCK = struct.Struct("hhqqi0q")
# Locks of an open file, and not of the process: two stores of one program queue, too. Only Linux has them.
_SET_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)
_WAIT_FOR_LOCK: int | None = getattr(fcntl, "F_OFD_SETLKW", None)
_SEE_LOCK: int | None = getattr(fcntl, "F_OFD_GETLK", None)
_PRESENT = 1 << 62
"""The byte that every writer has a lock on; numbers are below."""
_ASK_PRESENT = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _PRESENT, 1, 0)


class WriterQueue:
    """The place of one writer in the queue. `take` and `give_back` are called by its thread alone.

    Waiting for the lock of a file cannot be given up, so a second thread waits where there is a program in front. It
    holds the place in the queue when the writer gives up, for the next time.
    """

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._fd = -1
        self._works = _SET_LOCK is not None
        self._asked: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._waiter: threading.Thread | None = None
        self._mutex = threading.Lock()
        self._came = threading.Event()
        self._number = 0
        self._seen = b""
        self._queued = False
        self._wanted = False
        self._has_number = False
        self._closed = False

    def take(self, seconds: float) -> bool:
        """Wait until this program is first in the queue; False when that took too long, and its place is held."""
        if not self._works:
            return True
        if self._fd < 0 and not self._open():
            return True
        with self._mutex:
            queued = self._wanted = self._queued
        if not queued:
            if self._is_alone():
                return True
            self._has_number = True
            number = self._draw(seconds)
            if number is None:
                return not self._works
            self._number = number
            # The locks below are released together with the number's own.
            if self._lock(fcntl.F_RDLCK, 0, number):
                self._show_first()
                return True
            self._queue(number)
        came = self._came.wait(seconds)
        if not came:
            with self._mutex:
                came = self._wanted = self._came.is_set()  # It may have come just now.
        if came:
            self._show_first()
        return came

    def has_moved(self) -> bool:
        """True when the queue has moved since the last look: another number was first."""
        before = self._seen
        with contextlib.suppress(OSError):
            self._seen = os.pread(self._fd, _COUNTER.size, _COUNTER.size)
        return self._seen != before

    @property
    def holds_number(self) -> bool:
        """True while this program has a place in the queue; one that is alone needs none."""
        return self._has_number

    def is_wanted(self) -> bool:
        """True when another program waits behind the number of this one."""
        assert _SEE_LOCK is not None
        behind = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, self._number + 1, _PRESENT - self._number - 1, 0)
        try:
            seen = fcntl.fcntl(self._fd, _SEE_LOCK, behind)
        except OSError:
            return True
        return bool(_LOCK.unpack(seen)[0] != fcntl.F_UNLCK)

    def give_back(self) -> None:
        """Leave the queue."""
        if self._works and self._has_number:
            self._queued = self._wanted = self._has_number = False
            self._came.clear()
            self._lock(fcntl.F_UNLCK, 0, _PRESENT)
            if not self._works:
                self.drop()  # A lock that could not be released must not block others.

    def settle(self) -> None:
        """The store is open: open the file again, if the last of its other users has just removed it."""
        if self._fd >= 0 and os.fstat(self._fd).st_nlink == 0 and not self._queued:
            self.drop()

    def close(self, *, last: bool) -> None:
        """Stop taking part; `last` means that no other program has the store open, and the file can go."""
        if last and self._fd >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._place.name + ENDING, dir_fd=self._place.directory)
        with self._mutex:
            self._closed = True
            waits = self._queued and not self._came.is_set()
            if not waits:
                self.drop()
        self._asked.put(-1)
        # A thread that still queues ends when it is first, or with the program.
        if self._waiter is not None and not waits:
            self._waiter.join()

    def drop(self) -> None:
        """Close the file. A fork shares the locks of its parent, and would hold them when that ends."""
        _open_queues.discard(self)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):  # closed by other code, or its disk failed
                os.close(fd)

    def _open(self) -> bool:
        name, directory = self._place.name + ENDING, self._place.directory
        try:
            try:
                self._fd = os.open(name, os.O_RDWR | os.O_CLOEXEC, dir_fd=directory)
            except FileNotFoundError:
                self._fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=directory)
                # Every program that may write to the store queues, whatever the umask.
                os.fchmod(self._fd, private_mode(os.stat(self._place.name, dir_fd=directory).st_mode))
        except OSError:  # It is another user's, or the disk is full: without a queue, SQLite decides.
            self._works = False
            self.drop()
            return False
        _open_queues.add(self)
        self._lock(fcntl.F_RDLCK, _PRESENT, 1)
        return True

    def _is_alone(self) -> bool:
        """True when no other writer has the store open. A writer that comes now finds the file locked, and no
        number."""
        if _SEE_LOCK is None:
            return False
        try:
            seen = fcntl.fcntl(self._fd, _SEE_LOCK, _ASK_PRESENT)
        except OSError:
            return False
        return bool(_LOCK.unpack(seen)[0] == fcntl.F_UNLCK)

    def _draw(self, seconds: float) -> int | None:
        """Draw a number, and lock its byte; None when that took too long, or cannot be done here."""
        patience = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # Another draws, which takes a moment.
                if time.monotonic() > patience:
                    return None
                time.sleep(0.0001)
                continue
            except OSError:
                self._works = False
                return None
            break
        try:
            drawn = os.pread(self._fd, _COUNTER.size, 0)
            number = _COUNTER.unpack(drawn)[0] + 1 if len(drawn) == _COUNTER.size else 1
            os.pwrite(self._fd, _COUNTER.pack(number), 0)
            return number if self._lock(fcntl.F_WRLCK, number, 1) else None
        except OSError:  # a full disk, or a file system without such locks
            self._works = False
            return None
        finally:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            except OSError:
                self._works = False
                self.drop()

    def _lock(self, kind: int, start: int, length: int) -> bool:
        assert _SET_LOCK is not None
        try:
            fcntl.fcntl(self._fd, _SET_LOCK, _LOCK.pack(kind, os.SEEK_SET, start, length, 0))
        except (BlockingIOError, PermissionError):
            return False
        except OSError:  # There are no such locks here, or no more of them: without a queue, SQLite decides.
            self._works = False
        return True

    def _show_first(self) -> None:
        """Show the waiting programs which number is first."""
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, _COUNTER.pack(self._number), _COUNTER.size)

    def _queue(self, number: int) -> None:
        with self._mutex:
            self._queued = self._wanted = True
            self._came.clear()
        if self._waiter is None:
            self._waiter = threading.Thread(target=self._wait, name="toolwright-writer-queue", daemon=True)
            self._waiter.start()
        self._asked.put(number)

    def _wait(self) -> None:
        assert _WAIT_FOR_LOCK is not None
        while (number := self._asked.get()) >= 0:
            try:
                fcntl.fcntl(self._fd, _WAIT_FOR_LOCK, _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, number, 0))
            except OSError:
                self._works = False
            with self._mutex:
                if self._wanted and not self._closed:
                    self._came.set()
                    continue
                self._queued = False
                self._lock(fcntl.F_UNLCK, 0, _PRESENT)
                if self._closed:
                    self.drop()


_open_queues: weakref.WeakSet[WriterQueue] = weakref.WeakSet()


def _forked() -> None:
    for waiting in list(_open_queues):
        waiting.drop()


os.register_at_fork(after_in_child=_forked)
