"""Options that exclude each other, or that do not apply to the chosen work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from beads_workers.checks.rules import Check, misused
from beads_workers.core.base import limits
from beads_workers.core.base.settings import Agent
from beads_workers.core.base.text import printable
from beads_workers.kinds import SourceKind
from beads_workers.options import Options
from beads_workers.registry import kinds

_UNLIMITED = re.compile(r"dangerously|bypass|yolo|danger-full-access|allow-all")
"""In words that let an agent do anything."""


def of_trackers(options: Options, issues: tuple[str, ...]) -> dict[str, object]:
    """Return the options that only apply to a tracker of issues: name -> given value."""
    return {
        "ISSUE": issues,
        "--label": options.filters.labels,
        "--label-any": options.filters.labels_any,
        "--exclude-label": options.filters.exclude_labels,
        "--type": options.filters.types,
        "--priority": options.filters.priorities,
        "--parent": options.filters.parent,
        **of_agents(options),
    }


def of_agents(options: Options) -> dict[str, object]:
    """Return the options that only apply if commands or agents work on issues."""
    return {
        "--agent": options.agent,
        "--worktree": options.worktree,
        "--bd-calls worker": options.tracking.bd_calls == "worker",
    }


def meaningless(
    options: Mapping[str, object], message: str, hint: str = "leave it out"
) -> Check | None:
    """Return a check for the first option that was given; ``message`` has ``{}`` for its name."""
    name = next((name for name, value in options.items() if value), None)
    return misused("settings", message.format(name), hint) if name is not None else None


def shared_without_leases(options: Options, kind: SourceKind) -> Check | None:
    """Refuse ``--shared`` for a source whose claims do not expire by themselves."""
    if not options.tracking.shared or kind.capabilities.leases:
        return None
    able = " or ".join(each.name for each in kinds() if each.capabilities.leases)
    text = f"--shared goes with {able} only: {kind.called} has no leases"
    alone = kind.called.replace("the ", "a ")
    return misused("settings", text, f"leave it out; one orchestrator drains {alone}")


def shared_claims_without_leases(options: Options) -> Check | None:
    """Refuse ``--shared`` with self-claiming workers: their claims have no lease."""
    if not options.tracking.shared or options.tracking.bd_calls != "worker":
        return None
    text = "--shared does not go with --bd-calls worker: what a worker claims has no lease"
    return misused("settings", text, "leave one of them out")


def grace_beyond_lease(options: Options) -> Check | None:
    """Refuse a grace with which a task of a shared fleet could outlive its lease."""
    most = limits.SHARED_GRACE_SECONDS_MAX
    if not options.tracking.shared or options.work.term_grace_seconds <= most:
        return None
    text = f"--term-grace is at most {most:g}s with --shared: a task must end before its lease does"
    return misused("settings", text, "give a shorter one")


def anyone_unlimited(
    options: Options, command: tuple[str, ...] | None, agents: Iterable[Agent]
) -> Check | None:
    """Refuse texts of anybody for agents that may do anything."""
    words = [*(command or ()), *(word for each in agents for word in (*each.argv, *each.arguments))]
    bad = next((word for word in words if _UNLIMITED.search(word)), None)
    if options.issues_from != "anyone" or bad is None:
        return None
    text = (
        f"--from anyone does not go with {printable(bad, 60)}: strangers could have anything done"
    )
    return misused("settings", text, "leave one of them out")


def no_hand_over(options: Options, kind: SourceKind) -> Check | None:
    """Refuse self-claiming workers if the tracker cannot hand over an issue."""
    if options.tracking.bd_calls != "worker" or kind.capabilities.hand_over:
        return None
    return misused(
        "settings", "--bd-calls worker goes with bd only", "leave it out, or use --source bd"
    )


def functions_in_worktrees(options: Options) -> Check | None:
    """Refuse worktrees for functions: they are called in the folder of the fleet."""
    if not options.work.allow_modules or not options.worktree:
        return None
    text = "--allow-module and --worktree do not go together"
    hint = "functions are called in the project's own folder; start two fleets"
    return misused("settings", text, hint)


def landing_without_worktrees(options: Options, *, worktrees: bool) -> Check | None:
    """Refuse landing without worktrees: what lands is the branch of a worktree."""
    asked = options.land or options.land_on or options.landing.into or options.landing.approve
    if worktrees or options.land is False or not asked:
        return None
    what = "--approve" if options.landing.approve else "landing"
    return misused("landing", f"{what} needs a worktree for each attempt", "say --worktree as well")
