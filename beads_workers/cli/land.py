"""``land``, ``branches`` and ``undo``: landing without a fleet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from beads_workers.cli.arguments import Json, StateDir, Trust
from beads_workers.cli.client import find_state_directory
from beads_workers.cli.completion import may_be_undone, with_branches
from beads_workers.cli.waiting import over_here
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.text import counted, printable, some
from beads_workers.core.records import landing as messages
from beads_workers.core.records.landing import LanderSettings
from beads_workers.core.records.receipts import INDEPENDENT
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_RUNNING, EXIT_UNFINISHED, EXIT_UNKNOWN, EXIT_USAGE

Verify = Annotated[
    str | None,
    typer.Option(metavar="CMD", help="The gate; else the last start's, or the settings'."),
]
NAME = "land"
ISSUE_CHARS = 24


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command("land", epilog="Example: beads-workers land --dry-run")(land)
    app.command("pr", epilog="Example: beads-workers pr --json")(pr)
    app.command("branches", epilog="Example: beads-workers branches")(branches)
    app.command("undo", epilog="Example: beads-workers undo proj-a1b")(undo)


def land(
    issues: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ISSUE...]", help="Only these.", autocompletion=with_branches),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would land.")] = False,
    verify: Verify = None,
    skip_base_check: Annotated[
        bool, typer.Option("--skip-base-check", help="Do not ask whether verify sees the branch.")
    ] = False,
    as_json: Json = False,
    state_dir: StateDir = None,
    trust: Trust = False,
) -> None:
    """Land the branches that earlier runs left.

    Those whose last attempt succeeded; a branch that is named lands however its attempt ended.
    """
    from beads_workers.cli.preparation import check_gate
    from beads_workers.landing.left_branches import states

    directory = find_state_directory(state_dir)
    settings, tracker = _settings(
        directory, verify or _verify_of_last_run(directory), trust=trust, runs=not dry_run
    )
    quarantined = {} if issues else _refused(directory)
    _commit_left(directory, settings, issues or [], dry_run=dry_run)
    wanted = list(_without(quarantined, _wanted(directory, settings, issues or [])))
    wanted = _made_for_here(directory, settings.landing.branch, wanted, named=bool(issues))
    for issue_id, over in (_taken(directory, wanted) if issues else {}).items():
        hint = f"'beads-workers reopen {issue_id}', then 'land {issue_id}', lands it all the same"
        raise CommandError(f"{issue_id} does not land: {printable(over)}", printable(hint))
    if dry_run:
        _show(
            [s for s in states(_repository(settings), wanted) if not s.landed],
            as_json=as_json,
            refused={},
        )
        return
    check_gate(settings.verify)
    _check_no_fleet(directory, "the running fleet lands its branches by itself")
    for left in wanted if issues else ():
        _repository(settings).pardon(left.add.run_id, left.add.issue_id)
    if settings.verify is None and wanted:
        print("warning: no --verify: what merges lands untested", file=sys.stderr)
    if wanted:
        settings = _seen(settings, skip=skip_base_check, quiet=as_json)
    adds = [left.add for left in wanted]
    if settings.landing.theirs and wanted:
        pulls = {key: each.pull for key, each in _parked(directory).items()}
        adds = [replace(add, pull=pulls.get(add.issue_id)) for add in adds]
    landed = _land_all(directory, settings, tracker, adds, as_json=as_json)
    if landed and not as_json and not settings.landing.theirs:
        print(f"'beads-workers undo {settings.run_id}' takes it back")
    if not wanted and not as_json:
        print("nothing to land")


def pr(
    mend: Annotated[
        bool,
        typer.Option("--mend", help="Also start agents for red checks, remarks and conflicts."),
    ] = False,
    verify: Verify = None,
    as_json: Json = False,
    state_dir: StateDir = None,
    trust: Trust = False,
) -> None:
    """Look once at the pull requests of earlier runs.

    It merges them as [forge] merge says, and closes the issues of merged ones. No agent is started,
    unless --mend has the last fleet start again, for these issues alone: with what is left of its
    budget. Exit status 7: some are open still.
    """
    from beads_workers.cli.preparation import check_gate

    directory = find_state_directory(state_dir)
    verify = verify or _verify_of_last_run(directory)
    settings, tracker = _settings(directory, verify, trust=trust)
    check_gate(settings.verify)
    if not settings.landing.theirs:
        hint = '[landing] via = "pr" has work land by pull requests'
        raise CommandError("nothing lands by pull requests here", hint)
    _check_no_fleet(directory, "the running fleet looks at its pull requests by itself")
    known = _remembered(directory)
    proposed = [key for key, each in known.items() if each.pull and not each.quarantined]
    if mend and proposed:
        _start_again(directory, proposed, verify, trust=trust)
        return
    adds = [replace(each.landing, pull=each.pull) for each in known.values() if each.in_review]
    _land_all(directory, settings, tracker, adds, as_json=as_json)
    if not adds and not as_json:
        print("no pull request of ours is open")


def _start_again(directory: Path, only: Sequence[str], verify: str | None, *, trust: bool) -> None:
    """Run the last fleet once more, for these issues alone, until they are done or wait."""
    from beads_workers.cli.start import StartView, run_start
    from beads_workers.options import TRUST_ALL, given

    last = _last_start(directory)
    if last is None or last.typed is None:
        raise CommandError("no fleet was started here by 'start'", "start one", EXIT_USAGE)
    os.chdir(last.folder)
    typed = {**last.typed, "verify": verify, "trust": TRUST_ALL if trust else None}
    typed |= {"until_empty": True, "new_night": None, "start_at": None}
    run_start(given(typed), tuple(only), StartView(detach=False), last.argv)


def _land_all(
    directory: Path,
    settings: LanderSettings,
    tracker: FleetSettings,
    wanted: list[messages.Add],
    *,
    as_json: bool,
) -> list[messages.Landed]:
    """Land these branches, and close their issues; raise ``CommandError`` if some are left."""
    news = list(_landing(settings, wanted, quiet=as_json))
    landed = [each for each in news if isinstance(each, messages.Landed)]
    refused = [each for each in news if isinstance(each, messages.Refused)]
    refused = [r for r in refused if r.issue_id not in {each.issue_id for each in landed}]
    notes = {each.issue_id: _close_note(each, settings) for each in landed}
    # What a person has opened again has no assignee, and is done now.
    closed, _ = _settle(directory, tracker, "CLOSE", notes, notes.keys())
    if as_json:
        reviewed = {each.issue_id: each for each in news if isinstance(each, messages.InReview)}
        over = {each.issue_id for each in landed} | {each.issue_id for each in refused}
        rows = {
            "landed": [asdict(each) for each in landed],
            "refused": [asdict(r) for r in refused],
            "in_review": [asdict(e) for key, e in reviewed.items() if key not in over],
        }
        print(json.dumps({**rows, "closed": closed}))
    paused = next(
        (each.why for each in reversed(news) if isinstance(each, messages.LandingPaused)), ""
    )
    if len(landed) < len(wanted):
        left = len(wanted) - len(landed)
        why = f"; {paused}" if paused and left > len(refused) else ""
        are = "not merged yet" if settings.landing.theirs else "did not land"
        raise CommandError(f"{counted(left, 'branch', 'branches')} {are}{why}", "", EXIT_UNFINISHED)
    return landed


def branches(as_json: Json = False, state_dir: StateDir = None) -> None:
    """List the branches that earlier runs left, in the order in which they land.

    Attempts that other machines have are named, too.
    """
    from beads_workers import registry
    from beads_workers.agents.planted import WATCHED
    from beads_workers.landing.left_branches import left_branches, states
    from beads_workers.runtime.places import lines_of_runs
    from beads_workers.runtime.run_directory import RunDirectory
    from beads_workers.worktrees.reuse import kept

    directory = find_state_directory(state_dir)
    settings = _settings(directory, None, runs=False)[0]
    repository = _repository(settings)
    rows = states(repository, left_branches(directory, repository), WATCHED)
    staying = [record.path for record in kept(settings.worktrees)]
    lines = lines_of_runs(RunDirectory(directory))
    probe = registry.service("hosts") if lines else None
    away, silent = probe.attempts(lines) if probe is not None else ([], {})
    for host, why in silent.items():
        print(printable(f"{host}: {why}"), file=sys.stderr)
    _show(rows, as_json=as_json, refused=_refused(directory), staying=staying, away=away)


def undo(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|ISSUE...",
            help="The runs or issues to take back. A prefix of a run's id is enough.",
            autocompletion=may_be_undone,
        ),
    ],
    with_dependents: Annotated[
        bool, typer.Option("--with-dependents", help="Also what landed on top of it.")
    ] = False,
    verify: Verify = None,
    as_json: Json = False,
    state_dir: StateDir = None,
    trust: Trust = False,
) -> None:
    """Take back what has landed, and open its issues again.

    The branch without this work passes the gate first. An issue is refused if other work has landed
    on top of it.
    """
    from beads_workers.cli.preparation import check_gate
    from beads_workers.landing.repository import CannotLand
    from beads_workers.landing.undo import Undo

    directory = find_state_directory(state_dir)
    settings, tracker = _settings(directory, verify or _verify_of_last_run(directory), trust=trust)
    check_gate(settings.verify)
    _check_no_fleet(directory, "a fleet runs here, and lands: stop it first")
    try:
        done = Undo(settings, tuple(what), with_dependents, partial(_waits_for, tracker)).run()
    except CannotLand as error:
        raise CommandError(str(error), "", EXIT_UNKNOWN) from None
    if done.url:
        _say_proposed(done, as_json=as_json)
        return
    opened, failed = _settle(directory, tracker, "REOPEN", dict.fromkeys(done.issue_ids, ""))
    _repository(settings).reopened(done.issue_ids)
    how = "moved back to" if done.moved_back else "is at"
    if as_json:
        print(json.dumps({**asdict(done), "reopened": opened}))
    else:
        print(f"taken back: {', '.join(map(printable, done.issue_ids))}")
        print(f"{settings.landing.branch} {how} {done.tip[:12]}")
    if failed:
        named = " ".join(map(printable, failed))
        hint = f"once it answers: beads-workers reopen {named}"
        raise CommandError(f"not open again in the tracker: {named}", hint, EXIT_UNFINISHED)


def _say_proposed(done: Any, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**asdict(done), "reopened": []}))
        return
    print(f"proposed: {printable(done.url)}")
    named = " ".join(map(printable, done.issue_ids))
    print(f"once it is merged, 'beads-workers undo {named}' opens the issue again")


def _seen(settings: LanderSettings, *, skip: bool, quiet: bool) -> LanderSettings:
    """Return the settings with what verify tests; raise ``CommandError`` if it is the checkout."""
    from beads_workers.checks.rules import Grade
    from beads_workers.checks.sees import LIFTED_BY, check_sees
    from beads_workers.cli.checking import Drawn, sentence
    from beads_workers.cli.config import resolve
    from beads_workers.cli.refusals import refusal

    options = resolve({}, Path.cwd(), os.environ).options
    if settings.verify is None or skip or options.skip_base_check:
        return settings
    seen = check_sees(settings, Drawn(quiet=quiet), waits=True)
    if seen.check.status is Grade.FAIL:
        raise refusal(seen.check, LIFTED_BY)
    if seen.check.status is Grade.WARN:
        print(f"warning: {printable(sentence(seen.check))}", file=sys.stderr)
    return replace(settings, sight=seen.proof.sight if seen.proof is not None else "")


# --- settings ------------------------------------------------------------------------------------


def _settings(
    directory: Path, verify: str | None, *, trust: bool = False, runs: bool = True
) -> tuple[LanderSettings, FleetSettings]:
    """Return the settings of landing, and of the tracker to update.

    ``runs``: the command runs something, so the project's lines have to be trusted.
    """
    from beads_workers.cli.config import resolve
    from beads_workers.cli.preparation import find_landing, find_worktrees
    from beads_workers.cli.tracker_access import settings_here, settings_to_write
    from beads_workers.cli.trust import refuse_untrusted, settle
    from beads_workers.options import TRUST_ALL, given
    from beads_workers.runtime.sources import logins_of, secrets_of
    from beads_workers.worktrees.records import Records
    from beads_workers.worktrees.relocation import lead_back

    typed = given({"verify": verify, "trust": TRUST_ALL if trust else None})
    if runs:
        resolved = settle(typed)
        refuse_untrusted(resolved)
    else:
        resolved = resolve(typed, Path.cwd(), os.environ)
    options = resolved.options
    project = directory.resolve().parent
    _check_repository(project)
    worktrees = find_worktrees(options, project, str(directory))
    lead_back(Records(directory), project, worktrees.common)
    landing = find_landing(options, project, worktrees.base)
    # A run of its own, so that 'undo' can take all of it back; its id begins with its time.
    run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{NAME}"
    tracker = (settings_to_write if runs else settings_here)(directory, resolved=resolved)
    of = LanderSettings(landing, worktrees, run_id, options.work.verify)
    secrets = secrets_of(replace(tracker, landing=landing))
    return replace(of, logins=logins_of(landing), secrets=secrets), tracker


def _verify_of_last_run(directory: Path) -> str | None:
    """Return ``--verify`` of the last start's command line: its branches have to pass it, too."""
    settings = _last_start(directory)
    typed = settings.typed if settings is not None else None
    return (typed or {}).get("verify")


