"""Images and attachments inside a tool's return value. Owns taking them out, and the text in their place.

The value of an outcome is JSON, and a model reads it as text. The base64 of a picture is of no use to it there, so a
picture goes beside the value, from where each provider shows it as a picture, and the value mentions it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from toolwright.tools.outcome import Attachment, Image

MARK = b'"media_type":"'
"""Stands in the JSON of every image and attachment. A value without it needs no search."""
SHORTEST = 30
"""Bytes that the JSON of an image has at least."""


def take_media(value: object) -> tuple[Any, tuple[Image, ...], tuple[Attachment, ...]]:
    """The value with words in the place of images and attachments, and these; the same object where it has none."""
    found: dict[int, Image | Attachment] = {}
    _collect(value, found)
    if not found:
        return value, (), ()
    images = [item for item in found.values() if isinstance(item, Image)]
    attachments = [item for item in found.values() if isinstance(item, Attachment)]
    words = {id(item): _words(item, number if len(images) > 1 else 0) for number, item in enumerate(images, 1)}
    words |= {id(item): _words(item, 0) for item in attachments}
    return _replaced(value, words), tuple(images), tuple(attachments)


def _words(item: Image | Attachment, number: int) -> str:
    """The text in place of an image or an attachment: its type and its size."""
    if isinstance(item, Attachment):
        what = f"attachment {item.name!r:.200}"
    else:
        what = f"image {number}" if number else "image"
    size = f"{len(item.data) * 3 // 4 - item.data[-2:].count('=')} bytes" if item.hash is None else "kept by its hash"
    return f"[{what}: {item.media_type:.100}, {size}]"


def _collect(value: object, found: dict[int, Image | Attachment]) -> None:
    if isinstance(value, (Image, Attachment)):
        found[id(value)] = value
        return
    for item in _parts(value):
        _collect(item, found)


def _replaced(value: object, words: dict[int, str]) -> object:
    if isinstance(value, (Image, Attachment)):
        return words[id(value)]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_replaced(item, words) for item in value]
    named = value if isinstance(value, dict) else _fields(value)
    if named is None:
        return value
    changed = {name: _replaced(item, words) for name, item in named.items()}
    return changed if any(changed[name] is not item for name, item in named.items()) else value


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    named = value if isinstance(value, dict) else _fields(value)
    return () if named is None else named.values()


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of an object that has a JSON form by its fields; None for anything else."""
    if isinstance(value, type):
        return None
    if isinstance(value, Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(value) if hasattr(value, "model_dump") else None
