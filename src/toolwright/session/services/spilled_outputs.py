"""Output that is too long for the model. Owns the session file that each call's whole output goes to."""

from __future__ import annotations

import asyncio
import re

from toolwright import jsonx
from toolwright.errors import ServiceError
from toolwright.session.services.files import Files
from toolwright.stores.contracts.journal import CallKey

FOLDER = "/.outputs"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


def output_name(call: CallKey) -> str:
    """A file name for a call: the same each time, safe for any id, and no other call's in the session."""
    name = _UNSAFE.sub("_", call.call_id)[:100]
    if call.scope or name != call.call_id or name.startswith("."):
        # Ids may look the same once they are made safe, and be the same in two scopes.
        identity = jsonx.digest(jsonx.encode([call.scope, call.call_id]))
        name = f"{name.lstrip('.') or 'call'}-{identity[:12]}"
    return name


async def save_output(files: Files, call: CallKey, text: str) -> str:
    """Write the whole output of a call to a file of its session, and return its path.

    A file that is there is never written over, for its path may stand in a conversation: unless it has this very
    content, the output goes beside it.

    Raises:
        ServiceError: the quota of the session is used up.
    """
    name = output_name(call)
    data, digest = await asyncio.to_thread(_encoded, text)
    path = f"{FOLDER}/{name}.txt"
    try:
        return (await files.write(path, data, expected="")).path
    except ServiceError as error:
        if error.code not in ("conflict", "is_directory"):
            raise
    there = await files.stat(path)
    if there is not None and there.hash == digest:
        return path
    return (await files.write(f"{FOLDER}/{name}-{digest[:12]}.txt", data)).path


def _encoded(text: str) -> tuple[bytes, str]:
    data = text.encode()
    return data, jsonx.digest(data)