def _last_start(directory: Path) -> Any:
    """Return the settings of the last start as they were typed; None if there was none."""
    from beads_workers.runtime.run_directory import RunDirectory

    runs = RunDirectory(directory)
    info = runs.read_info()
    return runs.read_settings(info.run_id) if info is not None else None


def _check_repository(project: Path) -> None:
    from beads_workers.worktrees.git import GitError, git, is_outside

    try:
        git(str(project), "rev-parse", "--git-dir")
    except GitError as error:
        if not is_outside(error):
            raise
        raise CommandError(
            f"this is not a git repository: {printable(str(project))}",
            "run it in the folder of the project",
        ) from None


def _repository(settings: LanderSettings) -> Any:
    from beads_workers.landing.repository import LandingRepository

    return LandingRepository(settings)


def _commit_left(
    directory: Path, settings: LanderSettings, issues: list[str], *, dry_run: bool
) -> None:
    """Commit the uncommitted work of commands in runs with ``--no-land``."""
    from beads_workers.attempts.work import CannotCommit, Workplace
    from beads_workers.landing.left_branches import uncommitted
    from beads_workers.worktrees.git import GitError

    for record, title in uncommitted(directory, settings.worktrees.common, issues):
        try:
            place = Workplace.left(record)
            files = counted(len(place.status()[2]), "file")
            if files.startswith("0 "):
                continue
            if dry_run:
                print(printable(f"{record.issue_id}: {files} to be committed on {record.branch}"))
                continue
            place.commit(title or record.issue_id)
            place.keep()
            print(printable(f"{record.issue_id}: committed {files} that its command had left"))
        except (CannotCommit, GitError) as error:
            why = f"not committed: {record.issue_id}: {error}"
            print(printable(why), file=sys.stderr)


