"""The measuring method: every sample of a variant sits between two samples of its baseline.

Owns timing, calibration, and the statistics of ratios; does not know what is being measured, and needs only
the standard library, so that it also runs inside a peer's environment.

A shared machine drifts: the same loop may take twice as long a second later. Two times taken at different
moments say little, but a variant and the baseline right before and after it share the weather. So the ratio
is what counts: the variant's time over the mean of its two neighbours, and the median of at least nine such
ratios.
"""

import gc
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, Generic, Self, TypeVar

FEWEST_PAIRS = 9

Input = TypeVar("Input")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: the number of pairs, and the seconds one sample of each side should last."""

    pairs: int = 15
    variant_seconds: float = 0.030
    baseline_seconds: float = 0.012

    def __post_init__(self) -> None:
        if self.pairs < FEWEST_PAIRS:
            raise ValueError(f"{self.pairs} pairs are too few for a median; use at least {FEWEST_PAIRS}.")


THOROUGH = Effort()
QUICK = Effort(pairs=FEWEST_PAIRS, variant_seconds=0.012, baseline_seconds=0.006)


async def _nothing_left() -> None:
    """What most subjects settle: nothing."""


@dataclass(frozen=True, slots=True)
class Subject(Generic[Input, Result]):
    """Something that runs batches of `calls` calls.

    `prepare` makes the input of one batch, untimed. `run` is timed. `settle` ends a sample and is timed too:
    it waits for work the batches left behind, such as events still to be delivered. `count` says how many
    calls succeeded.
    """

    calls: int
    prepare: Callable[[], Input]
    run: Callable[[Input], Awaitable[Result]]
    count: Callable[[Result], int]
    settle: Callable[[], Awaitable[None]] = _nothing_left

    def check(self, result: Result) -> None:
        """Refuse a result in which any call failed: a fast failure is not a fast run."""
        succeeded = self.count(result)
        if succeeded != self.calls:
            raise RuntimeError(f"Only {succeeded} of {self.calls} calls succeeded; the time would mean nothing.")


AnySubject = Subject[Any, Any]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median and quartiles of a number of samples."""

    median: float
    lower: float
    upper: float
    samples: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, lower, upper, len(values))


@dataclass(frozen=True, slots=True)
class Pairing:
    """What a variant costs beside its baseline; times are in the unit the samples were taken in."""

    calls: int
    variant: Spread
    baseline: Spread
    ratio: Spread

    @classmethod
    def of(cls, triples: Sequence[tuple[float, float, float]], *, calls: int = 1) -> Self:
        """Summarise (baseline before, variant, baseline after) triples."""
        return cls(
            calls=calls,
            variant=Spread.of([variant for _, variant, _ in triples]),
            baseline=Spread.of([time for before, _, after in triples for time in (before, after)]),
            ratio=Spread.of([2 * variant / (before + after) for before, variant, after in triples]),
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        spreads = {name: Spread(**data[name]) for name in ("variant", "baseline", "ratio")}
        return cls(calls=data["calls"], **spreads)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def pair(baseline: AnySubject, variant: AnySubject, effort: Effort = THOROUGH) -> Pairing:
    """Measure both subjects in turn, in this process; times are microseconds per call."""
    baseline_rounds = await _calibrate(baseline, effort.baseline_seconds)
    variant_rounds = await _calibrate(variant, effort.variant_seconds)
    triples = []
    for _ in range(effort.pairs):
        before = await _sample(baseline, baseline_rounds)
        between = await _sample(variant, variant_rounds)
        after = await _sample(baseline, baseline_rounds)
        triples.append((before, between, after))
    return Pairing.of(triples, calls=variant.calls)


async def _sample(subject: AnySubject, rounds: int) -> float:
    """Microseconds per call over `rounds` batches."""
    inputs = [subject.prepare() for _ in range(rounds)]
    # Collected here so that neither side pays for the garbage the other one left.
    gc.collect()
    started = perf_counter()
    for each in inputs:
        result = await subject.run(each)
    await subject.settle()
    elapsed = perf_counter() - started
    subject.check(result)
    return elapsed / (rounds * subject.calls) * 1e6


async def _calibrate(subject: AnySubject, seconds: float) -> int:
    """The number of rounds that last about `seconds`; warms the subject up on the way."""
    rounds = 1
    while True:
        per_call = await _sample(subject, rounds)
        elapsed = per_call * subject.calls * rounds / 1e6
        if elapsed >= seconds / 4:
            return max(1, round(rounds * seconds / elapsed))
        rounds *= 2
