"""Images and attachments inside a tool's return value. Owns taking them out, and the text in their place.

The value of an outcome is JSON, and a model reads it as text. The base64 of a picture is of no use to it there, so a
picture goes beside the value, from where each provider shows it as a picture, and the value mentions it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from toolwright import jsonx
from toolwright.tools.outcome import Attachment, Image

MARK = b'"media_type":"'
"""Stands in the JSON of every image and attachment. A value without it needs no search."""
SHORTEST = 30
"""Bytes that the JSON of an image has at least."""


def take_media(value: object, payload: bytes) -> tuple[bytes, tuple[Image, ...], tuple[Attachment, ...]]:
    """The JSON of a value with words in the place of images and attachments, and these; equal ones are one.

    They are replaced in the JSON, so that it has the names and the form that the types of the value give it. Their own
    JSON begins with a bracket and a quote, which stand side by side in no text: only they are replaced.
    """
    found: dict[Image | Attachment, None] = {}
    _collect(value, found)
    # A field that the JSON leaves out, as a pydantic model may, is not shown.
    shown = {item: encoded for item in found if (encoded := jsonx.encode(item)) in payload}
    images = [item for item in shown if isinstance(item, Image)]
    attachments = [item for item in shown if isinstance(item, Attachment)]
    for number, image in enumerate(images, 1):
        payload = payload.replace(shown[image], jsonx.encode(_words(image, number if len(images) > 1 else 0)))
    for attachment in attachments:
        payload = payload.replace(shown[attachment], jsonx.encode(_words(attachment, 0)))
    return payload, tuple(images), tuple(attachments)


def _words(item: Image | Attachment, number: int) -> str:
    """The text in place of an image or an attachment: its type and its size."""
    if isinstance(item, Attachment):
        what = f"attachment {item.name!r:.200}"
    else:
        what = f"image {number}" if number else "image"
    size = f"{len(item.data) * 3 // 4 - item.data[-2:].count('=')} bytes" if item.hash is None else "kept by its hash"
    return f"[{what}: {item.media_type:.100}, {size}]"


def _collect(value: object, found: dict[Image | Attachment, None]) -> None:
    if isinstance(value, (Image, Attachment)):
        found[value] = None
        return
    for item in _parts(value):
        _collect(item, found)


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
    named = getattr(type(value), "__attrs_attrs__", None)
    if named is not None:
        return {each.name: getattr(value, each.name) for each in named}
    # A pydantic model gives its fields by iteration, and those beyond its declared ones too.
    return dict(value) if hasattr(value, "model_dump") else None
