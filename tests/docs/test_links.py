"""Links between the files of the repository lead somewhere, also those that the site does not have."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

FILES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "README.md"})
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.M)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading_of_it(file: Path):
    wrong = []
    for link in _LINK.findall(_CODE.sub("", file.read_text(encoding="utf-8"))):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        path = (file.parent / target).resolve() if target else file
        if not path.exists():
            wrong.append(f"{link}: there is no such file")
        elif anchor and path.suffix == ".md" and "reference" not in path.parts and anchor not in _anchors(path):
            wrong.append(f"{link}: there is no such heading")
    assert not wrong


def test_the_readme_is_short_and_names_the_two_commands_early():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    for command in ("make demo", "make test"):
        assert any(line.startswith(command) for line in lines[:20])


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub and the site make of the headings."""
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_page_of_decisions_lists_each_of_them_once_by_its_title():
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"^\| (\d+) \| \[(.+)\]\((.+)\) \|$", (folder / "README.md").read_text(encoding="utf-8"), re.M)
    files = sorted(file for file in folder.glob("*.md") if file.name != "README.md")
    titles = [file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for file in files]
    assert listed == [(str(int(file.name[:4])), title, file.name) for file, title in zip(files, titles, strict=True)]


def test_the_life_of_a_call_names_every_file_of_the_stages():
    page = (ROOT / "docs" / "life-of-a-tool-call.md").read_text(encoding="utf-8")
    calls = ROOT / "src" / "toolwright" / "calls"
    files = [file for file in calls.rglob("*.py") if file.name != "__init__.py" and "shell" not in file.parts]
    assert [str(file.relative_to(calls)) for file in files if f"/{file.relative_to(calls)})" not in page] == []
    for label, link in re.findall(r"\[`([^`]+)`\]\(([^)]+\.py)\)", page):
        assert link.endswith(label) or label.endswith("/")
