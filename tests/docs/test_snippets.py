"""Every Python snippet of the documents runs, in a process of its own, as a reader would run it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
SNIPPETS = [
    pytest.param(found.group(1), id=f"{document.relative_to(ROOT)}:{found.string.count(chr(10), 0, found.start()) + 1}")
    for document in DOCUMENTS
    for found in FENCE.finditer(document.read_text())
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_of_the_documents_runs(snippet: str, tmp_path: Path):
    file = tmp_path / "snippet.py"
    file.write_text(snippet)
    done = subprocess.run([sys.executable, file.name], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_readme_has_snippets_at_all():
    assert len(SNIPPETS) >= 5


def test_the_first_snippet_prints_what_the_readme_says(tmp_path: Path):
    document = (ROOT / "README.md").read_text()
    snippet = FENCE.search(document)
    said = re.search(r"^```text\n(.*?)^```$", document, re.M | re.S)
    assert snippet is not None
    assert said is not None
    file = tmp_path / "snippet.py"
    file.write_text(snippet.group(1))
    printed = subprocess.run([sys.executable, file.name], cwd=tmp_path, capture_output=True, text=True, check=True)
    for got, expected in zip(printed.stdout.splitlines(), said.group(1).splitlines(), strict=True):
        head, _, _ = expected.partition("…")
        assert got.startswith(head)
