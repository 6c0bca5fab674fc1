"""``scripts/fuzz --frames N``: so many at each end, the same again by seed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.frames.driver_end import try_lines
from tests.fuzz.frames.executor_end import Told, try_executor

LINE_SECONDS = 10.0
SHOWN = 20

ENDS: dict[str, Callable[[int, int, Told], list[str]]] = {
    "executor": try_executor,
    "driver": try_lines,
}


def main(arguments: Sequence[str]) -> int:
    """0: everything held; 1: something did not."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz --frames", description=__doc__)
    add = parser.add_argument
    add("--frames", type=int, required=True, help="at each end")
    add("--end", choices=[*ENDS], action="append", help="only this one")
    add("--seed", type=int, default=1, help="other frames (default 1)")
    add("--json", action="store_true", help="one JSON object on stdout")
    add("--progress", action="store_true", help="on stderr")
    said = parser.parse_args(arguments)
    ends = {name: _try(name, said) for name in said.end or ENDS}
    violations = [f"{name}: {text}" for name, end in ends.items() for text in end["violations"]]
    if said.json:
        frames = min(end["frames"] for end in ends.values())
        print(json.dumps({"faults": frames, "violations": violations, "ends": ends}))
    else:
        for name, end in ends.items():
            mark = "FAILED" if end["violations"] else "ok"
            print(f"{name:<9} {end['frames']:>10,} frames  {end['seconds']:>7.1f} s  {mark}")
        for text in violations[:SHOWN]:
            print(text, file=sys.stderr)
    return 1 if violations else 0


def _try(name: str, said: Any) -> dict[str, Any]:
    began = last = time.monotonic()
    done = 0

    def told(frames: int) -> None:
        nonlocal done, last
        done = frames
        if said.progress and time.monotonic() - last > LINE_SECONDS:
            last = time.monotonic()
            print(f"{frames:,} of {said.frames:,} frames, {name}", file=sys.stderr, flush=True)

    violations = ENDS[name](said.frames, said.seed, told)
    seconds = round(time.monotonic() - began, 1)
    return {"frames": done, "seconds": seconds, "violations": violations}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
