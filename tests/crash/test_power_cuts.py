"""The power is cut at every step that a store takes: every write, every sync, every file made or deleted."""

import asyncio
import json
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec
import pytest

from tests.crash.disk import Disk, RecordingVFS, Step
from tests.support import fail_after
from toolwright import Policy, Runtime, ToolCall, ToolContext, tool
from toolwright.errors import StoreError
from toolwright.stores.contracts.journal import NOT_ALL, CallKey, Intent
from toolwright.stores.sql.calls.journal import SqlJournalStore
from toolwright.stores.sqlite.core import writer
from toolwright.stores.sqlite.store import SqliteStore
from toolwright.tools.model import ModelRequest

Ending = tuple[str, Any]
"""The status and value of an outcome."""


class Cut(NamedTuple):
    """The power went: what is on the disk, and what the world had seen by then."""

    where: str
    files: dict[str, bytes]
    told: dict[str, Ending]
    ran: list[str]

    @property
    def disk(self) -> frozenset[tuple[str, bytes]]:
        """Equal where the same is on the disk: many a step changes nothing there."""
        return frozenset(self.files.items())


class Loss(AssertionError):
    """Something that was told or done is not in the store."""


@pytest.fixture
def vfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingVFS]:
    # A log of eight pages is copied to the database again and again; by default a test this short would not see it.
    monkeypatch.setattr(writer, "CHECKPOINT", 8)
    made = RecordingVFS("power-cut")
    yield made
    made.unregister()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: what a real disk does on a sync does not matter here."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as made:
        yield Path(made)


async def work(vfs: RecordingVFS, path: Path, sync, name: str, **options: Any) -> None:
    """Open a store, recover what is there, run calls, and close it; mark what the world sees."""

    @tool
    async def pay(key: str) -> str:
        vfs.mark(("ran", key))
        return f"paid {key} " + "x" * 600

    @tool(readonly=True)
    async def read(key: str) -> str:
        await asyncio.sleep(0)
        return f"content of {key}"

    store = SqliteStore(path, sync=sync, vfs=vfs.vfs_name)
    async with fail_after(30), Runtime.open(store, tools=[pay, read], **options) as runtime:
        for one in await runtime.recover():
            vfs.mark(("told", one.call_id, (one.outcome.status, one.outcome.value)))

        async def talk(session: str) -> None:
            for number in range(4):
                reads = 9 if number == 2 else 1  # so many that their intents are written together
                keys = [f"{name}.{session}.{number}.{place}" for place in range(max(3, reads))]
                calls = [
                    ToolCall(id=key, name="read" if place < reads else "pay", arguments={"key": key})
                    for place, key in enumerate(keys)
                ]
                await run(session, calls)

        async def run(session: str, calls: list[ToolCall]) -> None:
            for outcome in await runtime.session(session).run_batch(calls):
                vfs.mark(("told", outcome.call_id, (outcome.status, outcome.value)))

        await asyncio.gather(talk("a"), talk("b"))
        # Nothing else is written with the intent of this one, which says that it starts.
        await run("a", [ToolCall(id=f"{name}.last", name="pay", arguments={"key": f"{name}.last"})])


def cuts(steps: list[Step], seed: int, before: Cut | None = None, *, lies: bool = False) -> Iterator[Cut]:
    """Cut the power after each step, in several ways."""
    chance = random.Random(seed)
    disk = Disk(before.files if before else None, lies=lies)
    told: dict[str, Ending] = dict(before.told) if before else {}
    ran = list(before.ran) if before else []
    for number, step in enumerate(steps):
        if step.kind != "mark":
            disk.do(step)
        elif step.what[0] == "told":
            told[step.what[1]] = step.what[2]
        else:
            ran.append(step.what[1])
        for how, files in disk.cuts(chance):
            yield Cut(f"seed {seed}, step {number}: {step.kind} {step.name}; {how}", files, dict(told), list(ran))


