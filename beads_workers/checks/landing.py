"""``--land-on``, ``--land-into`` and ``[landing]``: what must hold before branches can land."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from beads_workers.checks.rules import Check, fail, misused, warn
from beads_workers.checks.worktrees import checked_out
from beads_workers.core.base.settings import NEVER, PER_RUN, REMOTE, Landing, Worktrees
from beads_workers.core.base.source import SourceError
from beads_workers.core.base.text import counted
from beads_workers.executors.command import OF_ONE_ISSUE
from beads_workers.options import Options
from beads_workers.registry import Missing, need, recognise
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.worktrees.git import (
    GitError,
    call,
    git,
    git_or_none,
    is_ancestor,
    lines,
    objects,
    row_format,
    rows,
)
from beads_workers.worktrees.landed import PREFIX, git_too_old
from beads_workers.worktrees.ledger import entry_commit, ledger_ref
from beads_workers.worktrees.making import find_base
from beads_workers.worktrees.remote import (
    NOBODY,
    LostRace,
    RefMove,
    Refuses,
    RemoteTrouble,
    ahead,
    check_push,
    push,
    remote_heads,
)

Rule = Callable[[Options, Path], Check | None]


def remote_is_there(options: Options, project: Path) -> Check | None:
    """Refuse a ``[landing] remote`` that this clone does not have."""
    remote = options.landing.remote
    if not remote or remote in lines(git(str(project), "remote")):
        return None
    text = f"[landing] remote: this clone has no remote {remote}"
    return misused("landing", text, "'git remote' lists those that it has")


def git_is_new_enough(options: Options, project: Path) -> Check | None:
    """Refuse an old git: trains are merged in the object database."""
    why = git_too_old()
    return misused("landing", why, "install a newer git") if why else None


def target_is_known(options: Options, project: Path) -> Check | None:
    """Refuse a detached HEAD without ``--land-on``."""
    if _target(options, project) is not None:
        return None
    text = "HEAD is detached, so that nobody knows where finished branches are to land"
    return misused("landing", text, "--land-on BRANCH says it")


def lands_elsewhere(options: Options, project: Path) -> Check | None:
    """Refuse to land on the landing branch of a landing branch."""
    target = _target(options, project)
    if target is None or not target.startswith(f"{PREFIX}/"):
        return None
    how = "--land-on names" if options.land_on else "what is checked out is"
    text = f"{how} {target}, on which work lands: it would land on {PREFIX}/{target}"
    own = target.removeprefix(f"{PREFIX}/")
    if options.land_on:
        return misused("landing", text, f"--land-on {own}")
    hint = f"check out your own branch (git switch {own}), or name it: --land-on {own}"
    return misused("landing", text, hint, f"git switch {shlex.quote(own)}")


def prefix_is_free(options: Options, project: Path) -> Check | None:
    """Refuse a branch whose name is the folder of landing branches."""
    if not _has_ref(project, f"refs/heads/{PREFIX}"):
        return None
    text = f"a branch named {PREFIX} is in the way of {PREFIX}/{_target(options, project)}"
    return misused("landing", text, f"rename it: git branch -m {PREFIX} another-name")


def branches_are_there(options: Options, project: Path) -> Check | None:
    """Refuse missing branches in ``--land-on`` and ``--land-into``."""
    for name in (options.land_on, options.landing.into):
        if name is not None and not _has_ref(project, f"refs/heads/{name}"):
            text = f"there is no branch {name} to land on"
            return misused("landing", text, "git branch shows them")
    return None


def closes_after_landing(options: Options, project: Path) -> Check | None:
    """Refuse self-closing workers: they close before their branch could land."""
    if options.tracking.bd_calls != "worker":
        return None
    text = "--bd-calls worker closes issues before their branches could land"
    return misused("landing", text, "leave it out")


def clones_land_together(options: Options, project: Path) -> Check | None:
    """Refuse several clones with one tracker, unless they land on one branch of a remote."""
    if not options.tracking.shared or options.landing.remote:
        return None
    text = "--shared: each clone would land on a branch of its own"
    return misused("landing", text, '[landing] remote = "origin" has all of them land on one there')


RULES: tuple[Rule, ...] = (
    remote_is_there,
    git_is_new_enough,
    target_is_known,
    lands_elsewhere,
    prefix_is_free,
    branches_are_there,
)


def find_landing(options: Options, project: Path, base: str) -> Landing | Check:
    """Return where branches land, or the first reason why they cannot.

    ``base``: the commit that attempts would begin with.
    """
    try:
        return _find_landing(options, project, base)
    except GitError as error:
        return misused("landing", f"git: {error}")


def _find_landing(options: Options, project: Path, base: str) -> Landing | Check:
    for rule in RULES:
        if (wrong := rule(options, project)) is not None:
            return wrong
    target = _target(options, project)
    named = options.worktree_base is not None
    start = base
    if options.land_on and not named:
        start = git(str(project), "rev-parse", f"refs/heads/{target}^{{commit}}").strip()
    assert target is not None, "a rule has seen to it"
    # With a named base, the user's own branch does not matter.
    follows = "" if named else target
    kind = recognise(options.source) if options.source else None
    defuses = kind is not None and kind.capabilities.obeys_commits
    if options.landing.via == "pr":
        return _proposed(options, project, target, (start, follows))
    return Landing(f"{PREFIX}/{target}", start, follows, defuses, rules=options.landing)


def _proposed(
    options: Options, project: Path, target: str, here: tuple[str, str]
) -> Landing | Check:
    """Return where pull requests are merged: the branch as it stands at the remote. One pull
    request for all is for the integration branch, with ``start`` and ``follows`` from ``here``."""
    start: str | None
    start, follows = here
    name, theirs = options.landing.remote or REMOTE, f"refs/heads/{target}"
    try:
        forge = need("pull_requests").find(project, name)
    except SourceError as error:
        return misused("landing", f"no pull requests: {error}", error.hint)
    except Missing as error:
        return misused("landing", str(error))
    if options.landing.pulls.per == PER_RUN:
        if options.landing.pulls.merge != NEVER:
            text = "people merge the one pull request of a run"
            return misused("landing", text, "leave out [forge] merge, or --pr-per run")
        rules = replace(options.landing, remote=name)
        return Landing(f"{PREFIX}/{target}", start, follows, True, "", forge, rules)
    landing = Landing(f"{PREFIX}/{name}/{target}", "", "", True, theirs, forge, options.landing)
    try:
        start = remote_heads(str(project), name, (theirs,), _login(forge)).get(theirs)
        if start is None:
            push_it = f"git push {name} {target}"
            return misused("landing", f"{name} has no branch {target}", push_it, push_it)
    except RemoteTrouble as error:
        # What was fetched last is a start, too: the lander waits for the remote.
        start = find_base(str(project), landing.branch)
        if start is None:
            return fail("landing", f"no pull requests: {error}")
    return replace(landing, start=start)


def _login(forge: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the settings of git with the login of the forge, if there is one."""
    if not forge:
        return NOBODY
    service = need("pull_requests")
    try:
        found: Mapping[str, str] = service.open_pulls(
            forge, service.logins(forge, os.environ)
        ).login_of_git()
    except SourceError:
        return NOBODY
    return found


