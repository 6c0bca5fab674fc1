"""``chaos``: the proof, for users. The real engine on a throw-away tracker, and everything dies.

Workers, tasks, tracker calls and the orchestrator itself are killed at random points; then
tracker, journals and process table are searched for a broken promise.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.cli.errors import EXIT_USAGE, CommandError

if TYPE_CHECKING:
    from beads_workers.cli.chaos.place import Place
    from beads_workers.cli.chaos.prey import Hunt

LEAVE_AT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WORKERS = {"sqlite": 8, "bd": 6}


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("chaos", epilog="Example: beads-workers chaos --kills 50 --seed 7")(chaos)


def chaos(
    seed: Annotated[
        int | None, typer.Option(help="The same blows and tasks again; default: a new one.")
    ] = None,
    kills: Annotated[int, typer.Option(min=1, max=100_000, help="How many.")] = 50,
    source: Annotated[str, typer.Option(help="sqlite (the embedded tracker), or bd.")] = "sqlite",
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
            " zygote or bd."
        ),
    ] = None,
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
    from beads_workers.cli.chaos.place import Place, forget_the_user
    from beads_workers.cli.chaos.prey import Hunt

    if source not in WORKERS:
        raise CommandError(f"no such source: {source}", "sqlite and bd are known", EXIT_USAGE)
    victims = ("orchestrator", "worker", "task", "zygote", *(["bd"] if source == "bd" else []))
    if only is not None and only not in victims:
        raise CommandError(f"--only {only}: no such victim", ", ".join(victims), EXIT_USAGE)
    if bd_calls not in (None, "grouped", "worker") or (bd_calls and source != "bd"):
        hint = "grouped and worker are known, both with --source bd"
        raise CommandError(f"--bd-calls {bd_calls}: not here", hint, EXIT_USAGE)
    for number in LEAVE_AT:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    if seed is None:
        seed = random.randrange(1_000_000)
    forget_the_user()
    hunt = Hunt()
    with Place(source) as place:
        try:
            count = workers or WORKERS[source]
            quiet = as_json and not progress
            asked = _Asked(
                seed, kills, source, count, bd_calls == "worker", only, keep, as_json, quiet
            )
            code = _run(place, hunt, asked)
        finally:
            hunt.end_all()
            place.clear_sockets()
        if keep or code:
            place.keep()
    raise typer.Exit(code)


def _leave(number: int, frame: FrameType | None) -> None:
    """Once: what is cleaned up then is not to be cut short by the second one."""
    for each in LEAVE_AT:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


@dataclass(frozen=True, slots=True)
class _Asked:
    seed: int
    kills: int
    source: str
    workers: int
    literal: bool
    """Each worker claims and closes by itself."""
    only: str | None
    keep: bool
    as_json: bool
    quiet: bool

    def again(self) -> str:
        """The command that does the same."""
        argv = ["beads-workers", "chaos", f"--seed {self.seed}", f"--kills {self.kills}"]
        argv += [f"--source {self.source}"] if self.source != "sqlite" else []
        argv += [f"-n {self.workers}"] if self.workers != WORKERS[self.source] else []
        argv += ["--bd-calls worker"] if self.literal else []
        argv += [f"--only {self.only}"] if self.only else []
        return " ".join(argv)


def _run(place: Place, hunt: Hunt, asked: _Asked) -> int:
    from beads_workers.cli.chaos import plan, telling
    from beads_workers.cli.chaos.account import read_log
    from beads_workers.cli.chaos.havoc import Havoc, fleet_settings
    from beads_workers.cli.chaos.proof import prove

    began = time.monotonic()
    only = plan.Target(asked.only) if asked.only else None
    pace = plan.pace(asked.source, only, asked.workers)
    progress = telling.Progress(asked.kills, quiet=asked.quiet)
    place.fill()
    progress.say(
        telling.opening(place, asked.seed, asked.kills, asked.workers, literal=asked.literal)
    )
    os.chdir(place.project)
    havoc = Havoc(
        place,
        hunt,
        lambda: fleet_settings(place, asked.source, asked.workers, literal=asked.literal),
        plan.blows(asked.seed, asked.kills, pace, plan.weights_of(asked.source, only)),
        progress.show,
    )
    tally = havoc.run(lambda number: plan.issue_rows(asked.seed, number, pace))
    progress.end()
    log = read_log(place.folder / "tasks.jsonl")
    promises = prove(place, hunt, tally, havoc.account, log, literal=asked.literal)
    seconds = time.monotonic() - began
    story = telling.Story(
        place,
        asked.seed,
        tally,
        promises,
        havoc.account,
        log,
        seconds,
        asked.again(),
        literal=asked.literal,
        keep=asked.keep,
    )
    if asked.as_json:
        print(json.dumps(story.as_object()))
    else:
        for text in story.lines():
            print(text)
    return 1 if story.broken else 0
