"""The blocking API as type checkers see it: the signatures of the async one."""

import inspect
import re
from typing import Any

import pytest

from toolwright import Batch, Runtime, Session, ToolContext, blocking_types, tool
from toolwright.background.handle import Run
from toolwright.blocking import BlockingPortal
from toolwright.event_bus import Subscription
from toolwright.schedules.schedules import ScheduleHandle
from toolwright.session.secrets.secrets import Secrets
from toolwright.session.services.attachments import Attachments
from toolwright.session.services.details import Details
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
    "BlockingDetails": Details,
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
LEFT_OUT = {
    "BlockingRuntime": {"open", "open_blocking", "worker", "drain"},
    "BlockingSession": {"opened_by"},
    "BlockingSubscription": {"push"},
}
"""Names without use on a blocking object: an opening, what a worker's program needs, and what the runtime uses."""


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
@pytest.mark.parametrize("name", sorted(PAIRS.keys() - {"BlockingBatch"}))  # most of a batch is for the runtime
def test_every_public_name_of_an_object_is_on_the_blocking_one(name):
    declared = public(getattr(blocking_types, name)).keys()
    assert public(PAIRS[name]).keys() - LEFT_OUT.get(name, set()) <= declared


@pytest.mark.promise("APP-06")
def test_nothing_that_a_blocking_runtime_gives_has_to_be_awaited():
    @tool
    async def wait(ctx: ToolContext) -> None:
        await ctx.receive("enough")

    with Runtime.open_blocking(tools=[wait]) as runtime:
        session = runtime.session("s")
        batch = session.start_batch([{"id": "c1", "name": "wait"}])
        tracked = session.track("deploy")
        objects = [runtime, session, batch, tracked, *session.batches, *session.runs()]
        objects += [getattr(session, name) for name, kind in public(Session).items() if isinstance(kind, property)]
        assert len(session.batches) == 1
        for each in objects:
            if not isinstance(each, BlockingPortal):
                awaited = [name for name in dir(each) if inspect.iscoroutinefunction(getattr(each, name))]
                assert not awaited, (each, awaited)
        session.batches[0].cancel()
        assert session.details.set(title="Deployment").title == "Deployment"
        assert tracked.report(status="Half way")
        assert tracked.finish("done")
        assert tracked.wait().value == "done"


@pytest.mark.promise("APP-06")
def test_completion_on_a_blocking_object_shows_the_names_of_the_object():
    with Runtime.open_blocking() as runtime:
        assert {"session", "subscribe", "close"} <= set(dir(runtime))
        assert {"call", "run_batch", "files"} <= set(dir(runtime.session("s")))
        assert not [name for name in dir(runtime) if name.startswith("_")]
