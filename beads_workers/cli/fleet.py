"""Commands for a running fleet: each is one request on its control socket."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from beads_workers.cli.arguments import Json, StateDir
from beads_workers.cli.client import (
    ControlClient,
    NoAnswer,
    connect,
    find_state_directory,
    wait_for_exit,
)
from beads_workers.cli.completion import runs, under_way
from beads_workers.cli.kinds import need
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_NOT_RUNNING, EXIT_UNFINISHED, EXIT_UNKNOWN, EXIT_USAGE
from beads_workers.runtime import live_page
from beads_workers.runtime.kernel import system

# --- leftovers -----------------------------------------------------------------------------------
# Processes of a run that are still there after the end of its fleet.


GONE_SECONDS = 2.0
"""Time in which processes that the ending fleet killed are gone."""
LOOK_SECONDS = 0.05
COMMAND_CHARS_MAX = 60


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that outlived its fleet; ``command``: its command line, cut."""

    pid: int
    command: str


def leftovers(state_directory: Path, run_id: str) -> list[Leftover]:
    """Return processes that hold the run's lock or carry its token, after a short wait."""
    from beads_workers.runtime import sessions
    from beads_workers.runtime.run_directory import RunDirectory

    alive = RunDirectory(state_directory).run(run_id) / "alive"
    deadline = time.monotonic() + GONE_SECONDS
    while pids := sessions.living(run_id, alive):
        if time.monotonic() > deadline:
            return [Leftover(pid, _command(pid)) for pid in pids]
        time.sleep(LOOK_SECONDS)
    return []


def _command(pid: int) -> str:
    try:
        argv = system.command_of(pid)
    except OSError:
        return ""
    return b" ".join(argv).decode("utf-8", "replace").strip()[:COMMAND_CHARS_MAX]


# --- commands ------------------------------------------------------------------------------------
# Commands for a running fleet: each is one request on its control socket.


EXIT_TIMED_OUT = 124
SCALE_MAX = 1024
"""Maximum for ``scale``, as for ``start -n``; a test compares the two."""
RUN_CHANGED = "run_changed"
"""Kind of the only journal lines that ``wait`` asks for: a few in a whole run."""

EnvelopesToo = Annotated[
    bool, typer.Option("--envelopes", help="With --json: jobs as envelopes, see docs/ENVELOPE.md.")
]


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command("status", epilog="Example: beads-workers status --json")(status)
    app.command("stop", epilog="Example: beads-workers stop --drain")(stop)
    app.command("wait", epilog="Example: beads-workers wait --timeout 3600")(wait)
    app.command(
        "scale",
        # -1 is a number here.
        context_settings={"ignore_unknown_options": True},
        epilog="Example: beads-workers scale 16, or scale +1",
    )(scale)
    app.command("release", epilog="Example: beads-workers release proj-a1b")(release)


def status(
    as_json: Json = False, envelopes: EnvelopesToo = False, state_dir: StateDir = None
) -> None:
    """Show what the fleet does, or how the last run ended.

    Without a fleet the exit code is 3.
    """
    refuse_without_json(envelopes=envelopes, as_json=as_json)
    directory = find_state_directory(state_dir)
    try:
        client = connect(directory)
    except CommandError as error:
        _show_last_run(directory, error, as_json=as_json, envelopes=envelopes)
        if not as_json:
            _show_page(directory)
        raise typer.Exit(EXIT_NOT_RUNNING) from None
    answer = client.ask("bw.status")
    if as_json:
        print(json.dumps(answer | _also(directory, envelopes=envelopes)))
        return
    from beads_workers.ui.lines import status_lines

    for line in status_lines(answer):
        print(line)
    _show_page(directory)


