"""The proof of gates that die: a fleet lands while the kernel ends them, or the disk is full.

    python -m tests.proof.gates [--cases N] [--json] [--progress]

Whatever befalls the gate of a good branch, up to five times in a row, the branch lands, and the
reason was true while it waited. A branch whose gate never has a verdict is set aside by name, and
the run ends. One more case is one more row of ``CASES``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.end_to_end.test_landing import fleet_of, landed, repository
from tests.proof.case_runner import run_cases
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet
from tests.support.shortage import EATER, memory_group, small_disk

MEMORY = "for want of memory"
ALWAYS = 1000
PATIENCE = 120.0

SCRIPT = """\
test -e bw-1.txt || exit 0
echo x >>{folder}/count
test $(wc -l <{folder}/count) -gt {times} && exit 0
{dies}
"""
SETTINGS = '[landing]\ngate_retry = "10s"\ngate_timeout = "{timeout}"\n'


@dataclass(frozen=True, slots=True)
class Case:
    """``dies``: what the gate of one branch does, ``times`` times; ``why``: what is told then."""

    name: str
    dies: str
    why: str
    times: int
    timeout: str = "1m"


def _case(times: int, below_make: bool = False) -> Case:
    # In the group from here on, as all that it starts.
    eats = f"echo $$ >{{members}}; '{sys.executable}' -c '{EATER}'"
    if below_make:
        made = f"all:\\n\\t@'{sys.executable}' -c \"{EATER}\"\\n"
        eats = f"echo $$ >{{members}}; printf '{made}' | make -sf -"
    what = "below make, " if below_make else ""
    often = "for ever" if times == ALWAYS else f"{times} times"
    return Case(f"out of memory, {what}{often}", f"{eats} || exit 2", MEMORY, times)


KILLS_GATE = "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 9"
"""Above the shell that runs verify."""

CASES = (
    *(_case(times) for times in range(1, 6)),
    _case(3, below_make=True),
    Case("the gate itself is killed, 3 times", KILLS_GATE, "without an answer", 3),
    Case(
        *("the disk is full, 2 times", "head -c 3m /dev/zero >{disk}/x || rm {disk}/x; exit 1"),
        *("the disk is full", 2),
    ),
    _case(ALWAYS),
    Case("sleeps for ever", "exec sleep 1000", "it had not ended after 1 seconds", ALWAYS, "1s"),
)


def run(case: Case, folder: Path) -> list[str]:
    """What is wrong with it; nothing for a case that held."""
    project = EmbeddedProject(folder)
    top = repository(project)
    ids = project.create_many([{}, {}, {}])
    (top / "beads-workers.toml").write_text(SETTINGS.format(timeout=case.timeout))
    with memory_group() as members, small_disk(folder / "disk") as disk:
        dies = case.dies.format(members=members, folder=folder, disk=disk)
        script = SCRIPT.format(folder=folder, times=case.times, dies=dies)
        (folder / "gate.sh").write_text(script)
        fleet = fleet_of(_start, project, "--verify", f"sh {folder}/gate.sh")
        try:
            return list(_judged(case, fleet, list(map(str, ids)), fleet.wait(PATIENCE)))
        finally:
            fleet.end()


def _start(project: EmbeddedProject, *options: str) -> Fleet:
    return Fleet(project, *options)


def _judged(case: Case, fleet: Fleet, ids: list[str], status: int) -> list[str]:
    told = [row["text"] for row in fleet.journal("noted") if "had no verdict so far" in row["text"]]
    refused = [row for row in fleet.journal("landing_ended") if row["verdict"] == "quarantined"]
    broken = []
    if not told or not all(text.startswith("bw-1 ") and case.why in text for text in told):
        broken.append(f"told: {told}")
    if case.times < ALWAYS:
        if status != 0 or sorted(landed(fleet)) != ids or refused:
            broken.append(f"exit {status}, landed: {landed(fleet)}, refused: {refused}")
        return broken
    if status != 7 or sorted(landed(fleet)) != ids[1:]:
        broken.append(f"exit {status}, landed: {landed(fleet)}")
    if [row["issue_id"] for row in refused] != ["bw-1"] or case.why not in refused[0]["text"]:
        broken.append(f"refused: {refused}")
    return broken


def main(arguments: list[str]) -> int:
    """0 when all held."""
    return run_cases("gates", __doc__, CASES, run, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
