"""The blocking API as type checkers see it: the signatures of the async one."""

import inspect
import re
from typing import Any

import pytest

from toolwright import Batch, Runtime, Session, blocking_types
from toolwright.background.handle import Run
from toolwright.event_bus import Subscription
from toolwright.schedules.schedules import ScheduleHandle
from toolwright.session.secrets.secrets import Secrets
from toolwright.session.services.attachments import Attachments
from toolwright.session.services.files import Files
from toolwright.session.services.keyvalue import KeyValue
from toolwright.session.services.messages import Messages
from toolwright.session.services.resources import Resources
from toolwright.session.tool_catalogue import SessionCatalogue
from toolwright.turns.turns import Turn

PAIRS = {
    "BlockingAttachments": Attachments,
    "BlockingBatch": Batch,
    "BlockingCatalogue": SessionCatalogue,
    "BlockingFiles": Files,
    "BlockingKeyValue": KeyValue,
    "BlockingMessages": Messages,
    "BlockingResources": Resources,
    "BlockingRun": Run,
    "BlockingRuntime": Runtime,
    "BlockingSchedule": ScheduleHandle,
    "BlockingSecrets": Secrets,
    "BlockingSession": Session,
    "BlockingSubscription": Subscription,
    "BlockingTurn": Turn,
}
NAMES = {kind.__name__: name for name, kind in PAIRS.items()} | {
    "RunClient": "BlockingRun",
    "ScheduleClient": "BlockingSchedule",
    "TurnClient": "BlockingTurn",
}
LEFT_OUT = {"open", "open_blocking", "worker", "drain"}
"""Names of a runtime that make no sense on a blocking one: an opening, and what a worker's program needs."""


def public(kind: type) -> dict[str, Any]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


def blocking(annotation: str) -> str:
    """The return annotation of an async method, as its blocking one has it."""
    annotation = re.sub(r"^Async(?:Iterator|Generator)\[(.*?)(?:, None)?\]$", r"Iterable[\1]", annotation)
    return plain(re.sub(r"\w+", lambda word: NAMES.get(word[0], word[0]), annotation))


def plain(annotation: str) -> str:
    """An annotation without the differences that a method called `list` and opaque values make."""
    return annotation.replace("builtins.", "").replace("Any", "object")


@pytest.mark.promise("APP-06")
@pytest.mark.parametrize("name", PAIRS)
def test_a_blocking_class_has_the_signatures_of_its_async_class(name):
    declared, real = public(getattr(blocking_types, name)), public(PAIRS[name])
    shared = declared.keys() & real.keys()
    assert declared.keys() - shared <= {
        "id",
        "policy",
        "tools",
        "log",
        "session_id",
    }  # attributes, which a class does not have
    for method in shared:
        ours, theirs = declared[method], real[method]
        if isinstance(theirs, property):
            assert plain(ours.fget.__annotations__["return"]) == blocking(theirs.fget.__annotations__["return"]), method
        elif inspect.isfunction(theirs):
            ours, theirs = inspect.signature(ours), inspect.signature(theirs)
            assert plain(ours.return_annotation) == blocking(theirs.return_annotation), method
            assert [(p.name, p.kind, p.default, plain(str(p.annotation))) for p in ours.parameters.values()] == [
                (p.name, p.kind, p.default, plain(str(p.annotation))) for p in theirs.parameters.values()
            ], method


@pytest.mark.promise("APP-06")
def test_every_public_method_of_a_runtime_is_on_the_blocking_one():
    assert public(Runtime).keys() - LEFT_OUT <= public(blocking_types.BlockingRuntime).keys()


@pytest.mark.promise("APP-06")
def test_completion_on_a_blocking_object_shows_the_names_of_the_object():
    with Runtime.open_blocking() as runtime:
        assert {"session", "subscribe", "close"} <= set(dir(runtime))
        assert {"call", "run_batch", "files"} <= set(dir(runtime.session("s")))
        assert not [name for name in dir(runtime) if name.startswith("_")]
