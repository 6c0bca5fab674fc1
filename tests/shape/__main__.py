"""``scripts/shape``: prints what the code is like, to be compared with what it was."""

from __future__ import annotations

import argparse
import sys

from tests.shape import figures
from tests.shape.journey import travel


def main() -> int:
    """The figures, a line each."""
    parser = argparse.ArgumentParser(prog="scripts/shape", description=__doc__)
    parser.add_argument(
        "--functions", action="store_true", help="name those called from DONE to the next TASK"
    )
    chosen = parser.parse_args()
    found = figures.rooms()
    print("files  lines  room")
    for name, (files, lines) in sorted(found.items()):
        print(f"{files:5}  {lines:5}  {name}")
    print(f"{sum(f for f, _ in found.values()):5}  {sum(n for _, n in found.values()):5}  in all")
    print("longest:", ", ".join(f"{name} {lines}" for name, lines in figures.longest()))
    journey = travel()
    print(
        f"DONE to the next TASK: {len(journey.functions)} functions in {len(journey.files)} files,"
        f" {journey.calls} calls"
    )
    if chosen.functions:
        print(*(f"  {name}" for name in journey.functions), sep="\n")
    print("folds over the journal:", ", ".join(figures.folds()) or "none")
    print("classes of one name:", dict(figures.duplicate_classes()) or "none")
    print("integrations named outside:", ", ".join(figures.names_outside()) or "none")
    return 0


if __name__ == "__main__":
    sys.exit(main())
