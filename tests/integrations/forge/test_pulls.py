"""Pull requests: a whole fleet proposes its work, and the team's CI and people judge it."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.integrations.forge.pull_projects import (
    APPROVED,
    CHANGES,
    WORK,
    GiteaPullProject,
    GitHubPullProject,
    PullProject,
)
from tests.support.fleet import call, until
from tests.support.processes import send
from tests.support.repository import git

pytestmark = [pytest.mark.peers, pytest.mark.daily(4)]

PROJECTS = {"gitea": GiteaPullProject, "github": GitHubPullProject}


@pytest.fixture(params=sorted(PROJECTS))
def project(request: pytest.FixtureRequest, tmp_path: Path) -> PullProject:
    made: PullProject = PROJECTS[request.param](tmp_path)
    return made


def test_people_merge_and_a_pass_or_a_start_closes(project: PullProject) -> None:
    project.settings()
    project.create_many([{"title": "one"}, {"title": "two"}])
    before = git(project.folder, "rev-parse", "HEAD")
    assert project.start().process.wait(60) == 7
    one, two = project.pulls()
    assert {one.title, two.title} == {"one", "two"} and one.state == "open"
    assert "fixes #1" not in one.body and "For bw-" in one.body
    assert {project.state_of("bw-1"), project.state_of("bw-2")} == {"blocked"}
    assert "in review: http" in call(project, "why", "bw-1").stdout
    assert "in review" in call(project, "report").stdout
    assert "in-review" in call(project, "show", "bw-1").stdout
    passed = call(project, "pr", "--trust")
    assert passed.returncode == 7 and "2 branches not merged yet" in passed.stderr, passed
    project.merge(one)
    passed = call(project, "pr", "--trust")
    assert passed.returncode == 7 and "1 branch not merged yet" in passed.stderr, passed
    assert sorted(state for state, _ in project.read_all().values()) == ["blocked", "closed"]
    project.merge(two)
    fleet = project.start()
    assert fleet.process.wait(60) == 0 and "next: git pull origin main" in fleet.output
    assert {state for state, _ in project.read_all().values()} == {"closed"}
    assert len(project.pulls()) == 2
    assert git(project.folder, "ls-remote", "origin", "refs/heads/bw/*") == ""
    assert git(project.folder, "rev-parse", "HEAD") == before, "the user's checkout is untouched"
    assert git(project.folder, "status", "--porcelain", "-uno") == ""
    assert call(project, "pr", "--trust").stdout == "no pull request of ours is open\n"


def test_red_checks_and_remarks_go_back_to_the_agent(project: PullProject) -> None:
    told = project.folder.parent / "told"
    fleet = project.begin(work=f"cat >>{told}; {WORK}", merge="checks")
    first = project.only()
    project.check(first, green=False)
    second = project.pushed_after(first)
    project.review(second, CHANGES, "say it in French", by="eve")
    until(lambda: "1 remark of others" in fleet.output)
    project.review(second, CHANGES, "say it in German")
    third = project.pushed_after(second)
    project.review(third, APPROVED, "")
    project.check(third, green=True)
    assert fleet.process.wait(60) == 0, fleet.output
    assert project.only().state == "merged" and project.state_of("bw-1") == "closed"
    assert "say it in German" in told.read_text() and "French" not in told.read_text()
    ended = [each for each in fleet.journal("landing_ended") if each.get("why")]
    assert [each["why"] for each in ended] == ["verify", "rejected"]
    if project.forge == "github":
        assert "it is broken here" in told.read_text()
    attempts = {each["attempt"] for each in fleet.journal("started")}
    assert attempts == {1}, "a fix round is no new attempt"
    assert any("answers this" in each for each in project.comments(third))


def test_a_person_who_looks_here_sends_it_back_too(project: PullProject) -> None:
    told = project.folder.parent / "told"
    assert project.begin(work=f"cat >{told}; {WORK}").process.wait(60) == 7
    first = project.only()
    refused = call(project, "retry", "bw-1")
    assert refused.returncode != 0 and "in review" in refused.stderr, refused
    assert project.state_of("bw-1") == "blocked"
    assert call(project, "reject", "bw-1", "say it in Greek").returncode == 0
    done = call(project, "pr", "--mend", "--trust")
    assert done.returncode == 7 and "say it in Greek" in told.read_text(), done
    assert project.only().commit != first.commit and project.only().state == "open"


def test_a_pass_may_start_agents(project: PullProject) -> None:
    project.settings()
    project.create_many([{"title": "one"}, {"title": "two"}])
    assert project.start("bw-1").process.wait(60) == 7
    first = project.only()
    project.check(first, green=False)
    passed = call(project, "pr", "--trust")
    assert passed.returncode == 7 and "did not land" in passed.stdout, passed
    assert call(project, "pr", "--mend", "--trust").returncode == 7
    second = project.only()
    assert second.commit != first.commit and project.state_of("bw-2") == "open"
    project.merge(second)
    assert call(project, "pr", "--mend", "--trust").returncode == 0
    assert project.is_closed("bw-1") and project.state_of("bw-2") == "open"


def test_a_pull_request_that_is_closed_unmerged_quarantines(project: PullProject) -> None:
    fleet = project.begin(merge="checks")
    project.close(project.only())
    assert fleet.process.wait(60) == 7
    assert project.state_of("bw-1") == "blocked"
    shown = call(project, "why", "bw-1").stdout
    assert "has closed" in shown and "without a merge" in shown, shown
    assert call(project, "retry", "bw-1").returncode == 0
    fleet = project.start()
    again = until(lambda: project.pulls()[1:])[0]
    project.check(again, green=True)
    assert fleet.process.wait(60) == 0 and project.state_of("bw-1") == "closed"


def test_what_ci_obeys_waits_for_a_person(project: PullProject) -> None:
    work = f"mkdir -p .github/workflows; echo x >.github/workflows/a.yml; {WORK}"
    fleet = project.begin(work=work)
    assert fleet.process.wait(60) == 7
    assert project.pulls() == [] and "which CI obeys" in fleet.output
    assert git(project.folder, "ls-remote", "origin", "refs/heads/bw/*") == ""
    assert "approv" in call(project, "why", "bw-1").stdout
    assert call(project, "diff", "bw-1").returncode == 0
    done = call(project, "approve", "bw-1")
    assert done.returncode == 0, done
    assert project.start().process.wait(60) == 7
    assert len(project.pulls()) == 1


def test_only_so_many_are_open_at_once(project: PullProject) -> None:
    project.settings(open_max=1, merge="checks")
    project.create_many([{"title": f"bw-{number}"} for number in (1, 2, 3)])
    fleet = project.start()
    for number in range(3):
        (seen,) = until(lambda: [each for each in project.pulls() if each.state == "open"])
        assert len(project.pulls()) == number + 1
        project.check(seen, green=True)
        until(partial(project.is_closed, seen.title))
    assert fleet.process.wait(60) == 0
    assert {state for state, _ in project.read_all().values()} == {"closed"}


def test_what_is_on_the_branch_already_needs_no_merge(project: PullProject) -> None:
    fleet = project.begin(merge="checks")
    seen = project.only()
    git(project.folder, "fetch", "-q", project.url, "bw/bw-1/pr")
    git(project.folder, "push", "-q", project.url, "FETCH_HEAD:refs/heads/main")
    project.check(seen, green=True)
    assert fleet.process.wait(60) == 0
    assert project.state_of("bw-1") == "closed" and project.only().state != "open"
    assert git(project.folder, "for-each-ref", "refs/bw/pulls") == ""


def test_what_was_put_there_by_hand_is_no_refusal(project: PullProject) -> None:
    assert project.begin().process.wait(60) == 7
    seen = project.only()
    git(project.folder, "fetch", "-q", project.url, "bw/bw-1/pr")
    tree = git(project.folder, "rev-parse", "FETCH_HEAD^{tree}").strip()
    mine = git(project.folder, "commit-tree", tree, "-p", "HEAD", "-m", "by hand").strip()
    git(project.folder, "push", "-q", project.url, f"{mine}:refs/heads/main")
    if project.only().state == "open":
        project.close(seen)
    passed = call(project, "pr", "--trust")
    assert passed.returncode == 0 and project.is_closed("bw-1"), passed
    assert git(project.folder, "for-each-ref", "refs/bw/pulls") == ""


def test_verify_passes_on_what_is_merged_as_main_is_by_then(project: PullProject) -> None:
    fleet = project.begin(merge="checks", verify="[ ! -e other ] || [ ! -e wbw-1 ]")
    seen = project.only()
    project.push_to_main({"other": "theirs\n"})
    project.check(seen, green=True)
    assert fleet.process.wait(90) == 7, fleet.output
    assert project.only().state == "open" and not project.is_closed("bw-1")


def test_a_check_that_is_red_by_then_is_seen_before_a_merge(project: PullProject) -> None:
    folder = project.folder.parent
    loop = f"while [ -e {folder}/gate ]; do sleep 0.1; done"
    waits = f"[ ! -e {folder}/gate ] || {{ touch {folder}/began; {loop}; }}"
    fleet = project.begin(merge="checks", verify=waits)
    seen = project.only()
    (folder / "gate").touch()
    project.push_to_main({"other": "theirs\n"})
    project.check(seen, green=True)
    until((folder / "began").exists)
    project.check(seen, green=False)
    (folder / "gate").unlink()
    second = project.pushed_after(seen)
    assert second.state == "open"
    project.check(second, green=True)
    assert fleet.process.wait(60) == 0 and project.is_closed("bw-1")


def test_no_agent_and_no_gate_finds_the_token(project: PullProject) -> None:
    has = "grep -Eq '^(GITEA_TOKEN|GH_ENTERPRISE_TOKEN)='"
    looks = f"! env | {has} && ! tr '\\0' '\\n' </proc/$PPID/environ | {has}"
    assert project.begin(work=f"({looks}) || exit 1; {WORK}", verify=looks).process.wait(60) == 7
    (seen,) = project.pulls()
    git(project.folder, "commit", "-q", "--allow-empty", "-m", "moves")
    git(project.folder, "push", "-q", project.url, "HEAD:main")
    project.settings(merge="checks")
    project.check(seen, green=True)
    passed = call(project, "pr", "--trust", "--verify", looks)
    assert passed.returncode == 0 and project.state_of("bw-1") == "closed", passed


def test_the_forge_merges_once_it_may(project: PullProject) -> None:
    fleet = project.begin(merge="auto")
    seen = project.only()
    project.check(seen, green=True)
    project.merge_what_waits()
    assert fleet.process.wait(60) == 0, fleet.output
    assert project.only().state == "merged" and project.is_closed("bw-1")


def test_a_conflict_with_what_was_merged_goes_back_to_the_agent(project: PullProject) -> None:
    fleet = project.begin(merge="checks")
    first = project.only()
    project.push_to_main({"wbw-1": "theirs\n"})
    second = project.pushed_after(first)
    project.check(second, green=True)
    assert fleet.process.wait(60) == 0, fleet.output
    assert project.only().state == "merged" and project.is_closed("bw-1")
    whys = [each["why"] for each in fleet.journal("landing_ended") if each.get("why")]
    assert whys == ["conflict"]


def test_what_somebody_pushes_is_theirs(project: PullProject) -> None:
    fleet = project.begin(merge="checks")
    first = project.only()
    git(project.folder, "fetch", "-q", project.url, "bw/bw-1/pr")
    words = ("commit-tree", "FETCH_HEAD^{tree}", "-p", "FETCH_HEAD", "-m", "mine")
    mine = git(project.folder, *words).strip()
    git(project.folder, "push", "-q", project.url, f"{mine}:refs/heads/bw/bw-1/pr")
    project.check(project.pushed_after(first), green=False)
    until(lambda: "waits for a person, who has pushed" in fleet.output)
    assert project.only().commit == mine
    project.merge(project.only())
    assert fleet.process.wait(60) == 0 and project.is_closed("bw-1")


def test_what_people_do_to_it_is_said(project: PullProject) -> None:
    git(project.folder, "push", "-q", project.url, "HEAD:refs/heads/next")
    fleet = project.begin(merge="checks", checks_wait="8s")
    seen = project.only()
    # No check comes: it is said, and the run does not wait for ever.
    assert fleet.process.wait(60) == 7
    assert "waits for a check, none of which has come" in fleet.output
    project.retarget(seen, "next")
    passed = call(project, "pr", "--trust")
    assert passed.returncode == 7 and "pointed it at next" in passed.stdout, passed
    project.retarget(seen, "main")
    mine = git(project.folder, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "mine").strip()
    git(project.folder, "push", "-qf", project.url, f"{mine}:refs/heads/bw/bw-1/pr")
    passed = call(project, "pr", "--trust")
    assert passed.returncode == 7 and f"pushed {mine[:12]} to it" in passed.stdout, passed
    git(project.folder, "push", "-qf", project.url, f"{seen.commit}:refs/heads/bw/bw-1/pr")
    project.close(seen)
    passed = call(project, "pr", "--trust")
    assert passed.returncode == 7 and "without a merge" in passed.stdout, passed
    project.reopen(seen)
    project.check(seen, green=True)
    passed = call(project, "pr", "--trust")
    assert passed.returncode == 0 and project.is_closed("bw-1"), passed


def test_a_branch_that_somebody_deletes_ends_its_pull_request(project: PullProject) -> None:
    fleet = project.begin(merge="checks")
    project.delete_branch(project.only())
    assert fleet.process.wait(60) == 7, fleet.output
    assert "without a merge" in call(project, "why", "bw-1").stdout
    assert call(project, "retry", "bw-1").returncode == 0
    fleet = project.start()
    again = until(lambda: project.pulls()[1:])[0]
    project.check(again, green=True)
    assert fleet.process.wait(60) == 0 and project.is_closed("bw-1")


def test_an_undo_is_a_pull_request(project: PullProject) -> None:
    with checking(project):
        assert project.begin(merge="checks").process.wait(60) == 0
    done = call(project, "undo", "bw-1", "--trust")
    assert done.returncode == 0 and "proposed: http" in done.stdout, done
    assert call(project, "undo", "bw-1", "--trust").returncode == 0
    _, back = project.pulls()
    assert back.title.startswith("Revert") and back.state == "open"
    assert project.state_of("bw-1") == "closed"
    project.merge(back)
    git(project.folder, "fetch", "-q", project.url, "main")
    assert "wbw-1" not in git(project.folder, "ls-tree", "--name-only", "FETCH_HEAD")
    done = call(project, "undo", "bw-1", "--trust")
    assert done.returncode == 0 and "taken back: bw-1" in done.stdout, done
    assert project.state_of("bw-1") == "open"
    again = call(project, "undo", "bw-1", "--trust")
    assert again.returncode != 0 and "nothing of bw-1" in again.stderr, again
    with checking(project):
        assert project.start().process.wait(60) == 0
    assert project.is_closed("bw-1")
    done = call(project, "undo", "bw-1", "--trust")
    assert "proposed: http" in done.stdout and len(project.pulls()) == 4, done


def test_it_has_what_the_project_wants(project: PullProject) -> None:
    template = "## Checklist\n\n- [ ] changelog\n"
    project.push_to_main({"pull_request_template.md": template})
    fleet = project.begin(labels=["agents", "night"], reviewers=["alice"], draft=True)
    assert fleet.process.wait(60) == 7
    seen = project.only()
    assert project.labels(seen) == {"agents", "night"} and project.asked(seen) == {"alice"}
    assert seen.body.endswith(template) and "For bw-1, attempt 1" in seen.body


def test_a_flaky_check_runs_once_more(tmp_path: Path) -> None:
    project = GitHubPullProject(tmp_path)
    fleet = project.begin(merge="checks", flaky=["c?"])
    seen = project.only()
    project.check(seen, green=False)
    until(lambda: "flaky checks, which run once more" in fleet.output)
    row = project.server.pulls.rows[seen.number]
    until(lambda: row.get("again") == 1)
    assert project.only().commit == seen.commit
    project.check(seen, green=False)
    second = project.pushed_after(seen)
    project.check(second, green=True)
    assert fleet.process.wait(60) == 0 and row["again"] == 1


def test_one_pull_request_for_the_run(project: PullProject) -> None:
    project.settings(per="run")
    project.create_many([{"title": "one"}, {"title": "two"}])
    fleet = project.start()
    assert fleet.process.wait(60) == 0, fleet.said()
    seen = project.only()
    assert seen.title == "2 issues, by beads-workers"
    assert "- bw-1: one" in seen.body and "- bw-2: two" in seen.body
    assert "merge it once you like it: http" in fleet.output
    assert {state for state, _ in project.read_all().values()} == {"closed"}
    assert "proposed for main: http" in call(project, "status").stdout
    assert project.start().process.wait(60) == 0
    project.create_many([{"id": "bw-3", "title": "three"}])
    assert project.start("bw-3").process.wait(60) == 0
    seen = project.only(lambda each: "- bw-3: three" in each.body)
    assert "- bw-1: one" in seen.body and "one pull request for main" not in seen.body
    project.merge(seen)
    project.create_many([{"id": "bw-4", "title": "four"}])
    assert project.start("bw-4").process.wait(60) == 0
    *_, last = project.pulls()
    assert (last.title, last.state) == ("four", "open") and "bw-1" not in last.body
    project.merge(last)
    git(project.folder, "fetch", "-q", project.url, "main")
    landed = git(project.folder, "ls-tree", "--name-only", "FETCH_HEAD").split()
    assert {"wbw-1", "wbw-2", "wbw-3", "wbw-4"} <= {*landed}
    project.settings(merge="checks")
    assert project.start("--pr-per", "run").process.wait(60) == 2


def test_what_is_in_the_way_is_said_at_the_start(project: PullProject) -> None:
    project.need_approval()
    fleet = project.begin()
    assert fleet.process.wait(60) == 7
    shown = fleet.said()
    assert "needs an approval" in shown, shown
    assert ("gh auth refresh -s workflow" in shown) == (project.forge == "github")
    project.fork()
    fleet = project.start()
    assert fleet.process.wait(60) not in (0, 7) and "is a fork of" in fleet.said(), fleet.said()


def test_calls_are_few(project: PullProject) -> None:
    with checking(project):
        assert project.begin(merge="checks", look="5s").process.wait(60) == 0
    asked = len(project.requests())
    assert project.start().process.wait(60) == 0, "there is nothing to do"
    of_start = len(project.requests()) - asked
    # One look, and on Gitea once for all how pull requests may be merged.
    others = {"github": 1, "gitea": 2}[project.forge]
    assert asked - of_start - others <= {"github": 5, "gitea": 6}[project.forge], project.requests()


def test_nothing_is_lost_or_opened_twice_whatever_is_killed(project: PullProject) -> None:
    project.settings(merge="checks")
    chance, count = random.Random(11), 8
    project.create_many([{"title": f"bw-{number}"} for number in range(1, count + 1)])
    with checking(project):
        for _ in range(7):
            fleet = project.start()
            time.sleep(chance.uniform(1.0, 5.0))
            send([fleet.process.pid, fleet.pid, *fleet.token_holders()], signal.SIGKILL)
            fleet.process.wait(30)
            fleet.end()
        last = project.start()
        assert last.process.wait(180) == 0, last.output
    assert {state for state, _ in project.read_all().values()} == {"closed"}
    seen = project.pulls()
    # A Gitea whose caller is killed may have merged without knowing it.
    assert len(seen) == count and {each.state for each in seen} <= {"merged", "closed"}
    assert {each.title for each in seen} == {f"bw-{number}" for number in range(1, count + 1)}
    git(project.folder, "fetch", "-q", project.url, "main")
    landed = git(project.folder, "ls-tree", "--name-only", "FETCH_HEAD").split()
    assert sorted(name for name in landed if name.startswith("w")) == [
        f"wbw-{number}" for number in range(1, count + 1)
    ]
    assert git(project.folder, "for-each-ref", "refs/bw/pulls") == ""


@contextmanager
def checking(project: PullProject) -> Iterator[None]:
    """CI finds everything green, while this lasts."""
    over, known = threading.Event(), set[str]()

    def check() -> None:
        while not over.wait(0.3):
            for seen in project.pulls():
                if seen.state == "open" and seen.commit not in known:
                    project.check(seen, green=True)
                    known.add(seen.commit)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(check)
        try:
            yield
        finally:
            over.set()
        done.result()


def test_issues_may_be_of_the_same_forge(tmp_path: Path) -> None:
    project = GiteaPullProject(tmp_path)
    project.settings(merge="checks")
    settings = project.folder / "beads-workers.toml"
    at = project.at
    source = f'source = "gitea:{at.server.url}/{at.owner}/{at.name}"\n'
    settings.write_text(source + settings.read_text())
    number = at.issue("one", "", "ready")
    fleet = project.start()
    seen = project.only()
    until(lambda: {each["name"] for each in at.read(number)["labels"]} >= {"bw:in-review"})
    assert at.read(number)["state"] == "open"
    project.check(seen, green=True)
    assert fleet.process.wait(60) == 0, fleet.output
    assert at.read(number)["state"] == "closed"
    assert {each["name"] for each in at.read(number)["labels"]} == {"ready"}
    (text,) = [each["body"] for each in at.comments(number)]
    assert "merged by pull request" in text