def _wanted(directory: Path, settings: LanderSettings, issues: list[str]) -> list[Any]:
    from beads_workers.landing.left_branches import left_branches, states

    repository = _repository(settings)
    found = left_branches(directory, repository, issues)
    if not issues:
        may = [left for left in found if left.may_land]
        return [state.left for state in states(repository, may) if not state.landed]
    known = {left.add.issue_id for left in found}
    if unknown := [issue for issue in issues if issue not in known]:
        hint = "'beads-workers branches' lists those that there are"
        raise CommandError(f"no branch of {', '.join(unknown)}", hint, EXIT_UNKNOWN)
    return [left for left in found if left.add.issue_id in issues]


def _made_for_here(directory: Path, branch: str, some: list[Any], *, named: bool) -> list[Any]:
    """Leave out branches that were made for another integration branch, and say so; raise
    ``CommandError`` if they were named."""
    from beads_workers.landing.left_branches import elsewhere

    of = {left.add.issue_id: elsewhere(directory, branch, left.add.run_id) for left in some}
    for issue_id, found in of.items():
        if found and named:
            raise CommandError(f"{issue_id} {found[0]}", f"'{found[1]}' first")
        if found:
            text = f"left out: {issue_id} {found[0]} ('{found[1]}' first)"
            print(printable(text), file=sys.stderr)
    return [left for left in some if not of[left.add.issue_id]]


