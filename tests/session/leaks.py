"""What the tests about secrets look for: the ways in which a value could be written, and all that a runtime shows."""

import base64
import html
import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

ENCODINGS = {
    "plain": lambda value: value,
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64, one byte before": lambda value: base64.b64encode(b"<" + value.encode() + b">>").decode(),
    "base64, two bytes before": lambda value: base64.b64encode(b"<<" + value.encode() + b">").decode(),
    "base64 for URLs": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "base64 without padding": lambda value: base64.b64encode(value.encode()).decode().rstrip("="),
    "percent": lambda value: urllib.parse.quote(value),
    "percent of everything": lambda value: urllib.parse.quote(value, safe=""),
    "percent in a form": lambda value: urllib.parse.quote_plus(value),
    "percent of every byte": lambda value: "".join(f"%{byte:02x}" for byte in value.encode()),
    "JSON": lambda value: json.dumps(value),
    "JSON with letters": lambda value: json.dumps(value, ensure_ascii=False),
    "JSON in JSON": lambda value: json.dumps(json.dumps({"token": value})),
    "hex": lambda value: value.encode().hex(),
    "HEX": lambda value: value.encode().hex().upper(),
    "repr": lambda value: repr(value),
    "HTML": lambda value: html.escape(value),
}


def files_beside(store: Path) -> Iterator[tuple[str, bytes]]:
    """What an onlooker finds on the disk: the database, its log and its index, and all else but the key."""
    for path in store.parent.rglob("*"):
        if path.is_file() and not path.name.endswith(".key"):
            yield path.name, path.read_bytes()
