"""What an issue waits for in the tracker, down to the roots, with cycles named."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from beads_workers.core.jobs import IssueId
from beads_workers.core.source import Seen
from beads_workers.core.text import counted
from beads_workers.core.values import value
from beads_workers.core.why.reasons import Picture

FINISHED = ("closed", "tombstone")
CONTAINERS = ("epic", "gate", "molecule")
"""Types that hold work of others; taken only where their type is asked for."""

CHAIN_LINES_MAX = 30
"""Of what an issue waits for: more is no answer any more."""


@value
class Link:
    """One line of what an issue waits for; ``depth`` 0 is what it waits for itself."""

    depth: int
    issue_id: IssueId
    title: str
    state: str


def chain(issue_id: IssueId, picture: Picture) -> list[Link]:
    """What it waits for, and what that waits for, down to the roots; at most so many lines."""
    links: list[Link] = []
    for link in _walk(issue_id, picture, (issue_id,), set()):
        if len(links) == CHAIN_LINES_MAX:
            break
        links.append(link)
    return links


def blockers(seen: Seen, picture: Picture) -> list[IssueId]:
    """What it waits for directly, and is not finished; what does not exist holds nothing back."""
    return [i for i in seen.waits_for if (s := picture.seen.get(i)) and s.status not in FINISHED]


def _walk(
    issue_id: IssueId, picture: Picture, path: tuple[IssueId, ...], shown: set[IssueId]
) -> Iterator[Link]:
    seen = picture.seen.get(issue_id)
    if seen is None or len(path) > CHAIN_LINES_MAX:
        return
    held_up = [i for i in seen.parents if is_held_up(i, picture, frozenset(path))]
    for each in [*blockers(seen, picture), *held_up]:
        depth, title = len(path) - 1, picture.seen[each].title
        if each in path:
            yield Link(depth, each, title, "waiting for itself: a cycle")
            continue
        state = _state(each, picture)
        if each in held_up:
            state = f"its parent, {state}"
        yield Link(depth, each, title, state + (" (as above)" if each in shown else ""))
        if each not in shown:
            shown.add(each)
            yield from _walk(each, picture, (*path, each), shown)


def is_held_up(issue_id: IssueId, picture: Picture, path: frozenset[IssueId]) -> bool:
    """Whether a parent holds its children back: it waits for something, or its parent does."""
    seen = picture.seen.get(issue_id)
    if seen is None or issue_id in path or seen.status in FINISHED:
        return False
    if blockers(seen, picture):
        return True
    return any(is_held_up(i, picture, path | {issue_id}) for i in seen.parents)


def _state(issue_id: IssueId, picture: Picture) -> str:
    seen = picture.seen[issue_id]
    facts = picture.known.get(issue_id)
    if facts is not None:
        if facts.held == "running":
            return f"in progress with {facts.worker_id}"
        if facts.standing == "set_aside" and seen.status != "open":
            return f"set aside after {counted(facts.charged, 'attempt')}"
        if facts.standing == "withheld":
            return "taken away from this run by a person"
        if facts.standing == "cooling" and facts.again_seconds is not None:
            return f"cooling down until {picture.at(facts.again_seconds)}"
    status = seen.status.replace("_", " ")
    if status == "open" and blockers(seen, picture):
        status = "blocked itself"
    if seen.issue_type in CONTAINERS:
        status += f", and no work itself but {a(seen.issue_type)}"
    return f"{status}, {seen.assignee}" if seen.assignee else status


def cycle(start: IssueId, picture: Picture) -> list[IssueId]:
    """The shortest way from ``start`` back to itself, both ends named; empty without one."""
    before: dict[IssueId, IssueId] = {}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        seen = picture.seen.get(here)
        for each in blockers(seen, picture) if seen else ():
            if each == start:
                return [start, *_way_back(here, start, before), start]
            if each not in before:
                before[each] = here
                queue.append(each)
    return []


def _way_back(here: IssueId, start: IssueId, before: Mapping[IssueId, IssueId]) -> list[IssueId]:
    way = []
    while here != start:
        way.append(here)
        here = before[here]
    return way[::-1]


def a(noun: str) -> str:
    """With its article."""
    return f"an {noun}" if noun[:1] in "aeiou" else f"a {noun}"
