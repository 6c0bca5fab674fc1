"""A project with the embedded tracker, in the shape of ``tests.support.bd.BdProject``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from beads_workers.core.jobs import IssueId

DATE = "2026-01-02T03:04:05Z"
FOREIGN = ("BEADS_", "BD_", "BW_", "ORCHESTRATOR_")
"""Variables of whoever runs the suite that a test must not inherit."""


class EmbeddedProject:
    """Fresh, in ``folder/project``; people talk to it through ``beads-workers`` itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir(parents=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        self.environment = kept | {"NO_COLOR": "1"}
        self._run("init")

    def create_many(self, issues: Sequence[Mapping[str, Any]]) -> list[IssueId]:
        """Import issues in the shape of ``issues.jsonl``, commands too; ``id`` is given here."""
        rows = []
        for number, issue in enumerate(issues, 1):
            row: dict[str, Any] = {"id": f"bw-{number}", "title": f"number {number}"}
            row |= {"priority": 2, "status": "open", "issue_type": "task"}
            row |= {"created_at": DATE, "updated_at": DATE}
            rows.append(row | dict(issue))
        self._run(
            "import", "--allow-commands", "-", given="".join(json.dumps(row) + "\n" for row in rows)
        )
        return [IssueId(row["id"]) for row in rows]

    def read_all(self) -> dict[IssueId, tuple[str, str]]:
        """Status and assignee of every issue, closed ones too."""
        issues = json.loads(self._run("list", "--all", "--json"))
        return {IssueId(i["id"]): (i["status"], i.get("assignee") or "") for i in issues}

    def read(self, issue_id: IssueId) -> tuple[str, str]:
        """Status and assignee of one issue."""
        return self.read_all()[issue_id]

    def notes(self, issue_id: IssueId) -> str:
        """What a person reads about it."""
        return self._run("show", issue_id)

    def _run(self, *arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "beads_workers", *arguments],
            cwd=self.folder,
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout
