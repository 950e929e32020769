"""The kill tests with fresh seeds, until the time is up: `make soak SECONDS=3600`, or one story: `ARGS="--seed 7"`.

`ARGS="--workers 3"` kills workers of background runs instead, of which three share each store.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from random import SystemRandom

from tests.crash.story import Story
from tests.crash.worker_story import WorkerStory
from toolwright.testing import CrashKit, Zygote


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description="Kill programs at random until the time is up.")
    parser.add_argument("--seconds", type=float, default=600, help="how long (600)")
    parser.add_argument("--kills", type=int, default=50, help="how often in one store (50)")
    parser.add_argument("--workers", type=int, help="kill workers of background runs, of which so many share a store")
    parser.add_argument("--seed", type=int, help="play this one story only; the instants of its kills still vary")
    options = parser.parse_args()
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
