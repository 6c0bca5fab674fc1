"""Backlogs of sixty issues on a real Gitea: exactly what is ready is taken, in order, to the end.

What should be ready is computed here, from what was put into the backlog, and by nothing of ours.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.source import Action, Result, Settlement
from beads_workers.integrations.forge.source import ForgeSource
from tests.contracts.pull_sources import US, settled
from tests.integrations.forge.tracker import GiteaTracker

pytestmark = [pytest.mark.peers, pytest.mark.daily(3)]

SIZE = 60
PRIORITIES = {
    "": 2, "P0": 0, "p1": 1, "P2": 2, "P3": 3, "P4": 4, "priority: critical": 0,
    "priority: high": 1, "Priority/Medium": 2, "priority:low": 3,
}  # fmt: skip
TYPES = ("", "", "", "bug", "enhancement", "feature", "documentation", "Epic")
WAITS = (
    "Blocked by #{0}.",
    "This depends on #{0}, and on nothing else.",
    "It is blocked by: #{0}",
    "- [ ] #{0}",
    "Before:\n\n* [x] #{0}\n* [ ] a word",
)
WAITS_FOR_TWO = (
    "Depends on #{0} and #{1}.",
    "blocked by #{0}, #{1}",
    "- [ ] the part #{0}\n- [x] #{1}",
)
WORDS = (
    "See #{0}.",
    "> blocked by #{0}",
    "`depends on #{0}`",
    "```\nblocked by #{0}\n```",
    "<!-- depends on #{0} -->",
    "unblocked by #{0}",
    "- #{0}",
    "It blocks #{0}, and closes #{0}.",
)
"""Texts that name an issue, and wait for nothing."""


@dataclass(slots=True)
class Row:
    """An issue that is put into the backlog. ``needs``: the numbers that it waits for."""

    number: int
    priority: int
    is_epic: bool
    author: str
    labels: list[str]
    body: str = ""
    links: set[int] = field(default_factory=set)
    needs: set[int] = field(default_factory=set)
    is_open: bool = True
    is_locked: bool = False
    is_assigned: bool = False
    is_labelled: bool = True
    is_taken: bool = False


def plan(chance: random.Random) -> dict[int, Row]:
    """Make a backlog, in which nothing waits for itself."""
    rows = {}
    for number in range(1, SIZE + 1):
        label, kind = chance.choice([*PRIORITIES]), chance.choice(TYPES)
        row = Row(number, PRIORITIES[label], kind == "Epic", chance.choice(("root", "alice")), [])
        odd = chance.random()
        row.author = "eve" if odd < 0.08 else row.author
        row.is_open, row.is_locked = not 0.08 < odd < 0.16, 0.16 < odd < 0.22
        row.is_assigned, row.is_labelled = 0.22 < odd < 0.3, not 0.3 < odd < 0.38
        row.labels = [each for each in (label, kind, "ready" * row.is_labelled) if each]
        rows[number] = row
    order = chance.sample([*rows], SIZE)
    for place, number in enumerate(order):
        earlier, row = order[:place], rows[number]
        chosen = chance.random()
        if place > 2 and chosen < 0.2:
            row.links = {*chance.sample(earlier, chance.choice((1, 1, 2)))}
        elif place > 2 and chosen < 0.45:
            needed = chance.sample(earlier, 2)
            two = chance.random() < 0.3
            row.body = chance.choice(WAITS_FOR_TWO if two else WAITS).format(*needed)
            row.needs = {*needed} if two else {needed[0]}
        elif chosen < 0.7:
            row.body = chance.choice(WORDS).format(chance.choice([*rows]))
        row.needs |= row.links
    return rows


def written(here: GiteaTracker, rows: dict[int, Row]) -> None:
    """Put the backlog on the forge."""
    at, root = here.at, here.server.user("root")
    ids = {
        name: at.label(name) for name in sorted({e for row in rows.values() for e in row.labels})
    }
    for row in rows.values():
        fields = {"title": f"issue {row.number}", "body": row.body}
        made = here.server.user(row.author).ask("POST", f"{at.path}/issues", fields)
        assert made["number"] == row.number
        path = f"{at.path}/issues/{row.number}"
        if row.labels:
            root.ask("POST", f"{path}/labels", {"labels": [ids[each] for each in row.labels]})
    for row in rows.values():
        if row.is_assigned:
            at.edit(row.number, assignees=["alice"])
        if not row.is_open:  # With open links, Gitea would not close it.
            at.edit(row.number, state="closed")
        at.depend(row.number, *row.links)
        if row.is_locked:
            root.ask("PUT", f"{at.path}/issues/{row.number}/lock", {"lock_reason": "Spam"})


def ready(rows: dict[int, Row]) -> list[int]:
    """Return what is ready, in order."""
    found = [
        row
        for row in rows.values()
        if row.is_open
        and row.is_labelled
        and not (row.is_locked or row.is_assigned or row.is_taken or row.is_epic)
        and row.author != "eve"
        and not any(rows[each].is_open for each in row.needs)
    ]
    return [row.number for row in sorted(found, key=lambda row: (row.priority, row.number))]


def meddled(here: GiteaTracker, rows: dict[int, Row], chance: random.Random) -> Iterator[str]:
    """Do what people do to a backlog meanwhile; yield what it was."""
    at, root = here.at, here.server.user("root")
    row = chance.choice([row for row in rows.values() if not row.is_taken])
    path = f"{at.path}/issues/{row.number}"
    yield f"#{row.number}"
    match chance.randrange(7):
        case 0 if not any(rows[each].is_open for each in row.links):
            row.is_open = not row.is_open
            at.edit(row.number, state="open" if row.is_open else "closed")
            yield f"open: {row.is_open}"
        case 1:
            row.is_assigned = not row.is_assigned
            at.edit(row.number, assignees=["alice"] if row.is_assigned else [])
            yield f"assigned: {row.is_assigned}"
        case 2:
            row.is_locked = not row.is_locked
            root.ask("PUT" if row.is_locked else "DELETE", f"{path}/lock", {"lock_reason": "Spam"})
            yield f"locked: {row.is_locked}"
        case 3:
            row.is_labelled = not row.is_labelled
            (at.mark if row.is_labelled else at.unmark)(row.number, "ready")
            yield f"labelled: {row.is_labelled}"
        case 4 if row.links and row.is_open:
            other = row.links.pop()
            body = {"owner": at.owner, "repo": at.name, "index": other}
            root.ask("DELETE", f"{path}/dependencies", body)
            row.needs = {each for each in row.needs if each != other}
            yield f"waits no more for #{other}"
        case 5 if not row.links and row.body:
            at.edit(row.number, body="")
            row.body, row.needs = "", set()
            yield "has no text"
        case _:
            new = next((r for r in rows.values() if r.is_open and not r.needs), None)
            waits_for_it = new is not None and (new is row or row.number in needed(rows, new))
            if new is not None and not waits_for_it and row.is_open and not row.needs:
                at.depend(row.number, new.number)
                row.links, row.needs = {new.number}, {new.number}
                yield f"waits for #{new.number}"


def needed(rows: dict[int, Row], row: Row) -> set[int]:
    """Return whatever an issue waits for, also through others."""
    found, left = set[int](), [row.number]
    while left:
        new = rows[left.pop()].needs - found
        found |= new
        left += new
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(1, 4))
def test_exactly_what_is_ready_is_taken_in_order_until_all_is_done(
    seed: int, tmp_path: Path
) -> None:
    here, chance = GiteaTracker(tmp_path), random.Random(seed)
    here.server.user("eve")
    rows = plan(chance)
    written(here, rows)
    ours = ForgeSource(
        here.forge(),
        texts_from="writers",
        actor=US,
        filters=Filters(),
        listed_max=SIZE,
        look_seconds=0.0,
        sleep=lambda seconds: None,
    )
    story, hands = list[str](), list[int]()
    while True:
        wanted = ready(rows)
        assert ours.ready() == {IssueId(str(each)) for each in wanted}, story
        if not wanted and not hands:
            break
        limit = chance.randrange(1, 6)
        took = ours.take(limit, ())
        assert [int(job.issue_id) for job in took.jobs] == wanted[:limit], story
        assert [int(row.issue_id) for row in took.listed] == wanted[limit:], story
        hands += wanted[:limit]
        for number in wanted[:limit]:
            rows[number].is_taken = True
        story.append(f"took {wanted[:limit]}")
        for number in chance.sample(hands, chance.randrange(len(hands) + 1)) or hands[:1]:
            closed = settled(ours, Settlement(Action.CLOSE, IssueId(str(number)), "done"))
            assert closed == [Result.APPLIED], story
            hands.remove(number)
            rows[number].is_open = False
            story.append(f"closed {number}")
        if len(story) < 4 * SIZE:
            story.append(" ".join(meddled(here, rows, chance)))
    left = {row.number for row in rows.values() if row.is_open}
    assert {
        each["number"]
        for each in here.server.user("root").ask(
            "GET", f"{here.at.path}/issues?state=open&limit=50"
        )
    } == left
