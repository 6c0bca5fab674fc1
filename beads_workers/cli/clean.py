"""``clean``: remove what old runs left, but nothing alive, unclosed or remembered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from beads_workers.cli.arguments import StateDir
from beads_workers.cli.client import find_state_directory
from beads_workers.core.base.text import printable, size
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_RUNNING, EXIT_UNKNOWN
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.worktrees.removal import CleanupResult

# --- worktree text -------------------------------------------------------------------------------
# Texts of ``clean`` about worktrees.


def removed_text(looked: CleanupResult) -> str:
    """Return a text about the worktree and the branch that are removed."""
    path = [] if looked.path is None else [f"worktree {looked.path}"]
    branch = [] if looked.branch is None else [f"branch {looked.branch}"]
    return printable(" and ".join([*path, *branch]))


def kept_text(looked: CleanupResult) -> str:
    """Return a text about the worktree that is kept, and why."""
    branch = f" ({looked.branch})" if looked.branch and looked.path else ""
    what = f"worktree {looked.path}" if looked.path else f"branch {looked.branch}"
    return printable(f"{what}{branch}: {'; '.join(looked.kept_because)}")


def worktree_json(looked: CleanupResult) -> dict[str, object]:
    """Return a worktree as JSON; one without reasons is removed."""
    return {
        "issue_id": looked.record.issue_id,
        "attempt": looked.record.attempt,
        "path": None if looked.path is None else str(looked.path),
        "branch": looked.branch,
        "reasons": list(looked.kept_because),
    }


def _rows_of_removed(stay: dict[Path, str]) -> list[dict[str, object]]:
    unknown = {"issue_id": "", "attempt": 0, "branch": None}
    return [{**unknown, "path": str(path), "reasons": [why]} for path, why in stay.items()]


def _host_text(row: Mapping[str, Any]) -> str:
    why = f": {'; '.join(row['reasons'])}" if row["reasons"] else f" ({size(row['bytes'])})"
    return printable(f"{row['path']} on {row['host']}{why}")


# --- clean ---------------------------------------------------------------------------------------
# ``clean``: remove what old runs left, but nothing alive, pending or remembered.


KEEP = 3


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("clean", epilog="Example: beads-workers clean --dry-run")(clean)


def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="So many of the last runs stay, with their logs; default 3, and the last night.",
        ),
    ] = None,
    slot: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Only this slot: tear down what a project owes that is gone."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Remove what old runs left: logs, sockets, worktrees without work, a live page.

    Also what hosts over ssh keep of them. Never what is alive, pending, or holds work.
    """
    if slot is not None:
        _free(slot, dry_run=dry_run, as_json=as_json)
        return
    from beads_workers.landing.gate import clean_gates, clean_landing_folders, common_directory
    from beads_workers.runtime import live_page
    from beads_workers.runtime.retention import Keep, disposable, remove
    from beads_workers.runtime.sockets import dead_sockets
    from beads_workers.worktrees.git import unlock_all
    from beads_workers.worktrees.records import Records
    from beads_workers.worktrees.relocation import lead_back
    from beads_workers.worktrees.removal import clean as clean_worktrees
    from beads_workers.worktrees.sweep import delete_all, given_up

    directory = RunDirectory(find_state_directory(state_dir))
    old = disposable(directory, Keep(keep or KEEP, None, night=keep is None))
    sockets = dead_sockets()
    project, records = directory.root.resolve().parent, Records(directory.root)
    common = common_directory(project)
    if common is not None:
        lead_back(records, project, str(common))
    locks = unlock_all(str(common), dry_run=dry_run) if common is not None else []
    set_aside = given_up(records)
    stay = {} if dry_run else delete_all(records)
    # Before the runs: their folders have the records of worktrees, and name the hosts.
    hosts = _clean_hosts(directory, dry_run=dry_run)
    worktrees = list(clean_worktrees(directory.root, dry_run=dry_run))
    gates = clean_gates(common, dry_run=dry_run) if common is not None else []
    left = clean_landing_folders(dry_run=dry_run)
    if not dry_run:
        remove(old)
        for path in sockets:
            path.unlink(missing_ok=True)
    gone = [looked for looked in worktrees if not looked.kept_because]
    page = None if directory.is_locked() else live_page.lingering(directory.root)
    if page is not None and not dry_run:
        live_page.end(directory.root, page)
    went = (path for path in set_aside if path not in stay)
    found = [str(path) for path in (*old, *sockets, *locks, *gates, *went)]
    if as_json:
        found += [str(looked.path) for looked in gone if looked.path is not None]
        found += [str(folder) for folder, _ in left]
        rows = [worktree_json(looked) for looked in worktrees] + _rows_of_removed(stay)
        removed = [] if dry_run else found
        shown = {"removed": removed, "found": found, "worktrees": rows, "hosts": hosts}
        print(json.dumps(shown))
        return
    found += [f"the live page of the last run (pid {page.pid})"] if page is not None else []
    found += [text for looked in gone if (text := removed_text(looked))]
    found += [f"{folder} ({size(count)}), whose repository is gone" for folder, count in left]
    found += [_host_text(row) for row in hosts if row["bytes"] and not row["reasons"]]
    for name in found:
        print(f"{'would remove' if dry_run else 'removed'} {printable(name)}")
    kept = [kept_text(looked) for looked in worktrees if looked.kept_because]
    _tell_kept(kept + [_host_text(row) for row in hosts if row["reasons"]], stay, dry_run=dry_run)
    if not found:
        print("nothing to clean")


def _tell_kept(kept: Sequence[str], stay: Mapping[Path, str], *, dry_run: bool) -> None:
    for name in kept:
        print(f"{'would keep' if dry_run else 'kept'} {name}")
    for path, why in stay.items():
        print(f"kept {printable(f'removed worktree {path}: {why}')}")


def _free(slot: int, *, dry_run: bool, as_json: bool) -> None:
    """Tear down the world of a slot, and give it up."""
    from beads_workers.worktrees import slots

    found = next((claim for claim in slots.claims() if claim.slot == slot), None)
    if found is None:
        raise CommandError(f"slot {slot} is not yours, or free", "", EXIT_UNKNOWN)
    wrong = None if slots.is_busy(found) else "" if dry_run else slots.give_up(found)
    if wrong is None:
        hint = "'beads-workers status' there shows what"
        raise CommandError(f"something works in {printable(found.worktree)}", hint, EXIT_RUNNING)
    if as_json:
        print(json.dumps({"slot": slot, "worktree": found.worktree, "error": wrong}))
    else:
        what = "would free" if dry_run else "freed"
        print(printable(f"{what} slot {slot} of {found.worktree}{f': {wrong}' if wrong else ''}"))


def _clean_hosts(directory: RunDirectory, *, dry_run: bool) -> list[dict[str, Any]]:
    from beads_workers import registry
    from beads_workers.runtime.places import lines_of_runs

    lines = lines_of_runs(directory)
    probe = registry.service("hosts") if lines else None
    return [] if probe is None else list(probe.clean(directory, lines, dry_run=dry_run))
