"""The tools of the demo: small, real, and each with something else to say about what it may share.

They read the files of Python's standard library, so that the demo needs no network, no key and no data.
"""

import asyncio
import hashlib
import os
import re
import socket
import sysconfig
import tempfile
from pathlib import Path

from toolwright import ToolContext, ToolError, tool

STDLIB = Path(sysconfig.get_paths()["stdlib"])
DESK = Path(os.environ.get("TOOLWRIGHT_DEMO_DESK") or tempfile.mkdtemp(prefix="toolwright-demo-"))


@tool(readonly=True)
def hash_package(package: str) -> dict[str, object]:
    """Hash every source file of a package of the standard library.

    Args:
        package: its name, such as "json".
    """
    files = sorted((STDLIB / package).rglob("*.py"))
    if not files:
        raise ToolError(f"There is no package {package!r} in the standard library", category="not_found")
    total = hashlib.sha256()
    for file in files:
        total.update(file.read_bytes())
    return {"package": package, "files": len(files), "sha256": total.hexdigest()[:16]}


@tool(readonly=True)
async def count_words(ctx: ToolContext, package: str, top: int = 3) -> dict[str, int]:
    """Count the words in the sources of a package, file by file.

    Args:
        package: its name, such as "email".
        top: how many of the most frequent words to return.
    """
    counts: dict[str, int] = {}
    files = sorted((STDLIB / package).rglob("*.py"))
    for done, file in enumerate(files, start=1):
        text = await asyncio.to_thread(file.read_text, encoding="utf-8")
        for word in re.findall(r"[A-Za-z]{4,}", text):
            counts[word] = counts.get(word, 0) + 1
        await ctx.progress(done, total=len(files), label=file.name)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return dict(ranked[:top])


@tool(isolation="process", parallel=True)
def count_primes(ctx: ToolContext, below: int) -> int:
    """Count primes in a process of its own, where no other call feels the load."""
    sieve = bytearray([1]) * below
    sieve[:2] = b"\0\0"
    last = int(below**0.5)
    for number in range(2, last + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
        if number % 200 == 0:
            ctx.progress(number, total=last, label=f"sieving {number}")
    return sum(sieve)


@tool(key="{account}")
def book(account: str, amount: int) -> dict[str, object]:
    """Append to an account's ledger an entry that seals the one before: one at a time for each account."""
    ledger = DESK / f"{account}.ledger"
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    seal = seal_of(lines[-1] if lines else "", amount)
    with ledger.open("a") as file:
        file.write(f"{amount} {seal}\n")
    return {"account": account, "entries": len(lines) + 1, "seal": seal}


@tool(exclusive=True)
def audit() -> dict[str, str]:
    """Check the seals of every ledger, while nothing else runs."""
    found: dict[str, str] = {}
    for ledger in sorted(DESK.glob("*.ledger")):
        before = ""
        for line in ledger.read_text().splitlines():
            amount, _, seal = line.partition(" ")
            if seal != seal_of(before, int(amount)):
                raise ToolError(f"The ledger of {ledger.stem} was tampered with at {line!r}")
            before = line
        found[ledger.stem] = "sound"
    return found


@tool(writes="path")
def write_note(path: str, package: str) -> str:
    """Write the longest lines of a package's sources to a note on the desk."""
    lines = [line.strip() for file in sorted((STDLIB / package).rglob("*.py")) for line in file.open(encoding="utf-8")]
    longest = sorted(set(lines), key=lambda line: (-len(line), line))[:500]
    (DESK / path).write_text("\n".join(longest), encoding="utf-8")
    return f"{len(longest)} of {len(lines)} lines written to {path}"


@tool(readonly=True, reads="path")
def read_note(path: str) -> str:
    """Read a note from the desk."""
    return f"{path} begins with: " + (DESK / path).read_text(encoding="utf-8").partition("\n")[0]


@tool(readonly=True)
def dump_sources(megabytes: int) -> str:
    """Return sources of the standard library, so and so much of them: more than any model should read."""
    found: list[str] = []
    for file in sorted(STDLIB.glob("*.py")):
        found.append(file.read_text(encoding="utf-8"))
        if sum(map(len, found)) >= megabytes * 1_000_000:
            break
    return "".join(found)


@tool(readonly=True, timeout=1)
async def ask_silent_service() -> str:
    """Ask a service that takes the question and never answers."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            writer.write(b"are you there?\n")
            return (await reader.readline()).decode()
        finally:
            writer.close()


def seal_of(before: str, amount: int) -> str:
    """A seal that takes its time, as a slow service would."""
    return hashlib.pbkdf2_hmac("sha256", str(amount).encode(), before.encode(), 400_000).hex()[:12]
