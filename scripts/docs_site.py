"""MkDocs hooks of the documentation site. Owns the pages that are made of files outside docs/, and their links.

A link such as `../GLOSSARY.md` works where the repository is browsed; on the site it leads to the page of that file.
A link to a source file, which the site does not have, becomes its label; if there is no such file, the link stays as it
is, and the build reports it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {
    "SECURITY.md": "security.md",
    "GLOSSARY.md": "glossary.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "bench/README.md": "benchmarks.md",
}
"""Files outside docs/, and the page of the site that each becomes."""
_LINK = re.compile(r"(?<!!)\[([^\]\[]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of files outside docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links between docs/ and the files outside of it to their pages."""
    source = next((source for source, name in PAGES.items() if name == page.file.src_uri), None)
    here = (ROOT / source if source else Path(config.docs_dir) / page.file.src_uri).parent
    depth = page.file.src_uri.count("/")

    def pointed(link: re.Match[str]) -> str:
        label, target, anchor = link.groups(default="")
        path = (here / target).resolve()
        if "://" in target or not path.is_relative_to(ROOT) or not path.exists():
            return link.group(0)
        named = path.relative_to(ROOT).as_posix()
        if named in PAGES:
            return f"[{label}]({'../' * depth}{PAGES[named]}{anchor})"
        if not path.is_relative_to(config.docs_dir):
            return label
        return f"[{label}]({path.relative_to(config.docs_dir).as_posix()}{anchor})" if source else link.group(0)

    return _LINK.sub(pointed, markdown)
