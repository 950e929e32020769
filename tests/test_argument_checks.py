"""What is of the wrong kind is refused where it is given, in words that say what to give instead."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Quota, Quotas, Runtime, ToolwrightError, tool

OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"tools": None}, "tools=None is not usable; use a list of tools, or a registry"),
    ({"tools": 3}, "tools=3 is not usable; use a list of tools, or a registry"),
    ({"policy": {}}, "policy={} is not usable; use Policy(...)"),
    ({"policy": "strict"}, "policy='strict' is not usable; use Policy(...)"),
    ({"before": print}, "before=<built-in function print> is not usable; use a list of functions"),
    ({"before": [3]}, "The hook 3 is not usable; use a function"),
    ({"after": None}, "after=None is not usable; use a list of functions"),
    ({"after": ["x"]}, "The hook 'x' is not usable; use a function"),
    (
        {"around": print},
        "around=<built-in function print> is not usable; use a list of functions under @contextlib.contextmanager",
    ),
    (
        {"around": ["x"]},
        "The context manager around calls 'x' is not usable; use a function under @contextlib.contextmanager",
    ),
    (
        {"projector": "x"},
        "projector='x' is not usable; use a function of an outcome, or of an outcome and its call, sync or async",
    ),
    (
        {"projector": locals},
        "projector=<built-in function locals> is not usable; use a function of an outcome, or of an outcome and its "
        "call, sync or async",
    ),
    ({"call_log": []}, "call_log=[] is not usable; use an object with open(record) and close(record)"),
    ({"events_file": 3}, "events_file=3 is not usable; use the path of a file"),
    ({"clock": 3}, "clock=3 is not usable; use a Clock, such as SystemClock()"),
    ({"sync": "never"}, "sync='never' is not usable; use 'full' or 'normal'"),
    ({"recover": "yes"}, "recover='yes' is not usable; use True or False"),
    ({"quotas": {}}, "quotas={} is not usable; use Quotas(...)"),
    ({"master_key": "k"}, "master_key='k' is not usable; use an object with current() and key(id)"),
    ({"capabilities": 3}, "capabilities=3 is not usable; use a list of names or Capability(...)"),
    ({"automatic": 3}, "automatic=3 is not usable; use a list of Capability(...)"),
    ({"automatic": [3]}, "3 is not a capability; use Capability(...)"),
    (
        {"model": "gpt"},
        "model='gpt' is not usable; use a name such as 'openai:gpt-5', or an object with an async complete(request)",
    ),
    ({"worker": "yes"}, "worker='yes' is not usable; use True, False or None"),
]


@pytest.mark.parametrize(("options", "said"), OPTIONS, ids=[str(options) for options, _ in OPTIONS])
async def test_an_option_of_a_runtime_is_refused_when_it_is_opened(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ToolwrightError) as refused:
        async with Runtime.open(**options):
            pass
    assert str(refused.value) == said


LIMITS: list[tuple[Callable[[], Any], str]] = [
    (lambda: Quota(-1, 5), "The entries of a quota -1 is not usable; use a whole number, 0 or more"),
    (lambda: Quota(5, bytes=1.5), "The bytes of a quota 1.5 is not usable; use a whole number, 0 or more"),  # type: ignore[arg-type]
    (lambda: Quotas(files=5), "The quota files 5 is not usable; use Quota(entries=…, bytes=…)"),  # type: ignore[arg-type]
    (lambda: Quotas(secrets=None), "The quota secrets None is not usable; use Quota(entries=…, bytes=…)"),  # type: ignore[arg-type]
    (lambda: Quotas(file_bytes="x"), "The quota file_bytes 'x' is not usable; use a whole number, 0 or more"),  # type: ignore[arg-type]
    (lambda: Quotas(file_bytes=True), "The quota file_bytes True is not usable; use a whole number, 0 or more"),
]


@pytest.mark.parametrize(("make", "said"), LIMITS, ids=[said for _, said in LIMITS])
def test_a_quota_is_refused_when_it_is_made(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ToolwrightError) as refused:
        make()
    assert str(refused.value) == said
    assert Quotas(files=Quota(0, 0), file_bytes=0).files.entries == 0


Verb = Callable[[Any, Any, Any, Any], Any]
VERBS: dict[str, tuple[Verb, str]] = {
    "session, unhashable": (lambda runtime, *_: runtime.session([]), "The session id [] is not usable"),
    "session, policy": (lambda runtime, *_: runtime.session("t", policy={}), "policy={} is not usable; use Policy"),
    "session, projector": (lambda runtime, *_: runtime.session("t", projector=3), "projector=3 is not usable"),
    "runs": (lambda runtime, *_: runtime.runs(3), "The session id 3 is not usable"),
    "runs, limit": (lambda runtime, *_: runtime.runs(limit=-1), "The limit -1 is not usable; use a whole number"),
    "runs, no number of a store": (lambda runtime, *_: runtime.runs(limit=2**63), "use a whole number, 92"),
    "sessions, limit": (lambda runtime, *_: runtime.sessions(limit=-1), "The limit -1 is not usable; use a whole"),
    "sessions, after": (lambda runtime, *_: runtime.sessions(after=3), "The after 3 is not usable; use text"),
    "turns, limit": (lambda _, session, *__: session.turns(limit="x"), "The limit 'x' is not usable; use a whole"),
    "turns, before": (lambda _, session, *__: session.turns(before="x"), "The before 'x' is not usable"),
    "event_log": (lambda runtime, *_: runtime.event_log("x"), "The number of an event 'x' is not usable"),
    "decisions": (lambda runtime, *_: runtime.decisions(before=10**30), "use a whole number, 9223372036854775807 or"),
    "scheduled": (lambda runtime, *_: runtime.scheduled("\ud800"), "The id of a schedule '\\ud800' is not usable"),
    "schedules": (lambda runtime, *_: runtime.schedules(3), "The session id 3 is not usable"),
    "approvals": (lambda runtime, *_: runtime.approvals(3), "The session id 3 is not usable"),
    "export": (lambda runtime, *_: runtime.export_session("s", 3), "The archive 3 is not usable; use the path"),
    "import": (lambda runtime, *_: runtime.import_session(None), "The archive None is not usable; use the path"),
    "drain": (lambda runtime, *_: runtime.drain("x"), "The bound 'x' is not usable; use a number of seconds"),
    "subscribe": (lambda runtime, *_: runtime.subscribe(limit="x"), "The limit of a subscription 'x' is not usable"),
    "run_batch, number": (
        lambda _, session, *__: session.run_batch(3),
        "The batch 3 is not usable; use a list of calls",
    ),
    "run_batch, one call": (lambda _, session, *__: session.run_batch({"name": "idle"}), "use a list of calls"),
    "start_batch": (lambda _, session, *__: session.start_batch(None), "The batch None is not usable"),
    "wait_for_idle": (lambda _, session, *__: session.wait_for_idle("x"), "The timeout 'x' is not usable"),
    "cancel_waits": (lambda _, session, *__: session.cancel_waits(3), "The reason 3 is not usable; use text"),
    "revoke": (lambda _, session, *__: session.revoke(None), "The reason None is not usable; use text"),
    "session.cancel": (lambda _, session, *__: session.cancel(3), "The reason 3 is not usable; use text"),
    "batch.cancel": (lambda _, __, batch, ___: batch.cancel(object()), "is not usable; use text"),
    "run.wait": (lambda *given: given[-1].wait("x"), "The timeout 'x' is not usable; use a number of seconds"),
    "run.wait, NaN": (lambda *given: given[-1].wait(float("nan")), "The timeout nan is not usable"),
    "run.cancel": (lambda *given: given[-1].cancel(3), "The reason 3 is not usable; use text"),
    "run.grant": (lambda *given: given[-1].grant(1), "The session id 1 is not usable; use text that is not empty"),
    "run.follow": (lambda *given: anext(given[-1].follow("x")), "The number of an event 'x' is not usable"),
}


async def done(verb: Verb, *given: Any) -> None:
    """Let a verb do what it does, at once or later."""
    later = verb(*given)
    if isinstance(later, Awaitable):
        await later


@pytest.mark.parametrize(("verb", "said"), VERBS.values(), ids=VERBS)
async def test_what_a_verb_cannot_use_is_refused_and_nothing_stops(tmp_path: Path, verb: Verb, said: str) -> None:
    @tool(supports_background=True)
    async def idle() -> None:
        await asyncio.Event().wait()

    async with fail_after(20), Runtime.open(tmp_path / "agent.db", tools=[idle], sync="normal") as runtime:
        session = runtime.session("s")
        run = await session.spawn("idle")
        batch = session.start_batch([{"id": "c1", "name": "idle", "arguments": {}}])
        with pytest.raises(ToolwrightError) as refused:
            await done(verb, runtime, session, batch, run)
        assert said in str(refused.value)
        assert not (await run.refresh()).over
        batch.cancel("enough")
        assert [outcome.reason for outcome in await batch] == ["enough"]
        await run.cancel()
