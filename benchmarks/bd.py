"""No-op issues on the real ``bd``: grouped, and ``--bd-calls worker``; 1.3.0 and 0.44.0.

Grouped: the orchestrator claims and closes for all, in groups. Self-claiming: each worker runs ``bd
update`` and ``bd close`` itself, as the protocol text says. The same command (``true``), the same
machine, in turn, each on a fresh copy of one initialised project; usage metrics are off, and so
is the daemon of 0.44.0. The self-claiming side takes most of a second for each issue, so it gets
fewer of them, and rates are compared.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tools.figures import Figure, Goal, in_turn, say
from benchmarks.tools.fleets import Broken, Project, run


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison. ``rounds`` at most: some take minutes, and differ little."""

    version: str
    workers: int
    issues: int
    self_claiming: int
    rounds: int
    faster_goal: float | None = None
    calls_goal: float | None = None


CASES = (
    Case("1.3.0", 1, 32, 8, 1),
    Case("1.3.0", 8, 128, 32, 3, 3.0, 0.3),
    Case("1.3.0", 32, 128, 32, 2, 5.0, 0.15),
    Case("0.44.0", 1, 32, 8, 1),
    Case("0.44.0", 8, 128, 32, 2, 3.0),
    Case("0.44.0", 32, 128, 32, 1),
)
QUICK = (Case("1.3.0", 8, 16, 8, 1),)


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Issues a second of the whole ``start``, and tracker calls for each issue done."""
    figures: list[Figure] = []
    for case in QUICK if quick else CASES:
        figures += _case(case, min(rounds, case.rounds), folder / f"{case.version}-{case.workers}")
    return figures


def _case(case: Case, rounds: int, folder: Path) -> list[Figure]:
    folder.mkdir()
    projects = {
        issues: template(folder / f"{issues}", folder / f"home-{issues}", case.version, issues)
        for issues in (case.issues, case.self_claiming)
    }
    calls: list[float] = []

    def grouped() -> float:
        seconds, found = _drain(projects[case.issues], case, case.issues, "grouped")
        calls.append(found)
        return case.issues / seconds

    def self_claiming() -> float:
        seconds, _ = _drain(projects[case.self_claiming], case, case.self_claiming, "worker")
        return case.self_claiming / seconds

    name = f"bd {case.version}, {case.workers} workers"
    mine, theirs = in_turn(name, rounds, grouped, self_claiming)
    say(f"{name}: {', '.join(f'{c:.3f}' for c in calls)} calls for each issue")
    title = f"{name}: {case.issues} issues grouped / {case.self_claiming} self-claiming"
    return [
        Figure(title, "issues/s", mine, theirs, case.faster_goal, Goal.AT_LEAST),
        Figure(f"{name}: calls for each issue, grouped", "", tuple(calls), goal=case.calls_goal),
    ]


def _drain(template: Project, case: Case, issues: int, calls: str) -> tuple[float, float]:
    """Seconds, and calls of our orchestrator for each issue."""
    copy = Project(template.folder.parent / "copy", template.environment)
    shutil.copytree(template.folder, copy.folder, dirs_exist_ok=True)
    options = ["-n", str(case.workers), "--until-empty", "--bd-calls", calls]
    seconds = copy.timed_start(*options, "--", "true")
    _check(copy, issues)
    found = _calls(copy) / issues
    shutil.rmtree(copy.folder)
    return seconds, found


def template(folder: Path, home: Path, version: str, issues: int) -> Project:
    """A project with that many open issues; raises ``Broken`` where that ``bd`` is not built."""
    cache = os.environ.get("BW_CACHE") or str(Path.home() / ".cache" / "beads-workers")
    program = Path(cache) / f"bd-{version}" / "bd"
    if not program.is_file():
        raise Broken(f"{program} is missing: scripts/setup-bd builds it")
    home.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("BEADS_", "BD_", "GIT_"))}
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = kept | {"HOME": str(home), "PATH": path, "GIT_CONFIG_GLOBAL": os.devnull}
    # The daemon of 0.44.0 would outlive us; neither side has one.
    environment |= {"BEADS_ACTOR": "bench", "BD_ACTOR": "bench", "BEADS_AUTO_START_DAEMON": "false"}
    project = Project(folder, environment)
    bd = str(program)
    if modern := not version.startswith("0."):
        run([bd, "metrics", "off"], folder, environment)
    run(["git", "init", "--quiet", "."], folder, environment)
    options = ["--quiet", "--skip-hooks"]
    options += ["--skip-agents", "--non-interactive"] if modern else []
    run([bd, "init", "--prefix=bw", *options], folder, environment)
    if issues:
        _fill(project, bd, issues, modern)
    return project


def _fill(project: Project, bd: str, issues: int, modern: bool) -> None:
    date = "2026-01-02T03:04:05Z"
    base = {"status": "open", "priority": 2, "issue_type": "task"}
    base |= {"created_at": date, "updated_at": date}
    rows = [{"id": f"bw-{n}", "title": f"number {n}", **base} for n in range(1, issues + 1)]
    file = project.folder / "import.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = [str(file)] if modern else ["-i", str(file)]
    run([bd, "import", *arguments], project.folder, project.environment)
    file.unlink()


def _check(project: Project, issues: int) -> None:
    argv = ["bd", "list", "--all", "--json", "--limit=0"]
    told = run(argv, project.folder, project.environment)
    closed = sum(issue["status"] == "closed" for issue in json.loads(told))
    if closed != issues:
        raise Broken(f"closed {closed} of {issues}")


def _calls(project: Project) -> int:
    entries = [json.loads(line) for line in project.journal().read_text().splitlines()]
    return max(int(entry["calls"]) for entry in entries if entry["e"] == "spent")
