"""What is added to an outcome or an event later is redacted, and is in its JSON form."""

from typing import Any, ClassVar

import msgspec
import pytest
from msgspec.structs import fields, replace

from toolwright import Attachment, CallRecord, Decision, Failure, Image, Success, ToolContext, ToolOutcome, events, tool
from toolwright.calls.redact import redact_fields
from toolwright.session.secrets.master_keys import GivenKeys
from toolwright.session.secrets.redactor import KnownSecrets
from toolwright.session.secrets.vault import Vault
from toolwright.wire import plain

VALUE = "correct horse battery staple"
FAILURE = Failure(
    message="m",
    category="external",
    code="c",
    source="policy",
    retry=True,
    retry_after=2.5,
    attempts=3,
    detail="d",
    data={"seconds": 2},
)
IMAGE = Image("aGk=", "image/gif", "0" * 64)
ATTACHMENT = Attachment("n.txt", "aGk=", "text/plain", "1" * 64)
DECISION = Decision("approved", 5.5, "ann", "fine", edited=True, always=True, arguments={"a": [1]})
OUTCOME = ToolOutcome(
    "c1",
    "t",
    "failure",
    attempts=3,
    decided_by="rule",
    failure=FAILURE,
    raw_output="raw",
    images=(IMAGE,),
    attachments=(ATTACHMENT,),
    provider="mail",
    reason="why",
    may_have_run=True,
    replayed=True,
    spilled_to="/x",
    decision=DECISION,
    model_text="text",
    metadata={"rows": 3},
    given_text="text",
)


def kinds_of_events(kind: type = events.Event) -> list[type]:
    return [kind, *(each for below in kind.__subclasses__() for each in kinds_of_events(below))]


def holding(kind: type) -> tuple[Any, list[str]]:
    """A value of a type with the secret in each of its fields that can have one, and the names of these."""
    given: dict[str, Any] = {}
    for field in fields(kind):
        given[field.name] = VALUE if field.name not in getattr(kind, "unsearched", ()) else 1
    return kind(**given), [name for name in given if given[name] == VALUE]


def redactor() -> KnownSecrets:
    known = KnownSecrets("s", Vault(GivenKeys()), lambda redactor: None)
    known.learn_at_once([("k", VALUE)])
    return known


@pytest.mark.promise("SAFE-02", "SES-03")
@pytest.mark.parametrize("kind", [*kinds_of_events(), Image, Attachment], ids=lambda kind: kind.__name__)
def test_each_field_is_searched_for_secrets_or_named_as_one_that_is_not(kind: type):
    item, searched = holding(kind)
    redacted = redact_fields(redactor(), item)
    for name in searched:
        assert VALUE not in repr(getattr(redacted, name)), name
        assert "[secret:k]" in repr(getattr(redacted, name)), name


@pytest.mark.promise("SAFE-02", "SES-03")
@pytest.mark.parametrize("item", [OUTCOME, FAILURE, DECISION], ids=["outcome", "failure", "decision"])
def test_each_field_of_an_outcome_is_searched_or_named_as_one_that_is_not(item: Any):
    for field in fields(type(item)):
        if field.name in item.unsearched or field.name == "cached_value":
            continue
        as_json = field.name == "payload"
        holds: Any = msgspec.json.encode([VALUE]) if as_json else VALUE
        if field.name in ("images", "attachments"):
            holds = (replace(getattr(item, field.name)[0], data=VALUE),)
        if field.name == "failure":
            holds = replace(FAILURE, message=VALUE)
        if field.name == "decision":
            holds = replace(DECISION, arguments={"a": [VALUE]})
        redacted = getattr(redact_fields(redactor(), replace(item, **{field.name: holds})), field.name)
        assert VALUE not in repr(redacted), field.name
        assert "[secret:k]" in repr(redacted), field.name


@pytest.mark.promise("SAFE-02")
def test_an_event_of_a_kind_that_is_not_known_yet_is_redacted():
    class Novel(events.CallNote, frozen=True):
        kind: ClassVar[str] = "call.novel"
        first: str
        deeper: dict[str, Any]

    told = redact_fields(redactor(), Novel("s", "b", 1.0, "c", "t", "", VALUE, {"a": [VALUE]}))
    assert VALUE not in repr(told.to_json())
    assert told.to_json()["deeper"] == {"a": ["[secret:k]"]}


@pytest.mark.promise("SAFE-02", "OUT-08")
def test_each_field_of_an_outcome_comes_back_from_its_json_form():
    for outcome in (OUTCOME, replace(OUTCOME, status="success", failure=None, may_have_run=False, payload=b"[1]")):
        for field in fields(ToolOutcome):
            lacks = getattr(outcome, field.name) == field.default
            assert not lacks or field.name in ("payload", "cached_value", "failure", "may_have_run"), field.name
        (back,) = plain.read_results(plain.write_results([outcome]))
        read = outcome if outcome.failure is None else replace(outcome, failure=replace(FAILURE, detail=None))
        assert back == replace(read, cached_value=back.cached_value)


