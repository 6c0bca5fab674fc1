"""What is said of kept journals: ``status``, ``runs``, ``report`` and ``why``, of runs that ended.

Each history is copied to a fresh folder whose built-in tracker has the issues as they were at the
end, so that no bd is needed. Nothing of what is said depends on today but a date, which is left
out: all waits of these histories are over.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import status
from beads_workers.runtime.journal_file import entry_of, read_journal
from tests.oracles.calls import SCRATCH, call
from tests.oracles.journals import HOST, KEPT

COMMANDS = (
    *("status --json", "status", "runs --json", "runs", "report --json", "report"),
    *("why --json", "why"),
)
DATE = re.compile(r"\b\d{4}-\d\d-\d\d (?=\d\d:\d\d:\d\d)")
"""``why`` says it with the time of another day than today."""
ISSUES_MAX = 8
"""Of so many issues ``why`` is asked; those that are not closed come first."""


def history(name: str) -> str:
    """Return what is said of the history with this name."""
    kept = KEPT / name
    lines = [_counted(file, kept) for file in sorted(kept.glob("runs/*/journal*.jsonl"))]
    for run in sorted(kept.glob("runs/*")):
        lines += _seen_on_the_way(run)
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        folder = Path(scratch)
        issues = _placed(kept, folder)
        for words in (*COMMANDS, *_of_earlier_runs(kept), *(f"why {i} --json" for i in issues)):
            lines.append(_said(folder, words))
        for written in folder.glob(".beads-workers/runs/*/ended.json"):
            written.unlink()
        lines.append("\n# the same, read from the journals alone")
        lines += [_said(folder, words) for words in ("status --json", "runs --json")]
    return "\n".join(lines)


def _counted(journal: Path, kept: Path) -> str:
    """Return the number of entries by kind; each line of the journal is decoded."""
    entries = [entry_of(line, repeated=True) for line in journal.open("rb")]
    kinds = Counter(type(each.record).__name__ if each else "unreadable" for each in entries)
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    return f"{journal.relative_to(kept)}: {counts}"


def _seen_on_the_way(run: Path) -> Iterator[str]:
    """Yield ``status`` as it was in the middle of a run, and at its end: a line for each key."""
    entries, board = list(read_journal(run / "journal.jsonl")), Board()
    for number, entry in enumerate(entries, 1):
        board.apply(entry)
        if number in (len(entries) // 2, len(entries)):
            yield f"\n# status of {run.name} after entry {number}"
            for key, value in status(board, entry.elapsed).items():
                yield f"{key}: {json.dumps(value, ensure_ascii=False)}"


def _placed(kept: Path, folder: Path) -> list[str]:
    """Copy the history into this folder and fill its tracker; return the ids of some issues."""
    call(folder, "init")
    shutil.copytree(kept / "runs", folder / ".beads-workers" / "runs")
    text = (kept / "issues.jsonl").read_text(encoding="utf-8")
    if text:
        done = call(folder, "import", str(kept / "issues.jsonl"))
        assert done.code == 0, done
    issues = [json.loads(line) for line in text.splitlines()]
    issues.sort(key=lambda issue: (issue["status"] == "closed", issue["id"]))
    return [issue["id"] for issue in issues[:ISSUES_MAX]]


def _of_earlier_runs(kept: Path) -> list[str]:
    """Return the calls of ``report`` for all runs but the last."""
    runs = sorted(folder.name for folder in (kept / "runs").iterdir())
    return [f"report {run} --json" for run in runs[:-1]]


def _said(folder: Path, words: str) -> str:
    """Return a call with what it prints; JSON is indented, so that a difference is one line."""
    done = call(folder, *words.split(), BEADS_WORKERS_HOST=HOST)
    if "--json" in words:
        out = json.dumps(json.loads(done.out), indent=1, ensure_ascii=False) + "\n"
        done = replace(done, out=out)
    text = DATE.sub("", done.text) if words.startswith("why") else done.text
    return f"\n$ beads-workers {words}\n{text}"
