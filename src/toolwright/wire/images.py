"""Images as providers carry them. Owns data URLs and which formats a model sees; decodes no pixels."""

from __future__ import annotations

import re

from toolwright.errors import ConversionError
from toolwright.tools.outcome import GONE, Attachment, Image

VIEWABLE = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image formats that models can see. One image of another format would make a provider refuse the whole request."""

_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


def viewable(image: Image) -> bool:
    """True when models see this format, and there is something to see.

    Raises:
        ConversionError: its content is still in an attachment.
    """
    require_content(image)
    return image.media_type in VIEWABLE and image.hash is None


def require_content(item: Image | Attachment) -> None:
    """Refuse content that a provider could not show.

    Raises:
        ConversionError: its content is still in an attachment.
    """
    if item.hash is not None and item.hash != GONE:
        raise ConversionError(
            f"The content of attachment {item.hash!r:.80} is not here; "
            "write the results of `await session.attachments.fill_in(outcomes)`"
        )


def stand_in(image: Image) -> str:
    """The text that a model reads in place of an image that it cannot see."""
    if image.hash == GONE:
        return f"[an image of type {image.media_type} is not shown: the session no longer has it]"
    return f"[an image of type {image.media_type} is not shown: models see PNG, JPEG, GIF and WebP]"


def to_url(image: Image) -> str:
    """The image as a data URL."""
    return f"data:{image.media_type};base64,{image.data}"


def from_url(url: str) -> Image | None:
    """The image in a data URL; None for an address elsewhere, which nothing here fetches."""
    found = _DATA_URL.fullmatch(url)
    return Image(found.group(2), found.group(1)) if found else None
