"""Whole backlogs, like those that projects commit, in the built-in tracker and in the real ``bd``.

    scripts/prove backlogs
    python -m tests.proof.backlogs [--cases N] [--seed S] [--json] [--progress]

Each has up to 600 issues of all types and statuses, with dependencies of all kinds. What a fleet
would take has to be what ``bd ready`` lists, except epics and what is assigned to somebody. Other
differences (docs/READY.md) are not made: 0.44 gets no deferral and only older kinds.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.contracts.ready_rows import CUSTOM, FUTURE, GATES, INFORMING, ONLY_NEW, PAST
from tests.contracts.test_ready_sets import handed_out
from tests.support.bd import NEW, OLD, PREFIX, BdProject, bd_program

SIZES = (600, 30, 120, 250, 8, 60, 400, 15)
TYPES = {"task": 50, "bug": 16, "feature": 12, "epic": 8, "chore": 5, "message": 2}
TYPES |= dict.fromkeys((*CUSTOM, *ONLY_NEW, "molecule", "gate", "event"), 1)
STATUSES = {"closed": 50, "open": 38, "in_progress": 6, "deferred": 2, "blocked": 2}
STATUSES |= {"hooked": 1, "pinned": 1, "tombstone": 1}
KINDS = {"blocks": 50, "parent-child": 25, "conditional-blocks": 4, "waits-for": 4}
KINDS |= {kind: 2 for kind in INFORMING if kind}
OLD_KINDS = ("blocks", "parent-child", "related", "discovered-from")
IMPORT_SECONDS = 900
"""``bd`` 1.3.0 takes over a minute for 600 issues on a machine with other work."""
PROMISE = "the built-in tracker and bd call the same issues ready"


def backlog(seed: int, version: str) -> list[dict[str, Any]]:
    """Return the issues of one backlog that this ``bd`` reads as we do, the oldest first."""
    chance = random.Random(seed)
    made: list[dict[str, Any]] = []
    above: dict[str, set[str]] = {}
    types = {k: n for k, n in TYPES.items() if version == NEW or k not in (*ONLY_NEW, "role")}
    kinds = {k: n for k, n in KINDS.items() if version == NEW or k in OLD_KINDS}
    for number in range(SIZES[seed % len(SIZES)]):
        row = _issue(chance, number, types, version)
        if not row.get("ephemeral"):
            row["dependencies"] = list(_needs(chance, row, made, kinds, above))
        made.append(row)
    return made


def _issue(
    chance: random.Random, number: int, types: dict[str, int], version: str
) -> dict[str, Any]:
    at = f"2026-01-{1 + number // 24 % 28:02}T{number % 24:02}:00:00Z"
    row: dict[str, Any] = {"id": f"{PREFIX}-{number}", "title": f"Issue {number}"}
    row |= {"issue_type": _drawn(chance, types), "status": _drawn(chance, STATUSES)}
    row |= {"priority": chance.randrange(5), "created_at": at, "updated_at": at}
    row |= {"closed_at": at, "close_reason": "Done"} if row["status"] == "closed" else {}
    row |= {"deleted_at": at} if row["status"] == "tombstone" else {}
    row |= {"assignee": "ann"} if chance.random() < 0.1 else {}
    row |= {"labels": chance.sample(["ui", "api", "docs"], chance.randrange(3))}
    row |= {"pinned": True} if chance.random() < 0.02 else {}
    row |= {"ephemeral": True} if chance.random() < 0.02 else {}
    if version == NEW and chance.random() < 0.06:
        row |= {"defer_until": chance.choice((PAST, FUTURE))}
    return row


def _needs(
    chance: random.Random,
    row: dict[str, Any],
    made: Sequence[dict[str, Any]],
    kinds: dict[str, int],
    above: dict[str, set[str]],
) -> Iterator[dict[str, Any]]:
    """``above``: the ancestors of each issue, which ``bd`` does not let block it."""
    ours = above.setdefault(row["id"], set())
    others = chance.sample(made, min(len(made), chance.choice((0, 0, 1, 1, 2, 4))))
    for other in others:
        kind = _drawn(chance, kinds)
        named = other["id"]
        if other.get("ephemeral") or named in ours:
            continue
        if kind == "parent-child":
            if ours or not _is_plain_parent(row, other):
                continue
            ours |= {named, *above[named]}
        elif row["status"] in ("closed", "pinned", "tombstone") and other["status"] != "closed":
            kind = "related"  # Who closes an issue has closed first what blocks it.
        gate = {"metadata": chance.choice(list(GATES.values()))}
        more = gate if kind == "waits-for" and gate["metadata"] else {}
        yield {"issue_id": row["id"], "depends_on_id": named, "type": kind, **more}
    if chance.random() < 0.02:
        yield {"issue_id": row["id"], "depends_on_id": f"{PREFIX}-gone", "type": "blocks"}


def _is_plain_parent(row: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether no dependency of the issue is on its parent, or the parent's on it."""
    return all(need["depends_on_id"] != row["id"] for need in other.get("dependencies", ()))


def _drawn(chance: random.Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]


def compared(folder: Path, seed: int, version: str) -> str:
    """Return how the two differ; "" if they do not."""
    issues = backlog(seed, version)
    ours = handed_out(folder / "tracker.db", issues)
    project = BdProject(folder, version)
    if version == NEW:
        project.allow_types(*CUSTOM)
    file = folder / "issues.jsonl"
    file.write_text("".join(json.dumps(issue) + "\n" for issue in issues))
    argv = [str(bd_program(version)), "import", *(["-i"] if version == OLD else []), str(file)]
    subprocess.run(
        argv,
        cwd=project.folder,
        env=project.environment,
        capture_output=True,
        timeout=IMPORT_SECONDS,
        check=True,
    )
    rows = json.loads(project.bd("ready", "--json", "--limit=0"))
    left = {i["id"] for i in issues if i["issue_type"] == "epic" or i.get("assignee")}
    theirs = {row["id"] for row in rows if row["status"] == "open"} - left
    if ours == theirs:
        return ""
    more, fewer = sorted(ours - theirs), sorted(theirs - ours)
    return f"backlog {seed} of {len(issues)}, bd {version}: only ours {more}, only bd's {fewer}"


def main(arguments: list[str]) -> int:
    """0 if nothing is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    said = parser.parse_args(arguments)
    began, broken = time.monotonic(), []
    for case in range(said.cases):
        seed, version = said.seed + case // 2, (NEW, OLD)[case % 2]
        with tempfile.TemporaryDirectory(prefix="bw-backlog-") as folder:
            broken += [found] if (found := compared(Path(folder), seed, version)) else []
        if said.progress:
            print(f"{case + 1} of {said.cases} backlogs", file=sys.stderr, flush=True)
    promise = {"text": PROMISE, "broken": broken[:20], "seconds": None}
    told = {"cases": said.cases, "seconds": time.monotonic() - began, "promises": [promise]}
    print(json.dumps(told) if said.json else "\n".join([*broken, f"{said.cases} backlogs"]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
