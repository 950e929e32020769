"""The kill tests with fresh seeds, until the time is up: `make soak SECONDS=3600`, or one story: `ARGS="--seed 7"`.

`ARGS="--workers 3"` kills workers of background runs instead, of which three share each store. `ARGS="--shell"` gives
generated scripts to a rule and to a real bash, and compares what the one said with what the other did. `ARGS="--bash"`
gives hostile scripts, and hidden spellings of denied ones, to the `bash` in the box. `ARGS="--calls"` kills a program,
or gives it an error, at single system calls. `ARGS="--postgres"` plays the kill matrix on PostgreSQL: the faults
that programs survive come at any instant. `ARGS="--simulate"` plays histories of
simulated machines on a simulated PostgreSQL server; with `--machines 50 --orders 500`, larger ones.
"""

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random, SystemRandom

from tests.builtin.hostile import HOSTILE
from tests.builtin.test_bash_rules import BEFORE, DENY, HARMS, WRAPPERS, Pair, hide
from tests.calls.authorise.shell_box import ShellBox
from tests.calls.authorise.shell_spellings import COMMANDS, WRITES, allowed, command_script, write_script
from tests.crash.pg_agent import POINTS, WORKS
from tests.crash.pg_judge import judge
from tests.crash.pg_rounds import FAULTS, MODULES, play
from tests.crash.story import Story
from tests.crash.worker_story import WorkerStory
from tests.loop_watch import MOST_STALL, watch_loop
from tests.simulation import world as simulation
from toolwright import Runtime
from toolwright.builtin.bash import BashLimits, bash_tool
from toolwright.testing import CrashKit, Zygote


def soak_shell(seconds: float, seed: int | None) -> int:
    """Compare what rules say of generated scripts with what a real bash does with them, until the time is up."""
    until, counts = time.monotonic() + seconds, Counter[str]()
    with ShellBox() as box:
        while True:
            number = SystemRandom().randrange(1 << 32) if seed is None else seed
            for kind, make, patterns in (("run", command_script, COMMANDS), ("write", write_script, WRITES)):
                script = make(Random(number))
                passes = allowed(script, patterns)
                counts[f"scripts that may {kind}"] += 1
                counts[f"scripts that may {kind}, allowed"] += passes
                seen = box.run(script) if passes or number % 10 == 0 else None
                if seen is None:
                    continue
                harm = seen.ran if kind == "run" else bool(seen.changed)
                counts[f"scripts that may {kind}, seen to do so"] += harm
                if passes and harm:
                    print(f"Seed {number}: the rule allowed a script that does it:\n{script!r}", file=sys.stderr)
                    return 1
            if seed is not None or time.monotonic() > until:
                break
    print("No rule allowed a script that did what it denies")
    for what, count in sorted(counts.items()):
        print(f"  {count:6} {what}")
    return 0


async def soak_bash(seconds: float, seed: int | None) -> int:
    """Give hostile scripts and hidden spellings of denied ones to `bash`, and look at the program after each."""
    until, counts = time.monotonic() + seconds, Counter[str]()
    async with Pair(DENY) as pair, Runtime.open(tools=[bash_tool(BashLimits(seconds=2))]) as runtime:
        session = runtime.session("s")
        while True:
            number = SystemRandom().randrange(1 << 32) if seed is None else seed
            random = Random(number)
            script = random.choice(HOSTILE)
            with watch_loop() as watch:
                outcome = await asyncio.wait_for(session.call("bash", command=script), 20)
            counts["hostile scripts that " + ("ended by themselves" if outcome.ok else "were stopped")] += 1
            after = await asyncio.wait_for(session.call("bash", command="rm -rf /*; echo on"), 20)
            hidden = hide(random.choice(HARMS), random.choices(WRAPPERS, k=random.randint(1, 5)))
            await pair.reset()
            judged = await asyncio.wait_for(pair.ruled.call("bash", command=hidden), 40)
            counts["denied scripts that " + ("came to no harm" if judged.ok else "were refused")] += 1
            for wrong, what in (
                (not after.ok, f"no script runs after {script!r}: {after.text}"),
                (watch.longest > MOST_STALL, f"the loop did not turn for {watch.longest:.3f} s with {script!r}"),
                (await pair.state(pair.ruled) != BEFORE, f"a rule did not keep {hidden!r}"),
            ):
                if wrong:
                    print(f"Seed {number}: {what}", file=sys.stderr)
                    return 1
            if seed is not None or time.monotonic() > until:
                break
    print("No script ended or held up the program, and none did what a rule denies")
    for what, count in sorted(counts.items()):
        print(f"  {count:6} {what}")
    return 0