def stop(
    drain: Annotated[bool, typer.Option("--drain", help="Let running tasks finish.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Kill what runs, requeue it.")] = False,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds that workers have to leave; default 10.")
    ] = None,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Stop the fleet, requeueing what runs.

    Returns when everyone has left, and says what was requeued.
    """
    from beads_workers.core.base.text import counted, printable

    directory = find_state_directory(state_dir)
    try:
        client = connect(directory)
    except CommandError as error:
        if error.exit_code != EXIT_NOT_RUNNING or not _end_page(directory, as_json=as_json):
            raise
        return
    pid, run_id = _pid(directory), _run_id(directory)
    seconds = 0.0 if now else timeout
    client.send("bw.stop", {"drain": drain} | ({} if seconds is None else {"seconds": seconds}))
    ended = _wait_for_end(client, None)
    gone = wait_for_exit(pid)
    left = leftovers(directory, run_id) if gone else []
    if ended is None or not gone:
        raise CommandError(
            f"the orchestrator (pid {pid}) ended without a word"
            if gone
            else f"the orchestrator (pid {pid}) is still there",
            "'beads-workers status' shows it; the next start settles what it left",
        )
    if (broken := ended.get("broken")) and not as_json:
        from beads_workers.ui.lines import start_again

        again = start_again(ended.get("argv", []))
        raise CommandError(printable(broken), f"to go on with all of it: {again}")
    ended["left"] = [asdict(each) for each in left]
    requeued, pending = ended["requeued"], ended["pending"]
    stayed = ended.get("stayed", [])
    if as_json:
        print(json.dumps(ended))
        raise typer.Exit(1 if left or broken or stayed else EXIT_UNFINISHED if pending else 0)
    everyone = "not everyone has left" if left or stayed else "everyone has left"
    print(f"stopped: {everyone}, {counted(len(requeued), 'issue')} requeued")
    if requeued:
        print("requeued: " + " ".join(printable(issue_id) for issue_id in requeued))
    if left or stayed:
        raise _still_there(left, stayed)
    if pending:
        raise CommandError(
            f"the tracker did not take back {', '.join(pending)[:500]}",
            "the next start settles that, as soon as the tracker works",
            EXIT_UNFINISHED,
        )
    _show_page(directory)


def _show_page(directory: Path) -> None:
    """Print how long the page of ``start --web`` is served, and what ends it."""
    if (page := live_page.lingering(directory)) is not None:
        print(f"page: {live_page.shown(page, time.time())}")


def _end_page(directory: Path, *, as_json: bool) -> bool:
    """End the page that an earlier start left; return False if there is none."""
    page = live_page.lingering(directory)
    if page is None:
        return False
    if not live_page.end(directory, page):
        raise CommandError(
            f"the server of the live page (pid {page.pid}) does not end", f"kill {page.pid}"
        )
    if as_json:
        print(json.dumps({"page_ended": page.pid}))
    else:
        print(f"no fleet is running here; the live page of the last one (pid {page.pid}) has ended")
    return True


def _still_there(left: list[Any], stayed: list[dict[str, Any]]) -> CommandError:
    """Return the error for processes of ours that are left, and for workers that keep issues."""
    from beads_workers.core.base.text import counted, printable

    remaining, todo = [], []
    if left:
        named = ", ".join(f"{each.pid} ({printable(each.command)})" for each in left[:NAMED_MAX])
        pids = " ".join(str(each.pid) for each in left[:NAMED_MAX])
        remaining.append(f"{counted(len(left), 'process', 'processes')} of this fleet: {named}")
        todo.append(f"look at them: ps -o pid,stat,user,args {pids}")
    if stayed:
        from beads_workers.ui.lines import once_gone, who_stays

        kept = [f"{printable(each['issue_id'])}: {who_stays(each)}" for each in stayed]
        remaining.append(f"{counted(len(stayed), 'issue')} ({'; '.join(kept[:NAMED_MAX])})")
        todo.append(once_gone(stayed[:NAMED_MAX]))
    return CommandError(f"still there: {'; '.join(remaining)}", "; ".join(todo))


NAMED_MAX = 10


def wait(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="Also one that has ended; else the fleet.", autocompletion=runs
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait at most (then exit 124).")
    ] = None,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Wait until the fleet ends, and exit with its exit code.

    With a run's id: with the exit code of that run, even if it has ended.
    """
    directory = find_state_directory(state_dir)
    try:
        ended = wait_for_run(directory, run, timeout) if run else _end_of_fleet(directory, timeout)
    except CommandError as error:
        if error.exit_code != EXIT_NOT_RUNNING:
            raise
        from beads_workers.cli.last_run import last_run

        if (last := last_run(directory)) is None:
            raise
        hint = f"the last run has ended: 'beads-workers wait {last['run_id']}' exits as it did"
        raise CommandError(error.message, hint, EXIT_NOT_RUNNING) from None
    if as_json:
        print(json.dumps(ended))
    raise typer.Exit(int(ended["exit_code"]))


