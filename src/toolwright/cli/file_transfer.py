"""Content on its way between a store and this machine. Owns reading and writing it in pieces; knows no store.

No file is held in memory as a whole. A file written to a path is there completely or not at all.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

from toolwright.cli.exits import BadInput
from toolwright.ids import new_id
from toolwright.stores.contracts.sessions import PIECE

STREAM = "-"
"""The path that means stdin or stdout."""


async def read_pieces(source: str) -> AsyncIterator[bytes]:
    """The content of a file of this machine, or of stdin for `-`.

    Raises:
        BadInput: it cannot be read.
    """
    name = "Stdin" if source == STREAM else repr(source)
    try:
        with _opened(source) as file:
            while piece := file.read(PIECE):
                yield piece
    except OSError as error:
        raise BadInput(f"{name} cannot be read ({error.strerror}); check the path") from None


@contextlib.contextmanager
def _opened(source: str) -> Iterator[BinaryIO]:
    if source == STREAM:
        yield sys.stdin.buffer
        return
    with open(source, "rb") as file:
        yield file


async def write_stdout(pieces: AsyncIterable[bytes], path: str) -> int:
    """Write content to stdout, and return its size: as it is, but on a terminal only text, which cannot steer it.

    Raises:
        BadInput: it is not text and stdout is a terminal, or stdout cannot be written.
    """
    out, size = sys.stdout.buffer, 0
    shown = _shown(pieces, path) if sys.stdout.isatty() else pieces
    try:
        async for piece in shown:
            size += out.write(piece)
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BadInput(f"Stdout cannot be written ({error.strerror}); send it elsewhere") from None
    return size


async def _shown(pieces: AsyncIterable[bytes], path: str) -> AsyncIterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    async for piece in pieces:
        try:
            text = decoder.decode(piece)
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            raise BadInput(f"The file {path!r} is not text; write it to a file with toolwright files get, or to a pipe")
        yield "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text).encode()
    if decoder.getstate()[0]:
        yield "\ufffd".encode()  # It ends in the middle of a character.


async def write_path(pieces: AsyncIterable[bytes], target: Path, *, force: bool) -> int:
    """Write content to a file of this machine, and return its size. An existing file stays, unless it is to be
    replaced.

    Raises:
        BadInput: it is there, or cannot be written.
    """
    if not force:
        require_free(target)
    partial = target.with_name(f".{new_id('part')}")
    size = 0
    try:
        try:
            with partial.open("xb") as file:
                async for piece in pieces:
                    file.write(piece)
                    size += len(piece)
            _put(partial, target, force)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"{str(target)!r} cannot be written ({error.strerror}); choose another place") from None
    return size


def _put(partial: Path, target: Path, force: bool) -> None:
    """Give a file its name. Somebody may have made one of that name meanwhile, which only a link notices."""
    if not force:
        try:
            os.link(partial, target)
        except OSError:  # it is there now, or the file system has no links
            require_free(target)
        else:
            return
    os.replace(partial, target)


def require_free(target: Path) -> None:
    """Refuse to write over an existing file.

    Raises:
        BadInput: something is.
    """
    if os.path.lexists(target):
        raise BadInput(f"{str(target)!r} exists already; choose another name, or add --force to replace it")