@pytest.mark.promise("SAFE-02")
@pytest.mark.parametrize("kind", kinds_of_events(), ids=lambda kind: kind.__name__)
def test_each_field_of_an_event_is_in_its_json_form(kind: type):
    item, _ = holding(kind)
    assert item.to_json().keys() == {"kind", *(field.name for field in fields(kind))}


@pytest.mark.promise("SAFE-02")
@pytest.mark.parametrize("kind", [events.CallStarted, events.CallFinished], ids=lambda kind: kind.__name__)
async def test_each_property_of_the_start_and_the_end_of_a_call_is_in_its_json_form(open_runtime, place, kind: Any):
    @tool
    async def give() -> int:
        return 1

    runtime = await open_runtime(place, give)
    with runtime.subscribe() as watched:
        await runtime.session("s1").call("give")
        event: Any = await anext(each async for each in watched if type(each) is kind)
    properties = {name for name in dir(kind) if isinstance(getattr(kind, name), property)}
    assert event.to_json().keys() == {"kind", *properties}


@pytest.mark.promise("SAFE-02")
def test_each_field_of_a_record_is_redacted_before_or_named_as_one_that_holds_nothing_of_a_tool():
    names = {field.name for field in fields(CallRecord)}
    assert names == CallRecord.redacted | CallRecord.unsearched
    assert not CallRecord.redacted & CallRecord.unsearched


@pytest.mark.promise("SAFE-02")
def test_each_field_of_a_record_is_in_its_json_form():
    record = CallRecord("s", "b", "c1", "t", "app.t", "model", None, b'{"a":1}', 0.0, 1.0, 2.0, 3.0, outcome=OUTCOME)
    told = record.to_json()
    assert {field.name for field in fields(CallRecord)} - told.keys() == CallRecord.untold
    derived = {name for name in dir(CallRecord) if isinstance(getattr(CallRecord, name), property)}
    assert derived - told.keys() == {"category", "code", "replayed"}  # the outcome tells them
    assert told["outcome"] == OUTCOME.to_json()


@pytest.mark.promise("SAFE-02")
async def test_each_field_of_a_success_is_in_the_outcome(open_runtime, place):
    @tool
    async def give() -> Success:
        return Success("v", "raw", [IMAGE], [ATTACHMENT], {"rows": 3}, "t")

    runtime = await open_runtime(place, give)
    outcome = await runtime.session("s1").call("give")
    given = Success("v", "raw", (IMAGE,), (ATTACHMENT,), {"rows": 3}, "t")
    for name in Success.__struct_fields__:
        assert getattr(given, name), name
        assert getattr(outcome, name) == getattr(given, name), name


@pytest.mark.promise("SAFE-02", "SES-04")
async def test_what_is_named_by_its_hash_keeps_it_in_a_session_that_has_secrets(open_runtime, place):
    @tool
    async def draw(ctx: ToolContext) -> Success:
        picture = await ctx.attachments.put(b"a picture", name="p.png", media_type="image/png")
        notes = await ctx.attachments.put(f"token={VALUE}".encode(), name="n.txt", media_type="text/plain")
        return Success("done", attachments=[picture, notes])

    runtime = await open_runtime(place, draw)
    session = runtime.session("s1")
    await session.secrets.set("k", VALUE)
    outcome = await session.call("draw")
    (image,), (notes,) = outcome.images, outcome.attachments
    assert await session.attachments.get(image.hash) == b"a picture"
    assert notes.hash in {info.hash for info in await session.attachments.list()}
    # What goes to a provider is read by a model.
    (filled,) = await session.attachments.fill_in([outcome])
    assert filled.images[0] == Image.from_bytes(b"a picture")
    assert filled.attachments[0].data == Image.from_bytes(b"token=[secret:k]").data


@pytest.mark.promise("SAFE-02", "SES-03")
async def test_a_secret_that_a_tool_gives_as_a_hash_is_redacted(open_runtime, place):
    @tool
    async def leak(ctx: ToolContext) -> Success:
        return Success(1, images=[Image("", "image/png", "ab" * 32)], attachments=[Attachment("n", "", "a/b", VALUE)])

    runtime = await open_runtime(place, leak)
    session = runtime.session("s1")
    await session.secrets.set("k", "ab" * 32)
    await session.secrets.set("o", VALUE)
    outcome = await session.call("leak")
    assert (outcome.images[0].hash, outcome.attachments[0].hash) == ("[secret:k]", "[secret:o]")
