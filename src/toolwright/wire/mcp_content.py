"""The content blocks of MCP. Owns text, images and embedded files both ways; does not own results."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

from toolwright.jsonx import encode
from toolwright.tools.outcome import Attachment, Image, ToolOutcome
from toolwright.wire.images import require_content, stand_in
from toolwright.wire.payload_reader import Part

_FILES = "attachment:///"


def write_content(outcome: ToolOutcome) -> list[dict[str, Any]]:
    """The text for the model, then the images, then the attachments: sounds, and others as embedded resources."""
    blocks: list[dict[str, Any]] = []
    text = outcome.text
    if text or not (outcome.images or outcome.attachments):
        blocks.append({"type": "text", "text": text})
    for image in outcome.images:
        require_content(image)
        if image.hash is None:
            blocks.append({"type": "image", "data": image.data, "mimeType": image.media_type})
        else:
            blocks.append({"type": "text", "text": stand_in(image)})
    for item in outcome.attachments:
        require_content(item)
        if item.media_type.startswith("audio/"):
            blocks.append({"type": "audio", "data": item.data, "mimeType": item.media_type})
            continue
        uri = _FILES + quote(item.name, safe="")
        resource = {"uri": uri, "mimeType": item.media_type, "blob": item.data}
        blocks.append({"type": "resource", "resource": resource})
    return blocks


def read_content(content: Part) -> tuple[str, tuple[Image, ...], tuple[Attachment, ...]]:
    """The text of all text blocks, the images, and the other content as files. Sound counts as a file.

    Raises:
        ConversionError: a block has another shape.
    """
    texts: list[str] = []
    images: list[Image] = []
    attachments: list[Attachment] = []
    for block in content.each("a list of content blocks"):
        block.object("a content block")
        kind = block.field("type").name("the type of a content block")
        if kind == "text":
            texts.append(block.field("text").text())
        elif kind == "image":
            images.append(Image(_data(block), block.field("mimeType").name("a media type")))
        elif kind == "audio":
            media_type = block.field("mimeType").name("a media type")
            attachments.append(Attachment(f"audio-{len(attachments) + 1}", _data(block), media_type))
        elif kind == "resource":
            resource = block.field("resource")
            if resource.has("text"):
                texts.append(resource.field("text").text())
            else:
                attachments.append(_attachment(resource))
        else:  # a link, or a block of a later version: the model reads it as it came
            texts.append(encode(block.value).decode("utf-8"))
    return "\n".join(texts), tuple(images), tuple(attachments)


def _data(block: Part) -> str:
    return block.field("data").text("base64 data")


def _attachment(resource: Part) -> Attachment:
    uri = resource.field("uri").name("the address of the resource")
    media_type = resource.field("mimeType").value
    return Attachment(
        unquote(uri.removeprefix(_FILES)) if uri.startswith(_FILES) else uri,
        resource.field("blob").text("text, or a blob of base64 data"),
        media_type if isinstance(media_type, str) else "application/octet-stream",
    )
