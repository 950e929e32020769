"""The JSON form of a tool's return value. Owns its rules, which are the same in this process and in a child.

A child process imports this module to answer, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from toolwright import jsonx
from toolwright.calls.returned_media import MARK, take_media
from toolwright.errors import ToolwrightError
from toolwright.large_json import TooLong
from toolwright.tools.outcome import Attachment, Failure, Image, Success, bounded_json, encodable, told
from toolwright.tools.service_protocols import AttachmentInfo


class Encoded(Struct, frozen=True):
    """A value in its JSON form, and all that a `Success` may have beside its value."""

    payload: bytes
    raw_output: str | None = None
    images: tuple[Image, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    metadata: dict[str, Any] | None = None
    text: str | None = None


def encode_result(result: object, encode: Callable[[Any], bytes] = jsonx.encode) -> Encoded | Failure:
    """The JSON form of a value or a `Success`, or the failure of a tool whose value has none.

    Raises:
        TooLong: by an `encode` that has a limit.
    """
    value = result.value if type(result) is Success else result
    images: tuple[Image, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    try:
        payload = encode(value)
        if MARK in payload:
            payload, images, attachments = take_media(value, payload)
    except TooLong:
        raise
    except BaseException as error:  # a value may have code of its own for its JSON form
        return unserialisable(value, error)
    encoded = Encoded(payload, None, images, attachments)
    if type(result) is not Success:
        return encoded
    try:
        return _with_extras(encoded, result)
    except (TypeError, ToolwrightError) as error:
        return unserialisable(result, error)


def unserialisable(result: object, error: BaseException) -> Failure:
    """The failure of a tool whose value has no JSON form."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    deep = isinstance(error, jsonx.TooDeep)
    why = f"is nested more than {jsonx.DEEPEST} levels deep" if deep else jsonx.has_no_form(error)
    return Failure(
        category="execution",
        code="unserialisable_result",
        message=f"The tool returned a {type(result).__name__} that {why}",
        source="tool",
        detail=told(error),
    )


def _with_extras(encoded: Encoded, result: Success) -> Encoded:
    images: list[Image] = [*encoded.images]
    attachments: list[Attachment] = [*encoded.attachments]
    for image in result.images:
        if isinstance(image, AttachmentInfo):
            image = Image.from_attachment(image)
        if not isinstance(image, Image):
            raise TypeError(f"a Success has a {type(image).__name__} among its images; use Image")
        images.append(image)
    for item in result.attachments:
        if isinstance(item, AttachmentInfo) and item.media_type.startswith("image/"):
            images.append(Image.from_attachment(item))
            continue
        if isinstance(item, AttachmentInfo):
            item = Attachment.from_attachment(item)
        if not isinstance(item, Attachment):
            raise TypeError(f"a Success has a {type(item).__name__} as an attachment; use Attachment")
        attachments.append(item)
    metadata = result.metadata
    if metadata is not None:
        if not isinstance(metadata, Mapping):
            raise TypeError(f"a Success has a {type(metadata).__name__} as its metadata; use a dict")
        metadata = bounded_json("Success metadata", dict(metadata))
    return Encoded(
        encoded.payload,
        _text("raw_output", result.raw_output),
        tuple(images),
        tuple(attachments),
        metadata,
        _text("text", result.text),
    )


def _text(field: str, given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str):
        raise TypeError(f"a Success has a {type(given).__name__} as its {field}; use a string")
    return encodable(given)
