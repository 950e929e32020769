"""Which promises have a test. Reads docs/promises.md and the markers under tests/; runs nothing."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROMISES = ROOT / "docs" / "promises.md"
TESTS = ROOT / "tests"


def promises_in(text: str) -> dict[str, str]:
    """The statement of each promise by id, in the order of the page.

    Raises:
        ValueError: an id stands there twice.
    """
    promises: dict[str, str] = {}
    for name, statement in re.findall(r"^- ([A-Z]+-\d+) (.+)$", text, re.MULTILINE):
        if name in promises:
            raise ValueError(f"Promise {name!r} is listed twice; give one of the two another number.")
        promises[name] = statement
    return promises


def markers_in(source: str) -> Iterator[tuple[str, int]]:
    """Each id that a `mark.promise(...)` names, with its line: as decorator, `pytestmark` or parameter."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr="promise", value=ast.Attribute(attr="mark") | ast.Name(id="mark"))):
                for arg in node.args:
                    # What is not a literal can't be read here: its source is no id, so it is reported.
                    name = arg.value if isinstance(arg, ast.Constant) else ast.unparse(arg)
                    yield str(name), arg.lineno


def main() -> int:
    promises = promises_in(PROMISES.read_text(encoding="utf-8"))
    tested: set[str] = set()
    unknown: list[str] = []
    for path in sorted(TESTS.rglob("*.py")):
        for name, line in markers_in(path.read_text(encoding="utf-8")):
            if name in promises:
                tested.add(name)
            else:
                unknown.append(f"{path.relative_to(ROOT)}:{line}: no promise {name!r} in docs/promises.md")

    areas: dict[str, list[str]] = {}
    for name in promises:
        areas.setdefault(name.partition("-")[0], []).append(name)
    for area, names in areas.items():
        missing = [name for name in names if name not in tested]
        print(f"{area:<7}{len(names) - len(missing):>4}/{len(names):<4}{' '.join(missing)}".rstrip())
    print(f"{'total':<7}{len(tested):>4}/{len(promises)}")

    print(*unknown, sep="\n", end="\n" if unknown else "", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
