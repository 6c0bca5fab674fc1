"""Which filters of a fleet leave an issue out, with the issue's own value against each."""

from __future__ import annotations

from beads_workers.core.jobs import Filters, IssueId
from beads_workers.core.source import Seen, brought
from beads_workers.core.why.reasons import Cause, Picture, Reason
from beads_workers.core.why.waiting import CONTAINERS, a


def filtered(seen: Seen, picture: Picture) -> list[Reason]:
    """One reason for each filter of the fleet that leaves this issue out."""
    wanted = picture.facts.filters
    has = f"its labels are {', '.join(seen.labels)}" if seen.labels else "it has no label"
    labels = set(seen.labels)
    found = [(f"--label {each}", has) for each in wanted.labels if each not in labels]
    if wanted.labels_any and labels.isdisjoint(wanted.labels_any):
        found.append((f"--label-any {' or '.join(wanted.labels_any)}", has))
    found += [(f"--exclude-label {x}", has) for x in wanted.exclude_labels if x in labels]
    if wanted.types and seen.issue_type not in wanted.types:
        found.append((f"--type {' or '.join(wanted.types)}", f"its type is {seen.issue_type}"))
    if wanted.priorities and seen.priority not in wanted.priorities:
        said = " or ".join(map(str, wanted.priorities))
        found.append((f"--priority {said}", f"its priority is {seen.priority}"))
    if wanted.parent is not None and not _is_under(seen, wanted.parent, picture):
        above = f"its parent is {seen.parents[0]}" if seen.parents else "it has no parent"
        found.append((f"--parent {wanted.parent}", above))
    if wanted.only and seen.issue_id not in wanted.only:
        found.append((f"only {', '.join(wanted.only[:5])}", "it was not named at the start"))
    reasons = [
        Reason(Cause.FILTERED, f"filtered by {what}: {own}", f"start without {what.split()[0]}")
        for what, own in found
    ]
    return _container(seen, wanted) + reasons + _brings_nothing(seen, wanted)


def _container(seen: Seen, wanted: Filters) -> list[Reason]:
    if wanted.types or seen.issue_type not in CONTAINERS:
        return []
    kind = a(seen.issue_type)
    text = f"it is {kind}: it holds the work of others, and is left out"
    return [Reason(Cause.FILTERED, text, f"start with --type {seen.issue_type} to take it")]


def _brings_nothing(seen: Seen, wanted: Filters) -> list[Reason]:
    if not wanted.bring or not brought(seen).isdisjoint(wanted.bring):
        return []
    lacks = " and ".join(f"no {what} of its own" for what in wanted.bring)
    text = f"it has {lacks}, and the fleet has none for it"
    return [Reason(Cause.FILTERED, text, "start with a command or an agent")]


def _is_under(seen: Seen, ancestor: str, picture: Picture) -> bool:
    above, known = list(seen.parents), set[IssueId]()
    while above:
        each = above.pop()
        if each == ancestor:
            return True
        if each not in known:
            known.add(each)
            above += picture.seen[each].parents if each in picture.seen else ()
    return False
