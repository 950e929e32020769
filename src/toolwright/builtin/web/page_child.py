"""Decodes and converts one web page in a limited child. Owns decoding and conversion; does not own the time limit.

A page can keep a decoder or a parser busy for a long time inside one call of the interpreter, where no thread could be
stopped and no other would run. This file is loaded on its own, and so imports nothing of the package.
"""

from __future__ import annotations

import codecs
import contextlib
import re
import sys
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

if TYPE_CHECKING:
    from bs4 import Tag

_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([a-z0-9_:.-]{1,40})", re.ASCII | re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?([a-z0-9_:.-]{1,40})", re.IGNORECASE)
# Only encodings of the web. Python knows others, such as "punycode", that take quadratic time or are none at all.
_CHARSETS = {"utf-8", "utf-16-le", "utf-16-be", "cp1252", "gbk", "gb18030", "big5", "big5hkscs"} | {
    *("shift_jis", "cp932", "euc_jp", "iso2022_jp", "euc_kr", "cp949", "koi8-r", "koi8-u", "mac-roman", "tis-620"),
    *(f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16)),
    *(f"cp{number}" for number in (866, 874, 1250, 1251, 1253, 1254, 1255, 1256, 1257, 1258)),
}
MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

# The content of a head, and not the head itself: if it is never closed, the whole page stands in it.
_NOT_CONTENT = ("script", "style", "noscript", "template", "title", "svg", "iframe", "object", "embed", "canvas")
_DEEPEST = 20_000  # frames; unclosed paragraphs of old pages nest by the thousand
_LONGEST_LINK = 2_000
_GROWTH = 4
_STACK = 256 * 1024 * 1024


def work(request: dict[str, Any], link: object) -> dict[str, Any]:
    """The text of a page, converted where it is HTML and something else is asked for."""
    text = decode(request["content"], request["content_type"], request["html"], request["truncated"])
    if not request["html"] or request["format"] == "html":
        return {"title": "", "content": text, "truncated": False}
    answer: dict[str, Any] = {}
    errors: list[BaseException] = []

    def convert() -> None:
        try:
            answer.update(read_page(text, request["format"], request["base"]))
        except BaseException as error:  # handed on below
            errors.append(error)

    sys.setrecursionlimit(_DEEPEST)
    threading.stack_size(_STACK)
    worker = threading.Thread(target=convert)
    worker.start()
    worker.join()
    threading.stack_size(0)
    if errors:
        raise errors[0]
    return answer


def decode(content: bytes, content_type: str, html: bool, truncated: bool) -> str:
    """The text of a body by its byte order mark, its header or its own declaration; undecodable bytes become U+FFFD."""
    for mark, marked in MARKS:
        if content.startswith(mark):
            return _decode(content[len(mark) :], marked, truncated)
    name = claimed_charset(content_type)
    if name is None and html:
        said = _META.search(content[:4_096])
        name = _charset(said[1].decode("ascii")) if said else None
        if name is not None and name.startswith("utf-16"):
            name = "utf-8"  # or its own word could not have been read
    if name is None:
        name = "utf-8" if is_utf8(content) else "cp1252"
    return _decode(content, name, truncated)


def _decode(content: bytes, name: str, truncated: bool) -> str:
    # Where the body was cut, half a character is left out and not replaced.
    return codecs.getincrementaldecoder(name)("replace").decode(content, not truncated)


def claimed_charset(content_type: str) -> str | None:
    """The encoding that a server claims, if it is one of the web's."""
    found = _CHARSET.search(content_type)
    return _charset(found[1]) if found else None


def _charset(label: str) -> str | None:
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    if name in ("ascii", "iso8859-1"):
        return "cp1252"  # as every browser reads it
    if name == "gb2312":
        return "gbk"
    if name == "utf-16":
        return "utf-16-le"  # without a mark, as every browser reads it
    return name if name in _CHARSETS else None


def is_utf8(content: bytes) -> bool:
    """True when the bytes are UTF-8, up to half a character at the end."""
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(content, False)
    except UnicodeDecodeError:
        return False
    return True


def read_page(html: str, form: str, base: str) -> dict[str, Any]:
    """The title of a page, and its content as markdown or text: without scripts and styles, with whole links."""
    import warnings

    from bs4 import BeautifulSoup, Comment
    from markdownify import ATX, MarkdownConverter

    warnings.simplefilter("ignore")  # of text that looks like a URL or like XML; the page is used as it is
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


def _make_whole(element: Tag, attribute: str, base: str) -> None:
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
