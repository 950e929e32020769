"""What really happened, as the world outside saw it. Owns holding every promise against it.

Nothing here asks the code under test what it did: tools write down that they ran and what they saw, the disk writes
down who wrote what, and whoever awaited something writes down what it was told.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.errors import StoreError
from toolwright.stores.contracts.journal import CallKey, Ended, Entry, Intent
from toolwright.stores.contracts.waits import Refused, Standing, WaitKey
from toolwright.tools.outcome import CUT_OFF_EARLIER, NOT_KNOWN, RUN_BY_ANOTHER, ToolOutcome


class Ledger:
    """One world's book. `problems` are the promises that were broken."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.story: list[str] = []
        self.closed = False
        self.faults = 0
        self.cancels = 0
        # What tools did and saw.
        self.tools: dict[CallKey, str] = {}
        self.runs: Counter[CallKey] = Counter()
        self.happened: set[str] = set()
        self.steps: Counter[tuple[CallKey, str]] = Counter()
        self.seen: dict[tuple[CallKey, int, str], Any] = {}
        self.returned: dict[CallKey, list[Any]] = defaultdict(list)
        self.pending: set[CallKey] = set()
        self.keys: dict[WaitKey, str] = {}
        self.listening: set[WaitKey] = set()
        # What was asked of the runtimes, and what they said.
        self.leave: Counter[CallKey] = Counter()
        self.told: dict[CallKey, ToolOutcome] = {}
        # What the disk wrote.
        self.holder: dict[CallKey, str | None] = {}
        self.finished: dict[CallKey, ToolOutcome] = {}
        self.life: Counter[CallKey] = Counter()
        self.cut_off: set[CallKey] = set()
        self.deaths: Counter[CallKey] = Counter()
        self.standing: dict[tuple[WaitKey, int], Any] = {}
        self.sent: dict[tuple[WaitKey, int], list[bytes]] = defaultdict(list)

    def wrong(self, problem: str) -> None:
        if not self.closed:
            self.problems.append(problem)
            self.story.append(f"!!! {problem}")

    def note(self, text: str) -> None:
        self.story.append(text)

    # --- what tools did and saw

    def begun(self, call: CallKey, tool: str, process: Any, attempt: int) -> None:
        if self.closed:
            return
        self.note(f"{process}: {call.call_id} ({tool}) runs, attempt {attempt}")
        self.tools[call] = tool
        if attempt == 1:
            self.runs[call] += 1

    def stepped(self, call: CallKey, name: str) -> int:
        if not self.closed:
            self.steps[call, name] += 1
        return self.steps[call, name]

    def saw(self, call: CallKey, attempt: int, what: str, result: Any) -> None:
        """A tool was given something: whoever runs the same call again must be given the same."""
        if self.closed:
            return
        self.note(f"  {call.call_id} sees {what} = {result}")
        before = self.seen.setdefault((call, attempt, what), result)
        if before != result:
            self.wrong(f"{call.call_id} saw {what} as {before} and later as {result}")

    # --- what callers were told

    def acknowledged(self, call: CallKey, outcome: ToolOutcome, *, closing: bool) -> None:
        if self.closed:
            return
        self.note(f"told {call.call_id}: {shown(outcome)}{' replayed' if outcome.replayed else ''}")
        if outcome.status == "cancelled" and (closing or not outcome.may_have_run):
            return  # It did not run, or is cut off: it may come again.
        if outcome.reason is not None and outcome.reason.endswith((NOT_KNOWN, CUT_OFF_EARLIER, RUN_BY_ANOTHER)):
            return  # What it may have done is said of an earlier run, or of another batch's.
        before = self.told.setdefault(call, outcome)
        if plain(before) != plain(outcome):
            self.wrong(f"{call.call_id} was told as {shown(before)} and later as {shown(outcome)}")

    def resolved(self, key: WaitKey, status: str, value: Any) -> None:
        """Somebody resolved a wait and was told what stands."""
        stands = [
            resolution for (wait, _), resolution in self.standing.items() if wait == key and resolution.status == status
        ]
        if not any(status != "ok" or jsonx.decode(resolution.payload) == value for resolution in stands):
            self.wrong(f"somebody was told {status} {value} for {key}, which never stood")

    # --- what the disk wrote

    def watched(self, disk: Any, verb: str, args: Sequence[Any], result: Any) -> Any:
        if not self.closed:
            watch = getattr(self, f"_{verb}", None)
            if watch is not None:
                watch(disk, *args, result)
            elif verb in ("start", "keep") and result:
                self._wrote(disk, verb, args[0])
        return result

    def _wrote(self, disk: Any, verb: str, call: CallKey) -> None:
        if self.holder.get(call) != disk.owner:
            self.wrong(f"{disk.process} wrote ({verb}) to {call.call_id}, which is not its own")

    def _begin(self, disk: Any, intents: Sequence[Intent], *rest: Any) -> None:
        entries: list[Entry | None] = rest[-1][: len(intents)]  # the others were only looked up
        if any(entry and entry.outcome is None and entry.owner != disk.owner for entry in entries):
            return
        for intent, entry in zip(intents, entries, strict=True):
            call = intent.key
            if entry is None:
                if self.holder.get(call) is not None or call in self.finished:
                    self.wrong(f"{disk.process} began {call.call_id} anew, which was there")
                self.life[call] += 1
                self.holder[call] = disk.owner
            elif entry.outcome is None and entry.cut_off:
                self.note(f"{disk.process} takes over {call.call_id}")
                if self.holder[call] is not None:  # else it was released
                    self.deaths[call] += 1
                self.holder[call] = disk.owner
                self.cut_off.add(call)
            elif entry.outcome is not None and call not in self.finished:
                self.wrong(f"{disk.process} was given an outcome of {call.call_id} that nobody wrote")

    def _finish(self, disk: Any, call: CallKey, outcome: ToolOutcome, *rest: Any) -> None:
        if rest[-1]:
            self._wrote(disk, "finish", call)
            self.note(f"{disk.process} wrote {call.call_id}: {shown(outcome)}")
            if call in self.finished:
                self.wrong(f"{call.call_id} was finished twice")
            self.finished[call] = outcome

    def _finish_all(self, disk: Any, ended: Sequence[Ended], result: StoreError | None) -> None:
        for end in ended if result is None else ():
            self._finish(disk, end.key, end.outcome, True)

    def _forget(self, disk: Any, call: CallKey, result: bool) -> None:
        if result:
            self._wrote(disk, "forget", call)
            self.note(f"{disk.process} forgets {call.call_id}")
            del self.holder[call]

    def _release(self, disk: Any, call: CallKey, result: bool) -> None:
        if result and call in self.holder and self.holder[call] is None:
            return  # It was released before: to release it again says the same, and changes nothing.
        if result:
            self._wrote(disk, "release", call)
            self.note(f"{disk.process} lets go of {call.call_id}")
            self.holder[call] = None

    def _open_wait(self, disk: Any, wait: Any, result: Any) -> None:
        if result is not None:
            self._wrote(disk, "open_wait", wait.key.call)
            if result.resolution is not None and (wait.key, self.life[wait.key.call]) not in self.standing:
                self._stands(wait.key, result.resolution)  # in a session that was revoked

    def _resolve(self, disk: Any, key: WaitKey, resolution: Any, *rest: Any) -> None:
        result = rest[-1]
        if isinstance(result, Refused):
            return
        assert isinstance(result, Standing)
        if result.first:
            self._stands(key, resolution)
        elif self.standing.get((key, self.life[key.call])) != result.resolution:
            self.wrong(f"{disk.process} was told that {result.resolution} stands for {key}, which does not")

    def _end_wait(self, disk: Any, key: WaitKey, resolution: Any, result: Any) -> None:
        row = disk.rows.calls.get(key.call)
        wait = None if row is None else row.waits.get(key)
        if wait is not None and wait.resolution is resolution:  # else nothing was written
            self._wrote(disk, "end_wait", key.call)
            self._stands(key, resolution)

    def _stands(self, key: WaitKey, resolution: Any) -> None:
        self.note(f"{key.call.call_id} {key.kind} {key.name} stands as {resolution.status} {resolution.payload!r}")
        before = self.standing.setdefault((key, self.life[key.call]), resolution)
        if before is not resolution:
            self.wrong(f"{key} was resolved twice: {before}, {resolution}")
        if key.kind == "crash" and resolution.status == "ok":
            self.leave[key.call] += 1

    def _cancel_waits(self, disk: Any, session: str, resolution: Any, keys: list[WaitKey]) -> None:
        for key in keys:
            self._stands(key, resolution)

    def _signal(self, disk: Any, key: WaitKey, payload: bytes, at: float, result: int | Refused) -> None:
        if isinstance(result, int):
            sent = self.sent[key, self.life[key.call]]
            sent.append(payload)
            if result != len(sent):
                self.wrong(f"a signal to {key} was counted as {result}, not {len(sent)}")


def plain(outcome: ToolOutcome) -> ToolOutcome:
    """An outcome without what may differ between a run and its replay."""
    return replace(outcome, replayed=False, cached_value=None, model_text=None)


def shown(outcome: ToolOutcome) -> str:
    about = outcome.failure.code if outcome.failure is not None else outcome.reason or outcome.payload.decode()
    return f"{outcome.status} {about}{' (may have run)' if outcome.may_have_run else ''}"
