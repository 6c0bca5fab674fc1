"""``--land-on``, ``--land-into`` and ``[landing]``: what must hold before branches can land."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from beads_workers.cli.errors import EXIT_USAGE, CommandError
from beads_workers.cli.options import Options
from beads_workers.core.settings import FleetSettings, Landing
from beads_workers.executors.command import OF_ONE_ISSUE
from beads_workers.worktrees.git import GitError, git
from beads_workers.worktrees.landed import PREFIX, git_too_old


def with_landing(settings: FleetSettings, options: Options) -> FleetSettings:
    """The settings with where branches land, where there are any; raises ``CommandError``."""
    worktrees = settings.work.worktrees
    if options.land is False:
        return settings
    if worktrees is None:
        asked = options.land or options.land_on or options.land_into
        if asked:
            raise CommandError(
                "landing needs a worktree for each attempt", "say --worktree as well", EXIT_USAGE
            )
        return settings
    _check(options)
    check_gate(options.verify)
    landing = find_landing(options, Path(settings.project), worktrees.base)
    lands = replace(
        settings.work,
        lands=True,
        worktrees=replace(
            worktrees,
            base=f"refs/heads/{landing.branch}",
            base_name=landing.branch,
            base_else=landing.start,
            remote=landing.remote or "",
        ),
    )
    return replace(settings, landing=landing, work=lands)


def find_landing(options: Options, project: Path, base: str) -> Landing:
    """Where branches land; ``base``: the commit that attempts would begin with. Raises
    ``CommandError``."""
    remote = options.landing_remote
    if remote and remote not in git(str(project), "remote").splitlines():
        raise CommandError(
            f"[landing] remote: this clone has no remote {remote}",
            "'git remote' lists those that it has",
            EXIT_USAGE,
        )
    if why := git_too_old():
        raise CommandError(why, "install a newer git; --no-land goes without", EXIT_USAGE)
    current = _current_branch(project)
    target = options.land_on or current
    if target is None:
        raise CommandError(
            "HEAD is detached, so that nobody knows where finished branches are to land",
            "--land-on BRANCH says it; --no-land leaves the branches as they are",
            EXIT_USAGE,
        )
    if _has(project, f"refs/heads/{PREFIX}"):
        raise CommandError(
            f"a branch named {PREFIX} is in the way of {PREFIX}/{target}",
            f"rename it: git branch -m {PREFIX} another-name; or leave branches alone: --no-land",
            EXIT_USAGE,
        )
    for name in (options.land_on, options.land_into):
        if name is not None and not _has(project, f"refs/heads/{name}"):
            raise CommandError(
                f"there is no branch {name} to land on", "git branch shows them", EXIT_USAGE
            )
    named = options.worktree_base is not None
    start = base
    if options.land_on and not named:
        start = git(str(project), "rev-parse", f"refs/heads/{target}^{{commit}}").strip()
    assert options.land_jobs is not None and options.repairs is not None
    assert options.gate_timeout is not None, "resolve() fills in every default"
    return Landing(
        branch=f"{PREFIX}/{target}",
        start=start,
        # What the branches begin with was named: the user's own branch is another matter.
        follows="" if named else target,
        into=options.land_into,
        jobs=options.land_jobs,
        style=options.landing_style or "squash",
        after=options.landing_after,
        tools=options.landing_tools or (),
        repairs_max=options.repairs,
        gate_timeout_seconds=options.gate_timeout,
        remote=remote,
    )


def check_gate(verify: str | None) -> None:
    """Whether the command can be a gate: one that needs to know of which issue it is would never
    pass. Raises ``CommandError``."""
    # What stands in for a variable that is not set says that it may be missing.
    needs = rf"\$(?:({'|'.join(OF_ONE_ISSUE)})\b|\{{({'|'.join(OF_ONE_ISSUE)})(?!:?[-+=]|\w))"
    found = re.search(needs, verify or "")
    if found is None or "BW_GATE" in (verify or ""):
        return
    raise CommandError(
        f"--verify names {found[1] or found[2]}, and nothing would land: a gate tests the work of"
        " several issues at once, and has no such variable",
        'leave the part out in gates: test -n "$BW_GATE" || ...; or say --no-land',
        EXIT_USAGE,
    )


def _check(options: Options) -> None:
    if options.bd_calls == "worker":
        raise CommandError(
            "--bd-calls worker closes issues before their branches could land",
            "leave it out, or say --no-land",
            EXIT_USAGE,
        )
    if options.shared and not options.landing_remote:
        raise CommandError(
            "--shared: each clone would land on a branch of its own",
            '[landing] remote = "origin" has all of them land on one there; or say --no-land:'
            " the branches stay",
            EXIT_USAGE,
        )


def _current_branch(project: Path) -> str | None:
    try:
        return git(str(project), "symbolic-ref", "--quiet", "--short", "HEAD").strip()
    except GitError:
        return None


def _has(project: Path, ref: str) -> bool:
    try:
        git(str(project), "show-ref", "--verify", "--quiet", ref)
    except GitError:
        return False
    return True
