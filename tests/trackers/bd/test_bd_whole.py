"""The whole issue, from the real ``bd``: comments, and what its dependencies delivered."""

from __future__ import annotations

from beads_workers.agents.prompt import of_issue, render
from beads_workers.core.model import IssueId
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
    source = project.source(US, whole=True)
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
