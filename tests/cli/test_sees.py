"""``start``, ``land`` and ``doctor`` say whether verify tests the branch, before anything lands."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.doctor_support import Patient, initialised
from tests.support import warm
from tests.support.fleet import until
from tests.support.repository import IDENTITY, git

pytestmark = pytest.mark.daily(3)

PLAIN = ("--worktree", "--", "sh", "-c", "echo $BW_ISSUE_ID >$BW_ISSUE_ID.txt")
START = ("start", "-n", "1", "--until-empty")
COUNTED = "echo >>$COUNT; "
RIGHT = f"{COUNTED}{sys.executable} -c 'import calc'"
WRONG = f'cd "$BW_CHECKOUT" && {RIGHT}'
REFUSED = "verify tests the checkout, not the branch: "
INDEPENDENT = "by a check that does not depend on the sources"
AGENT = '[agents.mine]\nadapter = "plain"\nargv = ["{folder}/agent"]\n'


class Project(Patient):
    """A project with one source and one issue; ``COUNT`` has a line for each run of verify."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command to its end."""
        return warm.run(arguments, self.folder, self.environment, timeout=90)

    def start(self, verify: str, *options: str) -> subprocess.CompletedProcess[str]:
        """A fleet with a plain command, to its end."""
        return self.run(*START, "--verify", verify, *options, *PLAIN)

    def runs(self) -> int:
        """How often verify ran."""
        count = Path(self.environment["COUNT"])
        return len(count.read_text().splitlines()) if count.exists() else 0


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = initialised(tmp_path)
    here = Project(**{name: getattr(made, name) for name in made.__dataclass_fields__})
    here.environment |= IDENTITY | {"COUNT": str(tmp_path / "count")}
    (here.folder / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    git(here.folder, "init", "--quiet", "--initial-branch=main")
    git(here.folder, "add", "--all")
    git(here.folder, "commit", "--quiet", "-m", "first")
    assert here.run("add", "one").returncode == 0
    return here


def test_one_that_reads_the_checkout_is_refused_before_anything_begins(project: Project) -> None:
    done = project.start(WRONG)
    assert done.returncode == 2, done
    assert f"error: {REFUSED}" in done.stderr and "names $BW_CHECKOUT" in done.stderr
    assert "hint: leave $BW_CHECKOUT out of verify" in done.stderr
    assert "--skip-base-check" in done.stderr
    assert git(project.folder, "branch", "--list", "bw*") == "", "nothing has begun"
    assert project.start(WRONG, "--skip-base-check").returncode == 0, "it is lifted"


def test_one_that_tests_the_branch_is_seen_once_and_doctor_knows(project: Project) -> None:
    # Typed, it would try two of them.
    (project.folder / "beads-workers.toml").write_text("[worktree]\nenabled = true\n")
    doctor = ("-n", "1", "--verify", RIGHT, *PLAIN[1:])
    assert project.doctor(*doctor).one("sees")["text"].startswith("the next start checks")
    done = project.start(RIGHT)
    assert done.returncode == 0 and "ok sees" in done.stderr and "tests the branch" in done.stderr
    first = project.runs()
    assert first in (3, 4), "broken, with a broken checkout, a gate, and maybe one of the tip"
    assert project.run("add", "two").returncode == 0
    done = project.start(RIGHT)
    assert done.returncode == 0 and "tests the branch" in done.stderr
    assert project.runs() == first + 1, "what was seen is kept"
    assert project.doctor(*doctor).one("sees")["text"].endswith("tests the branch")


def test_land_asks_the_same(project: Project) -> None:
    commit = "touch a && git add a && git commit --quiet -m a"
    done = project.run(*START, "--no-land", "--worktree", "--", "sh", "-c", commit)
    assert done.returncode == 0, done
    refused = project.run("land", "--verify", WRONG)
    assert refused.returncode == 2 and REFUSED in refused.stderr, refused
    done = project.run("land", "--verify", "true")
    assert done.returncode == 0 and INDEPENDENT in done.stderr, done


def test_a_conviction_beside_the_first_attempts_drains_the_run(project: Project) -> None:
    """It runs three times to convict; here each of them takes longer than the check of the base."""
    agent = project.folder.parent / "agent"
    agent.write_text("#!/bin/sh\ncat >/dev/null\nsleep 3\necho done >$BW_ISSUE_ID.txt\n")
    agent.chmod(0o755)
    (project.folder / "beads-workers.toml").write_text(AGENT.format(folder=agent.parent))
    for title in map(str, range(20)):
        assert project.run("add", title).returncode == 0
    slow = f'test ! -s "$COUNT" || sleep 4; {WRONG}'
    done = project.run(*START, "--agent", "mine", "--verify", slow)
    assert done.returncode == 2, done
    assert "checked beside the first attempts" in done.stderr
    assert f"error: {REFUSED}" in done.stderr
    left = [row for row in project.run("list").stdout.splitlines() if "open" in row]
    assert left, "nothing new has begun"
    branches = git(project.folder, "branch", "--list", "bw/*", "bw-landing/*")
    assert branches, "what was begun is kept"


def test_ctrl_c_ends_the_proof_with_all_that_it_started(project: Project) -> None:
    began = Path(project.environment["COUNT"]).with_name("began")
    verify = f"python3 -c 'import calc' || exit; echo $$ >{began}; sleep 600"
    with subprocess.Popen(
        [project.bin / "beads-workers", *START, "--verify", verify, *PLAIN],
        cwd=project.folder,
        env=project.environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as client:
        until(lambda: began.exists() and began.read_text().strip())
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=30)
    assert client.returncode != 0
    pid = began.read_text().strip()
    until(lambda: not Path("/proc", pid).exists())


def test_one_that_depends_on_nothing_is_a_warning_and_is_proved_again_beside_the_attempts(
    project: Project,
) -> None:
    """The tree is another one, and tests may have been added: but that holds up nobody.

    Of the first start only the last words are sure: on a busy machine its issue lands before the
    proof is through, and bears no mark.
    """
    (project.folder / "beads-workers.toml").write_text('[landing]\ntrailers = "full"\n')
    first = project.start("test -e calc.py")
    assert first.returncode == 0, first
    assert "warn sees" in first.stderr and INDEPENDENT in first.stderr
    assert project.run("add", "two").returncode == 0
    again = project.start("test -e calc.py")
    assert again.returncode == 0, again
    assert "'test -e calc.py' passed on broken sources at an earlier start" in again.stderr
    assert "'test -e calc.py' passes on broken sources, seen in" in again.stderr, "at the end"
    assert f"verified {INDEPENDENT}" in again.stdout
    landed = git(project.folder, "log", "-1", "--format=%B", "bw-landing/main")
    assert INDEPENDENT in landed
    assert f"verified {INDEPENDENT}" in " ".join(project.run("report").stdout.split())
