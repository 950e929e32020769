"""Which processes use a store. Owns which of them are alive, by locks that end with their process.

Each process that opens a store holds a lock on a file of its own beside it. The operating system releases the lock when
the process ends, however it ends, and not before: a process that was only stopped for a while is not taken for dead. A
number is given once, so that the file of a dead owner can be removed for good.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import weakref

from toolwright.stores.sql.codec import one
from toolwright.stores.sql.connection import Connection
from toolwright.stores.sqlite.core.store_file import StorePlace

PATIENCE = 2.0
"""Seconds to wait for the lock of a file that no other process should hold."""


class OwnerLock:
    """The sign of life of one process that has a store open."""

    def __init__(self, place: StorePlace, number: int) -> None:
        self._place = place
        self._name = _name_of(place, number)
        self._fd = _lock(self._name, place.directory)
        _held.add(self)

    def release(self) -> None:
        """Release the lock; unfinished calls are free from now on."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._place.directory)
            self.drop()

    def drop(self) -> None:
        """Close the file. The lock goes with the last process that has it open."""
        _held.discard(self)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def is_alive(place: StorePlace, number: int) -> bool:
    """True while the process that took this number holds its lock. The file of a dead one is removed."""
    name, directory = _name_of(place, number), place.directory
    try:
        fd = os.open(name, os.O_RDWR | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return False
    try:
        # Shared: two processes that ask at once must not take each other for the owner.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        with contextlib.suppress(OSError):
            if not os.fstat(fd).st_size:  # else it is not the file of an owner, which is always empty
                os.unlink(name, dir_fd=directory)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


class FileLiveness:
    """`Liveness` by the locks on the files beside a store."""

    def __init__(self, place: StorePlace) -> None:
        self._place = place

    def dead_among(self, owners: set[str], connection: Connection) -> set[str]:
        """The owners whose process is gone, with the empty name of released calls."""
        dead = set()
        for owner in owners:
            number = one(connection, "SELECT number FROM owners WHERE name = ?", (owner,))
            if number is None or not is_alive(self._place, number):
                dead.add(owner)
        return dead

    def spares_all(self, connection: Connection) -> bool:
        """Never: a file is not away."""
        return False


def sweep(place: StorePlace) -> bool:
    """Remove the files of dead processes beside the store; True when a living one has it open."""
    return any([is_alive(place, number) for number in owner_numbers(place)])  # noqa: C419 (each of them)


def owner_numbers(place: StorePlace) -> set[int]:
    """The numbers of the owners that have a file beside the store, whether they live or not."""
    beginning = _name_of(place, "")
    names = [name.removeprefix(beginning) for name in os.listdir(place.directory) if name.startswith(beginning)]
    return {int(name) for name in names if name.isdecimal()}


def _lock(name: str, directory: int) -> int:
    """Lock the file of a new owner. Others hold it for a moment at most, to see whether its owner lives.

    Raises:
        BlockingIOError: another process holds it, which has the number from an earlier store at this path.
    """
    patience = time.monotonic() + PATIENCE
    while True:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=directory)
        try:
            os.fchmod(fd, 0o600)  # whatever the umask is
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between making it and locking it, another process may have removed it as the file of a dead owner.
            if os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=directory)):
                return fd
        except FileNotFoundError:
            pass
        except BlockingIOError:
            if time.monotonic() > patience:
                os.close(fd)
                raise
            time.sleep(0.01)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _name_of(place: StorePlace, number: int | str) -> str:
    return f"{place.name}-owner-{number}"


_held: weakref.WeakSet[OwnerLock] = weakref.WeakSet()


def _forked() -> None:
    """A fork shares its parent's locks, and would make the dead parent look alive."""
    for lock in list(_held):
        lock.drop()


os.register_at_fork(after_in_child=_forked)
