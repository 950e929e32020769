"""What a benchmark says: lines with a number and a target, as a table and as JSON.

Owns verdicts and their presentation; does not measure.
"""

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.pairing import Pairing, Spread

Verdict = Literal["PASS", "FAIL", "ERROR", ""]
HEADINGS = ("measure", "value", "ratio", "quartiles", "target", "verdict")


@dataclass(frozen=True, slots=True)
class Target:
    """The most a line's `value` or `ratio` may be, or with `at_least` the least; `strict` excludes the limit itself."""

    of: Literal["value", "ratio"]
    limit: float
    unit: str = ""
    strict: bool = False
    at_least: bool = False

    def __str__(self) -> str:
        sign = ">" if self.at_least else "<"
        return f"{self.of} {sign}{'' if self.strict else '='} {self.limit:g}{self.unit}"

    def met_by(self, measured: float) -> bool:
        """True when the measured number is on the right side of the limit."""
        if measured == self.limit:
            return not self.strict
        return (measured > self.limit) == self.at_least


@dataclass(frozen=True, slots=True)
class Line:
    """One number of the report, for context when it has no target; with an `error` there is no number."""

    name: str
    value: float | None = None
    unit: str = "µs/call"
    ratio: Spread | None = None
    target: Target | None = None
    error: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def paired(
        cls, name: str, pairing: Pairing, *, target: float | Target | None = None, unit: str = "µs/call"
    ) -> "Line":
        """The line of a pairing; a bare number as its target is the most its ratio may be."""
        return cls(
            name,
            value=pairing.variant.median,
            unit=unit,
            ratio=pairing.ratio,
            target=Target("ratio", target) if isinstance(target, (int, float)) else target,
            detail=pairing.to_json(),
        )

    @property
    def verdict(self) -> Verdict:
        if self.error:
            return "ERROR"
        if self.target is None:
            return ""
        ratio = self.ratio.median if self.ratio else None
        measured = self.value if self.target.of == "value" else ratio
        if measured is None:
            return "ERROR"
        return "PASS" if self.target.met_by(measured) else "FAIL"

    def cells(self) -> tuple[str, ...]:
        """The line's text under each of the `HEADINGS`."""
        if self.error:
            return (self.name, "not measured", "", "", "", self.verdict)
        return (
            self.name,
            "" if self.value is None else f"{self.value:,.4g} {self.unit}".rstrip(),
            "" if self.ratio is None else f"{self.ratio.median:.2f}",
            "" if self.ratio is None else f"{self.ratio.lower:.2f} to {self.ratio.upper:.2f}",
            str(self.target or ""),
            self.verdict,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "ratio": self.ratio.median if self.ratio else None,
            "target": str(self.target) if self.target else None,
            "verdict": self.verdict or None,
            "error": self.error or None,
            "detail": dict(self.detail),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The lines of one section, under its name and a sentence that says what was compared."""

    section: str
    about: str
    lines: Sequence[Line]

    def line(self, name: str) -> Line | None:
        return next((line for line in self.lines if line.name == name), None)

    @property
    def missed(self) -> list[Line]:
        return [line for line in self.lines if line.verdict in ("FAIL", "ERROR")]

    def to_json(self) -> dict[str, Any]:
        return {"about": self.about, "lines": [line.to_json() for line in self.lines]}


def print_report(report: Report) -> None:
    """Print the report as a table: with rich when it is there, in plain columns when it is not."""
    title, rows = f"{report.section}: {report.about}", [line.cells() for line in report.lines]
    try:
        _print_rich(title, rows)
    except ImportError:
        print(plain_table(title, rows))
    # Below the table: a cell would cut them, and the end of an error is what tells.
    for line in report.lines:
        if line.error:
            print(f"{line.name}: {line.error}")


def _print_rich(title: str, rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading in ("value", "ratio") else "left", no_wrap=True)
    colours = {"PASS": "green", "FAIL": "red", "ERROR": "red"}
    for row in rows:
        table.add_row(*row, style=colours.get(row[-1]))
    # Into a file or a pipe rich would assume eighty columns, and cut the cells.
    Console(width=None if sys.stdout.isatty() else 180).print(table)


def plain_table(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns of text under a title."""
    everything = [HEADINGS, *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in everything]
    return "\n".join(["", title, *[line.rstrip() for line in lines]])


def write_json(path: Path, reports: Sequence[Report], *, quick: bool) -> None:
    """Write every report, and the machine they were measured on, to `path`."""
    document = {
        "machine": machine(),
        "quick": quick,
        "sections": {report.section: report.to_json() for report in reports},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_markdown(path: Path, reports: Sequence[Report], *, quick: bool) -> None:
    """Write every report as a page with a table for each section."""
    about = machine()
    page = [
        "# The figures of one run",
        "",
        f"Written by `python -m bench{' --quick' if quick else ''} --markdown`: {about['implementation']}",
        f"{about['python']} on {about['system']} ({about['architecture']}, {about['cpus']} cores). "
        "[README.md](README.md) says",
        "what a section measures, and why a target is missed.",
    ]
    for report in reports:
        page += ["", f"## {report.section}", "", f"{report.about[0].upper()}{report.about[1:]}.", ""]
        page += ["| measure | value | ratio | quartiles | target | |", "|---|---|---|---|---|---|"]
        page += [f"| {' | '.join([*cells[:-1], _WORDS[cells[-1]]])} |" for cells in map(Line.cells, report.lines)]
    path.write_text("\n".join([*page, ""]), encoding="utf-8")


_WORDS = {"PASS": "met", "FAIL": "**missed**", "ERROR": "not measured", "": ""}


def machine() -> dict[str, Any]:
    """What a reader needs to weigh the figures; nothing that names the machine."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }
