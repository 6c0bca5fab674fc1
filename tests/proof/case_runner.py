"""The command line of a proof that is a list of named cases: a folder for each, one count."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import pytest


class Named(Protocol):
    """A case."""

    @property
    def name(self) -> str:
        """Unique among the cases."""


T = TypeVar("T", bound=Named)


def run_cases(
    module: str,
    about: str | None,
    cases: Sequence[T],
    run: Callable[[T, Path], Iterable[str]],
    arguments: Sequence[str],
) -> int:
    """Run the chosen cases, each in a folder of its own; return 0 if all held.

    ``module``: the proof's name below ``tests.proof``. ``run`` returns what a case violated. A
    smaller number of cases is spread over all of them.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.proof.{module}", description=about)
    parser.add_argument("--cases", type=int, default=None, help="so many of them")
    parser.add_argument("--only", default="", metavar="WORD", help="those with this in their name")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    said = parser.parse_args(arguments)
    chosen = [each for each in cases if said.only in each.name]
    if said.cases is not None:
        chosen = chosen[:: max(1, len(chosen) // max(1, said.cases))][: said.cases]
    violations = list[str]()
    with os.fdopen(os.dup(1), "w") as told:
        os.dup2(2, 1)  # Attempts say there what they do.
        for number, case in enumerate(chosen):
            if said.progress:
                print(f"{number} of {len(chosen)} cases ({case.name})", file=sys.stderr)
            with tempfile.TemporaryDirectory(
                prefix="beads-workers-proof-", ignore_cleanup_errors=True
            ) as folder:
                try:
                    violations += [f"{case.name}: {each}" for each in run(case, Path(folder))]
                except (Exception, pytest.skip.Exception) as error:  # It is told; the others go on.
                    traceback.print_exc()
                    violations.append(f"{case.name}: {type(error).__name__}: {error}")
        if said.json:
            print(json.dumps({"cases": len(chosen), "violations": violations}), file=told)
        else:
            print("\n".join(violations) or f"{len(chosen)} cases held", file=told)
    return 1 if violations else 0
