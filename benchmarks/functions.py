"""Python functions called a second: the embedded tracker, against what people use instead.

The function does nothing. All have as many workers, which are up before the clock starts: ours runs
from the end of every worker's first call to the last close on disk, with claims, the journal, its
syncs and a process for calls beside each worker. dispatcherd keeps nothing, so that its clock holds
the receiving of its tasks, as ours holds the reading of them from disk; huey and RQ take
theirs from a queue that is full.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from benchmarks.tools.callers import Caller, Dispatcherd, Huey, Rq
from benchmarks.tools.fetching import Missing
from benchmarks.tools.figures import Figure, Goal, Measure, in_turns, say
from benchmarks.tools.fleets import Broken, Project

WORKERS = 2
CALLS = 5000
GOALS: dict[str, float] = {Dispatcherd.name: 2.5, Huey.name: 2.0}
"""At least so many times the rate of this one."""
PEERS: tuple[type[Caller], ...] = (Dispatcherd, Huey, Rq)


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Calls a second; each peer in the same rounds."""
    share = 10 if quick else 1
    calls = CALLS // share
    measures: dict[str, Measure] = {"ours": lambda: ours(folder / "ours", calls)}
    for kind in PEERS:
        try:
            peer = kind(folder, WORKERS)
        except Missing as missing:
            say(f"functions: not compared with {kind.name}: {missing}")
            continue
        measures[kind.name] = _rate(peer, max(kind.tasks // share, 100))
    rows = in_turns("calls a second", rounds, measures)
    mine = rows.pop("ours")
    return [
        Figure(
            f"functions: {calls} calls, {WORKERS} workers / {name}",
            "calls/s",
            mine,
            row,
            GOALS.get(name),
            Goal.AT_LEAST,
            paired=True,
        )
        for name, row in rows.items()
    ]


def ours(folder: Path, calls: int) -> float:
    """The rate of a fleet with that many issues, by its own journal."""
    project = Project(folder)
    project.run("init")
    (folder / "shop.py").write_text("def noop(): pass\n")
    rows = [
        {"id": f"bench-{n}", "title": f"number {n}", "status": "open", "job_path": "shop.noop"}
        for n in range(calls)
    ]
    file = folder / "import.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    project.run("import", str(file))
    # In the background, because the others print no line for each call either.
    project.run("start", "-d", "-n", str(WORKERS), "--until-empty", "--allow-module", "shop")
    project.wait_for_end()
    if project.closed() != calls:
        raise Broken(f"closed {project.closed()} of {calls}")
    rate = _journalled(project.journal())
    shutil.rmtree(folder)
    return rate


def _journalled(journal: Path) -> float:
    """From the end of the first call of the last worker to get there, to the last close."""
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    firsts: dict[str, float] = {}
    for entry in entries:
        if entry["e"] == "finished":
            firsts.setdefault(entry["worker_id"], entry["m"])
    began = max(firsts.values())
    closes = [entry["m"] for entry in entries if entry["e"] == "settled"]
    left = [at for at in closes if at > began]
    return len(left) / (max(left) - began)


def _rate(peer: Caller, calls: int) -> Measure:
    return lambda: peer.rate(calls)
