"""What the child process of `bash` costs: a warm call, beside one whose interpreter runs in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from bench.pairing import AnySubject, Effort, Pairing, Subject, pair
from bench.probe import ProbeError, effort_of, emit, probe_parser, run_probe
from bench.report import Line, Report

LIMIT = 2
SCRIPTS = {
    "a script, no files": ("echo hi", 0),
    "a search in 50 files": ("grep -rn needle . | wc -l", 50),
}


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure in a fresh process."""
    try:
        found = run_probe("bench.sections.bash", quick=quick)
    except ProbeError as error:
        return Report("bash", "bash in its child", [Line("bash", error=str(error))])
    lines = [
        Line.paired(f"{name}, beside one in this process", Pairing.from_json(each), target=LIMIT)
        for name, each in found.items()
    ]
    return Report("bash", "bash in its child", lines)


async def measure(effort: Effort) -> dict[str, Any]:
    """One pairing per script."""
    from toolwright import Runtime

    found = {}
    async with Runtime.open(capabilities=["virtual_bash"]) as runtime:
        for name, (script, files) in SCRIPTS.items():
            here, child = runtime.session(f"here {name}"), runtime.session(f"child {name}")
            here._core.environment.limited_children = Here()  # type: ignore[assignment]
            for session in (here, child):
                for number in range(files):
                    await session.files.write(f"/d/{number}.txt", f"line {number}\n" * 200)
            found[name] = (await pair(_subject(here, script), _subject(child, script), effort)).to_json()
    return found


class Here:
    """Runs the job of a limited child on a thread of this process, as `bash` once did."""

    async def run(
        self, job: Any, request: Any, *, seconds: float, feed: AsyncIterator[Any], hear: Callable[[Any], None]
    ) -> Any:
        """Do the job of `bash`."""
        from toolwright.builtin import bash_child

        link: Any = _Link([piece async for piece in feed])
        answer = await asyncio.to_thread(bash_child.work, request, link)
        for note in link.notes:
            hear(note)
        return answer


class _Link:
    def __init__(self, pieces: list[Any]) -> None:
        self._pieces = iter(pieces)
        self.notes: list[Any] = []

    def receive(self) -> Any:
        return next(self._pieces)

    def note(self, value: Any, *, hold: bool = False) -> None:
        self.notes.append(value)


def _subject(session: Any, script: str) -> AnySubject:
    return Subject(1, lambda: None, lambda _: session.call("bash", command=script), lambda outcome: int(outcome.ok))


if __name__ == "__main__":
    emit(asyncio.run(measure(effort_of(probe_parser(__doc__).parse_args()))))
