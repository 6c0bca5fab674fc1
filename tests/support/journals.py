"""Journals of runs that never were, written by the real encoder: any size, any trouble."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry, Record, encode
from beads_workers.core.records.receipts import Receipt, Tokens

BEGAN_AT = 1_795_300_000.0
RUN_ID = "20261121-222640.000-abcdef"

HOSTILE_TITLES = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>",
    "quotes \" ' & &amp; <b>bold</b> <!-- ]]> {{7*7}} ${x}",
    "control \x00\x07\x1b[31m characters \x7f \ufffe and a lone \ud800 surrogate",
    "\u202eright to left override\u202c and \u2066isolates\u2069",
    "שלום עולם: أصلح الخطأ في الوحدة",
    "emoji 👩‍👩‍👧‍👦 🎉 ✅ and z̸̢͝a̶͗l̷̐g̵̀o̷͝",
    "averyveryverylongword" * 40,
    "two\nlines\tand a tab",
    "日本語のとても長いタイトル" * 12,
    "",
)


TYPED = ("start", "-n", "2", "--", "./do", "an {id}")
"""What was typed after the program's name."""


def started(workers: int = 1) -> rec.RunStarted:
    """The first record of a run."""
    actor = f"beads-workers/host/{RUN_ID}"
    return rec.RunStarted(
        *(RUN_ID, 4242, actor, "sqlite", "/home/me/project"), workers=workers, argv=TYPED
    )


ACTIONS = {
    "finish": "close",
    "requeue": "release",
    "quarantined": "quarantined",
    "asked": "ask",
    "land": "shelve",
}
"""What the tracker is asked for, by the fleet's verdict."""


@dataclass(slots=True)
class Script:
    """Entries as they are told: ``at`` seconds of the run, in any order."""

    entries: list[Entry] = field(default_factory=list)
    _requests: int = 0

    def add(self, at: float, *records: Record) -> None:
        """Records at a time."""
        self.entries += [Entry(record, BEGAN_AT + at, at) for record in records]

    def attempt(
        self,
        worker_id: str,
        issue_id: str,
        began: float,
        ended: float | None,
        outcome: str = "success",
        verdict: str = "finish",
        *,
        number: int = 1,
        error: str = "",
        title: str = "a title",
        settled: bool = True,
        agent: str = "",
        receipt: Receipt | None = None,
        reached: str = "",
    ) -> None:
        """Claimed, started, finished and settled; ``receipt``: of an agent that worked."""
        self._requests += 1
        request = f"{RUN_ID}.{self._requests}"
        self.add(began, rec.Claimed(issue_id, title, 2))
        began_by = rec.Started(issue_id, worker_id, number, request, title, 2, agent=agent)
        self.add(began, began_by)
        if ended is None:
            return
        charged = 0 if outcome in ("success", "cancelled", "retry", "question") else number
        self.add(
            ended,
            rec.Finished(
                issue_id, worker_id, number, request, outcome, verdict, error,
                int((ended - began) * 1000), charged, receipt=receipt, reached=reached,
                awaits=verdict == "land",
            ),
        )  # fmt: skip
        if settled:
            if verdict == "land":  # It awaits approval.
                self.add(ended, rec.LandingEnded(issue_id, "shelve"))
            self.add(ended + 0.01, rec.SettledRecord(issue_id, ACTIONS[verdict], "applied"))

    def lines(self) -> bytes:
        """The journal's bytes, in the order of time."""
        return b"".join(encode(e) for e in sorted(self.entries, key=lambda e: e.elapsed))

    def write(self, state_directory: Path, run_id: str = RUN_ID) -> Path:
        """As a run's journal; returns the run's folder."""
        folder = state_directory / "runs" / run_id
        folder.mkdir(parents=True)
        (folder / "journal.jsonl").write_bytes(self.lines())
        return folder


ENDINGS = (
    *[("success", "finish", "")] * 14,
    *[("error", "requeue", "tests failed: {n} of 212 in /tmp/build-{n}")] * 3,
    ("error", "quarantined", "patch does not apply: commit {h}"),
    ("timeout", "requeue", "timed out after 1800 s"),
    ("lost", "requeue", "its worker (pid {n}) died"),
    ("retry", "requeue", "usage limit reached, again at 0{n}:00"),
    ("cancelled", "requeue", "released"),
)


