"""The proof of errors: which cases there are, that calls fail as asked, and some of it for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof.faults import Account, Case, Shim, Verdict, cases_of, main, sampled, table

COUNTS = {
    ("worker", "sync", "file"): 9,
    ("client", "fork", "file"): 1,
    ("worker", "write", "other"): 3,
}


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    """Compiled once."""
    return Shim(tmp_path_factory.mktemp("shim"))


def test_each_error_comes_first_in_the_middle_last_and_for_a_while() -> None:
    cases = list(cases_of(COUNTS))
    assert [str(case) for case in cases if case.error in ("ENOSPC", "EAGAIN")] == [
        "worker: sync file ENOSPC at 1",
        "worker: sync file ENOSPC at 5",
        "worker: sync file ENOSPC at 9",
        "worker: sync file ENOSPC at 5 for 1000",
        "client: fork file EAGAIN at 1",
    ]
    assert [Case.read(str(case)) for case in cases] == cases
    few = sampled(cases, 2, seed=1)
    assert {case.call for case in few} == {"sync", "fork"}


@pytest.mark.peers
def test_a_call_fails_as_often_as_asked_and_is_counted(shim: Shim, tmp_path: Path) -> None:
    counted = tmp_path / "table"
    case = Case("orchestrator", "write", "file", "ENOSPC", 2)
    # A module of this name, which only writes: who it is, the library tells by that.
    package = tmp_path / "beads_workers" / "runtime"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "main.py").write_text(
        "import os\n"
        "fd = os.open('out', os.O_WRONLY | os.O_CREAT)\n"
        "for word in (b'a', b'b', b'c'):\n"
        "    try:\n"
        "        os.write(fd, word)\n"
        "    except OSError as error:\n"
        "        print(error.errno)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "beads_workers.runtime.main", "3"],
        cwd=tmp_path,
        env=os.environ | shim.environment(counted, case),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, (tmp_path / "out").read_text()) == ("28\n", "ac")
    injected, counts = shim.read(counted)
    assert (injected, counts["orchestrator", "write", "file"]) == (1, 3)


@pytest.mark.peers
def test_a_fleet_goes_on_or_ends_with_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    """Five errors of five calls; ``scripts/prove faults`` meets 450."""
    assert main(["--cases", "5", "--seed", "3", "--json"]) == 0, capsys.readouterr().out
    told = json.loads(capsys.readouterr().out)
    assert (told["cases"], told["closed"], told["broken"]) == (5, told["issues"], [])
    assert told["met"] >= 4


def test_the_table_names_what_is_broken() -> None:
    account = Account("embedded", cases=2, met=2, issues=40, closed=39)
    account.verdicts["worker: sync file"] = {Verdict.WENT_ON.value: 1, Verdict.UNTOLD.value: 1}
    account.broken = ["worker: sync file EIO at 1: it hung"]
    rows = table(account).splitlines()
    assert rows[1].split() == ["worker:", "sync", "file", "1", "-", "1", "-"]
    assert rows[-1] == account.broken[0]
