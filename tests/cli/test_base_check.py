"""``start --agent --verify``: a check that fails where attempts begin is told before they do."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.doctor_support import Patient, initialised
from tests.support import warm
from tests.support.repository import IDENTITY, git

AGENT = """#!/bin/sh
cat >/dev/null
echo agent >>"$COUNT"
rm -f broken
echo done >"$BW_ISSUE_ID.txt"
"""
SETTINGS = """[agents.mine]
adapter = "plain"
argv = ["{agent}"]
"""
VERIFY = "echo check >>$COUNT; test ! -e broken || { echo FAILED test_cart: 3 != 4; false; }"
START = ("start", "-n", "1", "--agent", "mine", "--until-empty")


class Repository(Patient):
    """``ran``: each check and each agent that ran, in order."""

    def ran(self) -> list[str]:
        count = Path(self.environment["COUNT"])
        return count.read_text().split() if count.exists() else []

    def start(self, verify: str, *options: str) -> subprocess.CompletedProcess[str]:
        arguments = (*START, *options, "--verify", verify)
        return warm.run(arguments, self.folder, self.environment, timeout=60)

    def commit(self, message: str) -> str:
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "-m", message)
        return git(self.folder, "rev-parse", "HEAD").strip()[:12]


@pytest.fixture
def red(tmp_path: Path) -> Repository:
    """One issue, an agent that mends all, and a base on which the check fails."""
    made = initialised(tmp_path)
    agent = tmp_path / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    (made.folder / "beads-workers.toml").write_text(SETTINGS.format(agent=agent))
    (made.folder / "broken").touch()
    here = Repository(**{name: getattr(made, name) for name in made.__dataclass_fields__})
    here.environment |= IDENTITY | {"COUNT": str(tmp_path / "count")}
    git(here.folder, "init", "--quiet", "--initial-branch=main")
    here.commit("first")
    assert warm.run(("add", "one"), here.folder, here.environment, timeout=60).returncode == 0
    return here


def test_a_red_base_is_refused_before_anything_is_paid_for_and_the_remedy_is_said(
    red: Repository,
) -> None:
    at = git(red.folder, "rev-parse", "HEAD").strip()[:12]
    done = red.start(VERIFY)
    assert done.returncode == 2, done
    assert f"fails on main ({at}) already, where attempts begin: FAILED test_cart: 3 != 4" in (
        done.stderr
    )
    assert "--skip-base-check" in done.stderr and "fix this first" in done.stderr
    assert red.ran() == ["check"] * 2, "once more on a clean tree, and no agent"
    log = Path(done.stderr.rpartition("the whole output: ")[2].partition(")")[0])
    assert "FAILED test_cart: 3 != 4" in log.read_text()


def test_what_mends_it_may_be_the_issues_themselves(red: Repository) -> None:
    done = red.start(VERIFY, "--skip-base-check", "--no-land")
    assert done.returncode == 0, done
    assert red.ran()[:2] == ["agent", "check"], "nothing is checked before the agent"


def test_a_red_base_that_was_mended_is_tested_again_and_a_green_one_is_remembered(
    red: Repository,
) -> None:
    assert red.start(VERIFY).returncode == 2
    (red.folder / "broken").unlink()
    at = red.commit("mend")
    done = red.start(VERIFY)
    assert done.returncode == 0, done
    assert f"passes on main ({at})" in done.stderr
    assert red.start(VERIFY).returncode == 0, "what the first one landed is in it"
    checks = red.ran().count("check")
    again = red.start(VERIFY)
    assert again.returncode == 0 and "base     '" in again.stderr
    assert red.ran().count("check") == checks, "what has passed is not tested again"


def test_a_set_up_that_fails_is_refused_with_what_it_said(red: Repository) -> None:
    """Each attempt would fail before its agent begins, and its issue would be quarantined."""
    said = "echo 'E: no such registry'; false"
    with (red.folder / "beads-workers.toml").open("a") as file:
        file.write(f"[worktree]\nsetup = {json.dumps(said)}\n")
    done = red.start(VERIFY)
    assert done.returncode == 2, done
    assert "[worktree] setup, " in done.stderr and "fails on main" in done.stderr
    assert "E: no such registry" in done.stderr
    assert red.ran() == []


def test_a_check_that_never_ends_is_refused(red: Repository) -> None:
    with (red.folder / "beads-workers.toml").open("a") as file:
        file.write('[landing]\ngate_timeout = "1s"\n')
    done = red.start("exec sleep 100")
    assert done.returncode == 2, done
    assert "it had not ended after 1 seconds" in done.stderr and red.ran() == []


def test_a_check_that_fails_now_and_then_is_a_warning(red: Repository) -> None:
    (red.folder / "broken").unlink()
    red.commit("mend")
    verify = 'echo >>"$COUNT.runs"; test $(wc -l <"$COUNT.runs") -ne 1'
    done = red.start(verify, "--no-land")
    assert done.returncode == 0, done
    assert "failed on HEAD" in done.stderr and "passed the next time" in done.stderr


def test_a_check_that_cannot_be_run_is_refused_too(red: Repository) -> None:
    done = red.start("no-such-program")
    assert done.returncode == 2 and "not found" in done.stderr, done
    assert red.ran() == []


def test_without_landing_it_is_what_is_checked_out_that_counts(red: Repository) -> None:
    done = red.start(VERIFY, "--no-land")
    assert done.returncode == 2 and "fails on HEAD" in done.stderr, done
    (red.folder / "broken").unlink()
    red.commit("mend")
    assert red.start(VERIFY, "--no-land").returncode == 0


def test_what_landed_last_night_is_tested_together_with_what_was_committed_since(
    red: Repository,
) -> None:
    """Attempts begin with the merge of both: the landing branch alone would pass."""
    (red.folder / "broken").unlink()
    red.commit("mend")
    assert red.start("true").returncode == 0
    landed = git(red.folder, "rev-parse", "bw-landing/main")
    (red.folder / "broken").touch()
    red.commit("broken in the morning")
    assert warm.run(("add", "two"), red.folder, red.environment, timeout=60).returncode == 0
    before = red.ran()
    done = red.start(VERIFY)
    assert done.returncode == 2, done
    assert "fails on main merged with bw-landing/main" in done.stderr
    assert red.ran() == [*before, "check", "check"], "no agent is paid"
    assert git(red.folder, "rev-parse", "bw-landing/main") == landed
    (red.folder / "broken").unlink()
    red.commit("mended again")
    assert red.start(VERIFY).returncode == 0


def test_programs_get_the_error_alone_and_a_file_may_switch_it_off(red: Repository) -> None:
    done = red.start(VERIFY, "--no-land", "--json")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ")
    settings = red.folder / "beads-workers.toml"
    settings.write_text(f"skip_base_check = true\n{settings.read_text()}")
    done = red.start(VERIFY, "--no-land", "--json")
    assert done.returncode == 0, done
    assert all(map(json.loads, done.stdout.splitlines()))


def test_ctrl_c_ends_the_check_with_all_that_it_started(red: Repository) -> None:
    began = Path(red.environment["COUNT"]).with_name("began")
    verify = f"echo $$ >{began}; sleep 600"
    with subprocess.Popen(
        [red.bin / "beads-workers", *START, "--verify", verify],
        cwd=red.folder,
        env=red.environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as client:
        _until_written(began)
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=30)
    assert client.returncode != 0
    assert not Path("/proc", began.read_text().strip()).exists()


def _until_written(file: Path) -> None:
    from tests.support.fleet import until

    until(lambda: file.exists() and file.read_text().strip())