def _check_no_fleet(directory: Path, why: str) -> None:
    from beads_workers.runtime.run_directory import RunDirectory

    if RunDirectory(directory).is_locked():
        raise CommandError(why, "'beads-workers status' shows it", EXIT_RUNNING)


# --- landing -------------------------------------------------------------------------------------


def _landing(
    settings: LanderSettings, adds: list[messages.Add], *, quiet: bool
) -> Iterator[messages.News]:
    """Yield the lander's messages until all branches have an answer, or it pauses."""
    from beads_workers.runtime.processes import without

    if not adds:
        return
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "beads_workers.landing.run"],
        env=without(os.environ, settings.secrets),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    orders = [messages.settings_to_line(settings), *map(messages.to_line, adds)]
    process.stdin.write(b"".join(orders))
    process.stdin.flush()
    left = {add.issue_id for add in adds}
    try:
        for line in process.stdout:
            news = messages.from_line(line)
            yield news
            if isinstance(news, messages.Landed | messages.Refused | messages.InReview):
                left.discard(news.issue_id)
            if not quiet and (text := _news_line(news)):
                print(printable(text), flush=True)
            if isinstance(news, messages.Idle) and (not left or news.waiting):
                break
    finally:
        process.stdin.close()
        status = process.wait()
        process.stdout.close()
    if status:
        raise CommandError("nothing can land here", "the line above says why")


