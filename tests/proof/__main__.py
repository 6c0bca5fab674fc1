"""``scripts/prove``: every proof at full size, several side by side, and one table at the end.

Says on stderr how far it is. The table and the figures are written in any case, also when it is
interrupted or out of time; what did not come to its end then is named, and counts as broken.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from tests.proof.parts import PARTS, Part
from tests.proof.runner import Running, begin, end
from tests.proof.table import Figure, machine, progress, table

LOOK_SECONDS = 0.5
SAY_SECONDS = 30.0
QUICK_SHARE = 50
LEAVE_AT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: list[str]) -> int:
    """0 when every proof ended and found nothing; 128 + N after signal N; else 1."""
    said = _parsed(arguments)
    parts = [p for p in PARTS if not said.names or p.name in said.names]
    before = machine()
    with tempfile.TemporaryDirectory(prefix="beads-workers-proof-") as folder:
        proving = Proving(Path(folder), parts, said.share, said.jobs, said.minutes * 60)
        for number in LEAVE_AT:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, proving.stop)
        proving.run(lambda: _write(said.out, before, proving, "under way"))
        figures = proving.figures
    minutes = proving.seconds / 60
    _write(said.out, before, proving, proving.why.removeprefix(", ") or "complete")
    whole = "" if said.share == 1 else f", 1/{said.share} of the full size"
    print(f"{before}; {minutes:.1f} minutes{whole}{proving.why}\n\n{table(figures)}")
    if proving.stopped_by:
        return 128 + proving.stopped_by
    return 1 if any(figure.broken for figure in figures) else 0


def _parsed(arguments: list[str]) -> argparse.Namespace:
    names = list(dict.fromkeys(part.name for part in PARTS))
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(prog="scripts/prove", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(map(repr, names))}")
    add("--share", type=int, default=1, metavar="N", help="an N-th of everything")
    add("--quick", action="store_const", const=QUICK_SHARE, dest="share", help="--share 50")
    add("--minutes", type=float, default=60.0, help="at most (default 60)")
    add("--jobs", type=int, default=cores, help="chaos fleets side by side (default: cores)")
    add("--out", type=Path, default=Path("proof.json"), help="for the figures (proof.json)")
    said = parser.parse_args(arguments)
    if unknown := set(said.names) - set(names):
        parser.error(f"no such proof: {', '.join(sorted(unknown))}")
    if said.share < 1 or said.jobs < 1:
        parser.error("--share and --jobs are 1 at least")
    return said


class Proving:
    """``run`` starts what there is room for, and ends what is late; then read ``figures``."""

    def __init__(
        self, folder: Path, parts: Sequence[Part], share: int, jobs: int, limit_seconds: float
    ) -> None:
        self._folder = folder
        self._share = share
        self._jobs = jobs
        self._parts = parts
        self._waiting = list(parts)
        self._running: list[Running] = []
        self._began = time.monotonic()
        self._until = self._began + limit_seconds
        self._says_at = self._began + SAY_SECONDS
        self.figures: list[Figure] = []
        self.stopped_by = 0
        self.why = ""
        """Why it ended early; empty where it did not."""

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def stop(self, number: int, frame: FrameType | None) -> None:
        """A signal's handler: everything ends at the next look."""
        self.stopped_by = self.stopped_by or number

    def run(self, concluded: Callable[[], None] = lambda: None) -> None:
        """Until all have ended, it is told to stop, or the time is over.

        ``concluded`` is called whenever there are more ``figures``.
        """
        try:
            while (self._waiting or self._running) and not self._is_over():
                self._begin()
                time.sleep(LOOK_SECONDS)
                if self._conclude():
                    concluded()
                self._tell()
            left = [part.name for part in self._waiting]
            self._waiting.clear()
        finally:
            end(self._running)
        self._conclude()
        what = {p.name: p.what for p in self._parts}
        self.figures += [
            Figure(name, what[name], 0, 0.0, (f"not begun{self.why}",)) for name in left
        ]
        if not self.stopped_by and not any(figure.broken for figure in self.figures):
            self.why = ""  # What was under way at the limit came to its end all the same.

    def _is_over(self) -> bool:
        if self.stopped_by:
            self.why = f", stopped by {signal.Signals(self.stopped_by).name}"
        elif time.monotonic() >= self._until:
            self.why = ", out of time"
        return bool(self.why)

    def _begin(self) -> None:
        """Up to ``jobs`` that wait now and then; beside them, one that only computes."""
        for part in list(self._waiting):
            beside = sum(each.part.fills == part.fills for each in self._running)
            if beside < (1 if part.fills else self._jobs):
                self._waiting.remove(part)
                file = self._folder / f"part-{len(self._waiting)}"
                self._running.append(begin(part, self._share, file))
                say(f"{part.name} ({part.size(self._share):,} {part.what}) begins")

    def _conclude(self) -> bool:
        ended = [each for each in self._running if each.ended()]
        for each in ended:
            self._running.remove(each)
            figure = each.figure()
            self.figures.append(figure)
            found = "; ".join(figure.broken) or "nothing broken"
            say(f"{figure.name} ended after {figure.seconds:.0f} s: {found}")
        return bool(ended)

    def _tell(self) -> None:
        if time.monotonic() >= self._says_at:
            self._says_at += SAY_SECONDS
            limit = self._until - self._began
            say(progress(self._parts, self._waiting, self._running, self.seconds, limit))


def _write(file: Path, before: str, proving: Proving, ended: str) -> None:
    """After each that ends: what kills us in the last minute shall not cost the whole hour."""
    figures = [figure.__dict__ for figure in proving.figures]
    shown = {"machine": before, "seconds": round(proving.seconds), "ended": ended}
    file.write_text(json.dumps(shown | {"figures": figures}, indent=1) + "\n")


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