def wait_for_run(directory: Path, run: str, timeout: float | None) -> dict[str, Any]:
    """Return how this run ended, once it has; raise ``CommandError``, also for a timeout."""
    if (ended := _ended(directory, run)) is not None:
        return ended
    try:
        return _end_of_fleet(directory, timeout)
    except CommandError as error:
        # The run may have ended between the two looks.
        if error.exit_code == EXIT_NOT_RUNNING and (late := _ended(directory, run)) is not None:
            return late
        raise


def _end_of_fleet(directory: Path, timeout: float | None) -> dict[str, Any]:
    client = connect(directory)
    pid = _pid(directory)
    client.send("bw.follow", {"only": [RUN_CHANGED]})
    ended = _wait_for_end(client, timeout)
    wait_for_exit(pid)
    if ended is None:
        raise CommandError(
            f"the orchestrator (pid {pid}) ended without a word",
            "the next start settles what it left",
        )
    return ended


def _ended(directory: Path, prefix: str) -> dict[str, Any] | None:
    """Return how this run ended; None while it runs. Raise ``CommandError`` if it is unknown."""
    from beads_workers.cli.runs import find_run
    from beads_workers.runtime.endings import how_it_ended
    from beads_workers.runtime.run_directory import RunDirectory

    found = find_run(directory, prefix)
    ending = how_it_ended(found)
    if ending is not None and ending["exit_code"] is not None:
        return ending
    if RunDirectory(directory).is_locked() and _run_id(directory) == found.name:
        return None
    raise CommandError(
        f"run {found.name} ended without a word", "the next start settles what it left"
    )