def _news_line(news: messages.News) -> str:
    match news:
        case messages.Landed(issue_id, _, commit):
            how = "was landed already" if news.contained else "landed"
            return f"{issue_id} {how} as {commit[:12]}"
        case messages.Refused(issue_id, _, why, text, files, against=against):
            return f"{issue_id} did not land: {messages.refusal_text(why, files, against, text)}"
        case messages.InReview(issue_id, _, pull):
            return f"{issue_id} in review: {messages.pull_text(pull)}"
        case messages.NeedsApproval(issue_id, _, text):
            return f"{issue_id} awaits approval: {text}"
        case messages.WithoutVerdict(issue_id):
            return f"{issue_id} {messages.without_verdict_text(news)}"
        case messages.Gate(state="began", issues=issues):
            return f"verify runs on {', '.join(issues) if issues else 'what has landed'}"
        case messages.LanderWarned(text):
            return f"warning: {text}"
        case messages.LandingPaused(why):
            return f"paused: {why}"
        case messages.Into(branch, why=why, url=url) if url:
            return f"proposed for {branch}: {why}"
        case messages.Into(branch, commit, why, command):
            return f"{branch}: {why}; {command}" if why else f"{branch} is at {commit[:12]}"
        case _:
            return ""


def _close_note(landed: messages.Landed, settings: LanderSettings) -> str:
    how = "was landed already as" if landed.contained else "landed as"
    verified = f"; verify passed on tree {landed.verified[:12]}" if landed.verified else ""
    by = f", {INDEPENDENT}" if INDEPENDENT in landed.verified else ""
    return f"{how} {landed.commit[:12]} on {settings.landing.branch}{verified}{by}"


