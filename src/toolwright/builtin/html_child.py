"""Reads one HTML page in a process of its own. Owns what becomes of a page; does not own how long that may take.

Started as a script, away from the program: a page can keep a parser busy for hours inside one regular expression, where
no thread could be stopped. Takes a line of JSON and the page on stdin, and answers with JSON on stdout.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from typing import Any
from urllib.parse import urljoin

# What stands in a head, and not the head itself: where nobody closes it, the whole page stands in it.
_NOT_CONTENT = ("script", "style", "noscript", "template", "title", "svg", "iframe", "object", "embed", "canvas")
_DEEPEST = 20_000  # frames; unclosed paragraphs of old pages nest by the thousand
_LONGEST_LINK = 2_000
_GROWTH = 4
_STACK = 256 * 1024 * 1024


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.buffer.readline())
    sys.path[:] = request["path"]
    _bound(request["memory"], request["seconds"])
    html = sys.stdin.buffer.read().decode("utf-8", "replace")
    answer: dict[str, Any] = {}

    def work() -> None:
        try:
            answer.update(read_page(html, request["format"], request["base"]))
        except MemoryError:
            answer["error"] = "MemoryError"

    sys.setrecursionlimit(_DEEPEST)
    threading.stack_size(_STACK)
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    sys.stdout.buffer.write(json.dumps(answer or {"error": "died"}).encode("ascii"))


def _bound(memory: int, seconds: float) -> None:
    """Take no more than this, also when nobody is left to kill us."""
    try:
        import resource
    except ImportError:
        return  # not on this system; the parent still bounds the time
    for limit, most in ((resource.RLIMIT_CPU, int(seconds) + 1), (resource.RLIMIT_AS, memory)):
        try:
            resource.setrlimit(limit, (most, most))
        except (OSError, ValueError):
            continue


def read_page(html: str, form: str, base: str) -> dict[str, Any]:
    """The title of a page, and its content as markdown or text: without scripts and styles, with whole links."""
    import warnings

    from bs4 import BeautifulSoup, Comment
    from markdownify import ATX, MarkdownConverter

    warnings.simplefilter("ignore")  # of text that looks like a URL or like XML; the page is what it is
    soup = BeautifulSoup(html, "html.parser")
    title = " ".join(soup.title.get_text().split()) if soup.title else ""
    for element in soup(_NOT_CONTENT):
        if not element.decomposed:
            element.decompose()
    for comment in soup(string=lambda text: isinstance(text, Comment)):
        comment.extract()
    content = None
    if form == "markdown":
        for element, attribute in [(a, "href") for a in soup("a")] + [(image, "src") for image in soup("img")]:
            _make_whole(element, attribute, base)
        # Nested beyond all measure, it is still a text.
        with contextlib.suppress(RecursionError):
            content = MarkdownConverter(heading_style=ATX, bullets="-").convert_soup(soup)
    if content is None:
        content = soup.get_text("\n", strip=True)
    # Whole links and indents can make a page longer than it came, by any factor that its author likes.
    most = _GROWTH * len(html) + _LONGEST_LINK
    return {"title": title[:300], "content": _tidy(content[:most]), "truncated": len(content) > most}


def _make_whole(element: Any, attribute: str, base: str) -> None:
    """Make a link absolute, and drop one that leads nowhere but into the page's own code or data."""
    try:
        link = urljoin(base, str(element.get(attribute, "")).strip())
    except ValueError:
        link = ""
    if link.partition(":")[0] in ("http", "https", "mailto") and len(link) <= _LONGEST_LINK:
        element[attribute] = link
    else:
        del element[attribute]


def _tidy(text: str) -> str:
    """Without spaces at the ends of lines and more than one empty line in a row."""
    lines: list[str] = []
    for line in text.splitlines():
        line = line.rstrip()
        if line or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines).strip("\n")


if __name__ == "__main__":
    main()
