"""A report each night at half past two in Berlin, as long as a worker runs: this program, or another on its store.

`python examples/nightly_report.py agent.db src` runs until Ctrl-C. With `--now` it makes one report at once, and ends.
"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from toolwright import Runtime, ScheduleOptions, ToolContext, tool

WHEN: ScheduleOptions = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "misfire": "once"}


@tool(supports_background=True, on_crash="rerun", timeout=600)
async def report(ctx: ToolContext, folder: str) -> str:
    """Measure the files of a folder, and keep the report among the session's files."""
    sizes = await ctx.step("measure", lambda: [file.stat().st_size for file in Path(folder).glob("*.*")])
    text = f"{folder} has {len(sizes)} files with {sum(sizes):,} bytes"
    await ctx.files.write(f"/reports/{ctx.call_id}.txt", f"{text}\n")
    return text


async def main(store: str, folder: str, *, now: bool) -> None:
    async with Runtime.open(store, tools=[report], worker=True) as runtime:
        session = runtime.session("reports")
        known = await session.schedules(active=True)  # started again, the program goes on with what is in the store
        nightly = known[0] if known else await session.schedule("report", {"folder": folder}, **WHEN)
        print("The next report is due at", nightly.to_json()["next_trigger_at"], flush=True)
        if not now:
            await asyncio.Event().wait()
        run = await session.run(await nightly.run_now())
        print((await run.wait()).text)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*[word for word in sys.argv[1:] if word != "--now"], now="--now" in sys.argv))
