"""Images that a tool returns: native parts for the model in every format, and words in their place in the value."""

import base64
import json
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, computed_field

from toolwright import Attachment, Image, Runtime, Success, tool
from toolwright.wire import anthropic, mcp, openai_chat, openai_responses

pytestmark = pytest.mark.promise("OUT-11")

PIXELS = b"\x89PNG, pixels of a picture" * 3
PICTURE = Image.from_bytes(PIXELS)
PHOTO = Image.from_bytes(b"jpeg" * 10, "image/jpeg")
DATA = base64.b64encode(PIXELS).decode()
WORDS = f"[image: image/png, {len(PIXELS)} bytes]"
WRITTEN = json.dumps(PHOTO.to_json(), separators=(",", ":"))


@dataclass
class Report:
    title: str
    chart: Image


class Renamed(Struct, rename="camel", tag="chart", omit_defaults=True):
    main_chart: Image
    note: str = "none"


class Model(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="allow")

    chart: Image
    draft: Any = Field(None, exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("returned", "value", "images"),
    [
        (PICTURE, WORDS, [PICTURE]),
        (Success(PICTURE), WORDS, [PICTURE]),
        (Success(PICTURE, images=[PHOTO]), WORDS, [PICTURE, PHOTO]),
        (
            [PICTURE, "and", PHOTO],
            [f"[image 1: image/png, {len(PIXELS)} bytes]", "and", "[image 2: image/jpeg, 40 bytes]"],
            [PICTURE, PHOTO],
        ),
        ({"n": 1, "charts": (PICTURE,)}, {"n": 1, "charts": [WORDS]}, [PICTURE]),
        (Report("Sales", PICTURE), {"title": "Sales", "chart": WORDS}, [PICTURE]),
        (Renamed(PICTURE), {"type": "chart", "mainChart": WORDS}, [PICTURE]),
        ([Model(chart=PICTURE, draft=PHOTO)], [{"chart": WORDS, "area": 7}], [PICTURE]),
        (
            Model.model_validate({"chart": PICTURE, "other": PHOTO}),
            {
                "chart": f"[image 1: image/png, {len(PIXELS)} bytes]",
                "other": "[image 2: image/jpeg, 40 bytes]",
                "area": 7,
            },
            [PICTURE, PHOTO],
        ),
        ({PICTURE}, [WORDS], [PICTURE]),
        ([PICTURE, Image.from_bytes(PIXELS)], [WORDS, WORDS], [PICTURE]),
        ([PICTURE, WRITTEN], [WORDS, WRITTEN], [PICTURE]),
        ({"media_type": "image/png", "data": "AAAA"}, {"media_type": "image/png", "data": "AAAA"}, []),
    ],
    ids=[
        "alone",
        "success",
        "two",
        "list",
        "nested",
        "dataclass",
        "struct",
        "model in a list",
        "model",
        "set",
        "twice",
        "text with the JSON of an image",
        "no image",
    ],
)
@pytest.mark.parametrize("secret", [False, True])
async def test_an_image_is_beside_the_value_and_words_stand_in_its_place(returned, value, images, secret):
    @tool(readonly=True)
    async def draw() -> Any:
        return returned

    async with Runtime.open(tools=[draw]) as runtime:
        session = runtime.session("s")
        if secret:
            await session.secrets.set("key", "correct horse battery staple")
        outcome = await session.call("draw")
    assert outcome.value == value
    assert list(outcome.images) == images
    assert DATA not in outcome.text


async def test_each_format_shows_the_image_as_an_image_and_never_as_text():
    @tool(readonly=True)
    def draw() -> Image:
        return PICTURE

    async with Runtime.open(tools=[draw]) as runtime:
        outcomes = await runtime.session("s").run_batch([{"id": "c1", "name": "draw"}])
    url = f"data:image/png;base64,{DATA}"
    answer, shown = openai_chat.write_results(outcomes)
    assert answer == {"role": "tool", "tool_call_id": "c1", "content": WORDS}
    assert shown["content"][1] == {"type": "image_url", "image_url": {"url": url}}
    [item] = openai_responses.write_results(outcomes)
    assert item["output"] == [
        {"type": "input_text", "text": WORDS},
        {"type": "input_image", "image_url": url, "detail": "auto"},
    ]
    [message] = anthropic.write_results(outcomes)
    assert message["content"][0]["content"] == [
        {"type": "text", "text": WORDS},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
    ]
    [response] = mcp.write_results(outcomes)
    assert response["result"]["content"] == [
        {"type": "text", "text": WORDS},
        {"type": "image", "data": DATA, "mimeType": "image/png"},
    ]


async def test_an_attachment_that_is_returned_is_beside_the_value_too():
    @tool(readonly=True)
    def write() -> list[Any]:
        return [Attachment("notes.txt", base64.b64encode(b"hello").decode(), "text/plain"), 1]

    async with Runtime.open(tools=[write]) as runtime:
        outcome = await runtime.session("s").call("write")
    assert outcome.value == ["[attachment 'notes.txt': text/plain, 5 bytes]", 1]
    assert [item.name for item in outcome.attachments] == ["notes.txt"]


@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_an_image_from_a_tool_in_a_process_of_its_own_is_one_too(isolation):
    @tool(readonly=True, isolation=isolation)
    def draw() -> Image:
        return Image.from_bytes(b"x" * 10)

    async with Runtime.open(tools=[draw]) as runtime:
        outcome = await runtime.session("s").call("draw")
    assert (outcome.value, outcome.images) == ("[image: image/png, 10 bytes]", (Image.from_bytes(b"x" * 10),))
