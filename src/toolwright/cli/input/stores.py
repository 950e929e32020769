"""Which store a command works on. Owns reading `--db` and the project's setting; does not own the store."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, Unpack

from toolwright.app import App
from toolwright.app_options import OpenOptions
from toolwright.cli.exits import BadInput
from toolwright.cli.input.project import find_project
from toolwright.errors import ServiceError
from toolwright.runtime.runtime import Runtime
from toolwright.stores.contracts.scheme import without_password
from toolwright.stores.opening import MEMORY, inspect_store

T = TypeVar("T")


def named_store(db: str | None) -> str | None:
    """The store that `--db` or the project names; None for a command that stores nothing.

    Raises:
        BadInput: `--db` is empty, or the project's setting is not text.
    """
    if db is not None:
        if not db.strip():
            # As of a variable that is not set: without a word, nothing that the command does would be durable.
            raise BadInput(f"--db {db!r} names no store; check the variable that it came from, or leave --db out")
        return None if db == MEMORY else db
    project = find_project(Path.cwd())
    return None if project is None else project.store()


def require_store(db: str | None) -> str:
    """The store that `--db` or the project names, which must be there.

    Raises:
        BadInput: none is named, or there is no such store.
    """
    found = named_store(db)
    if found is None:
        raise BadInput(
            'There is no store to look at; name one with --db FILE, or write db = "agent.db" under [tool.toolwright] '
            "in pyproject.toml"
        )
    if not asyncio.run(inspect_store(found).exists()):
        raise BadInput(f"There is no store {without_password(found)!r}; check the path")
    return found


def store_to_fill(db: str | None) -> str:
    """The store that `--db` or the project names, which may be made.

    Raises:
        BadInput: none is named.
    """
    found = named_store(db)
    if found is None:
        raise BadInput(
            'There is no store to fill; name one with --db FILE, or write db = "agent.db" under [tool.toolwright] '
            "in pyproject.toml"
        )
    return found


@asynccontextmanager
async def opened(
    store: str, app: App | None = None, *, made: bool = False, **options: Unpack[OpenOptions]
) -> AsyncIterator[Runtime]:
    """The app, or one without anything, over a store that exists, unless it may be `made`: then a file that is empty
    is a store, too.

    Raises:
        StoreError: it is another program's or a newer toolwright's, or cannot be read or written.
    """
    if not made:
        await inspect_store(store).version()
    async with (app or App()).open(store, **options) as runtime:
        yield runtime


def use_session(store: str, session_id: str, what: Callable[[Runtime], Awaitable[T]], app: App | None = None) -> T:
    """Do something with a session of a store, which must exist.

    Raises:
        BadInput: nothing was found, for there is no such session.
    """

    async def work() -> T:
        if threading.current_thread() is threading.main_thread():
            # A Ctrl-C must also end a read of stdin or a write to stdout, which asyncio would let continue.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        async with opened(store, app) as runtime:
            try:
                found = await what(runtime)
            except ServiceError as error:
                if error.code == "not_found":
                    await _require_session(runtime, session_id)
                raise
            if not found:
                await _require_session(runtime, session_id)
            return found

    return asyncio.run(work())


async def _require_session(runtime: Runtime, session_id: str) -> None:
    """Refuse a session that is not there: its files and names would seem to be missing."""
    if not await runtime.sessions(session_id):
        raise BadInput(f"There is no session {session_id!r} in the store; see toolwright session list")
