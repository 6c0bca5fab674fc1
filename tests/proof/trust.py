"""The proof of docs/TRUST.md: strangers' repositories, a second user, and folders that go.

    python -m tests.proof.trust [--cases N] [--only WORD] [--json] [--progress]

Nothing that came with a clone runs before it is trusted, for each line of a settings file and each
planted file, on both bd, with the real claude and codex. A second user of the machine neither reads
nor steers the page. A fleet whose folders are removed, replaced or read-only notices, says so, ends
on TERM, and names what it holds. Whatever lies at a name that we open is refused or harmless. One
more case is one more row of a table in ``cloned``, ``second_user``, ``lost_folders`` or
``planted_names``.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path

from tests.proof import cloned, lost_folders, planted_names, second_user
from tests.proof.case_runner import run_cases
from tests.support.bd import NEW, OLD

TRACKERS = (lost_folders.EMBEDDED, OLD, NEW)


@dataclass(frozen=True, slots=True)
class Case:
    """``run`` is told a folder of its own, and gives what is wrong."""

    name: str
    run: Callable[[Path], list[str]]


def _folders() -> Iterator[Case]:
    for name in lost_folders.names():
        for tracker in TRACKERS:
            run = partial(lost_folders.tried, tracker=tracker, name=name)
            yield Case(f"{tracker}: {name}", run)


def _second_user(stack: ExitStack) -> Iterator[Case]:
    made: list[second_user.Attacked] = []

    def run(folder: Path, way: str) -> list[str]:
        if not made:
            made.append(second_user.Attacked())
            stack.callback(made[0].close)
        return second_user.WAYS[way](made[0], way)

    for way in second_user.WAYS:
        yield Case(f"second user: {way}", partial(run, way=way))


def _clones(stack: ExitStack) -> Iterator[Case]:
    for name, tried in cloned.cases(stack).items():
        yield Case(f"clone: {name}", tried)


def _names() -> Iterator[Case]:
    for name in planted_names.NAMES:
        yield Case(f"at the name {name}", partial(planted_names.tried, name=name))


def cases(stack: ExitStack) -> list[Case]:
    """One of each kind first, then the next one of each. ``stack``: ends what they share."""
    kinds = (_folders(), _second_user(stack), _clones(stack), _names())
    return [each for each in chain.from_iterable(zip_longest(*kinds)) if each is not None]


CASES = len(cases(ExitStack()))


def main(arguments: list[str]) -> int:
    """0 when all held."""
    # Nothing stays mounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with ExitStack() as stack:
        return run_cases("trust", __doc__, cases(stack), lambda case, at: case.run(at), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
