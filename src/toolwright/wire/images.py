"""Images as providers carry them. Owns data URLs and which formats a model sees; decodes no pixels."""

from __future__ import annotations

import re

from toolwright.tools.outcome import Image

VIEWABLE = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What models see. One image of another format would make a provider refuse the whole request."""

_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


def viewable(image: Image) -> bool:
    """True when models see this format."""
    return image.media_type in VIEWABLE


def stand_in(image: Image) -> str:
    """What a model reads in place of an image that it cannot see."""
    return f"[an image of type {image.media_type} is not shown: models see PNG, JPEG, GIF and WebP]"


def to_url(image: Image) -> str:
    """The image as a data URL."""
    return f"data:{image.media_type};base64,{image.data}"


def from_url(url: str) -> Image | None:
    """The image in a data URL; None for an address elsewhere, which nothing here fetches."""
    found = _DATA_URL.fullmatch(url)
    return Image(found.group(2), found.group(1)) if found else None
