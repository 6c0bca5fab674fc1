"""``scripts/simulate``: runs seeds, counts faults, and says which seed broke what."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

from tests.simulation.mutants import MUTANTS
from tests.simulation.seeds import Figures, cores, run_many, run_seed, shrink
from tests.simulation.world import Options, Outcome

SHOWN_LINES = 80
DRAW_SECONDS = 0.5
LINE_SECONDS = 10.0
"""Between two lines of ``--progress`` where they cannot be written over each other."""
SHRUNK_MAX = 3
"""Broken seeds that are made smaller; the others are only named."""


def main(argv: list[str]) -> int:
    """0 where everything held, or where the mutant was caught; else 1."""
    asked = _parser().parse_args(argv)
    options = Options(
        asked.seed or 0,
        asked.minutes,
        1.0,
        asked.first,
        asked.push,
        asked.agents,
        asked.landing,
        asked.away,
    )
    if asked.seed is not None and asked.seeds is None and asked.faults is None:
        return _one(replace(options, verbose=asked.verbose), asked)
    return _many(options, asked)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many worlds (100)")
    parser.add_argument("--seed", type=int, help="this one; with --seeds: the first")
    parser.add_argument("--faults", type=int, help="go on until so many were injected")
    parser.add_argument("--minutes", type=float, default=10.0, help="of trouble in each world (10)")
    parser.add_argument("--first", type=int, help="inject only so many faults, then peace")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), default="", help="a planted bug")
    parser.add_argument("--push", action="store_true", help="only worlds with push sources")
    parser.add_argument("--agents", action="store_true", help="only worlds with agents")
    parser.add_argument("--landing", action="store_true", help="only worlds where branches land")
    parser.add_argument("--away", action="store_true", help="only worlds with other machines")
    parser.add_argument("--jobs", type=int, default=cores(), help="worlds at a time")
    parser.add_argument("--json", action="store_true", help="the figures as one object")
    parser.add_argument("--progress", action="store_true", help="on stderr, also into a pipe")
    parser.add_argument("--verbose", action="store_true", help="with --seed: what happened")
    return parser


def _one(options: Options, asked: argparse.Namespace) -> int:
    outcome = run_seed(options, asked.mutant)
    lines = outcome.log if asked.verbose else ()
    for line in lines[-SHOWN_LINES:]:
        print(line)
    figures = Figures()
    figures.add(outcome)
    return _end(figures, asked, options, 0.0)


def _many(options: Options, asked: argparse.Namespace) -> int:
    figures, began = Figures(), time.monotonic()
    seeds = asked.seeds or (100 if asked.faults is None else sys.maxsize)

    stopped = _ended_by(signal.SIGTERM)

    def goes_on(seed: int) -> bool:
        enough = asked.faults is not None and figures.injected >= asked.faults
        return seed < options.seed + seeds and not enough and not stopped()

    draws = sys.stderr.isatty()
    shown_at = began
    for outcome in run_many(options, asked.mutant, goes_on, max(1, asked.jobs)):
        figures.add(outcome)
        now = time.monotonic()
        if draws and now - shown_at > DRAW_SECONDS:
            shown_at = now
            print(
                f"\r{_progress(figures, asked, now - began)} ", end="", file=sys.stderr, flush=True
            )
        elif asked.progress and now - shown_at > LINE_SECONDS:
            shown_at = now
            print(_progress(figures, asked, now - began), file=sys.stderr, flush=True)
    if draws:
        print("\r\x1b[K", end="", file=sys.stderr)
    return _end(figures, asked, options, time.monotonic() - began)


def _ended_by(number: signal.Signals) -> Callable[[], bool]:
    """Whether that signal has come: then what was found so far is told, and no more is tried."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    signal.signal(number, note)
    return lambda: bool(came)


def _progress(figures: Figures, asked: argparse.Namespace, seconds: float) -> str:
    broken = f", {len(figures.broken)} BROKEN" if figures.broken else ""
    of = f" of {asked.faults:,}" if asked.faults else ""
    return f"{figures.injected:,}{of} faults, {figures.seeds:,} seeds, {seconds:.0f} s{broken}"


def _end(figures: Figures, asked: argparse.Namespace, options: Options, seconds: float) -> int:
    figures.broken.sort(key=lambda outcome: outcome.seed)
    if asked.json:
        print(json.dumps(_as_json(figures, seconds), indent=2))
    else:
        for broken in figures.broken:
            _show_broken(broken, asked, options, shrinks=broken in figures.broken[:SHRUNK_MAX])
        for kind, count in figures.faults.most_common():
            print(f"{count:10,}  {kind}")
        hours = figures.seconds / 3600
        print(
            f"{figures.injected:10,}  faults in {figures.seeds:,} seeds: {hours:,.1f} simulated"
            f" hours, {figures.runs:,} runs, {figures.closed:,} issues closed, {seconds:.0f} s"
        )
        print(f"{len(figures.broken):10,}  violations")
    return int(bool(figures.broken) != bool(asked.mutant))


def _show_broken(
    outcome: Outcome, asked: argparse.Namespace, options: Options, *, shrinks: bool
) -> None:
    print(f"seed {outcome.seed}: {outcome.violation}")
    again = f"scripts/simulate --seed {outcome.seed} --minutes {options.minutes:g} --verbose"
    again += " --agents" * asked.agents + " --push" * asked.push
    again += " --landing" * asked.landing + " --away" * asked.away
    again += f" --mutant {asked.mutant}" if asked.mutant else ""
    if options.faults_max is None and shrinks and not asked.mutant:
        fewest = shrink(replace(options, seed=outcome.seed), asked.mutant, outcome)
        again += f" --first {fewest}" if fewest >= 0 else ""
    print(f"  {again}")


def _as_json(figures: Figures, seconds: float) -> dict[str, object]:
    return {
        "seeds": figures.seeds,
        "seconds": round(seconds, 1),
        "simulated_hours": round(figures.seconds / 3600, 2),
        "runs": figures.runs,
        "closed": figures.closed,
        "faults": figures.injected,
        "faults_by_kind": dict(figures.faults.most_common()),
        "violations": [
            {"seed": o.seed, "invariant": o.number, "text": o.violation} for o in figures.broken
        ],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
