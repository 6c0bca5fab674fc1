"""``scripts/night``: the proofs of agents that are left alone, and one table at the end."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.night import answering, compressed, cost, learning, money, truth, whole
from tests.night.figures import Row, as_object, table
from tests.night.ground import say
from tests.support.bd import NEW, OLD

SIZE = 40
Proof = Callable[[int, Path], list[Row]]
PROOFS: dict[str, Proof] = {
    "night": compressed.prove,
    "night-bd": lambda size, folder: compressed.prove(max(6, size // 4), folder, bd=True),
    "truth": truth.prove,
    "learning": learning.prove,
    "money": money.prove,
    "cost": cost.prove,
    "answering": answering.prove,
    "whole": whole.prove,
}


TRACKERS = {"sqlite": "", f"bd-{OLD}": OLD, f"bd-{NEW}": NEW}
EXACT_MONEY: Proof = partial(money.prove, exact=True)


def main(arguments: list[str]) -> int:
    """0 when all held."""
    said = _parsed(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    began = time.monotonic()
    rows: list[Row] = []
    folder = tempfile.mkdtemp(prefix="beads-workers-night-")
    try:
        for name, proof in PROOFS.items():
            if not said.names or name in said.names:
                say(f"{name} begins")
                if said.exact and name == "money":
                    proof = EXACT_MONEY
                elif name == "whole":
                    proof = partial(whole.prove, bd=TRACKERS[said.tracker], kills=said.kills)
                rows += _proved(name, proof, said.issues, Path(folder))
    finally:
        if said.keep:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - began
    found = as_object(rows, said.issues, seconds)
    if said.json:
        print(json.dumps(found, indent=1))
    else:
        print(f"{seconds:.0f} s\n\n{table(rows)}")
    for violation in found["violations"]:
        say(f"BROKEN {violation}")
    return 1 if found["violations"] else 0


def _proved(name: str, proof: Proof, size: int, folder: Path) -> list[Row]:
    """Its rows; where it breaks off, that is one, and the others are tried all the same."""
    try:
        return proof(size, folder)
    except Exception as error:  # Whatever it is, it is told, as a row that is broken.
        traceback.print_exc()
        why = str(error) or type(error).__name__
        return [Row(name, "came to its end", "no", "yes", why[:500])]


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/night", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(PROOFS)}")
    add("--issues", type=int, default=SIZE, help=f"of the night, and the rest by it ({SIZE})")
    add("--json", action="store_true")
    add("--exact", action="store_true", help="money: kill workers in mid-attempt, too")
    add("--tracker", choices=TRACKERS, default="sqlite", help="whole: where its issues are")
    add("--kills", type=int, help="whole: of the orchestrator (20 for 48 issues)")
    add("--keep", action="store_true", help="keep the projects and their journals")
    said = parser.parse_args(arguments)
    if unknown := set(said.names) - set(PROOFS):
        parser.error(f"no such proof: {', '.join(sorted(unknown))}")
    return said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
