"""64 no-op issues on the real ``bd`` 1.3.0 with 8 workers: grouped, and ``--bd-calls worker``.

Grouped: the orchestrator claims and closes for all, in groups. Literal: each worker runs ``bd
update`` and ``bd close`` itself, as the protocol text says. The same command (``true``), the same
machine, alternating, each on a fresh copy of one initialised project; usage metrics are off.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from benchmarks.tools.figures import Figure, Goal, in_turn
from benchmarks.tools.fleets import Broken, Project, run

GOAL = 3.0
CALLS_GOAL = 0.4
WORKERS = 8
BD_VERSION = "1.3.0"


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Seconds for the whole ``start``, and tracker calls for each issue done."""
    issues = 16 if quick else 64
    template = _template(folder / "template", folder / "home", issues)
    calls: list[float] = []

    def drain(name: str) -> tuple[float, Project]:
        copy = Project(folder / name / "project", template.environment)
        shutil.copytree(template.folder, copy.folder, dirs_exist_ok=True)
        seconds = copy.timed_start(
            "-n", str(WORKERS), "--until-empty", "--bd-calls", name, "--", "true"
        )
        _check(copy, issues)
        return seconds, copy

    def grouped() -> float:
        seconds, project = drain("grouped")
        calls.append(_calls(project) / issues)
        shutil.rmtree(project.folder)
        return issues / seconds

    def literal() -> float:
        seconds, project = drain("worker")
        shutil.rmtree(project.folder)
        return issues / seconds

    mine, theirs = in_turn("bd", rounds, grouped, literal)
    name = f"bd: {issues} issues, {WORKERS} workers, grouped / literal"
    return [
        Figure(name, "issues/s", mine, theirs, GOAL, Goal.AT_LEAST),
        Figure("bd: calls for each issue", "", tuple(calls), goal=CALLS_GOAL),
    ]


def _template(folder: Path, home: Path, issues: int) -> Project:
    cache = os.environ.get("BW_CACHE") or str(Path.home() / ".cache" / "beads-workers")
    program = Path(cache) / f"bd-{BD_VERSION}" / "bd"
    if not program.is_file():
        raise Broken(f"{program} is missing: scripts/setup-bd builds it")
    home.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("BEADS_", "BD_", "GIT_"))}
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = kept | {"HOME": str(home), "PATH": path, "GIT_CONFIG_GLOBAL": os.devnull}
    environment |= {"BEADS_ACTOR": "bench", "BD_ACTOR": "bench"}
    project = Project(folder, environment)
    bd = str(program)
    run([bd, "metrics", "off"], folder, environment)
    run(["git", "init", "--quiet", "."], folder, environment)
    options = ["--quiet", "--skip-hooks", "--skip-agents", "--non-interactive"]
    run([bd, "init", "--prefix=bw", *options], folder, environment)
    date = "2026-01-02T03:04:05Z"
    base = {"status": "open", "priority": 2, "issue_type": "task"}
    base |= {"created_at": date, "updated_at": date}
    rows = [{"id": f"bw-{n}", "title": f"number {n}", **base} for n in range(1, issues + 1)]
    file = folder / "import.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run([bd, "import", str(file)], folder, environment)
    file.unlink()
    return project


def _check(project: Project, issues: int) -> None:
    told = run(["bd", "list", "--all", "--json", "--limit=0"], project.folder, project.environment)
    closed = sum(issue["status"] == "closed" for issue in json.loads(told))
    if closed != issues:
        raise Broken(f"closed {closed} of {issues}")


def _calls(project: Project) -> int:
    (journal,) = project.folder.glob(".beads-workers/runs/*/journal.jsonl")
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    return max(int(entry["calls"]) for entry in entries if entry["e"] == "spent")
