"""Probe: how many interpreted instructions a call takes, by function.

Most of a batch's time is spent in the interpreter, so the time follows these counts, also where the machine is too busy
for times to mean much. They depend on the version of Python, and say nothing of the time in compiled libraries.

    python -m bench.bytecodes 100        # calls in the batch; the functions with the most instructions
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from bench.pairing import AnySubject
from bench.workload import bare_gather

CALLS = 100
"""Calls that are counted, in as many batches as that takes."""
WARM_UP = 5
SHOWN = 25


async def count(subject: AnySubject) -> Counter[str]:
    """Instructions of each function, in all batches of a sample together."""
    for _ in range(WARM_UP):
        await subject.run(subject.prepare())
    await subject.settle()
    inputs = [subject.prepare() for _ in range(rounds(subject))]
    found: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "opcode":
            found[f"{frame.f_code.co_qualname} ({frame.f_code.co_filename.rsplit('/', 1)[-1]})"] += 1
        else:
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return trace

    async def sample() -> None:
        for each in inputs:
            await subject.run(each)
        await subject.settle()

    sys.settrace(trace)
    try:
        await asyncio.create_task(sample())
    finally:
        sys.settrace(None)
    return found


def rounds(subject: AnySubject) -> int:
    """How many batches have enough calls."""
    return max(1, CALLS // subject.calls)


async def main(size: int) -> None:
    """Count, and print the functions that have the most."""
    from bench.contestant import open_contestant

    async with open_contestant() as contestant:
        subject = contestant.subject(size)
        ours, bare = await count(subject), await count(bare_gather(size))
    calls = size * rounds(subject)
    per_call, of_gather = ours.total() / calls, bare.total() / calls
    print(f"{per_call:.0f} a call; {per_call / of_gather:.2f} x the {of_gather:.0f} of a bare gather")
    for function, instructions in ours.most_common(SHOWN):
        print(f"{instructions / calls:8.1f}  {function}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", type=int, nargs="?", default=100, help="calls in each batch")
    asyncio.run(main(parser.parse_args().size))
