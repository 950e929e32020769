"""What redaction costs: 10 MiB of output looked through for 100 secrets, whole and in chunks."""

import base64
import random
import string
import time
from collections.abc import Mapping
from statistics import median
from typing import Any

from bench.probe import ProbeError, emit, probe_parser, run_probe
from bench.report import Line, Report, Target

LEAST_SPEED = 50
"""MiB/s."""
SECRETS = 100
SIZE = 10 * 1024 * 1024
CHUNK = 64 * 1024


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Measure in a fresh process."""
    try:
        found = run_probe("bench.sections.redaction", quick=quick)
    except ProbeError as error:
        lines = [Line("redaction", error=str(error))]
    else:
        # A target is the most that a value may be: so many seconds for the whole.
        most = SIZE / 1024 / 1024 / LEAST_SPEED
        lines = [
            Line(f"{name} ({SIZE / 1024 / 1024 / seconds:.0f} MiB/s)", seconds, "s", target=Target("value", most, " s"))
            for name, seconds in found.items()
        ]
    return Report("redaction", f"{SIZE // 1024 // 1024} MiB of output, {SECRETS} secrets", lines)


def texts(random_: random.Random) -> dict[str, str]:
    """What tools print: words, base64, and lines of which every hundredth has a secret."""
    words = ["".join(random_.choices(string.ascii_lowercase, k=random_.randint(2, 10))) for _ in range(5_000)]
    prose = " ".join(random_.choices(words, k=SIZE // 5))[:SIZE]
    return {"words": prose, "base64": base64.b64encode(random_.randbytes(SIZE))[:SIZE].decode()}


def measure(quick: bool) -> dict[str, Any]:
    """Seconds for each kind of text."""
    from toolwright.session.secrets.master_keys import GivenKeys
    from toolwright.session.secrets.redactor import KnownSecrets
    from toolwright.session.secrets.vault import Vault

    random_ = random.Random(0)
    known = KnownSecrets("s", Vault(GivenKeys()), lambda redactor: None)
    values = ["".join(random_.choices(string.ascii_letters + string.digits, k=40)) for _ in range(SECRETS)]
    known.learn_at_once((f"secret_{number}", value) for number, value in enumerate(values))
    kinds = texts(random_)
    lines = [kinds["words"][at : at + 100] for at in range(0, SIZE, 100)]
    lines[::100] = [f"{line[:60]}{random_.choice(values)}" for line in lines[::100]]
    kinds["lines with secrets in them"] = "\n".join(lines)
    known.text("warm")
    found = {}
    for name, text in kinds.items():
        chunks = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
        found[f"{name}, whole"] = timed(lambda text=text: known.text(text), quick)
        found[f"{name}, in chunks"] = timed(lambda chunks=chunks: stream(known, chunks), quick)
    return found


def stream(known: Any, chunks: list[str]) -> None:
    """All of it through one stream."""
    one = known.stream()
    for chunk in chunks:
        one.feed(chunk)
    one.end()


def timed(work: Any, quick: bool) -> float:
    """The median of a few runs."""
    times = []
    for _ in range(3 if quick else 9):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times)


if __name__ == "__main__":
    emit(measure(probe_parser(__doc__).parse_args().quick))
