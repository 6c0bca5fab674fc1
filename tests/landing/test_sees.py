"""Whether verify tests the branch: projects of every layout, real runs, and nothing installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.settings import Sight
from beads_workers.core.records.landing import GoOn, LandingPaused, settings_to_line
from beads_workers.landing.repository import BROKEN
from beads_workers.landing.sees.again import REFUSED
from beads_workers.landing.sees.proof import Proof
from beads_workers.landing.sees.run import prove
from tests.landing.program import Program
from tests.landing.world import LandingWorld
from tests.support.repository import git
from tests.support.worktrees import ruled

ROOT = Path(__file__).parents[2]
CALC = "def add(a, b):\n    return a + b\n"
TEST = """import unittest

from calc import add


class Adds(unittest.TestCase):
    def test_it(self):
        self.assertEqual(add(1, 2), 3)
"""
ELSEWHERE = """import subprocess
import sys
import unittest


class Runs(unittest.TestCase):
    def test_it(self):
        code = "from calc import add; assert add(1, 2) == 3"
        subprocess.run([sys.executable, "-c", code], cwd="/", check=True)
"""
SRC = {"src/calc/__init__.py": CALC, "tests/__init__.py": "", "tests/test_calc.py": TEST}
FLAT = {"calc/__init__.py": CALC, "tests/__init__.py": "", "tests/test_calc.py": TEST}
UNITTEST = '"$BW_CHECKOUT/.venv/bin/python" -m unittest -q'
HERE = f"{sys.executable} -m unittest -q"
LINTER = f"{sys.executable} -m compileall -q src"


class Project(LandingWorld):
    """A repository, with an environment in its checkout into which it is installed."""

    environment: Path

    def install(self, *lines: str, name: str = "project.pth") -> Path:
        """A Python environment in the checkout; ``lines``: of a file in its packages."""
        if not (self.top / ".venv").exists():
            shutil.copytree(self.environment, self.top / ".venv", symlinks=True)
        (packages,) = (self.top / ".venv").glob("lib/python*/site-packages")
        (packages / name).write_text("\n".join(lines) + "\n")
        return packages / name

    def prove(self, verify: str, setup: str | None = None) -> Proof:
        """What is proved of this line."""
        settings = self.settings(verify)
        if setup is not None:
            settings = replace(settings, worktrees=ruled(settings.worktrees, setup=setup))
        return prove(settings, self.start, 2)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One to be copied."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(folder, symlinks=True, with_pip=False)
    return folder


@pytest.fixture
def project(
    tmp_path: Path, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Mapping[str, str]], Project]:
    def make(files: Mapping[str, str]) -> Project:
        found = Project(tmp_path, monkeypatch)
        found.environment = environment
        found.main({".gitignore": ".venv\n.beads-workers\nnode_modules\n__pycache__\n", **files})
        return found

    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)  # Bytecode lies beside its source.
    return make


Make = Callable[[Mapping[str, str]], Project]


def test_an_editable_install_of_a_src_layout_is_named_with_the_line_that_mends_it(
    project: Make,
) -> None:
    here = project(SRC)
    file = here.install(str(here.top / "src"))
    found = here.prove(UNITTEST)
    assert found.sight is Sight.CHECKOUT, found
    assert f"it read {here.top}/src/calc/__init__.py" in found.found
    assert f"{file} leads to src" in found.found
    line = f'PYTHONPATH="$BW_WORKTREE/src" {UNITTEST}'
    assert found.remedy == f"verify = '{line}'"
    mended = here.prove(line)
    assert (mended.sight, mended.found) == (Sight.BRANCH, ())
    assert not list(here.top.glob("src/**/*.pyc")), "nothing is left in the user's checkout"


def test_of_a_sparse_checkout_only_what_is_checked_out_is_broken(project: Make) -> None:
    here = project({**FLAT, "out/far.py": CALC})
    git(here.top, "sparse-checkout", "set", "calc", "tests")
    settings = here.settings(f"test ! -e out && {HERE}")
    settings = replace(settings, worktrees=replace(settings.worktrees, cone=("calc", "tests")))
    found = prove(settings, here.start, 2)
    assert found.sight is Sight.BRANCH
    depends = f"test ! -e out || {HERE}"
    settings = replace(settings, verify=depends)
    assert prove(settings, here.start, 2).sight is Sight.NOTHING


def test_a_lander_that_begins_forgets_no_commit_of_a_proof(project: Make) -> None:
    here, held = project(FLAT), list[bool]()

    def began(commit: str) -> None:
        here.repository().unpin(by_others=True)
        held.append(commit in git(here.top, "for-each-ref", "--format=%(objectname)").split())

    found = prove(here.settings(HERE), here.start, 2, began)
    assert found.sight is Sight.BRANCH
    assert held and all(held), "git gc could remove what is tried"
    assert git(here.top, "for-each-ref", BROKEN) == "", "and nothing stays"


def test_a_relative_path_does_not_hold_where_a_test_starts_a_program_in_another_folder(
    project: Make,
) -> None:
    here = project({**SRC, "tests/test_elsewhere.py": ELSEWHERE})
    here.install(str(here.top / "src"))
    found = here.prove(f"PYTHONPATH=src {UNITTEST}")
    assert found.sight is Sight.CHECKOUT
    assert found.remedy == f"verify = 'PYTHONPATH=\"$BW_WORKTREE/src\" {UNITTEST}'"


def test_a_linter_before_the_tests_does_not_save_one_that_reads_the_checkout(project: Make) -> None:
    here = project(SRC)
    here.install(str(here.top / "src"))
    found = here.prove(f"{LINTER} && {UNITTEST}")
    assert found.sight is Sight.CHECKOUT
    line = f'export PYTHONPATH="$BW_WORKTREE/src"; {LINTER} && {UNITTEST}'
    assert found.remedy == f"verify = '{line}'"
    assert here.prove(line).sight is Sight.BRANCH


@pytest.mark.parametrize(
    ("files", "verify"),
    [
        (FLAT, HERE),
        (SRC, f"PYTHONPATH=src {HERE}"),
        (SRC, f'cd tests && PYTHONPATH="$BW_WORKTREE/src" {HERE} test_calc'),
    ],
)
def test_one_that_tests_the_branch_is_let_through(
    project: Make, files: dict[str, str], verify: str
) -> None:
    assert project(files).prove(verify).sight is Sight.BRANCH


@pytest.mark.parametrize("verify", ["true", LINTER, "test -e src"])
def test_one_that_depends_on_no_source_is_known(project: Make, verify: str) -> None:
    assert project(SRC).prove(verify).sight is Sight.NOTHING


def test_both_runs_stand_side_by_side_unless_only_one_gate_may_run(
    project: Make, tmp_path: Path
) -> None:
    here = project(SRC)
    met = tmp_path / "met"
    met.mkdir()
    others = f"set -- {met}/*; test $# = 2 && exit; sleep 0.2"
    waits = f"touch {met}/$$; for i in $(seq 300); do {others}; done; exit 1"
    assert here.prove(waits).sight is Sight.NOTHING, "each waits for the other one"
    alone = f"mkdir {met}/now && sleep 0.3 && rmdir {met}/now"
    assert prove(here.settings(alone, jobs=1), here.start, 1).sight is Sight.NOTHING


def test_a_makefile_that_goes_to_the_checkout_is_named(project: Make) -> None:
    make = 'test:\n\tcd "$$BW_CHECKOUT" && ' + HERE + "\n"
    here = project({**FLAT, "Makefile": make})
    found = here.prove("make test")
    assert found.sight is Sight.CHECKOUT
    assert "Makefile names $BW_CHECKOUT" in found.found
    assert found.remedy.startswith("leave $BW_CHECKOUT out of Makefile")


def test_without_a_language_that_we_know_text_files_are_emptied(project: Make) -> None:
    check = "grep -q '^[A-Z]' words.txt\n"
    here = project({"words.txt": "A\nB\n", "check.sh": check})
    assert here.prove("sh ./check.sh").sight is Sight.BRANCH
    assert here.prove('sh ./check.sh && cd "$BW_CHECKOUT" && sh ./check.sh').sight is Sight.CHECKOUT
    assert here.prove("sh ./check.sh || true").sight is Sight.NOTHING


def test_a_red_set_up_counts_as_seen(project: Make) -> None:
    here = project({"tool.py": "x = 1\n"})
    found = here.prove("true", setup=f"{sys.executable} -c 'import tool'")
    assert found.sight is Sight.BRANCH


NODE_TEST = 'if (require("lib").add(1, 2) !== 3) throw new Error("no");\n'


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_links_of_node_modules_are_found_where_a_worktree_takes_the_checkouts(
    project: Make,
) -> None:
    lib = "exports.add = (a, b) => a + b;\n"
    here = project({"packages/lib/index.js": lib, "packages/app/test.js": NODE_TEST})
    modules = here.top / "node_modules"
    modules.mkdir()
    (modules / "lib").symlink_to("../packages/lib")
    found = here.prove(f"NODE_PATH={modules} node packages/app/test.js")
    assert found.sight is Sight.CHECKOUT
    assert f"{modules}/lib leads to packages/lib" in found.found
    link = "mkdir -p node_modules && ln -sfn ../packages/lib node_modules/lib"
    assert here.prove("node packages/app/test.js", setup=link).sight is Sight.BRANCH


# --- where the kernel allows no mounts -----------------------------------------------------------


def prove_without_mounts(project: Project, verify: str) -> Proof:
    """The program itself, in a user namespace that may have no mount namespaces."""
    limit = 'echo 0 >/proc/sys/user/max_mnt_namespaces && exec "$@"'
    program = (sys.executable, "-P", "-m", "beads_workers.landing.sees.run", project.start, "2")
    done = subprocess.run(
        ["unshare", "--map-root-user", "sh", "-c", limit, "sh", *program],
        input=settings_to_line(project.settings(verify)),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        check=True,
    )
    *_, last = done.stdout.splitlines()
    return from_plain(Proof, json.loads(last)["proof"])


@pytest.mark.parametrize(
    ("before", "sight"),
    [
        ("", Sight.CHECKOUT),
        ("python3 driver.py && ", Sight.CHECKOUT),
        ('PYTHONPATH="$BW_WORKTREE/src" ', Sight.BRANCH),
    ],
)
def test_without_mounts_what_leads_to_the_checkout_decides(
    project: Make, before: str, sight: Sight
) -> None:
    """Also behind a program of the project, which is red by itself where it is broken."""
    here = project({**SRC, "driver.py": "print('it runs')\n"})
    here.install(str(here.top / "src"))
    found = prove_without_mounts(here, before + UNITTEST)
    assert found.sight is sight
    assert bool(found.remedy) is (sight is Sight.CHECKOUT)


def test_a_check_that_is_red_anyway_was_not_seen_and_is_seen_again_before_it_lands(
    project: Make,
) -> None:
    """Red on broken sources says nothing then. With mounts and without."""
    here = project(SRC)
    here.install(str(here.top / "src"))
    good = here.top / "good"
    verify = f"test -e {good} && {UNITTEST}"
    assert here.prove(verify).sight is Sight.RED
    found = prove_without_mounts(here, verify)
    assert (found.sight, found.found) == (Sight.RED, ("verify: exit status 1",))
    good.touch()
    settings = replace(here.settings(verify), sight=Sight.RED)
    program = Program(settings, here.work("app-1", {"a": "1"}))
    program.until(lambda news: isinstance(news, LandingPaused) and REFUSED in news.why)


def test_what_leads_there_is_looked_at_again_before_each_train(project: Make) -> None:
    """An agent, or a person, installs the checkout while branches land."""
    here = project(SRC)
    file = here.install("# nothing yet")
    code = "import sys; sys.path.append('src'); import calc; assert calc.add(1, 2) == 3"
    verify = f'"$BW_CHECKOUT/.venv/bin/python" -c "{code}"'
    settings = replace(here.settings(verify), sight=here.prove(verify).sight)
    assert settings.sight == Sight.BRANCH
    program = Program(settings, here.work("app-1", {"a": "1"}))
    program.idle("app-1")
    here.install(str(here.top / "src"))
    program.tell(here.work("app-2", {"src/calc/__init__.py": "broken\n"}))
    program.until(lambda news: isinstance(news, LandingPaused) and "has changed" in news.why)
    program.until(lambda news: isinstance(news, LandingPaused) and REFUSED in news.why)
    assert str(file) in program.news[-1].why and "PYTHONPATH=" in program.news[-1].why
    file.unlink()
    program.tell(GoOn())
    program.idle("app-2")
    assert (program.landed, program.refused) == ({"app-1"}, {"app-2"})
    assert program.end() == 0
