"""``chaos``: the proof, for users. It kills parts of a real fleet on a throw-away tracker."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beads_workers.chaos.account import ChaosAccount, TaskLog
from beads_workers.chaos.injector import KillTally
from beads_workers.chaos.workspace import ChaosWorkspace
from beads_workers.cli.throwaway import Promise, what_was_checked
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE

if TYPE_CHECKING:
    from beads_workers.chaos.injector import Targets


# --- report --------------------------------------------------------------------------------------
# Output of a chaos: one line that is overwritten while it runs, and the story at its end.


PIPE_SECONDS = 10.0
"""Interval of plain lines if stderr is no terminal."""


def opening(
    workspace: ChaosWorkspace, seed: int, kills: int, workers: int, *, self_claiming: bool
) -> str:
    """Return the first line: what is about to happen."""
    return (
        f"chaos: {kills} kills, seed {seed}, {workers} workers on {workspace.tracker.name}"
        f"{', each calling it by itself' if self_claiming else ''}"
        f"{', landing their branches' if workspace.landing else ''}, in {workspace.folder}"
    )


class KillProgress:
    """Progress on stderr: on a terminal one line that changes, else a plain line now and then."""

    def __init__(self, kills: int, *, quiet: bool) -> None:
        self._kills = kills
        self._quiet = quiet
        self._draws = sys.stderr.isatty()
        self._last = time.monotonic()
        self._width = 0

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def show(self, tally: KillTally) -> None:
        """Show the number of kills, starts and issues."""
        now = time.monotonic()
        if self._quiet or not (self._draws or now >= self._last + PIPE_SECONDS):
            return
        self._last = now
        text = (
            f"{tally.kills.total()} of {self._kills} kills"
            f" ({by_kind(tally.kills)}), {tally.starts} starts, {tally.issues} issues"
        )
        if not self._draws:
            print(text, file=sys.stderr, flush=True)
            return
        text = text[: _columns()]
        print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)
        self._width = len(text)

    def end(self) -> None:
        """Clear the progress line: the next output begins on a line of its own."""
        if self._draws and self._width:
            print(f"\r{'':<{self._width}}\r", end="", file=sys.stderr, flush=True)


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns - 1


def by_kind(counts: Counter[str]) -> str:
    """Return counts as text, the most frequent first."""
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common())


@dataclass(frozen=True, slots=True)
class Story:
    """The last lines of a chaos, for people and for programs."""

    workspace: ChaosWorkspace
    seed: int
    tally: KillTally
    promises: Sequence[Promise]
    account: ChaosAccount
    log: TaskLog
    seconds: float
    repeat_command: str
    """Command that repeats this chaos."""
    self_claiming: bool = False
    """Whether workers claim and close issues themselves."""
    keep: bool = False
    """Whether the user wants the folder kept."""

    @property
    def broken(self) -> list[Promise]:
        """Promises that were broken."""
        return [promise for promise in self.promises if promise.broken]

    def lines(self) -> Iterator[str]:
        """Yield what was done, the results of the issues, and what was checked."""
        tally, counts = self.tally, self._counts()
        yield (
            f"{tally.kills.total()} kills in {self.seconds:.0f} s: {by_kind(tally.kills)};"
            f" {tally.freezes.total()} freezes; {tally.starts} starts of the orchestrator;"
            f" up to {max(tally.at_work, default=0)} tasks were running."
        )
        yield (
            f"{tally.issues} issues, {self.log.attempts} attempts: {counts['closed']} closed,"
            f" {counts['quarantined']} quarantined with their reason;"
            f" {counts['found_closed']} closes were found done"
            f"{', by workers' if self.self_claiming else ' by a later start'}."
        )
        yield from what_was_checked(
            self.promises,
            "the tracker, the journals of all runs, the tasks' own log and /proc"
            f"{', and the branch with all that it ever was' if self.workspace.landing else ''}",
        )
        if self.broken or self.keep:
            yield f"The folder is kept: {self.workspace.folder}"
        if self.broken:
            yield f"Once more: {self.repeat_command}"

    def as_object(self) -> dict[str, Any]:
        """Return the same for programs."""
        at_work = self.tally.at_work or [0]
        return {
            "chaos": {
                "seed": self.seed,
                "tracker": self.workspace.tracker.name,
                "bd_calls": "worker" if self.self_claiming else "grouped",
                "landing": self.workspace.landing,
                "folder": str(self.workspace.folder),
                "seconds": round(self.seconds, 1),
                "kills": self.tally.kills.total(),
                "kills_by_kind": dict(self.tally.kills),
                "freezes": self.tally.freezes.total(),
                "starts": self.tally.starts,
                "at_work": {"least": min(at_work), "most": max(at_work)},
                "issues": self.tally.issues,
                "attempts": self.log.attempts,
                **self._counts(),
                "promises": [{"text": p.text, "broken": list(p.broken)} for p in self.promises],
            }
        }

    def _counts(self) -> dict[str, int]:
        lives = self.account.lives.values()
        return {
            # An issue that a worker closed as its orchestrator died was found closed, and never
            # finished.
            "closed": sum(life.done or life.found_closed > 0 for life in lives),
            "quarantined": sum(not life.done and life.verdict == "quarantined" for life in lives),
            "found_closed": sum(life.found_closed for life in lives),
            "charged": sum(life.charged for life in lives),
        }


# --- chaos ---------------------------------------------------------------------------------------
# ``chaos``: the proof, for users.
#
# Workers, tasks, tracker calls and the orchestrator itself are killed at random points; then
# tracker, journals and process table are searched for a broken promise.


LEAVE_AT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WORKERS = {"sqlite": 8, "bd": 6}


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("chaos", epilog="Example: beads-workers chaos --kills 50 --seed 7")(chaos)


def chaos(
    seed: Annotated[
        int | None, typer.Option(help="Repeat the run of this seed; default: a new one.")
    ] = None,
    kills: Annotated[int, typer.Option(min=1, max=100_000, help="How many kills.")] = 50,
    source: Annotated[str, typer.Option(help="sqlite (the built-in tracker), or bd.")] = "sqlite",
    workers: Annotated[
        int | None, typer.Option("-n", "--workers", min=1, max=200, help="Default 8; 6 with bd.")
    ] = None,
    bd_calls: Annotated[
        str | None, typer.Option(help="With bd: grouped (default), or worker: each calls it.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="Kill nothing but: orchestrator (when every worker is at work), worker, task,"
            " zygote, bd, lander or gate."
        ),
    ] = None,
    landing: Annotated[
        bool, typer.Option("--landing", help="In worktrees, whose branches land behind a gate.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder, also if all is well.")] = (
        False
    ),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object at the end.")] = False,
    progress: Annotated[
        bool, typer.Option("--progress", help="Say how far it is on stderr, also with --json.")
    ] = False,
) -> None:
    """Kill things at random on a throw-away tracker, and check that nothing is lost.

    Workers, tasks, calls of bd and the orchestrator itself are killed in the middle of real work,
    in a temporary folder. Nothing of yours is touched.
    """
    from beads_workers.chaos.injector import Targets
    from beads_workers.chaos.workspace import ChaosWorkspace, forget_the_user

    if source not in WORKERS:
        raise CommandError(
            f"no such source: {source}", "write --source sqlite or --source bd", EXIT_USAGE
        )
    victims = ("orchestrator", "worker", "task", "zygote", *(["bd"] if source == "bd" else []))
    victims += ("lander", "gate") if landing else ()
    if only is not None and only not in victims:
        raise CommandError(f"--only {only}: no such victim", ", ".join(victims), EXIT_USAGE)
    if bd_calls not in (None, "grouped", "worker") or (bd_calls and source != "bd"):
        hint = "grouped and worker are known, both with --source bd"
        raise CommandError(f"--bd-calls {bd_calls}: not here", hint, EXIT_USAGE)
    if landing and bd_calls == "worker":
        hint = "leave out one of them"
        raise CommandError(
            "--landing: workers that close by themselves do not land", hint, EXIT_USAGE
        )
    for number in LEAVE_AT:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    if seed is None:
        seed = random.randrange(1_000_000)
    forget_the_user()
    targets = Targets()
    with ChaosWorkspace(source, landing=landing) as workspace:
        try:
            count = workers or WORKERS[source]
            quiet = as_json and not progress
            asked = _Asked(
                *(seed, kills, source, count, bd_calls == "worker", landing),
                *(only, keep, as_json, quiet),
            )
            code = _run(workspace, targets, asked)
        finally:
            targets.end_all()
            workspace.clear_sockets()
        if keep or code:
            workspace.keep()
    raise typer.Exit(code)


def _leave(number: int, frame: FrameType | None) -> None:
    """Exit; ignore further signals, so that the cleanup is not interrupted."""
    for each in LEAVE_AT:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


@dataclass(frozen=True, slots=True)
class _Asked:
    seed: int
    kills: int
    source: str
    workers: int
    self_claiming: bool
    """Whether workers claim and close issues themselves."""
    landing: bool
    only: str | None
    keep: bool
    as_json: bool
    quiet: bool

    def repeat_command(self) -> str:
        """Return the command that repeats this chaos."""
        argv = ["beads-workers", "chaos", f"--seed {self.seed}", f"--kills {self.kills}"]
        argv += [f"--source {self.source}"] if self.source != "sqlite" else []
        argv += [f"-n {self.workers}"] if self.workers != WORKERS[self.source] else []
        argv += ["--bd-calls worker"] if self.self_claiming else []
        argv += ["--landing"] if self.landing else []
        argv += [f"--only {self.only}"] if self.only else []
        return " ".join(argv)


def _run(workspace: ChaosWorkspace, targets: Targets, asked: _Asked) -> int:
    from beads_workers.chaos import plan
    from beads_workers.chaos.account import read_log
    from beads_workers.chaos.injector import Injector, fleet_settings
    from beads_workers.chaos.proof import prove

    began = time.monotonic()
    only = plan.Target(asked.only) if asked.only else None
    pace = plan.pace(asked.source, only, asked.workers, landing=asked.landing)
    kinds = plan.LANDING_KINDS if asked.landing else plan.KINDS
    weights = plan.weights_of(asked.source, only, landing=asked.landing)
    progress = KillProgress(asked.kills, quiet=asked.quiet)
    workspace.fill()
    progress.say(
        opening(
            workspace, asked.seed, asked.kills, asked.workers, self_claiming=asked.self_claiming
        )
    )
    os.chdir(workspace.project)
    injector = Injector(
        workspace,
        targets,
        lambda: fleet_settings(
            workspace, asked.source, asked.workers, self_claiming=asked.self_claiming
        ),
        plan.blows(asked.seed, asked.kills, pace, weights),
        progress.show,
    )
    tally = injector.run(lambda number: plan.issue_rows(asked.seed, number, pace, kinds))
    progress.end()
    log = read_log(workspace.folder / "tasks.jsonl")
    promises = prove(
        workspace, targets, tally, injector.account, log, self_claiming=asked.self_claiming
    )
    seconds = time.monotonic() - began
    story = Story(
        workspace,
        asked.seed,
        tally,
        promises,
        injector.account,
        log,
        seconds,
        asked.repeat_command(),
        self_claiming=asked.self_claiming,
        keep=asked.keep,
    )
    if asked.as_json:
        print(json.dumps(story.as_object()))
    else:
        for text in story.lines():
            print(text)
    return 1 if story.broken else 0
