"""Draw the pictures of the demo for the README: the table halfway and what follows it, then the other acts.

Run it as `python examples/record_demo.py`; it writes demo.svg and demo-….svg to docs/images.
"""

import io
import runpy
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from toolwright import Batch, Runtime
from toolwright.cli.display.batch_progress import Board
from toolwright.cli.display.blocked_by import Waits
from toolwright.cli.display.live import draw
from toolwright.cli.run_calls import Watch
from toolwright.event_bus import Subscription
from toolwright.events import CallProgress

HERE = Path(__file__).parent
PICTURES = HERE.parent / "docs" / "images"
WIDTH = 110
HALFWAY = 0.6


def still(console: Console) -> Watch:
    """A watch that prints the live table once, when a call is more than halfway."""

    async def watch(runtime: Runtime, batch: Batch, events: Subscription) -> None:
        waits = Waits(runtime.log.query(batch=batch.id), runtime.tools.snapshot())
        board = Board()
        async for event in events:
            board.follow(event)
            if isinstance(event, CallProgress) and event.total and (event.current or 0) / event.total > HALFWAY:
                break
        console.print(draw(board, waits, height=100, now=time.time()))

    return watch


def record() -> dict[str, str]:
    """Run the demo and return its pictures by their names."""
    acts = {
        name: Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
        for name in ("demo", "demo-crash", "demo-session", "demo-background", "demo-turn")
    }
    demo = runpy.run_path(str(HERE / "demo.py"))
    first, *others = acts.values()
    demo["main"](first, still(first), *others)
    return {name: act.export_svg(title="make demo", theme=MONOKAI, unique_id=name) for name, act in acts.items()}


if __name__ == "__main__":
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, picture in record().items():
        file = PICTURES / f"{name}.svg"
        file.write_text(picture, encoding="utf-8")
        print(f"Wrote {file.relative_to(HERE.parent)}")
