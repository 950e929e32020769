"""Checks a built documentation site: its pages load nothing from other hosts. MkDocs itself checks the links."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_LOADS = re.compile(
    r"<(?:script|img|link|iframe|source|video)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)", re.I
)
_IMPORTS = re.compile(r"(?:@import\s+|url\()[\"']?((?:https?:)?//[^\"')\s]+)", re.I)


def outside_hosts(site: Path) -> list[str]:
    """Each thing that a page or style sheet would load from another host."""
    found = []
    for file in sorted(site.rglob("*")):
        pattern = {".html": _LOADS, ".css": _IMPORTS}.get(file.suffix)
        if pattern is not None:
            found += [f"{file.relative_to(site)}: {url}" for url in pattern.findall(file.read_text(encoding="utf-8"))]
    return found


def main() -> None:
    """Print what is wrong, and end with 1 if anything is."""
    site = Path(sys.argv[1])
    if not (site / "index.html").exists():
        sys.exit(f"There is no site in {site}; run: make docs")
    if found := outside_hosts(site):
        sys.exit("The documentation must load nothing from other hosts:\n" + "\n".join(found))


if __name__ == "__main__":
    main()
