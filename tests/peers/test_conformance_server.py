"""The conformance suite of MCP against a server of toolwright: every scenario of both revisions, and those of tasks."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.conftest import running
from tests.peers.install import conformance_program

EXPECTED = Path(__file__).with_name("conformance-server.yml")
SCENARIOS = {"2025-11-25": 33, "2026-07-28": 50}
"""How many scenarios the suite runs at each revision, those that are optional among them."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of the server."""
    with running(sys.executable, "-m", "tests.peers.conformance_server") as address:
        yield f"{address}/mcp"


@pytest.mark.promise("MCP-05")
@pytest.mark.parametrize("revision", SCENARIOS)
def test_the_server_passes_every_scenario_of_a_revision(address: str, revision: str, tmp_path: Path) -> None:
    command = [*conformance_program(), "server", "--url", address, "--requirements", revision]
    done = subprocess.run(
        [*command, "--expected-failures", str(EXPECTED)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    passed = re.findall(r"^✓ (\S+): \d+ passed, 0 failed$", done.stdout, re.MULTILINE)
    failed = re.findall(r"^\s*✗ (\S+)", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stdout[-3_000:]
    assert failed == []
    assert len(passed) == SCENARIOS[revision]
    if revision == "2026-07-28":
        assert sum(name.startswith("tasks-") for name in passed) == 10
