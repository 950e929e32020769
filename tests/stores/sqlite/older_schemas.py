"""Files of older versions, and looking into files from outside."""

from pathlib import Path
from typing import Any

import apsw

SCHEMA = (
    "SELECT type, name, tbl_name, replace(replace(sql, char(10), ''), ' ', '') FROM sqlite_schema ORDER BY type, name"
)
"""Without white space: SQLite writes a column that was added in its own way."""
MARKS = "SELECT * FROM pragma_application_id, pragma_user_version"


def make_version_1(file: Path) -> Path:
    rows(file, (Path(__file__).parent / "version_1.sql").read_text())
    return file


def rows(file: Path, query: str) -> list[Any]:
    connection = apsw.Connection(str(file))
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()
