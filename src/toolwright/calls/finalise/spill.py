"""Output that is too long for a model. Owns writing the whole of it to a file before it is cut.

The file belongs to the session, or to a directory of the host; there it must survive a power cut, for outcomes name it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.calls.finalise.truncate import bound, bound_within
from toolwright.calls.policy import Policy
from toolwright.calls.redact import off_loop
from toolwright.errors import ToolwrightError
from toolwright.ids import new_id
from toolwright.log_fields import log_fields
from toolwright.private_files import create_private
from toolwright.tools.outcome import ToolOutcome

log = logging.getLogger("toolwright.calls")

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")

Keep = Callable[[str], Awaitable[str]]
"""Stores the whole output of a call in a file of its session, and returns the path."""


async def bounded(outcome: ToolOutcome, text: str, policy: Policy, keep: Keep) -> ToolOutcome:
    """Cut the text for the model; the whole goes to a file first."""
    if outcome.status == "success":
        where = await _spill(outcome, text, policy, keep)
        shown = await off_loop(
            len(text), functools.partial(bound, text, policy.max_lines, policy.max_bytes, where=where)
        )
    else:
        # An object with one text in it: the text is cut, and the object stays JSON.
        ((key, message),) = jsonx.decode(text).items()
        where = await _spill(outcome, message, policy, keep)
        shown = bound_within(
            message,
            lambda part: jsonx.encode({key: part}).decode(),
            policy.max_lines,
            policy.max_bytes,
            where,
        )
    return replace(outcome, model_text=shown, spilled_to=where)


async def persisted(outcome: ToolOutcome, text: str, policy: Policy, keep: Keep) -> ToolOutcome:
    """Store the whole result of a tool in a file, though it is short enough for the model."""
    return replace(outcome, spilled_to=await _spill(outcome, text, policy, keep))


async def _spill(outcome: ToolOutcome, text: str, policy: Policy, keep: Keep) -> str | None:
    """Write the whole text to a file named after the call; None when that fails, for the marker must not lie.

    The file is one of the session's, unless the policy names a directory of the host. A file that was written before,
    for an outcome that comes from the journal, is not written again.
    """
    if outcome.replayed and (outcome.spilled_to is not None or policy.spill_dir is None):
        return outcome.spilled_to
    try:
        if policy.spill_dir is None:
            return await keep(text)
        return await asyncio.to_thread(save_output, Path(policy.spill_dir), outcome.call_id, text.encode())
    except (OSError, ValueError, ToolwrightError):
        place = "a file of its session" if policy.spill_dir is None else policy.spill_dir
        log.exception(
            "The output of call %r could not be written to %s",
            outcome.call_id,
            place,
            extra=log_fields("call.output_not_stored", call_id=outcome.call_id, tool=outcome.tool, path=str(place)),
        )
        return None


def save_output(folder: Path, call_id: str, data: bytes) -> str:
    """Write a new file named after a call, and return its path. It is on the disk by then: the outcome will name it.

    Raises:
        OSError: it cannot be written; nothing of it is there.
    """
    name = _UNSAFE.sub("_", call_id)[:100]
    if name != call_id or name.startswith("."):
        # Two ids may look the same once they are made safe.
        name = f"{name.lstrip('.') or 'call'}-{jsonx.digest(call_id.encode('utf-8', 'surrogatepass'))[:12]}"
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}.txt"
    try:
        file = create_private(target)
    except FileExistsError:
        # Never over another file: its name may stand in a conversation.
        target = folder / f"{name}-{new_id('file')}.txt"
        file = create_private(target)
    try:
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        for each in {folder, *(one.parent for one in made)}:
            _sync_folder(each)
    except OSError:
        target.unlink(missing_ok=True)
        raise
    return str(target)


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names of new files in it survive a power cut."""
    # Not every system lets a folder be opened, nor every file system have it synced: there is no surer way then.
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
