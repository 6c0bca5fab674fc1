"""The whole issue, from the real ``bd``: comments, and what its dependencies delivered."""

from __future__ import annotations

from dataclasses import replace

from beads_workers.agents.prompt import of_issue, render
from beads_workers.core.base.model import Filters, IssueId
from tests.support.bd import BdProject

US = "beads-workers/host/run-1"


def described(project: BdProject) -> tuple[IssueId, IssueId]:
    """An issue with all texts that a tracker has, and the closed one that it waited for."""
    epic = project.create("A shop", issue_type="epic")
    first = project.create("Prices")
    issue = project.create(
        "A cart",
        labels=["shop", "timeout:2h"],
        blocked_by=[first],
        parent=epic,
        description="With a total. " + "Long. " * 20_000,
    )
    project.bd("update", issue, "--acceptance=It adds up.", "--design=One class.", "--notes=Soon.")
    project.bd("comments", "add", issue, "In euros.", actor="ann")
    project.bd("close", first, "--reason=commit 0123abcd, prices are read")
    return issue, first


def test_a_claim_brings_the_whole_issue(project: BdProject) -> None:
    issue, first = described(project)
    source = project.source(US, with_details=True)
    (job,) = source.take(5, ()).jobs
    briefing = of_issue(job.original)
    assert (job.issue_id, job.timeout_seconds) == (issue, 7200.0)
    assert (briefing.acceptance, briefing.design) == ("It adds up.", "One class.")
    assert briefing.notes == "Soon."
    assert [(c.author, c.text) for c in briefing.comments] == [("ann", "In euros.")]
    assert sorted(briefing.labels) == ["shop", "timeout:2h"]
    assert briefing.parent_title == "A shop"
    (done,) = briefing.delivered
    assert (done.issue_id, done.title, done.commit) == (first, "Prices", "0123abcd")
    assert "prices are read" in done.summary
    assert job.description.endswith("Long.") or job.description.endswith("Long. ")
    assert "In euros." in render(briefing)
    assert job.original["status"] == "in_progress"


def test_others_pay_nothing_for_it(project: BdProject) -> None:
    described(project)
    source = project.source(US)
    (job,) = source.take(5, ()).jobs
    assert "comments" not in job.original
    # A listing, a claim, and a look where a claim is no compare-and-swap.
    assert source.calls.count == (2 if source.abilities.compare_and_swap else 3)


def test_an_issue_is_read_and_left_where_it_is(project: BdProject) -> None:
    issue, _ = described(project)
    source = project.source(US)
    read = source.read([issue, IssueId("bw-none"), IssueId("--all")])
    assert list(read) == [issue]
    assert of_issue(read[issue].original).comments[0].text == "In euros."
    assert project.show(issue)["status"] == "open"


def test_what_an_agent_filed_is_left_to_a_person(project: BdProject) -> None:
    ours = project.create("Ours")
    project.bd("create", "--title=By an agent", actor=f"{US}/{ours}")
    project.bd("create", "--title=By a worker", actor=US)
    held = Filters(hold_discovered=True)
    taken = project.source(US, held).take(9, ())
    titles = {job.title for job in taken.jobs}
    assert titles == {"Ours", "By a worker"}
    (filed,) = taken.discovered
    assert project.show(filed)["title"] == "By an agent"
    named = project.source(US, replace(held, only=(filed,))).take(9, ())
    assert ([job.issue_id for job in named.jobs], named.discovered) == ([filed], ())


def test_without_a_word_they_are_as_any_other(project: BdProject) -> None:
    project.bd("create", "--title=By an agent", actor=f"{US}/bw-1")
    taken = project.source(US).take(9, ())
    assert [job.title for job in taken.jobs] == ["By an agent"]
    assert taken.discovered == ()
