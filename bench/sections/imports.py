"""How long `import toolwright` takes, beside `import pydantic`, which it cannot do without.

Every sample is a fresh interpreter that times one import. The first of each is thrown away: it leaves the
compiled bytecode behind, as an installer would. Imports that only an optional feature needs must not happen
at all.
"""

import subprocess
import sys
from collections.abc import Mapping

from bench.pairing import FEWEST_PAIRS, Pairing
from bench.probe import ROOT, child_environment
from bench.report import Line, Report, Target

LIMIT_SECONDS = 0.25
LIMIT_RATIO = 1.5
OPTIONAL = ("rich", "typer", "click", "apsw", "httpx", "mcp", "openai", "anthropic", "opentelemetry")

TIME_IMPORT = """
import time
started = time.perf_counter()
{statement}
print(time.perf_counter() - started)
"""

LOADED = """
import sys
import toolwright
print(*[name for name in {optional!r} if name in sys.modules])
"""


def section(quick: bool, earlier: Mapping[str, Report]) -> Report:
    """Time the import in seconds and in multiples of pydantic's, and name what it should not have loaded."""
    pairs = FEWEST_PAIRS if quick else 15
    try:
        bare = pair_imports("import pydantic", pairs)
        used = pair_imports("from pydantic import BaseModel, TypeAdapter", pairs)
        extras = _python(LOADED.format(optional=OPTIONAL)).split()
    except subprocess.CalledProcessError as error:
        lines = [Line("import toolwright", error=error.stderr.strip().splitlines()[-1])]
    else:
        seconds = Target("value", LIMIT_SECONDS, " s", strict=True)
        lines = [
            Line("import toolwright", bare.variant.median, "s", target=seconds, detail=bare.to_json()),
            Line.paired("… to import pydantic", bare, target=LIMIT_RATIO, unit="s"),
            Line.paired("… to BaseModel, TypeAdapter", used, unit="s"),
            Line(
                "optional imports: " + (", ".join(extras) or "none"),
                value=len(extras),
                unit="",
                target=Target("value", 0),
                detail={"loaded": extras},
            ),
        ]
    return Report("imports", "a fresh interpreter with warm bytecode", lines)


def pair_imports(baseline: str, pairs: int) -> Pairing:
    """Seconds for `import toolwright`, each sample between two of `baseline`."""
    variant = "import toolwright"
    time_import(baseline), time_import(variant)
    return Pairing.of([(time_import(baseline), time_import(variant), time_import(baseline)) for _ in range(pairs)])


def time_import(statement: str) -> float:
    """Seconds one import takes in an interpreter of its own."""
    return float(_python(TIME_IMPORT.format(statement=statement)))


def _python(code: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=True)
    return done.stdout