def put_back(cut: Cut, folder: Path) -> Path:
    """Switch the power on again."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, content in cut.files.items():
        (folder / name).write_bytes(content)
    return folder / "agent.db"


async def use(path: Path) -> None:
    """Open what is there as a program would, and write to it."""
    store = SqliteStore(path, sync="normal")
    await store.journal.begin([Intent(CallKey("s", "", "new"), "b", 0, "pay", "app.pay", b"{}", "model", None, 1.0)])
    await store.journal.unfinished()
    await store.close()


class Kept(NamedTuple):
    """What the file has of a call."""

    began: bool = False
    ending: Ending | None = None


class PowerBack:
    """Switches the power on again in a folder of its own, and looks what the store has then: once for each disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[frozenset[tuple[str, bytes]], dict[str, Kept]] = {}

    def kept(self, cut: Cut) -> dict[str, Kept]:
        if (disk := cut.disk) not in self._read:
            self._read[disk] = _read(put_back(cut, self._folder), cut.where)
        return self._read[disk]

    def check(self, cut: Cut) -> None:
        """Nothing told is lost; what ran is known to have begun."""
        known = self.kept(cut)
        for call_id, ending in cut.told.items():
            if known.get(call_id, Kept()).ending != ending:
                raise Loss(f"{cut.where}: {call_id} was told as {ending!r:.40}, and is {known.get(call_id)}")
        for key in cut.ran:
            if not known.get(key, Kept()).began:
                raise Loss(f"{cut.where}: {key} ran, and the store does not know that it began")


def _read(path: Path, where: str) -> dict[str, Kept]:
    """What the file has of its calls. It must be whole."""
    connection = apsw.Connection(str(path))
    try:
        connection.execute("PRAGMA synchronous = off")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)], where
        if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'calls'").fetchall() == []:
            return {}
        rows: Any = connection.execute("SELECT call_id, started_at, outcome FROM every_call").fetchall()
        return {call_id: Kept(began is not None, outcome and _ending(outcome)) for call_id, began, outcome in rows}
    except (apsw.Error, ValueError) as error:
        raise AssertionError(f"{where}: {error}") from error
    finally:
        connection.close()


def _ending(outcome: bytes) -> Ending:
    content = msgspec.msgpack.decode(outcome)
    return content["status"], json.loads(content.get("payload", b"null"))


@pytest.mark.promise("EFF-08")
@pytest.mark.parametrize("seed", range(2))
async def test_a_power_cut_at_any_step_loses_nothing_that_was_acknowledged(vfs, folder, seed):
    for name in ("first", "second"):  # the second opens what the first closed
        await work(vfs, folder / "agent.db", "full", name)
    made = list(cuts(vfs.steps, seed))
    back, used = PowerBack(folder / "after"), set[frozenset[tuple[str, bytes]]]()
    for number, cut in enumerate(made):
        back.check(cut)
        # With calls that were told of, a disk differs from the one before only in those.
        if (not cut.told or number % 50 == seed) and (disk := cut.disk) not in used:
            used.add(disk)
            await use(put_back(cut, folder / "after"))

    assert sum(step.kind == "sync" for step in vfs.steps) > 50
    assert any(step.kind == "truncate" and step.name == "agent.db" for step in vfs.steps)  # it copied its log
    assert len(made[-1].told) == 74


@pytest.mark.promise("EFF-08", "EFF-05")
async def test_a_power_cut_while_a_cut_is_recovered_loses_nothing_either(vfs, folder):
    await work(vfs, folder / "agent.db", "full", "first")
    chance = random.Random(7)
    for number, cut in enumerate(chance.sample(list(cuts(vfs.steps, 7)), 4)):
        vfs.steps.clear()
        path = put_back(cut, folder / f"again {number}")
        await work(vfs, path, "full", "second")
        back = PowerBack(folder / "after")
        for second in cuts(vfs.steps, number, cut):
            back.check(second._replace(where=f"{cut.where}, then {second.where}"))
        # Each payment was made once: by whom it began before the cut, or by recovery.
        payments = [*cut.ran, *(step.what[1] for step in vfs.steps if step.kind == "mark" and step.what[0] == "ran")]
        assert len(payments) == len(set(payments))


@pytest.mark.promise("EFF-04", "EFF-08")
@pytest.mark.parametrize("way", ["started with its intent", "queued after a hook", "each written alone"])
async def test_what_was_acknowledged_is_safe_before_the_log_is_copied(vfs, folder, monkeypatch, way):
    """Copying the log syncs it, and so would hide a commit that did not. After a hook, a call is queued when its intent
    is written, and its start is a commit of its own; beside a call that another process has taken over, each start and
    each outcome is written alone."""

    async def refuse(journal: SqlJournalStore, calls: Any) -> None:
        raise StoreError(NOT_ALL)

    monkeypatch.setattr(writer, "CHECKPOINT", 1_000)
    if way == "each written alone":
        monkeypatch.setattr(SqlJournalStore, "start_all", refuse)
        monkeypatch.setattr(SqlJournalStore, "finish_all", refuse)
    hooks = [] if way == "started with its intent" else [lambda call: None]
    await work(vfs, folder / "agent.db", "full", "only", before=hooks)
    made = list(cuts(vfs.steps, 3))
    back = PowerBack(folder / "after")
    for cut in made:
        back.check(cut)
    assert len(made[-1].told) == 37


