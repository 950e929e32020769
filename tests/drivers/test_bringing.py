"""What a worker answers to a driver that brings it turns."""

from pathlib import Path

import pytest

from tests.support import fail_after
from toolwright import Pending, Runtime, ToolCall, ToolContext, tool
from toolwright.drivers import opening
from toolwright.drivers.contract import Desk, HandedBack, Work, WorkKind
from toolwright.drivers.opening import register_driver
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.testing import FunctionModel
from toolwright.testing.sqlite_store import drop_locks
from toolwright.tools.model import ModelRequest


class DriverByHand:
    """Brings nothing by itself: the test does, with the desk."""

    claims = False
    desk: Desk

    def open(self, desk: Desk) -> None:
        self.desk = desk

    def serve(self) -> None:
        pass

    async def look(self) -> None:
        pass

    async def offer(self, work: Work) -> None:
        pass

    async def cancel(self, kind: WorkKind, id: str, reason: str) -> None:
        pass

    async def wake(self, kind: WorkKind, id: str) -> None:
        pass

    def stop(self) -> None:
        pass

    async def close(self) -> None:
        pass


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> tuple[DriverByHand, str]:
    """The driver, and its URL, which other tests do not know."""
    made, name = DriverByHand(), "hand"
    monkeypatch.setattr(opening, "_schemes", {})

    class Scheme:
        def make(self, url: str, clock: object) -> DriverByHand:
            return made

    register_driver(name, Scheme())
    return made, f"{name}://here"


@tool(approval="required")
async def wipe() -> str:
    """Wait for a person."""
    return "wiped"


@tool
async def order(ctx: ToolContext) -> Pending:
    """Wait for another program."""
    ctx.completion_key()
    return Pending()


@pytest.mark.promise("ENG-04", "TURN-08")
@pytest.mark.parametrize("waits_for", ["wipe", "order"])
async def test_a_turn_is_not_taken_for_an_earlier_one_that_another_process_took_over_and_ended(
    file: Path, driver: tuple[DriverByHand, str], waits_for: str
):
    by_hand, url = driver
    store, tools = SqliteStore(file), [wipe, order]
    model = FunctionModel(lambda request: _answer(request, waits_for))
    async with fail_after(20), Runtime.open(store, tools=tools, model=model, worker=True, driver=url) as worker:
        first = await worker.session("s").start_turn("One.", background=True)
        assert (await by_hand.desk.work("turn", first.id)).state == "waiting"
        second = await worker.session("s").start_turn("Two.", background=True)
        drop_locks(store)  # as where a process stood still for so long that it passes for dead
        async with Runtime.open(SqliteStore(file), tools=tools, model=model) as other:
            (taken_over,) = await other.recover_turns()
            await taken_over.cancel("not wanted")
            assert (await taken_over).status == "cancelled"
        try:
            result = await by_hand.desk.work("turn", second.id)
        except HandedBack:  # the driver brings it again, here or elsewhere
            return
        assert (result.state, result.status) == ("ended", "answered"), "a turn that waits is not brought again soon"


def _answer(request: ModelRequest, name: str) -> str | list[ToolCall]:
    return [ToolCall(name, {}, "c1")] if request.number == 0 else "Done."
