"""The reason that a person gives for stopping or refusing a call: it never shows a secret of the session."""

import asyncio

import pytest

from tests.session.leaks import files_beside
from tests.support import fail_after
from toolwright import Pending, ToolContext, tool

VALUE = "correct horse battery staple"
HANDLE = "[secret:k]"
SAID = f"it used {VALUE}"


@tool(supports_background=True)
async def idle() -> None:
    await asyncio.Event().wait()


@tool(approval="required")
async def risky() -> None:
    return None


async def stop_batch(runtime, session, batch, key):
    batch.cancel(SAID)


async def stop_session(runtime, session, batch, key):
    session.cancel(SAID)


async def cancel_waits(runtime, session, batch, key):
    await session.cancel_waits(SAID)


async def revoke(runtime, session, batch, key):
    await session.revoke(SAID)


async def cancel_by_key(runtime, session, batch, key):
    assert (await runtime.cancel(key, reason=SAID)).reason == f"it used {HANDLE}"


async def reject_by_key(runtime, session, batch, key):
    await runtime.reject(key, message=SAID)


WAYS = [stop_batch, stop_session, cancel_waits, revoke, cancel_by_key, reject_by_key]


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
async def test_the_reason_for_which_a_call_is_stopped_is_redacted(place, file, open_runtime, way):
    keys: list[str] = []

    @tool
    async def ask(ctx: ToolContext) -> Pending:
        keys.append(ctx.completion_key())
        return Pending()

    runtime = await open_runtime(place, ask)
    session = runtime.session("s")
    await session.secrets.set("k", VALUE)
    batch = session.start_batch([{"id": "c1", "name": "ask", "arguments": {}}])
    async with fail_after(10):
        await batch.quiet()
        await way(runtime, session, batch, keys[0])
        (outcome,) = await batch
    await runtime.close()
    assert HANDLE in outcome.text
    assert VALUE not in repr([outcome, list(runtime.log)])
    assert not [name for name, data in files_beside(file) if VALUE.encode() in data]


@pytest.mark.promise("SES-03")
async def test_the_reason_for_which_a_person_denies_a_call_is_redacted(place, file, open_runtime):
    runtime = await open_runtime(place, risky)
    session = runtime.session("s")
    await session.secrets.set("k", VALUE)
    batch = session.start_batch([{"id": "c1", "name": "risky", "arguments": {}}])
    async with fail_after(10):
        await batch.quiet()
        (request,) = await runtime.approvals()
        await runtime.deny(request.key, reason=SAID, always={})
        (outcome,) = await batch
        again = await session.call("risky")
    await runtime.close()
    assert HANDLE in outcome.text
    assert HANDLE in again.text
    assert not [name for name, data in files_beside(file) if VALUE.encode() in data]


@pytest.mark.promise("SES-03", "PROC-09")
async def test_the_reason_for_which_a_run_is_cancelled_is_redacted_by_a_process_that_has_done_nothing_else(
    file, open_runtime
):
    first = await open_runtime(file, idle, worker=False)
    await first.session("s").secrets.set("k", VALUE)
    id = (await first.session("s").spawn("idle")).id
    await first.close()
    second = await open_runtime(file, idle, worker=False)
    run = await second.run(id)
    assert await run.cancel(SAID)
    told = [event.payload async for event in run.events()]
    await second.close()
    assert run.record.cancel_reason == f"it used {HANDLE}"
    assert run.outcome is not None
    assert run.outcome.reason == f"it used {HANDLE}"
    assert {"reason": f"it used {HANDLE}"} in told
    assert not [name for name, data in files_beside(file) if VALUE.encode() in data]


@pytest.mark.promise("SES-03", "CANCEL-01")
@pytest.mark.parametrize("turns", range(4))
async def test_the_reason_for_which_a_batch_is_stopped_at_once_is_redacted_by_a_process_that_knew_no_secret_yet(
    file, open_runtime, turns
):
    first = await open_runtime(file, idle)
    await first.session("s").secrets.set("k", VALUE)
    await first.close()
    second = await open_runtime(file, idle)
    batch = second.session("s").start_batch([{"id": "c1", "name": "idle", "arguments": {}}])
    for _ in range(turns):
        await asyncio.sleep(0)
    batch.cancel(SAID)
    async with fail_after(10):
        (outcome,) = await batch
    assert outcome.status == "cancelled"
    assert outcome.reason.startswith(f"it used {HANDLE}")  # and perhaps that its past is not known yet
    assert VALUE not in repr(list(second.log))
