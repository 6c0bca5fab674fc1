"""Landing: finished branches have a place to land, and a gate that can pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from beads_workers.checks import landing
from beads_workers.checks.condition import CheckedBy, CheckFunction, Condition, Found, Stage, skip
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check, met, misused, ok, warn
from beads_workers.core.base.settings import FleetSettings, Landing, Worktrees, understood
from beads_workers.worktrees.git import GitError

NO_LAND = "--no-land"
SIGN_SECONDS = 20.0
"""Time limit of a signer: one that takes longer waits for a person."""
ANSWER_SECONDS = 5.0
"""Additional time of these checks on a busy machine."""


def _of(rule: landing.Rule) -> CheckFunction:
    """Return the check for a rule that ``land`` and ``undo`` share."""

    def look(plan: FleetPlan) -> Found:
        if not plan.wants_landing or met(plan.worktrees) is None:
            return None
        return _asked(lambda: rule(plan.options, plan.folder))

    return look


def _asked(look: Callable[[], Check | None]) -> Check | None:
    try:
        return look()
    except GitError as error:
        return misused("landing", f"git: {error}")


def _gate(plan: FleetPlan) -> Found:
    return landing.gate(plan.options.work.verify) if plan.wants_landing else None


def _of_both(
    look_at: Callable[[Landing, Worktrees], Check | None],
) -> Callable[[FleetPlan], Check | None]:
    """Return a check of the places of landing and of worktrees; skip it without them."""

    def look(plan: FleetPlan) -> Check | None:
        lands, where = met(plan.landing), met(plan.worktrees)
        if lands is None or where is None:
            return None
        return _asked(lambda: look_at(lands, where))

    return look


def _remote(plan: FleetPlan) -> Found:
    lands, where = met(plan.landing), met(plan.worktrees)
    if lands is None or where is None:
        return None
    if (found := _of_both(landing.closed_remote)(plan)) is not None:
        return found
    found = _where(plan)
    return _asked(lambda: found and replace(found, pending=landing.lacks_ledger(lands, where)))


def _merges(plan: FleetPlan) -> Found:
    lands, found = met(plan.landing), plan.settings
    if lands is None or found is None or found.work.worktrees is None:
        return None
    from beads_workers.checks.beginning import unmerged  # Only for fleets that land.

    where = found.work.worktrees
    return _asked(lambda: unmerged(lands, where))


def _signs(plan: FleetPlan) -> Found:
    where = met(plan.worktrees)
    if met(plan.landing) is None or where is None:
        return None
    from beads_workers.checks.signing import signer

    return _asked(lambda: signer(where.common, SIGN_SECONDS))


def _where(plan: FleetPlan) -> Check | None:
    lands = met(plan.landing)
    if lands is None:
        return None
    where = f"{lands.branch} of {lands.rules.remote}" if lands.rules.remote else lands.branch
    if plan.options.work.verify is None:
        text = f"whatever merges lands on {where}: there is no --verify, and nothing is tested"
        return warn("landing", text)
    if lands.is_proposed_whole:
        what = f"one pull request for {lands.proposed_for} of {lands.remote}"
        return ok("landing", f"finished branches land on {where}, and become {what}")
    if lands.theirs:
        base = lands.proposed_for
        how = {"never": "people merge", "auto": "the forge merges", "checks": "the fleet merges"}
        text = f"finished branches become pull requests for {base} of {lands.remote}"
        return ok("landing", f"{text}, which {how[lands.rules.pulls.merge]}")
    return ok("landing", f"finished branches that pass verify land on {where}")


def _judged(plan: FleetPlan) -> FleetSettings | None:
    """Return the settings if the base is checked: for attempts that cost money, and are judged by
    a command in a worktree."""
    settings = plan.settings
    work = settings.work if settings is not None else None
    judged = work is not None and understood(work) and work.verify and work.worktrees
    return settings if judged else None


def _base(plan: FleetPlan) -> Found:
    if (settings := _judged(plan)) is None:
        return None
    from beads_workers.checks.base import check_base  # Only such a start loads the gate's modules.

    return check_base(settings, plan.progress)


def _base_known(plan: FleetPlan) -> Found:
    if (settings := _judged(plan)) is None or plan.options.skip_base_check:
        return None
    from beads_workers.checks.base import known

    return known(settings)


_landing = partial(Condition, Stage.LANDING, "landing")

CONDITIONS = (
    *(
        _landing(holds, _of(rule), NO_LAND)
        for holds, rule in (
            ("workers do not close issues by themselves", landing.closes_after_landing),
            ("clones that share a tracker land on a remote", landing.clones_land_together),
            ("[landing] remote is a remote of this clone", landing.remote_is_there),
            ("git is 2.38 or later", landing.git_is_new_enough),
            ("a branch is checked out, or --land-on names one", landing.target_is_known),
            ("that branch is not itself one on which work lands", landing.lands_elsewhere),
            ("no branch is called 'bw-landing'", landing.prefix_is_free),
            ("the branches of --land-on and --land-into exist", landing.branches_are_there),
        )
    ),
    _landing("--verify needs no variable of one issue", _gate, NO_LAND),
    _landing(
        "the landing branch is checked out nowhere", _of_both(landing.held_elsewhere), NO_LAND
    ),
    _landing(
        "what waits to land was made for the branch on which work lands",
        _of_both(landing.waits_elsewhere),
        NO_LAND,
    ),
    _landing(
        "the remote on which work lands answers, takes a push without a prompt, and has all that"
        " has landed here",
        _remote,
        NO_LAND,
        CheckedBy.BESIDE,
        patience_seconds=landing.REMOTE_SECONDS + ANSWER_SECONDS,
    ),
    _landing(
        "that remote takes the ledger, unless [landing] trailers is full",
        _of_both(landing.refused_ledger),
        NO_LAND,
        CheckedBy.BY_START,
    ),
    _landing(
        'with [landing] via = "pr", the forge answers and lets this user write',
        _of_both(landing.forge_refuses),
        NO_LAND,
        CheckedBy.BESIDE,
        patience_seconds=landing.REMOTE_SECONDS + ANSWER_SECONDS,
    ),
    _landing(
        'with [landing] via = "pr", the remote has all commits of the branch',
        _of_both(landing.only_here),
        NO_LAND,
    ),
    _landing("with [landing] signoff git knows who commits", _of_both(landing.unsigned), NO_LAND),
    _landing(
        "what was committed to the user's branch merges with what has landed",
        _merges,
        NO_LAND,
        CheckedBy.BESIDE,
    ),
    Condition(
        Stage.LANDING,
        "signing",
        "if commits are signed, the signer signs without a prompt",
        _signs,
        skip("signing"),
        CheckedBy.BESIDE,
        patience_seconds=SIGN_SECONDS + ANSWER_SECONDS,
    ),
    Condition(
        Stage.LANDING,
        "base",
        "--verify passes where attempts begin: what is known of it",
        _base_known,
        "--skip-base-check",
        CheckedBy.BY_DOCTOR,
    ),
    Condition(
        Stage.BASE,
        "base",
        "--verify passes on the commit where attempts of agents begin: what has landed, merged with"
        " the user's branch",
        _base,
        "--skip-base-check",
        CheckedBy.AT_THE_END,
    ),
)