def soak_postgres(seconds: float, seed: int | None) -> int:
    """Play faults of the kill matrix on PostgreSQL, and judge all cells of each, until the time is up."""
    until, counts = time.monotonic() + seconds, Counter[str]()
    while True:
        number = SystemRandom().randrange(1 << 32) if seed is None else seed
        chance = Random(number)
        fault = chance.choice(list(FAULTS))
        stage = Path(tempfile.mkdtemp(prefix=f"toolwright-soak-{number}-")) / "stage"
        stage.mkdir()
        with closing(Zygote(*MODULES)) as zygote:
            try:
                seen = play(fault, stage, zygote, chance)
                for point in POINTS:
                    for work in WORKS:
                        judge(fault, point, work, seen[point][work])
            except AssertionError as error:
                print(f"Seed {number}: {fault}: {error}\nIts files are in {stage}", file=sys.stderr)
                return 1
        shutil.rmtree(stage.parent)
        counts[fault] += len(POINTS) * len(WORKS)
        if seed is not None or time.monotonic() > until:
            break
    print(f"{counts.total()} works were hit; nothing was lost, and nothing repeated that must not be")
    for what, count in sorted(counts.items()):
        print(f"  {count:6} {what}")
    return 0


def soak_simulation(seconds: float, seed: int | None, machines: int, orders: int) -> int:
    """Play histories of simulated machines on one simulated server, until the time is up."""
    until, histories, commits, virtual = time.monotonic() + seconds, 0, 0, 0.0
    while True:
        number = SystemRandom().randrange(1 << 32) if seed is None else seed
        plan = simulation.Plan.of(number)
        if machines:
            plan = simulation.Plan.of(
                number, machines=machines, orders=orders, faults=max(1, machines // 4), length=60.0
            )
        world = simulation.play(plan)
        if world.ledger.problems:
            small = simulation.shrunk(plan, 600.0)
            story = "\n".join([*small.ledger.story[-200:], str(small.plan)])
            print(f"Seed {number}: {small.ledger.problems[0]}\n{story}", file=sys.stderr)
            return 1
        histories, commits, virtual = histories + 1, commits + world.server.commits, virtual + world.loop.time()
        if seed is not None or time.monotonic() > until:
            break
    print(f"{histories} histories, {virtual:.0f} simulated seconds, {commits} transactions; no promise was broken")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description="Kill programs at random until the time is up.")
    parser.add_argument("--seconds", type=float, default=600, help="how long (600)")
    parser.add_argument("--kills", type=int, default=50, help="how often in one store (50)")
    parser.add_argument("--workers", type=int, help="kill workers of background runs, of which so many share a store")
    parser.add_argument("--seed", type=int, help="play this one story only; the instants of its kills still vary")
    parser.add_argument("--shell", action="store_true", help="compare rules on scripts with what a real bash does")
    parser.add_argument("--bash", action="store_true", help="give hostile scripts to the bash in the box")
    parser.add_argument("--calls", action="store_true", help="kill or fail a program at single system calls")
    parser.add_argument("--postgres", action="store_true", help="play the faults of the kill matrix on PostgreSQL")
    parser.add_argument("--simulate", action="store_true", help="play histories of simulated machines")
    parser.add_argument("--machines", type=int, default=0, help="of a simulated history (1 to 3)")
    parser.add_argument("--orders", type=int, default=100, help="what is asked for in a history of many machines (100)")
    options = parser.parse_args()
    if options.postgres:
        return soak_postgres(options.seconds, options.seed)
    if options.simulate:
        return soak_simulation(options.seconds, options.seed, options.machines, options.orders)
    if options.bash:
        return asyncio.run(soak_bash(options.seconds, options.seed))
    if options.calls:
        chosen = [] if options.seed is None else ["--seed", str(options.seed)]
        command = [sys.executable, "-m", "tests.crash.system_calls", "--seconds", str(options.seconds), *chosen]
        return subprocess.run(command, check=False).returncode
    if options.shell:
        return soak_shell(options.seconds, options.seed)
    until, zygote, kills = time.monotonic() + options.seconds, Zygote(), Counter[str]()
    stories = 0
    while True:
        seed = SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
        folder = tempfile.mkdtemp(prefix=f"toolwright-soak-{seed}-")
        try:
            with CrashKit(folder, zygote=zygote) as kit:
                story: Story | WorkerStory = Story(kit, seed)
                if options.workers:
                    story = WorkerStory(kit, seed, options.workers, robbers=seed % 2 == 1)
                story.play(options.kills)
        except AssertionError as error:
            zygote.close()
            print(f"Seed {seed}: {error}\nIts files are in {folder}", file=sys.stderr)
            return 1
        shutil.rmtree(folder)
        kills += story.kills
        stories += 1
        if options.seed is not None or time.monotonic() > until:
            break
    zygote.close()
    print(f"{kills.total()} kills in {stories} stores; nothing was lost, and nothing repeated that must not be")
    for where, count in sorted(kills.items()):
        print(f"  {count:6} {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
