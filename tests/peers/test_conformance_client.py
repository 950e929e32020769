"""Our client passes every scenario that the conformance suite of MCP requires of one, in both revisions."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.peers.install import conformance_program

CLIENT = f"{sys.executable} -m tests.peers.conformance_client"
EXPECTED = Path(__file__).with_name("conformance-client.yml")
ROOT = Path(__file__).parents[2]
AT_ONCE = 2
"""The suite runs all scenarios of a set at once, which is too much for a small machine: some wait for an answer."""


def required(revision: str) -> list[str]:
    """The scenarios of a client that a revision requires, from the file that the suite has of it."""
    package = Path(conformance_program()[-1]).parents[1]
    text = (package / "requirements" / f"{revision}.yaml").read_text()
    found = re.search(r"^client:\n((?:  [-#].*\n|\n)*)", text, re.M)
    assert found is not None
    return re.findall(r"^  - (\S+)", found[1], re.M)


@pytest.mark.promise("MCP-01", "MCP-02")
@pytest.mark.parametrize(("revision", "scenarios"), [("2025-11-25", 18), ("2026-07-28", 32)])
async def test_every_required_scenario_passes(revision: str, scenarios: int):
    names = required(revision)
    assert len(names) == scenarios
    turn = asyncio.Semaphore(AT_ONCE)

    async def run(scenario: str) -> str | None:
        words = ["client", "--command", CLIENT, "--scenario", scenario, "--spec-version", revision]
        more = ["--timeout", "90000", "--expected-failures", str(EXPECTED)]
        async with turn:
            process = await asyncio.create_subprocess_exec(
                *conformance_program(),
                *words,
                *more,
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            said, _ = await process.communicate()
        return None if process.returncode == 0 else f"{scenario}:\n{said.decode(errors='replace')[-3000:]}"

    failed = [said for said in await asyncio.gather(*map(run, names)) if said is not None]
    assert failed == []
