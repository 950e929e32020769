"""Turns whose model is not in this process: they are named, can be cancelled, and no other model continues them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Runtime, ToolCall, tool
from toolwright.errors import TurnError
from toolwright.stores import check
from toolwright.testing import ScriptedModel


class ModelAt:
    """A model at a server."""

    provider = "own"
    name = "m"

    def __init__(self, server: str, answer: str = "Here.", *, begun: asyncio.Event | None = None) -> None:
        self.server = server
        self._answer = answer
        self._begun = begun

    async def complete(self, request: Any) -> str:
        if self._begun is not None:
            self._begun.set()
            await asyncio.Event().wait()
        return self._answer


async def leave_a_turn(file: Path, model: Any, begun: asyncio.Event, *later: str) -> list[str]:
    """Leave turns behind whose process ended while its model answered the first of them; the ids of the turns."""
    async with fail_after(10):
        runtime = await Runtime.open(file, model=model)
        turns = [await runtime.session("s").start_turn(message) for message in ("Go.", *later)]
        await begun.wait()
        await runtime.close()
    return [turn.id for turn in turns]


@pytest.mark.promise("TURN-03")
async def test_a_session_whose_turn_cannot_continue_here_says_which_and_queues_nothing(file, open_runtime):
    begun = asyncio.Event()
    (id,) = await leave_a_turn(file, ModelAt("a:1", begun=begun), begun)
    other = ScriptedModel(["Hello."], name="other")
    runtime = await open_runtime(file, model=other, worker=False)
    session = runtime.session("s")
    async with fail_after(10):
        for start in (session.ask, session.start_turn):
            with pytest.raises(TurnError, match="open the app with that model, or end the turn") as refused:
                await start("Hello?", model=ScriptedModel(["Hi."], name="given"))
            assert repr(id) in str(refused.value)
            assert "'own:m' at 'a:1'" in str(refused.value)
            assert refused.value.code == "cannot_continue"
        assert await session.wait_for_idle()
        (info,) = await session.turns(active=True)
        assert (info.id, info.state, info.cut_off) == (id, "running", True)
        assert await (await runtime.turn(id)).cancel("not needed")
        ended = await (await runtime.turn(id))
        assert (ended.status, ended.reason) == ("cancelled", "not needed")
        assert (await session.ask("Hello?")).text == "Hello."
    assert await check(file) == []


@pytest.mark.promise("TURN-03")
async def test_questions_at_once_behind_a_turn_that_cannot_continue_leave_nothing_queued(file, open_runtime):
    begun = asyncio.Event()
    (id,) = await leave_a_turn(file, ModelAt("a:1", begun=begun), begun)
    runtime = await open_runtime(file, model=ScriptedModel(["Hello."], name="other"), worker=False)
    session = runtime.session("s")
    async with fail_after(10):
        (recovered,) = await runtime.recover_turns()
        results = await asyncio.gather(*(session.ask(f"{n}?") for n in range(5)), recovered, return_exceptions=True)
        assert [type(each).__mro__[1] for each in results] == [TurnError] * 6
        assert await session.wait_for_idle()
        assert [info.id for info in await session.turns(active=True)] == [id]


@pytest.mark.promise("TURN-03")
async def test_a_cancelled_turn_ends_in_any_process_and_its_calls_have_outcomes(file, open_runtime):
    ran = []

    @tool(approval="required")
    async def wipe(path: str) -> str:
        """Wipe."""
        ran.append(path)
        return "wiped"

    model = ScriptedModel([[ToolCall("wipe", {"path": "/x"}, "w")], "Gone."], name="gone")
    async with fail_after(10):
        first = await open_runtime(file, wipe, model=model)
        waiting = await first.session("s").ask("Wipe it.")
        assert waiting.status == "waiting"
        await first.close()
        other = ScriptedModel(["No.", "Hello."], name="other")
        # Neither the tool nor the model is here.
        runtime = await open_runtime(file, model=other, worker=False)
        turn = await runtime.turn(waiting.turn_id)
        assert await turn.cancel("not needed")
        assert (await turn.info()).state == "cancelled"
        assert not await turn.cancel("again")
        assert await runtime.approvals("s") == []
        assert (await runtime.session("s").ask("Hello?")).status == "answered"
        assert await runtime.session("s").wait_for_idle()
        assert await runtime.delete_session("s")
    assert ran == []
    assert await check(file) == []


@pytest.mark.promise("TURN-03")
async def test_cancelling_a_turn_of_a_dead_process_begins_no_other_turn_of_its_queue(file, open_runtime):
    begun = asyncio.Event()
    head, queued = await leave_a_turn(file, ModelAt("a:1", begun=begun), begun, "Then?")
    async with fail_after(10):
        here = ModelAt("a:1", "Continued.")
        runtime = await open_runtime(file, model=here, worker=False)
        assert await (await runtime.turn(head)).cancel()
        assert await runtime.session("s").wait_for_idle()
        assert [(info.id, info.state) for info in await runtime.turns("s", active=True)] == [(queued, "queued")]
        (continued,) = await runtime.recover_turns()
        assert (await continued).text == "Continued."


@pytest.mark.promise("TURN-03")
async def test_a_turn_of_a_model_object_is_continued_by_the_model_of_the_same_server_only(file, open_runtime):
    begun = asyncio.Event()
    (id,) = await leave_a_turn(file, ModelAt("private:1", begun=begun), begun)
    async with fail_after(10):
        elsewhere = await open_runtime(file, model=ModelAt("public:1", "Leaked."), worker=False)
        (turn,) = await elsewhere.recover_turns()
        with pytest.raises(TurnError, match="'own:m' at 'private:1' was given as an object, and is not here"):
            await turn
        with pytest.raises(TurnError, match="cannot continue here"):
            await elsewhere.session("s").ask("Go.", id=id, model=ModelAt("public:1", "Leaked."))
        runtime = await open_runtime(file, model=ModelAt("private:1", "Kept."), worker=False)
        (turn,) = await runtime.recover_turns()
        assert (await turn).text == "Kept."


@pytest.mark.promise("TURN-03")
async def test_only_a_model_that_was_opened_by_name_is_opened_again(file, open_runtime, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    begun = asyncio.Event()
    private = ModelAt("private:1", begun=begun)
    private.provider = "openai-chat"
    await leave_a_turn(file, private, begun)
    async with fail_after(10):
        runtime = await open_runtime(file, model=ScriptedModel(["No."], name="other"), worker=False)
        (turn,) = await runtime.recover_turns()
        with pytest.raises(TurnError, match="'openai-chat:m' at 'private:1' was given as an object"):
            await turn


@pytest.mark.promise("TURN-03")
async def test_a_turn_of_a_model_name_continues_with_that_model_in_an_app_of_another(file, open_runtime, monkeypatch):
    asked: asyncio.Queue[None] = asyncio.Queue()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.put_nowait(None)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    async with fail_after(20):
        first = await Runtime.open(file, model="openai-chat:m")
        await first.session("by its app").start_turn("Go.")
        await first.session("by its caller").start_turn("Go.", model="openai-chat:n")
        await asked.get()
        await asked.get()
        await first.close()
        runtime = await open_runtime(file, model=ScriptedModel(["No."], name="other"), worker=False)
        turns = await runtime.recover_turns()
        assert len(turns) == 2
        await asked.get()
        await asked.get()
        for turn in turns:
            assert await turn.cancel("seen")
            assert (await turn).status == "cancelled"
        await runtime.close()
    server.close()


@pytest.mark.promise("TURN-03")
async def test_a_turn_for_any_worker_is_refused_with_a_model_that_no_worker_has(place, open_runtime):
    app_model = ScriptedModel(["Hello."])
    runtime = await open_runtime(place, model=app_model, worker=True)
    session = runtime.session("s")
    async with fail_after(10):
        with pytest.raises(TurnError, match="give the name of a model, or leave `model` out"):
            await session.start_turn("Go.", model=ScriptedModel(["Other."]), background=True)
        assert await session.turns() == []
        assert (await (await session.start_turn("Go.", model=app_model, background=True))).text == "Hello."
