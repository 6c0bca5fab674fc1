"""Where ``bin/beads-workers`` and the scripts keep their environments."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.test_tidy import ROOT


def cache(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", 'source scripts/python-env.sh && echo "$bw_cache"'],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_home_they_lie_in_the_users_own_folder_and_not_below_tmp() -> None:
    home = pwd.getpwuid(os.geteuid()).pw_dir
    assert cache().stdout == f"{home}/.cache/beads-workers\n"
    assert cache(HOME="/").stdout == "//.cache/beads-workers\n"


def test_without_any_home_somebody_has_to_say_where() -> None:
    refused = cache(HOME="/nonexistent")
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "error: there is no home folder /nonexistent",
        "hint: set BW_CACHE to a folder of yours",
    ]
    assert cache(HOME="/nonexistent", BW_CACHE="/here").stdout == "/here\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a user who has nothing yet."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def refused(home: Path) -> subprocess.CompletedProcess[str]:
    """A first use whose pip finds nothing."""
    return subprocess.run(
        ["bin/beads-workers", "--version"],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_environment_that_cannot_be_made_says_what_pip_says(
    refused: subprocess.CompletedProcess[str],
) -> None:
    assert refused.returncode == 1
    _, error, hint = refused.stderr.splitlines()
    assert error == (
        "error: the Python environment could not be made: "
        "No matching distribution found for typer>=0.20"
    )
    assert "network" not in hint and (log := re.search(r"whole log is (\S+);", hint))
    assert "No matching distribution" in Path(log[1]).read_text()


@pytest.mark.usefixtures("refused")
def test_where_pip_reached_nobody_that_is_said(home: Path, tmp_path: Path) -> None:
    """The pip of that environment, asked as it was asked there."""
    (python,) = home.glob(".cache/beads-workers/venv-*/bin/python")
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_RETRIES": "1"}
    log = tmp_path / "log"
    script = (
        f"{python} -m pip install --quiet --no-input --disable-pip-version-check typer"
        f" >{log} 2>&1 </dev/null || {{ source scripts/python-env.sh; bw_pip_said {log}; }}"
    )
    told = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PIP_CONFIG_FILE": os.devnull}
        | unreachable,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "connection broken by" in told.stdout and "Connection refused" in told.stdout
    assert "No matching distribution" in log.read_text().splitlines()[-1]


def test_environments_of_earlier_states_of_a_checkout_are_removed(tmp_path: Path) -> None:
    """But for those of other checkouts, those of other kinds, and one that something runs from."""
    made = {"venv": str(ROOT), "venv-dev": str(ROOT), "venv-of-others": "/elsewhere"}
    for number, (name, root) in enumerate([*made.items(), ("venv", str(ROOT))]):
        folder = tmp_path / f"{name.removesuffix('-of-others')}-{number:016}"
        (folder / "bin").mkdir(parents=True)
        (folder / "complete").write_text(f"{root}\n")
    used = tmp_path / f"venv-{3:016}" / "bin" / "sleep"
    shutil.copy("/bin/sleep", used)
    running = subprocess.Popen([used, "60"])
    try:
        words = "source scripts/python-env.sh; bw_venv_path venv; bw_drop_old_venvs venv"
        environment = {"PATH": os.environ["PATH"], "BW_CACHE": str(tmp_path)}
        subprocess.run(["bash", "-euc", words], cwd=ROOT, env=environment, check=True)
    finally:
        running.kill()
        running.wait()
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [f"venv-{2:016}", f"venv-{3:016}", f"venv-dev-{1:016}"]
