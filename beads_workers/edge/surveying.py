"""What is known of issues, for people who ask: in the tracker with all that they wait for, and in
the journals where no fleet runs. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable

from beads_workers.core import limits
from beads_workers.core.jobs import IssueId
from beads_workers.core.records import Carried
from beads_workers.core.recovery import Remains
from beads_workers.core.settings import FleetSettings
from beads_workers.core.source import Seen, Source
from beads_workers.core.why.facts import NO_FLEET, Facts, IssueFacts
from beads_workers.edge.last_words import hear
from beads_workers.edge.run_directory import RunDirectory

LEVELS_MAX = 30
"""How far down: one or two calls of the tracker each."""
ISSUES_MAX = 1000
"""More than anybody reads, and no long wait for any tracker."""
DONE = ("closed", "tombstone")


def look_down(
    source: Source, issue_ids: Iterable[IssueId], known: Iterable[Seen] = ()
) -> dict[IssueId, Seen]:
    """These issues, what they wait for and their parents, and so on to the roots.

    ``known`` were looked at just now. Raises ``SourceError``.
    """
    seen = {each.issue_id: each for each in known}
    asked = set(seen)
    level = [i for i in dict.fromkeys(issue_ids) if i not in asked]
    level += _beyond(seen.values(), {*asked, *level})
    for _ in range(LEVELS_MAX):
        level = level[: ISSUES_MAX - len(seen)]
        if not level:
            break
        asked.update(level)
        found = source.look(level)
        seen |= found
        level = _beyond(found.values(), asked)
    return seen


def _beyond(seen: Iterable[Seen], asked: set[IssueId]) -> list[IssueId]:
    """What holds these back, if it is not known yet; nothing holds back what is finished."""
    named = (i for s in seen if s.status not in DONE for i in (*s.waits_for, *s.parents))
    return [i for i in dict.fromkeys(named) if i not in asked]


def remembered(directory: RunDirectory, settings: FleetSettings, now: float) -> Facts:
    """What the journals of ended runs know, as the facts of a fleet that does not run.

    ``settings``: the tracker, and the filters that a next start would have; ``now``: epoch seconds.
    """
    unsettled, last = directory.left_over()
    for left in unsettled:
        late = hear(left, directory.run(left.run_id))
        last.done_not_closed.update(dict.fromkeys(late, left.actor))
    ids = dict.fromkeys([*last.done_not_closed, *last.pages])
    issues = (_issue_facts(each, last, now) for each in ids)
    return Facts(
        state=NO_FLEET,
        run_id=last.run_id,
        source=settings.source,
        tracker=settings.tracker,
        project=settings.project,
        filters=settings.filters,
        attempts_max=settings.policy.attempts_max,
        issues=tuple(issues),
    )


def _issue_facts(issue_id: str, last: Remains, now: float) -> IssueFacts:
    page = last.pages.get(issue_id, Carried(issue_id))
    left = min(page.not_before - now, limits.RETRY_AFTER_MAX_SECONDS)
    standing = "cooling" if left > 0 else ""
    standing = "set_aside" if page.set_aside else standing
    standing = "not_closed" if issue_id in last.done_not_closed else standing
    return IssueFacts(
        issue_id,
        standing=standing,
        attempt=page.charged + 1,
        charged=page.charged,
        again_seconds=round(left, 1) if standing == "cooling" else None,
        error=page.error,
    )