def scale(
    workers: Annotated[
        str,
        typer.Argument(
            metavar="N", help="How many workers; +1: one more, -1: one less; PLACE:N: there."
        ),
    ],
    as_json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Have more or fewer workers.

    A busy one finishes its task before it leaves.
    """
    place, _, count = workers.rpartition(":")
    relative = count[:1] in ("+", "-")
    number = count[1:] if relative else count
    if not (number.isascii() and number.isdecimal() and int(number[:9]) <= SCALE_MAX):
        raise typer.BadParameter(
            f"{workers!r} is not a number of workers; write 8, +1 or -1 (at most {SCALE_MAX})",
            param_hint="'N'",
        )
    asked: dict[str, object] = {"workers": int(count)}
    asked |= ({"relative": True} if relative else {}) | ({"place": place} if place else {})
    answer = connect(find_state_directory(state_dir)).ask("bw.scale", asked)
    report(answer, as_json=as_json)


def release(
    issues: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ISSUE]...", help="What to release.", autocompletion=under_way),
    ] = None,
    abandoned: Annotated[
        bool,
        typer.Option("--abandoned", help="From runs that are over: all, or these of any machine."),
    ] = False,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Release issues from the fleet, until 'retry'; or from nobody's hands.

    Their tasks are ended. An issue that is in progress in no fleet is opened again in the tracker.
    With --abandoned: claims whose run is over.
    """
    if abandoned:
        from beads_workers.cli.abandoned import release_abandoned

        release_abandoned(issues or [], find_state_directory(state_dir), as_json=as_json)
        return
    if not issues:
        hint = "'beads-workers status' lists what runs; 'beads-workers release ID' releases it"
        raise CommandError("which issues?", hint, EXIT_USAGE)
    directory = find_state_directory(state_dir)
    try:
        answer = connect(directory).ask("bw.release", {"issue_ids": issues})
        if not answer.get("not_found"):
            report(answer, as_json=as_json)
            return
        refusal = CommandError(
            answer["error"], "'beads-workers status' shows what is there", EXIT_UNKNOWN
        )
    except CommandError as error:
        if error.exit_code != EXIT_NOT_RUNNING:
            raise
        refusal, answer = error, {}
    from beads_workers.cli.abandoned import release_stale

    if answer.get("text") and not as_json:
        print(answer["text"])
    release_stale(issues, directory, refusal, as_json=as_json)


def report(answer: dict[str, Any], *, as_json: bool) -> None:
    """Print a control answer; raise ``CommandError`` for its error."""
    if as_json:
        print(json.dumps(answer))
    elif answer.get("text"):
        print(answer["text"])
    if answer.get("error"):
        code = EXIT_UNKNOWN if answer.get("not_found") else 1
        raise CommandError(answer["error"], "'beads-workers status' shows what is there", code)


def _wait_for_end(client: ControlClient, seconds: float | None) -> dict[str, Any] | None:
    import time

    deadline = None if seconds is None else time.monotonic() + seconds
    still_runs = CommandError("the fleet still runs", "wait longer, or not at all", EXIT_TIMED_OUT)
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0.0 and client.drained:
            raise still_runs  # An older fleet may send messages without end.
        try:
            message = client.read(None if left is None else max(0.001, left))
        except NoAnswer:
            raise still_runs from None
        if message is None:
            return None
        if "ended" in message:
            ended: dict[str, Any] = message["ended"]
            return ended
        if message.get("e") == RUN_CHANGED:
            state = message["state"]
            print(
                "the fleet has ended" if state == "ended" else f"the fleet is {state}",
                file=sys.stderr,
            )


def _run_id(directory: Path) -> str:
    return str(json.loads((directory / "run.json").read_bytes())["run_id"])


def _pid(directory: Path) -> int:
    return int(json.loads((directory / "run.json").read_bytes())["pid"])


def _also(directory: Path, *, envelopes: bool) -> dict[str, Any]:
    """Return what ``status --json`` has besides the fleet's own answer."""
    jobs = {"envelopes": need("envelopes").unfinished(directory)} if envelopes else {}
    page = live_page.lingering(directory)
    return jobs if page is None else jobs | {"page": {"pid": page.pid, "until": page.until}}


def _show_last_run(directory: Path, error: CommandError, *, as_json: bool, envelopes: bool) -> None:
    from beads_workers.cli.last_run import last_run, night_of

    over: Mapping[str, str] = {}
    if (last := last_run(directory)) is not None:
        from beads_workers.cli.waiting import waiting

        found = waiting(directory)
        last |= {name: getattr(found, name) for name in ("questions", "approvals", "quarantined")}
        over = found.over
    night = night_of(directory, last) if last is not None else None
    if last is not None and night is not None:
        last["night"] |= night
    if as_json:
        shown = {"running": False, "last_run": last}
        print(json.dumps(shown | _also(directory, envelopes=envelopes)))
        return
    print(f"error: {error.message}", file=sys.stderr)
    if last is None:
        print(f"hint: {error.hint}", file=sys.stderr)
        return
    print(f"last run {last['run_id']}, {last['ending']}")
    print(f"closed {last['closed']}, failed attempts {last['failed']}")
    if night is not None:
        cost = f", ${night['spent_usd']:.2f}" if night["spent_usd"] else ""
        print(
            f"the night of {last['night']['runs']} runs: closed {night['closed']}, failed attempts"
            f" {night['failed']}{cost} ('beads-workers report' tells it all)"
        )
    from beads_workers.core.base.text import printable
    from beads_workers.ui.words import GOES_ON

    queue = last["queue"]
    if goes_on := [f"{queue[key]} {words}" for key, words in GOES_ON.items() if queue[key]]:
        print(f"start again: {', '.join(goes_on)}")
    for issue_id, why in over.items():
        print(printable(f"{issue_id}: {why}"))
    _show_what_is_left(last)


def _show_what_is_left(last: dict[str, Any]) -> None:
    """Print what landed, what did not, and what was quarantined."""
    from beads_workers.cli.last_run import merge_of
    from beads_workers.core.base.text import printable
    from beads_workers.ui.landing import at_the_end
    from beads_workers.ui.lines import by_cause, held_elsewhere, to_decide

    landed = last.get("landing")
    for line in at_the_end(landed) if landed else ():
        print(line)
    refused = {row["issue_id"] for row in landed["refused"]} if landed else set()
    for line in (*to_decide(last), *held_elsewhere(last)):
        print(line)
    for text in by_cause(row for row in last["quarantined"] if row["issue_id"] not in refused):
        print(f"quarantined {text}")
    if command := merge_of(last):
        print(f"next: {printable(command)}")


def refuse_without_json(*, envelopes: bool, as_json: bool) -> None:
    """Raise ``CommandError`` for ``--envelopes`` without ``--json``: they are for programs."""
    if envelopes and not as_json:
        raise CommandError("--envelopes goes with --json", "add --json", EXIT_USAGE)