@pytest.mark.promise("EFF-06", "EFF-08")
@pytest.mark.parametrize("count", [1, 3], ids=["one step", "steps written together"])
async def test_a_power_cut_takes_back_no_mark_and_no_result_of_a_step(vfs, folder, monkeypatch, count):
    monkeypatch.setattr(writer, "CHECKPOINT", 1_000)  # Copying the log would sync, too.

    @tool(readonly=True)
    async def pay(ctx: ToolContext) -> str:
        async def charge() -> str:
            vfs.mark(("ran", ctx.call_id))
            return "receipt"

        receipt = await ctx.step("charge", charge, on_crash="fail")
        vfs.mark(("told", ctx.call_id, receipt))
        return receipt

    store = SqliteStore(folder / "agent.db", sync="full", vfs=vfs.vfs_name)
    async with fail_after(30), Runtime.open(store, tools=[pay]) as runtime:
        calls = [ToolCall(id=f"c{number}", name="pay", arguments={}) for number in range(count)]
        await runtime.session("s").run_batch(calls)
    made = list(cuts(vfs.steps, 4))
    read: dict[frozenset[tuple[str, bytes]], dict[str, bool]] = {}
    for cut in made:
        if (disk := cut.disk) not in read:
            read[disk] = steps_done(put_back(cut, folder / "after"))
        for call_id in cut.ran:
            assert call_id in read[disk], f"{cut.where}: the step of {call_id} ran, and has no mark"
        for call_id in cut.told:
            assert read[disk].get(call_id), f"{cut.where}: {call_id} was given a result that is not there"
    assert len(made[-1].told) == count


def steps_done(path: Path) -> dict[str, bool]:
    """The calls in a store that have a step, and whether it is done."""
    connection = apsw.Connection(str(path))
    try:
        if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'effects'").fetchall() == []:
            return {}
        rows: Any = connection.execute("SELECT call_id, done FROM effects").fetchall()
        return {call_id: bool(done) for call_id, done in rows}
    finally:
        connection.close()


@pytest.mark.promise("EFF-08")
async def test_with_normal_sync_a_power_cut_may_lose_the_last_moments_and_breaks_nothing(vfs, folder, monkeypatch):
    # A shorter log may be copied, and synced with that, by the very commits that are told of.
    monkeypatch.setattr(writer, "CHECKPOINT", 40)
    await work(vfs, folder / "agent.db", "normal", "only")
    losses = 0
    back = PowerBack(folder / "after")
    for cut in cuts(vfs.steps, 5):
        known = back.kept(cut)
        for session in ("a", "b"):
            told = [(call_id, ending) for call_id, ending in cut.told.items() if f".{session}." in call_id]
            there = [known.get(call_id, Kept()).ending == ending for call_id, ending in told]
            losses += not all(there)
            assert there == sorted(there, reverse=True), f"{cut.where}: what is lost is not what was told last"

    assert losses


@pytest.mark.promise("EFF-08", "OUT-05")
async def test_a_power_cut_leaves_no_outcome_without_the_file_that_it_names(vfs, folder, monkeypatch):
    monkeypatch.setattr(apsw, "connection_hooks", [])  # Each copy of a short log would sync what was not synced.

    @tool
    async def give(letter: str) -> str:
        return letter * 3_000

    store = SqliteStore(folder / "agent.db", sync="full", vfs=vfs.vfs_name)
    async with fail_after(30), Runtime.open(store, tools=[give], policy=Policy(max_bytes=512)) as runtime:
        for letter in "abc":
            calls = [
                ToolCall(id=letter, name="give", arguments={"letter": letter}),
                # Refused before it is written down: nothing is committed for it but the file.
                ToolCall(id=f"no {letter}", name="give", arguments={f"{letter * 100}{n}": n for n in range(9)}),
            ]
            for call in calls:
                (outcome,) = await runtime.session("s").run_batch([call])
                whole = outcome.value if outcome.failure is None else outcome.failure.message
                vfs.mark(("told", outcome.spilled_to, ("whole", whole.encode())))

    seen = 0
    for cut in cuts(vfs.steps, 3):
        named, files = outputs(put_back(cut, folder / "after"))
        seen = max(seen, len(cut.told))
        assert named <= files.keys(), cut.where
        for path, (_, whole) in cut.told.items():
            assert files.get(path) == whole, cut.where
    assert seen == 6