def night(attempts: int, workers: int, seed: int = 1) -> Script:
    """A night of so many attempts, with everything that can go wrong in it."""
    chance = random.Random(seed)
    script = Script()
    script.add(0.0, started(workers), rec.CheckpointEnded(), rec.RunChanged("running"))
    free_at = {f"W{n}": 0.5 + chance.random() for n in range(1, workers + 1)}
    for n, (worker_id, at) in enumerate(free_at.items()):
        script.add(at - 0.3, rec.WorkerStarted(worker_id, 5000 + n))
        script.add(at - 0.1, rec.WorkerJoined(worker_id, 5000 + n, worker_id, True, "1.1"))
    for n in range(attempts):
        worker_id = min(free_at, key=lambda w: free_at[w])
        began = free_at[worker_id]
        ended = began + min(1800.0, chance.lognormvariate(5.3, 0.9))
        outcome, verdict, error = chance.choice(ENDINGS)
        error = error.format(n=chance.randrange(100), h=f"{chance.getrandbits(64):016x}")
        title = HOSTILE_TITLES[n % 10] if n % 17 == 0 else f"Fix the handling of case {n} in parser"
        script.attempt(
            worker_id, f"proj-{n:04x}", began, ended, outcome, verdict, error=error, title=title
        )
        free_at[worker_id] = ended + chance.random() * 20
        if outcome == "lost":
            script.add(ended, rec.WorkerExited(worker_id, 5000 + int(worker_id[1:]) - 1, 137))
            script.add(ended + 2, rec.WorkerStarted(worker_id, 5000 + int(worker_id[1:]) - 1))
            free_at[worker_id] = ended + 5
    end = max(free_at.values())
    _trouble(script, end)
    calls = [(end * step / 50, step) for step in range(1, 51)]
    for at, step in calls:
        script.add(at, rec.Spent(step * attempts // 20, step * end / 1000))
    script.add(end + 1, *(rec.WorkerGone(w) for w in free_at))
    script.add(end + 2, rec.RunChanged("ended"), rec.RunEnded(7, "idle_timeout"))
    return script


def agents_night() -> Script:
    """Two agents and a budget: one failure that costs, two that are done, one to look at."""
    script = Script()
    run = replace(started(2), budget="$20", agents=("claude", "codex"))
    script.add(0.0, run, rec.CheckpointEnded(), rec.RunChanged("running"))
    failed = Receipt(
        "unfinished", "verify failed", "claude", session="s-1",
        usage={"opus": Tokens(1000, 200)}, money=0.5, lesson="verify failed\nbroken",
    )  # fmt: skip
    done = replace(
        failed, verdict="done", why="", session="s-2", money=0.25, branch="bw/a/2",
        commits=("c" * 40, "d" * 40), diffstat="3 files changed", verify="make test",
        verified=True, message="</script> done",
    )  # fmt: skip
    unpriced = Receipt("done", agent="codex", usage={"gpt": Tokens(5000, 100)})
    flagged = Receipt(
        "no_change", "it is there", "claude", flags=("says that no change is needed",)
    )
    script.attempt("W1", "a", 1.0, 9.0, "error", "requeue", error="verify failed", agent="claude",
                   receipt=failed, title="Mend the cart")  # fmt: skip
    script.attempt("W1", "a", 10.0, 14.0, number=2, agent="claude", receipt=done)
    script.attempt("W2", "b", 1.0, 5.0, agent="codex", receipt=unpriced)
    script.attempt("W2", "c", 6.0, 8.0, "not_found", "quarantined", error="no change is needed",
                   agent="claude", receipt=flagged)  # fmt: skip
    script.attempt("W2", "d", 9.0, 11.0, "lost", "requeue", agent="claude")
    return script


def _trouble(script: Script, end: float) -> None:
    text = "bd did not answer within 60 s: database is locked <now>"
    for share, seconds in ((0.2, 0.03), (0.62, 0.012)):
        script.add(end * share, rec.SourceTrouble(text, 2.0, "is another bd running?"))
        script.add(end * (share + seconds), rec.SourceRecovered())
    script.add(end * 0.4, rec.RunChanged("paused"))
    script.add(end * 0.44, rec.RunChanged("running"))
    script.add(end * 0.21, rec.Noted("warning", "proj-0003 is not ours any more </script>"))


def of(entries: Iterable[tuple[float, Record]], workers: int = 1) -> list[Entry]:
    """Entries after a run's first record."""
    script = Script()
    script.add(0.0, started(workers))
    for at, record in entries:
        script.add(at, record)
    return script.entries
