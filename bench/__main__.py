"""The command: `python -m bench` measures, prints a table per section, and writes the figures as JSON."""

import argparse
import sys
from pathlib import Path

from bench.report import Report, print_report, write_json, write_markdown
from bench.sections import PEER_SECTIONS, SECTIONS

RESULTS = Path(__file__).resolve().parent / "results" / "latest.json"


def main() -> int:
    """Run the sections that were asked for. Missed targets change the exit code only with `--strict`."""
    options = parse()
    reports: dict[str, Report] = {}
    for name, section in SECTIONS.items():
        if (options.only and name not in options.only) or (options.no_peers and name in PEER_SECTIONS):
            continue
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        reports[name] = section(options.quick, reports)
        print_report(reports[name])
    write_json(options.json, list(reports.values()), quick=options.quick)
    if options.markdown:
        write_markdown(options.markdown, list(reports.values()), quick=options.quick)
    missed = [f"{name}: {line.name}" for name, report in reports.items() for line in report.missed]
    print(f"{len(missed)} missed" + "".join(f"\n  {each}" for each in missed) if missed else "every target met")
    return 1 if missed and options.strict else 0


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of toolwright and its peers.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples: a first look")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="where the figures go")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as a page, too")
    parser.add_argument("--only", action="append", choices=[*SECTIONS], metavar="SECTION", help="may be repeated")
    parser.add_argument("--no-peers", action="store_true", help="do not install or measure the peers")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
