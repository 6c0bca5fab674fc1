"""The package as strangers get it: what is in it, and that it works where no checkout is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from beads_workers import __version__
from tests.support.package import Package, build, built_at, install, unpack
from tests.test_tidy import PACKAGE, ROOT

pytestmark = pytest.mark.daily(2)

SDIST_TESTS = ("tests/executors",)
"""Of the sdist, run from it. All of them: scripts/package --tests."""
SOURCE = "https://example.org/beads-workers/blob/v1"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """One for all of these tests, with the links that a release has."""
    return build(tmp_path_factory.mktemp("package"), SOURCE)


@pytest.fixture(scope="module")
def programs(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(package.wheel, tmp_path_factory.mktemp("fresh"))


def run(words: list[str | Path], folder: Path, programs: Path) -> str:
    """What a program prints; it must succeed."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("BW_", "PYTH"))}
    path = f"{programs}:{os.environ['PATH']}"
    done = subprocess.run(
        words, cwd=folder, env=kept | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def test_the_metadata_name_a_licence_and_cap_nobody(package: Package) -> None:
    told = metadata(package.wheel)
    assert (told["License-Expression"], told["License-File"]) == ("MIT", "LICENSE")
    assert (told["Version"], told["Requires-Python"]) == (__version__, ">=3.11")
    required = [each for each in told.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert sorted(required) == ["rich>=13", "typer>=0.20"]
    assert not any("<" in each.partition(";")[0] for each in told.get_all("Requires-Dist", []))


def test_the_wheel_has_the_data_the_types_and_the_worker_in_bash(package: Package) -> None:
    data = {
        str(p.relative_to(ROOT)) for p in PACKAGE.rglob("*.*") if p.suffix not in (".py", ".pyc")
    }
    with zipfile.ZipFile(package.wheel) as archive:
        held = {*archive.namelist()}
        [bash] = [each for each in archive.infolist() if each.filename.endswith("/bw-worker.sh")]
    assert (
        {"beads_workers/py.typed", "beads_workers/ui/web.js", "beads_workers/ui/web_attempt.js"}
        <= data
        <= held
    )
    assert bash.external_attr >> 16 & 0o111
    ours = ("beads_workers/", f"beads_workers-{__version__}.d")
    assert [name for name in held if not name.startswith(ours)] == []


def test_the_sdist_is_the_checkout(package: Package) -> None:
    known = ["git", "ls-files", "-z"]
    found = subprocess.run(known, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with tarfile.open(package.sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {name for name in found.split("\0") if name and (ROOT / name).exists()}
    assert wanted - held == set()


def test_the_sdist_bears_nothing_of_this_machine(package: Package) -> None:
    with tarfile.open(package.sdist) as archive:
        held = archive.getmembers()
    bears = {(e.mtime, e.uid, e.gid, e.uname, e.gname) for e in held}
    assert bears == {(built_at(), 0, 0, "", "")}
    assert {each.mode for each in held} == {0o755, 0o644}
    assert {name for each in held for name in each.pax_headers} <= {"path"}
    assert package.sdist.read_bytes()[4:8] == built_at().to_bytes(4, "little")
    assert [each.name for each in held] == sorted(each.name for each in held)


def test_the_sdist_tests_itself(package: Package, tmp_path: Path) -> None:
    checkout = unpack(package.sdist, tmp_path)
    words = ["-m", "pytest", "-q", "-p", "tests.support.quick", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [sys.executable, *words, "--basetemp", tmp_path / "t", *SDIST_TESTS],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 100


def test_an_installed_one_closes_three_issues(programs: Path, tmp_path: Path) -> None:
    assert run(["beads-workers", "--version"], tmp_path, programs) == f"{__version__}\n"
    where = run(
        ["python", "-c", "import beads_workers as b; print(b.__file__)"], tmp_path, programs
    )
    assert Path(where).is_relative_to(programs.parent)
    run(["beads-workers", "init"], tmp_path, programs)
    for number in range(3):
        run(["beads-workers", "add", f"Issue {number}", "--", "true"], tmp_path, programs)
    told = run(["beads-workers", "start", "-n", "2", "--until-empty"], tmp_path, programs)
    assert "closed 3, failed attempts 0, quarantined 0, requeued 0" in told
    run(["beads-workers", "report", "--html", "night.html"], tmp_path, programs)
    run(["python", "-c", "import beads_workers.ui.web_state"], tmp_path, programs)


def files(folder: Path) -> dict[str, float]:
    """When each file below it was written, without what Python compiles."""
    found = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {str(path): path.stat().st_mtime for path in found if path.is_file()}


def test_a_checkout_runs_from_any_folder_and_is_not_written_to(
    package: Package, tmp_path: Path
) -> None:
    checkout = unpack(package.sdist, tmp_path / "its [x] place")
    before = files(checkout)
    # A pip that its user has told to install elsewhere, and a cache with a space in its name.
    said = {"BW_CACHE": str(tmp_path / "ca che"), "PIP_USER": "1"}
    words = [str(checkout / "bin/beads-workers"), "--version"]
    done = subprocess.run(
        words, env=os.environ | said, cwd="/", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"{__version__}\n"), done.stderr
    assert files(checkout) == before


def test_its_worker_in_bash_is_on_the_path(programs: Path) -> None:
    words = ["bash", "-c", "bw-worker.sh"]
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(words, env=path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "ORCHESTRATOR_PID=PID bw-worker.sh COMMAND" in done.stderr


def test_whoever_checks_types_strictly_finds_ours(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        "from beads_workers import Retry, progress\n\ndef send(address: str) -> None:\n"
        "    progress(address, 50)\n    raise Retry('busy', after_seconds=30)\n\n"
        "reveal_type(progress)\n"
    )
    words = [sys.executable, "-m", "mypy", "--strict", "--python-executable", programs / "python"]
    told = run([*words, "user.py"], tmp_path, programs)
    assert 'Revealed type is "def (' in told and "Success" in told


def test_links_of_the_readme_lead_to_the_source_on_the_page_of_a_package(package: Package) -> None:
    told = metadata(package.wheel)
    assert f"Source, {SOURCE}" in told.get_all("Project-URL", [])
    shown = str(told.get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", shown)
    assert f"{SOURCE}/docs/CLI.md" in links
    assert f"{SOURCE}/docs/dashboard.svg?raw=true" in links
    assert [link for link in links if not re.match("https://|#", link)] == []