def gate(verify: str | None) -> Check | None:
    """Refuse a command that needs the variables of one issue: it never passes as a gate."""
    # A shell default (``${NAME:-...}``) shows that the variable may be missing.
    needs = rf"\$(?:({'|'.join(OF_ONE_ISSUE)})\b|\{{({'|'.join(OF_ONE_ISSUE)})(?!:?[-+=]|\w))"
    found = re.search(needs, verify or "")
    if found is None or "BW_GATE" in (verify or ""):
        return None
    return misused(
        "landing",
        f"--verify names {found[1] or found[2]}, and nothing would land: a gate tests the work of"
        " several issues at once, and has no such variable",
        'leave the part out in gates: test -n "$BW_GATE" || ...',
    )


def held_elsewhere(landing: Landing, worktrees: Worktrees) -> Check | None:
    """Refuse a landing branch that is checked out somewhere: git does not move it."""
    asked = ("for-each-ref", row_format("%(worktreepath)"), f"refs/heads/{landing.branch}")
    held = next((path for (path,) in rows(git(worktrees.common, *asked), 1)), "")
    if not held:
        return None
    text = f"{landing.branch} is checked out in {held}"
    if Path(held).is_dir():
        remedy = f"git -C {shlex.quote(held)} switch --detach"
        return fail("landing", f"{text}: nothing lands while it is", remedy)
    text += ", which is gone: nothing lands until git forgets it"
    return fail("landing", text, f"git -C {shlex.quote(worktrees.checkout)} worktree prune")


def waits_elsewhere(landing: Landing, worktrees: Worktrees) -> Check | None:
    """Refuse to land what waits on another branch than the one that it was made for."""
    state = Path(worktrees.state_directory)
    waiting = [e.landing for e in RunDirectory(state).left_over()[1].retry_entries.values()]
    for add in filter(None, waiting):
        # Imported here: most starts find nothing that waits.
        from beads_workers.landing.left_branches import elsewhere

        if found := elsewhere(state, landing.branch, add.run_id):
            return fail("landing", f"{add.issue_id} waits to land, and {found[0]}", found[1])
    return None


def closed_remote(landing: Landing, worktrees: Worktrees) -> Check | None:
    """Report a remote that does not answer, or does not let this user push."""
    if landing.rules.remote is None or landing.theirs:
        return None
    ref = f"refs/heads/{landing.branch}"
    start = find_base(worktrees.checkout, landing.start) or landing.start
    try:
        own = (landing.rules.remote, ref, start, REMOTE_SECONDS, _login(landing.forge))
        check_push(worktrees.checkout, *own)
    except RemoteTrouble as error:
        remedy = f"git push --dry-run {landing.rules.remote} {start[:12]}:{ref}"
        return fail("landing", f"nothing lands: {error}", remedy)
    return _ahead(landing, worktrees, ref)