def _waits_for(tracker: FleetSettings, issue_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the issues that each of these waits for, according to the tracker."""
    from beads_workers.cli.tracker_access import open_tracker
    from beads_workers.core.base.model import IssueId

    with open_tracker(tracker, NAME) as source:
        seen = source.look([IssueId(each) for each in issue_ids])
    return {str(key): tuple(map(str, each.waits_for)) for key, each in seen.items()}


def _claim(source: Any, some: Set[str]) -> None:
    """Claim those of these issues that nobody has; raise ``SourceError``."""
    from beads_workers.core.base.source import Action, Settlement

    others = [key for key in source.ready() if key not in some]
    taken = source.take(len(some), others)
    # Issues that became ready just now were not asked for.
    strays = [job.issue_id for job in taken.jobs if job.issue_id not in some]
    source.settle([Settlement(Action.RELEASE, key) for key in strays])


def _settle(
    directory: Path,
    tracker: FleetSettings,
    action: str,
    notes: dict[str, str],
    reopened: Set[str] = frozenset(),
) -> tuple[list[str], list[str]]:
    """Write the action to the tracker; return the issues that now have this state, and those of
    which the tracker was not told.

    The next start neither lands these issues nor takes them for done. ``reopened``: issues that may
    be open, because they were undone or a person opened them.
    """
    from beads_workers.cli.tracker_access import open_tracker
    from beads_workers.core.base.model import IssueId
    from beads_workers.core.base.source import Action, Result, Settlement
    from beads_workers.runtime.retention import forget
    from beads_workers.runtime.run_directory import RunDirectory

    if not notes:
        return [], []
    make: Callable[[str], Settlement] = lambda issue_id: Settlement(  # noqa: E731
        Action[action],
        IssueId(issue_id),
        notes[issue_id],
        read_first=True,
        shelved=action == "CLOSE",
        taken_back=action == "REOPEN",
    )
    with open_tracker(tracker, NAME) as source:
        if reopened:
            _claim(source, reopened)
        settled = source.settle([make(issue_id) for issue_id in notes])
    fine = (Result.APPLIED, Result.FOUND_CLOSED) if action == "CLOSE" else (Result.APPLIED,)
    for each in settled:
        if each.result not in fine:
            why = each.error or each.result.value.replace("_", " ")
            print(
                f"not written: {printable(f'{each.settlement.issue_id}: {why}')}", file=sys.stderr
            )
    done = [each.settlement.issue_id for each in settled if each.result in fine]
    to_land = Result.FOUND_CLOSED if action == "CLOSE" else Result.APPLIED
    forget(RunDirectory(directory), done, to_land)
    return list(done), [e.settlement.issue_id for e in settled if e.result is Result.FAILED]


# --- shown ---------------------------------------------------------------------------------------


def _remembered(directory: Path) -> dict[str, Any]:
    """Return what the journals remember of issues that are not done."""
    from beads_workers.runtime.run_directory import RunDirectory

    entries = RunDirectory(directory).left_over()[1].retry_entries
    return {str(key): each for key, each in entries.items()}


def _parked(directory: Path) -> dict[str, Any]:
    """Return the branches that the journals remember as not landed, by their issues."""
    return {key: each for key, each in _remembered(directory).items() if each.landing}


def _refused(directory: Path) -> dict[str, str]:
    """Return why branches are left out: quarantined since, or not approved yet, or a person has
    closed the issue, put it off, or taken it."""
    parked = _parked(directory)
    refused = {
        key: each.error if each.quarantined else "it awaits your approval"
        for key, each in parked.items()
        if each.quarantined or each.landing.awaits
    }
    return refused | over_here(directory, dict.fromkeys(parked, ""))


def _taken(directory: Path, named: Sequence[Any]) -> dict[str, str]:
    """Return why branches that were named do not land: a person has closed the issue, put it off,
    or taken it. With ``--no-land``, a run itself has closed what succeeded."""
    from beads_workers.landing.left_branches import SUCCESS

    parked = _parked(directory)
    doubtful = (e for e in named if e.outcome not in (SUCCESS, "") or e.add.issue_id in parked)
    branches = {left.add.issue_id: left.add.branch for left in doubtful}
    return over_here(directory, branches, or_open=True)


def _without(quarantined: Mapping[str, str], found: Iterable[Any]) -> Iterator[Any]:
    for left in found:
        issue_id = left.add.issue_id
        if issue_id not in quarantined:
            yield left
            continue
        why = f"left out: {issue_id}: {quarantined[issue_id]} ('land {issue_id}' tries it again)"
        print(printable(why), file=sys.stderr)


def _show(
    rows: list[Any],
    *,
    as_json: bool,
    refused: Mapping[str, str],
    staying: Sequence[str] = (),
    away: Sequence[Mapping[str, Any]] = (),
) -> None:
    if as_json:
        branches = [_json(row, refused) for row in rows]
        print(json.dumps({"branches": branches, "staying": [*staying], "away": [*away]}))
        return
    for place, row in enumerate(rows, 1):
        issue = printable(row.left.add.issue_id)
        what = f"{counted(row.commits, 'commit')}, {row.diffstat or 'no changes'}"
        verdict = _verdict(row, refused.get(row.left.add.issue_id, ""))
        print(f"{place:3}  {issue:<{ISSUE_CHARS}} {verdict}; {what}; {row.left.add.branch}")
        if row.watched:
            from beads_workers.agents.planted import OBEYED

            print(printable(f"     {OBEYED}: {some(row.watched)}"))
    if not rows:
        print("no branches")
    for row in away:
        state = "has ended; the next start takes its result" if row["ended"] else "is at work"
        print(printable(f"{row['issue_id']} {state} (on {row['host']})"))
    if staying:
        what = counted(len(staying), "worktree")
        shown = printable(some([Path(path).name for path in staying]))
        print(f"{what} for the next run: {shown}; 'beads-workers clean' removes them")


def _verdict(row: Any, refused: str) -> str:
    if row.landed:
        by = f", verified {INDEPENDENT}" if INDEPENDENT in row.verified else ""
        return f"landed as {row.landed[:12]}{by}"
    if refused:
        return printable(f"did not land: {refused}")
    ended = row.left.outcome or "unknown end"
    if row.trouble:
        return printable(f"{ended}, {row.trouble}")
    if row.conflicts is not None:
        return printable(f"{ended}, conflicts in {', '.join(row.conflicts)}")
    return f"{ended}, merges"


def _json(row: Any, refused: Mapping[str, str]) -> dict[str, Any]:
    add = row.left.add
    return {
        "issue_id": add.issue_id,
        "attempt": add.attempt,
        "branch": add.branch,
        "commit": add.commit,
        "outcome": row.left.outcome or None,
        "commits": row.commits,
        "diffstat": row.diffstat,
        "landed": row.landed or None,
        "verified": row.verified or None,
        "refused": None if row.landed else refused.get(add.issue_id),
        "merges": row.merges,
        "conflicts": list(row.conflicts or ()),
        "trouble": row.trouble,
        "worktree": row.left.worktree or None,
        "obeyed": list(row.watched),
    }
