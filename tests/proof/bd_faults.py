"""Each call of ``bd`` by a fleet of twelve issues breaks once, in each way, by its position.

On both generations of the real ``bd``: a call fails, hangs, lies, prints a line first, answers
late, answers nothing, is killed; before it has done its work, or after. Each issue is worked once
and closed, or the run ends with another code than 0, names what it left, and the next start has
it done. ``scripts/faults bd``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import ClassVar

from tests.proof.git_faults import Suite, main
from tests.proof.git_scenarios import MARK, Scenario
from tests.support.bd import NEW, OLD, BdProject, bd_program
from tests.support.fleet import Fleet
from tests.support.mortal_git import MortalProgram

ISSUES = 12
BOUND_SECONDS = 5
"""Of a call that names no issue; one that lives takes a tenth of that, on a busy machine half."""
ENDS_SECONDS = 100.0
"""A run takes 3 to 10 s; with one call that hangs and outlives its TERM, and a back-off, 30 s."""
OTHER = '[{"id": "bw-zz", "title": "another", "status": "in_progress", "issue_type": "task"}]'
LOCKED = "echo 'Error: database is locked' >&2; exit 1"
SLEEP = "exec sleep 45"
DOES = '"$real" "$@" >/dev/null 2>&1'
DEATHS = {
    "fails": LOCKED,
    "fails late": f"{DOES}; {LOCKED}",
    "hangs": SLEEP,
    "hangs late": f"{DOES}; {SLEEP}",
    "hangs, and outlives TERM": f"trap '' TERM; {SLEEP}",
    "lies": f"echo '{OTHER}'; exit 0",
    "lies late": f"{DOES}; echo '{OTHER}'; exit 0",
    "prints an object": "echo '{}'; exit 0",
    "prints an object late": f"{DOES}; echo '{{}}'; exit 0",
    "prints a line first": "echo 'A new version is available.'",
    "answers late": "sleep 2",
    "answers nothing": "exit 0",
    "answers nothing late": f"{DOES}; exit 0",
    "is killed": "kill -KILL $$",
    "is killed late": f"{DOES}; kill -KILL $$",
}
"""How a call breaks. ``late``: it has done its work by then."""


class MortalBd(MortalProgram):
    """``bd``, of the version that ``REAL_BD`` names."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "bd", "$REAL_BD", DEATHS)


class Drains(Scenario):
    """Twelve issues, three workers, until nothing is left."""

    hows = tuple(DEATHS)
    version: ClassVar[str]

    def build(self) -> None:
        self.project = BdProject(self.live, self.version)
        self.ids = {*self.project.create_many([{} for _ in range(ISSUES)])}
        self.environment = {
            **self.project.environment,
            **self.mortal.variables(),
            "REAL_BD": str(bd_program(self.version)),
            "RAN": str(self.live / "ran"),
        }

    def happen(self) -> tuple[int, str]:
        self.environment[MARK] = str(self.folder)
        (self.live / "ran").write_text("")
        return self.fleet()

    def fleet(self) -> tuple[int, str]:
        """A run's exit code, and what it said."""
        work = ("sh", "-c", 'echo "$BW_ISSUE_ID" >>"$RAN"')
        pace = ("-n", "3", "--until-empty", f"--bd-timeout={BOUND_SECONDS}s")
        fleet = Fleet(self.project, *pace, "--", *work, environment=self.environment)
        try:
            return fleet.wait(ENDS_SECONDS), fleet.said()
        finally:
            fleet.end()

    def look(self, seen: tuple[int, str], how: str | None) -> None:
        code, said = seen
        assert "Traceback" not in said, said
        assert code == 0 or how, said
        left = self.left()
        if code == 0 or "nothing is left to do" in said:
            assert not left, f"exit {code} over unfinished work, {left}: {said}"
        stranded = {i for i, status in left.items() if status == "in_progress" and i not in said}
        if code:
            assert "next: " in said or "error: " in said, said
            self.environment.pop(MARK, None)
            again, later = self.fleet()
            assert (again, self.left()) == (0, {}), f"the next start: {later}, after {said}"
        assert not stranded, f"stranded without a name: {stranded}: {said}"
        ran = (self.live / "ran").read_text().split()
        assert sorted(ran) == sorted(self.ids), f"worked: {ran}: {said}"

    def left(self) -> dict[str, str]:
        """What is not closed, and its status."""
        found = self.project.read_all()
        return {i: status for i, (status, _) in found.items() if status != "closed"}


class DrainsOld(Drains):
    """On 0.44."""

    version = OLD


class DrainsNew(Drains):
    """On 1.3."""

    version = NEW


SUITE = Suite(
    "scripts/faults bd", str(__doc__), {f"bd {OLD}": DrainsOld, f"bd {NEW}": DrainsNew}, MortalBd
)


if __name__ == "__main__":
    os.environ.setdefault("BW_BD_ENVELOPE", "0")
    sys.exit(main(sys.argv[1:], SUITE))
