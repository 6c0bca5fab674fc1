"""``scripts/shape``: prints what the code is like, to be compared with what it was."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from tests.shape import figures, table
from tests.shape.bounds import BOUNDS, BUDGET, GRANTED, Bound
from tests.shape.circles import circles, short
from tests.shape.figures import Source
from tests.shape.journey import Journey, feature_of, travel
from tests.shape.life import Life, live
from tests.shape.rooms import ROOMS, try_rooms
from tests.shape.status_cost import BRANCHES, cost


def main() -> int:
    """The figures, a line each."""
    chosen = _parser().parse_args()
    if chosen.rooms:
        return try_rooms(chosen.rooms if chosen.rooms != ["all"] else [*ROOMS])
    package, journey, life = figures.sources(), travel(), live()
    values = {**table.travelled(journey), **table.lived(life.functions), **table.counted(package)}
    if chosen.bounds:
        print(*_bounds(values), figures.code_of_rooms(package), sep="\n")
    elif chosen.json:
        print(json.dumps(_as_json(values, package, journey, life), indent=2))
    else:
        print(*_rooms(package), *_table(values), *_details(package, journey, life), sep="\n")
        if chosen.functions:
            print(*_functions(journey), sep="\n")
        if chosen.executed:
            print(*sorted(life.functions), sep="\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/shape", description=__doc__)
    parser.add_argument(
        "--functions", action="store_true", help="name those called from DONE to the next TASK"
    )
    parser.add_argument(
        "--executed", action="store_true", help="name those executed for one command issue"
    )
    parser.add_argument("--json", action="store_true", help="all of it, machine-readable")
    parser.add_argument(
        "--rooms", nargs="+", metavar="FEATURE", choices=["all", *ROOMS],
        help="delete these features in a copy, each by itself, and say what misses them",
    )  # fmt: skip
    parser.add_argument(
        "--bounds", action="store_true", help="the table of tests/shape/bounds.py, as it is now"
    )
    return parser


def _rooms(package: list[Source]) -> Iterator[str]:
    found = figures.rooms(package)
    yield "files  lines  room"
    for name, (files, lines) in sorted(found.items()):
        yield f"{files:5}  {lines:5}  {name}"
    yield f"{sum(f for f, _ in found.values()):5}  {sum(n for _, n in found.values()):5}  in all"
    code = figures.code_of_rooms(package)
    yield " code  budget  room"
    for name, now in sorted(code.items()):
        yield f"{now:5}   {BUDGET.get(name, 0):5}  {name}"
    yield f"{sum(code.values()):5}   {GRANTED:5}  in all"
    longest = ", ".join(f"{name} {lines}" for name, lines in figures.longest(package))
    yield f"longest: {longest}"


def _table(values: table.Values) -> Iterator[str]:
    yield ""
    yield f"{'measured':48}  {'now':>6}  {'bound':>6}  goal"
    for name, (title, goal) in table.TITLES.items():
        yield f"{title:48}  {values[name]:6}  {BOUNDS[name].most:6}  {goal}".rstrip()


def _details(package: list[Source], journey: Journey, life: Life) -> Iterator[str]:
    spent = cost()
    yield ""
    yield f"DONE to the next TASK: {journey.calls} calls, of features that the run does not use:"
    used = [feature for name in journey.functions if (feature := feature_of(name))]
    yield "  " + ", ".join(f"{f} {used.count(f)}" for f in dict.fromkeys(sorted(used)))
    yield "one command issue, functions executed by process:"
    for kind, (processes, functions) in life.kinds().items():
        yield f"  {functions:5}  {kind}" + (f" ({processes} processes)" if processes > 1 else "")
    yield "import circles:" if (found := circles(package)) else "import circles: none"
    yield from (f"  {len(circle):2}  {short(circle)}" for circle in found)
    yield "what becomes of an attempt is decided in (lines):"
    yield from (f"  {n:5}  {name}" for name, n in figures.fate_lines(package).items())
    yield "read models beside the reducer (lines):"
    yield from (f"  {n:5}  {name}" for name, n in figures.read_model_lines(package).items())
    yield f"status with {BRANCHES} branches waiting: {spent:.1f} ms a frame"
    yield "folds over the journal: " + (", ".join(figures.folds(package)) or "none")
    yield f"classes of one name: {dict(figures.duplicate_classes(package)) or 'none'}"
    yield "integrations named outside: " + (", ".join(figures.names_outside(package)) or "none")


def _functions(journey: Journey) -> Iterator[str]:
    for name in journey.functions:
        feature = feature_of(name)
        yield f"  {name}" + (f"  ({feature}: not used here)" if feature else "")


def _bounds(values: table.Values) -> Iterator[str]:
    for name, now in values.items():
        bound = BOUNDS.get(name, Bound(now))
        most = "CIRCLES_MAX" if name == "circles" else str(now)
        slack = f", slack={bound.slack}" if bound.slack else ""
        yield f'    "{name}": Bound({most}{slack}),'


def _as_json(
    values: table.Values, package: list[Source], journey: Journey, life: Life
) -> dict[str, Any]:
    spent = cost()
    return {
        "figures": {
            name: {"title": title, "now": values[name], "most": BOUNDS[name].most, "goal": goal}
            for name, (title, goal) in table.TITLES.items()
        },
        "rooms": {
            name: {"files": files, "lines": lines}
            for name, (files, lines) in sorted(figures.rooms(package).items())
        },
        "journey": {name: feature_of(name) for name in journey.functions},
        "life": {
            kind: {"processes": processes, "functions": functions}
            for kind, (processes, functions) in life.kinds().items()
        },
        "circles": circles(package),
        "fates": figures.fate_lines(package),
        "read_models": figures.read_model_lines(package),
        "status_milliseconds": spent,
    }


if __name__ == "__main__":
    sys.exit(main())