def _ahead(landing: Landing, worktrees: Worktrees, ref: str) -> Check | None:
    """Report a landing branch with commits that the remote's branch lacks.

    They were removed from the remote, or never pushed.
    """
    assert landing.rules.remote is not None
    here = call(worktrees.common, "rev-parse", "--verify", "--quiet", ref)
    if here.status != 0:
        return None  # The branch begins at the remote's.
    try:
        own = (landing.rules.remote, (ref,), _login(landing.forge))
        there = remote_heads(worktrees.checkout, *own).get(ref)
    except RemoteTrouble:
        return None  # The remote has just answered: the lander asks again.
    (commit,) = objects(here.output)
    if there is None or is_ancestor(worktrees.common, commit, there) is not False:
        return None
    text = ahead(landing.branch, landing.rules.remote, there)
    remedy = f"git push {landing.rules.remote} {landing.branch}"
    return fail("landing", f"nothing lands: {text}", remedy)


REMOTE_SECONDS = 20.0


def lacks_ledger(landing: Landing, worktrees: Worktrees) -> bool:
    """Return whether the remote has no ledger yet: a start pushes one, which it may refuse.

    Raise ``RemoteTrouble``.
    """
    if not landing.rules.remote or landing.theirs or landing.rules.form.trailers == "full":
        return False
    ref = ledger_ref(landing.branch)
    login = _login(landing.forge)
    return ref not in remote_heads(worktrees.checkout, landing.rules.remote, (ref,), login)


def refused_ledger(landing: Landing, worktrees: Worktrees) -> Check | None:
    """Report a remote that refuses the ledger: branch and ledger are pushed together, or neither.

    The ledger is pushed as the run would push it, so that a refusal by a hook of the remote is
    found, too.
    """
    ref = ledger_ref(landing.branch)
    try:
        if landing.rules.remote is None or not lacks_ledger(landing, worktrees):
            return None
        here = git_or_none(worktrees.common, "rev-parse", "--verify", "--quiet", ref)
        first = here.strip() if here else entry_commit(worktrees.common, (), ())
        login = _login(landing.forge)
        push(worktrees.checkout, landing.rules.remote, RefMove(ref, "", first), login=login)
    except LostRace:
        return None  # Another clone was quicker.
    except Refuses as error:
        text = f"nothing lands: {error}"
        hint = '[landing] trailers = "full" does without: all stands in the commits then'
        return fail("landing", text, hint=hint)
    except RemoteTrouble as error:
        return fail("landing", f"nothing lands: {error}")
    return None


def forge_refuses(landing: Landing, worktrees: Worktrees) -> Check | None:
    """Report a forge that has no login of this user, or does not let it write, and what else will
    be in the way there."""
    if not landing.forge:
        return None
    service, base = need("pull_requests"), landing.proposed_for
    try:
        forge = service.open_pulls(landing.forge, service.logins(landing.forge, os.environ))
        hurdles = forge.hurdles(base, may_be_fork=landing.rules.remote is not None)
    except SourceError as error:
        return fail("landing", f"no pull requests: {error}", hint=error.hint)
    return warn("landing", f"pull requests: {'; '.join(hurdles)}") if hurdles else None


def only_here(landing: Landing, worktrees: Worktrees) -> Check | None:
    """Warn of commits of the user's branch that are no part of any pull request."""
    if not landing.theirs:
        return None
    name = landing.theirs.removeprefix("refs/heads/")
    between = f"{landing.start}..refs/heads/{name}"
    done = call(worktrees.common, "rev-list", "--count", between)
    count = int(lines(done.output)[0]) if done.status == 0 else 0
    if not count:
        return None
    push_it = f"git push {landing.remote} {name}"
    text = f"{counted(count, 'commit')} of {name} are only here, and in no pull request"
    return warn("landing", text, push_it)


def unsigned(landing: Landing, worktrees: Worktrees) -> Check | None:
    """Refuse ``signoff`` without a known committer: a sign-off is a person's statement."""
    known = ("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
    if not landing.rules.form.signoff or call(worktrees.checkout, *known).status == 0:
        return None
    text = "[landing] signoff: git does not know in whose name commits are signed off"
    remedy = 'git config user.name "YOUR NAME" && git config user.email YOU@EXAMPLE.ORG'
    return misused("landing", text, remedy=remedy)


def _target(options: Options, project: Path) -> str | None:
    return options.land_on or checked_out(project) or None


def _has_ref(project: Path, ref: str) -> bool:
    return git_or_none(str(project), "show-ref", "--verify", "--quiet", ref) is not None
