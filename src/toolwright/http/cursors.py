"""Pages of lists. Owns opaque cursors; each list says what its cursor holds."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from toolwright.http.problems import Problem

T = TypeVar("T")
Item = TypeVar("Item")

MOST = 1_000
"""Entries of one page at most."""
Limit = Annotated[int, Meta(ge=1, le=MOST, description="How many entries a page has at most.")]
Cursor = Annotated[str, Meta(max_length=2_000, description="The `next` of the page before.")]


class PageQuery(Struct, frozen=True, kw_only=True):
    """The parameters of a list."""

    cursor: Cursor | None = None
    limit: Limit = 100


class Page(Struct, Generic[Item], frozen=True):
    """A page of a list. `next` is the cursor of the page that follows; null on the last."""

    items: list[Item]
    next: str | None


def write_cursor(*places: str | int | float) -> str:
    """The cursor that holds places in a list, such as the number of the last entry."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(places)).rstrip(b"=").decode("ascii")


def read_cursor(text: str | None, type: type[T]) -> T | None:
    """The places that a cursor holds, as a tuple type; None without one.

    Raises:
        Problem: it is not a cursor of this list.
    """
    if text is None:
        return None
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(data, type=type)
    except (binascii.Error, msgspec.DecodeError, UnicodeEncodeError, ValueError):
        raise Problem(
            422, "bad_cursor", f"The cursor {text!r:.100} is not one of this list; pass `next` on unchanged"
        ) from None


class Told(Protocol):
    """An entry that has a form in JSON."""

    def to_json(self) -> dict[str, Any]: ...


Entry = TypeVar("Entry", bound=Told)


def page_from(
    found: Sequence[Entry], limit: int, place: Callable[[Entry], Sequence[str | int | float]]
) -> dict[str, Any]:
    """The page of the first entries of those that were found; the cursor for the rest holds the place of the last."""
    shown = found[:limit]
    next = write_cursor(*place(shown[-1])) if len(found) > limit else None
    return page_of([one.to_json() for one in shown], next)


def page_of(items: Sequence[Any], next: str | None) -> dict[str, Any]:
    """A page, as it is answered."""
    return {"items": list(items), "next": next}
