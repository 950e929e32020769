"""What the probes of adapters share: our tools beside the framework's own, in memory and on a file."""

from collections.abc import Callable
from typing import Any

from bench.disk import new_file
from bench.pairing import AnySubject, pair
from bench.probe import effort_of, emit, probe_parser
from bench.workload import FUNCTIONS
from toolwright import Runtime, Session, Tool, tool

TOOLS: list[Tool] = [tool(readonly=True)(function) for function in FUNCTIONS.values()]


async def compare(own: Callable[[], AnySubject], ours: Callable[[Session], AnySubject]) -> None:
    """Be a probe: measure the agent with toolwright's tools beside the same agent with its own, and print that."""
    effort = effort_of(probe_parser(__doc__).parse_args())
    found: dict[str, Any] = {}
    async with Runtime.open(tools=TOOLS) as runtime:
        found["memory"] = (await pair(own(), ours(runtime.session("bench")), effort)).to_json()
    with new_file() as file:
        async with Runtime.open(file, tools=TOOLS, sync="full") as runtime:
            found["file"] = (await pair(own(), ours(runtime.session("bench")), effort)).to_json()
    emit(found)
