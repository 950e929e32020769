"""What the peers' probes share: a peer beside a bare gather, at every batch size; and its turn beside a plain loop."""

import asyncio
from collections.abc import Awaitable, Callable

from bench.pairing import AnySubject, pair
from bench.probe import effort_of, emit, probe_parser
from bench.workload import BATCH_SIZES, bare_gather, plain_loop

SubjectOf = Callable[[int], AnySubject]


def compete(set_up: Callable[[], Awaitable[SubjectOf]]) -> None:
    """Be a probe: set the peer up, measure its subject for each batch size, and print the pairings."""
    effort = effort_of(probe_parser(set_up.__doc__).parse_args())

    async def measure() -> None:
        subject_of = await set_up()
        pairings = [await pair(bare_gather(size), subject_of(size), effort) for size in BATCH_SIZES]
        emit([pairing.to_json() for pairing in pairings])

    asyncio.run(measure())


def compete_in_turns(set_up: Callable[[], Awaitable[AnySubject]]) -> None:
    """Be a probe: set the peer up, measure its turn, and print the pairing."""
    effort = effort_of(probe_parser(set_up.__doc__).parse_args())

    async def measure() -> None:
        emit((await pair(plain_loop(), await set_up(), effort)).to_json())

    asyncio.run(measure())