def outputs(path: Path) -> tuple[set[str], dict[str, bytes]]:
    """The files that the outcomes in a store name, and those that it has."""
    connection = apsw.Connection(str(path))
    try:
        if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'files'").fetchall() == []:
            return set(), {}
        outcomes: Any = connection.execute("SELECT outcome FROM every_call WHERE outcome IS NOT NULL").fetchall()
        files: Any = connection.execute("SELECT path, content FROM files JOIN blobs USING (digest)").fetchall()
        return {msgspec.msgpack.decode(outcome)["spilled_to"] for (outcome,) in outcomes}, dict(files)
    finally:
        connection.close()


async def test_a_disk_that_says_it_synced_and_did_not_is_found_out(vfs, folder):
    await work(vfs, folder / "agent.db", "full", "only")
    found: set[type] = set()
    back = PowerBack(folder / "after")
    for cut in cuts(vfs.steps, 9, lies=True):
        try:
            back.check(cut)
        except AssertionError as error:
            found.add(type(error))

    assert found == {Loss, AssertionError}  # it lost what was told, and it was damaged


STEPS = 4
"""How often the model of a turn calls tools before it answers."""


async def work_on_turn(vfs: RecordingVFS, path: Path, payments: int = 0) -> None:
    """Run a turn, and mark when the model is asked, a payment is made, and its answer is told."""

    @tool
    async def pay(key: str) -> str:
        vfs.mark(("ran", key))
        return f"paid {key}"

    @tool(readonly=True)
    async def read(key: str) -> str:
        return f"content of {key}"

    class Model:
        provider, name = "test", "script"

        async def complete(self, request: ModelRequest) -> str | list[ToolCall]:
            vfs.mark(("asked", request.number))
            if request.number == STEPS:
                return "All is read."
            names = [*["read"] * 3, *["pay"] * payments]
            return [
                ToolCall(id=f"{request.number}.{place}", name=name, arguments={"key": f"{request.number}.{place}"})
                for place, name in enumerate(names)
            ]

    store = SqliteStore(path, sync="full", vfs=vfs.vfs_name)
    async with fail_after(30), Runtime.open(store, tools=[pay, read], model=Model()) as runtime:
        vfs.mark(("begins",))
        outcome = await runtime.session("s").ask("Read all.")
        vfs.mark(("answered", outcome.text))


@pytest.mark.promise("TURN-03", "EFF-08")
async def test_after_a_power_cut_no_answer_of_the_model_is_lost_that_a_call_or_a_question_followed(vfs, folder):
    await work_on_turn(vfs, folder / "agent.db", payments=1)
    disk, chance = Disk(None), random.Random(11)
    asked, ran, answered = 0, list[str](), None
    back, turns = PowerBack(folder / "after"), dict[frozenset[tuple[str, bytes]], tuple[str | None, int]]()
    for number, step in enumerate(vfs.steps):
        if step.kind != "mark":
            disk.do(step)
        elif step.what[0] == "asked":
            asked = step.what[1]
        elif step.what[0] == "ran":
            ran.append(step.what[1])
        elif step.what[0] == "answered":
            answered = step.what[1]
        for how, files in disk.cuts(chance):
            cut = Cut(f"step {number}: {step.kind} {step.name}; {how}", files, {}, list(ran))
            back.check(cut)
            if (content := cut.disk) not in turns:  # just checked, so it is there
                turns[content] = stored_turn(folder / "after" / "agent.db")
            state, answers = turns[content]
            # The next question shows the answers before it to the model, and is paid for.
            assert answers >= asked, cut.where
            assert (state == "answered") or answered is None, cut.where
    assert answered == "All is read."
    assert len(ran) == STEPS


def stored_turn(path: Path) -> tuple[str | None, int]:
    """The state of the one turn in a store, and how many answers of its model are recorded."""
    connection = apsw.Connection(str(path))
    try:
        if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'turns'").fetchall() == []:
            return None, 0
        row: Any = connection.execute("SELECT state, progress FROM turns").fetchone()
        return (None, 0) if row is None else (row[0], json.loads(row[1]).get("model_calls", 0))
    finally:
        connection.close()


@pytest.mark.promise("TURN-03")
async def test_a_turn_waits_for_the_disk_once_an_answer_where_its_calls_may_run_again(vfs, folder, monkeypatch):
    monkeypatch.setattr(writer, "CHECKPOINT", 1_000)  # Copying the log would sync, too.
    await work_on_turn(vfs, folder / "agent.db")
    places = {step.what[0]: number for number, step in enumerate(vfs.steps) if step.kind == "mark"}
    syncs = [step.name for step in vfs.steps[places["begins"] : places["answered"]] if step.kind == "sync"]
    assert len([name for name in syncs if name.endswith("-wal")]) <= STEPS + 3  # the message, the answers, the end
