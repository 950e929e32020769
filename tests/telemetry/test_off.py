"""Telemetry that is not used: nothing of it is imported. And trace ids in log lines."""

import logging
import subprocess
import sys

import pytest

from toolwright import App, Runtime, ToolwrightError, tool
from toolwright.telemetry import Telemetry, TraceIds

pytestmark = pytest.mark.promise("OBS-01")

PROGRAM = """
import asyncio, sys
from toolwright import App, tool

@tool
async def echo(text: str) -> str:
    "Echo."
    return text

async def main():
    async with App(tools=[echo]).open() as runtime:
        assert (await runtime.session("s").call("echo", text="hi")).value == "hi"

asyncio.run(main())
found = [name for name in sys.modules if name.partition(".")[0] == "opentelemetry" or "telemetry" in name]
print(found)
"""


def test_without_telemetry_nothing_of_it_is_imported():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_telemetry_without_the_sdk_imports_only_the_api():
    program = PROGRAM.replace("App(tools=[echo])", "App(tools=[echo], telemetry=Telemetry())").replace(
        "import asyncio, sys", "import asyncio, sys; from toolwright.telemetry import Telemetry"
    )
    program += "print([name for name in found if name.startswith('opentelemetry.sdk') or 'sdk_internals' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found, of_sdk = done.stdout.strip().splitlines()
    assert "'opentelemetry.trace'" in found
    assert of_sdk == "[]"


@pytest.mark.parametrize("given", [1, "Telemetry", object()])
def test_a_wrong_value_is_refused_when_the_app_is_made(given):
    with pytest.raises(ToolwrightError, match=r"telemetry=.* is not usable; use Telemetry\(\.\.\.\)"):
        App(telemetry=given)


def test_wrong_options_are_refused_by_name():
    with pytest.raises(ToolwrightError, match="content='yes' is not usable"):
        Telemetry(content="yes")  # type: ignore[arg-type]
    with pytest.raises(ToolwrightError, match="agent='' is not usable"):
        Telemetry(agent="")


async def test_log_lines_of_a_tool_and_about_it_have_the_ids_of_its_call(traced):
    lines: list[logging.LogRecord] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record)

    @tool
    def breaks() -> None:
        """Break, with a line."""
        logging.getLogger("program").warning("about to break")
        raise ZeroDivisionError

    handler = Handler()
    handler.addFilter(TraceIds())
    logging.getLogger().addHandler(handler)
    try:
        async with Runtime.open(tools=[breaks], telemetry=traced.telemetry()) as runtime:
            await runtime.session("s").call("breaks")
        logging.getLogger("program").warning("outside")
    finally:
        logging.getLogger().removeHandler(handler)
    span = traced.one("execute_tool breaks")
    told = {line.getMessage().split(" ")[0]: (line.trace_id, line.span_id) for line in lines}  # type: ignore[attr-defined]
    ids = (f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}")
    assert told["about"] == ids
    assert told["Tool"] == ids
    assert told["outside"] == ("", "")
