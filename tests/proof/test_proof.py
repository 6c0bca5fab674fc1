"""``scripts/prove``: what it runs side by side, and what it says when something does not end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof.__main__ import Proving
from tests.proof.forge import KILLS, RACES
from tests.proof.machines import CASES as MACHINES_CASES
from tests.proof.needs import KINDS
from tests.proof.odd_starts import cases as odd_starts
from tests.proof.parts import PARTS, ROOT, Part
from tests.proof.persons import CASES as PERSONS_CASES
from tests.proof.proposals import PROJECTS
from tests.proof.pulls import CALLS as PULL_CALLS
from tests.proof.pulls import KILLS as PULL_KILLS
from tests.proof.queues import CASES
from tests.proof.sees import LAYOUTS
from tests.proof.submodules import CASES as SUBMODULE_CASES
from tests.proof.table import Figure, figure_of, table
from tests.proof.trust import CASES as TRUST_CASES
from tests.proof.waits import CASES as WAITS_CASES
from tests.proof.whose import CASES as WHOSE_CASES
from tests.support.fleet import until
from tests.support.hostile_git import cases as hostile_settings

FINE = {"kills": 9, "starts": 2, "issues": 7, "closed": 6, "quarantined": 1, "promises": []}


def part(name: str, script: str, *, fills: bool = False) -> Part:
    """Nine kills by a shell script."""
    return Part(name, "kills", 9, ("sh", "-c", script), 1.0, fills=fills)


def says(told: dict[str, object]) -> str:
    return f"echo '{json.dumps(told)}'"


def proved(folder: Path, parts: list[Part], limit_seconds: float = 60.0) -> dict[str, Figure]:
    proving = Proving(folder, parts, 1, 2, limit_seconds)
    proving.run()
    return {figure.name: figure for figure in proving.figures}


def test_full_size_is_what_is_promised() -> None:
    sizes: dict[str, int] = {}
    for each in PARTS:
        sizes[each.name] = sizes.get(each.name, 0) + each.size(1)
    assert sizes == {
        "bd 1.3.0": 150,
        "embedded": 1500,
        "40 running tasks": 50,
        "bd 0.44.0": 100,
        "landing": 100,
        "faults": 450,
        "bd 1.3.0, called by workers": 50,
        "bd 0.44.0, called by workers": 50,
        "workers": 252,
        "killed": 70,
        "frames": 1_000_000,
        "gates": 10,
        "whose": len(WHOSE_CASES),
        "trust": TRUST_CASES,
        "waits": len(WAITS_CASES),
        "persons": PERSONS_CASES,
        "night": 40,
        "messages": 2000,
        "resets": 2000,
        "queues": CASES,
        "backlogs": 16,
        "hostile-git": len(hostile_settings()),
        "sees": len(LAYOUTS),
        "proposals": len(PROJECTS),
        "needs": len(KINDS),
        "submodules": len(SUBMODULE_CASES),
        "git-faults": 5500,
        "bd-faults": 555,
        "odd-starts": len(odd_starts()),
        "forge": RACES + KILLS,
        "pulls": PULL_KILLS + PULL_CALLS,
        "machines": len(MACHINES_CASES),
        "machines chaos": 200,
        "fuzz": 1_000_000,
        "rooms": 7,
        "upstream": 170,
        "simulate": 1_000_000,
    }
    assert len({(each.name, *each.argv) for each in PARTS}) == len(PARTS), "the same twice"


def test_each_that_ends_is_read_and_one_that_says_nothing_is_broken(tmp_path: Path) -> None:
    promise = {"text": "none was closed twice", "broken": ["bw-1"]}
    found = proved(
        tmp_path,
        [
            part("fine", says({"chaos": FINE})),
            part("twice", says({"chaos": {**FINE, "promises": [promise]}}) + "; exit 1"),
            part("silent", "echo '3 of 9 kills (3 worker)' >&2; exit 3", fills=True),
            part("fails", says({"chaos": FINE}) + "; exit 1", fills=True),
        ],
    )
    assert found["fine"].broken == ()
    assert (found["fine"].amount, found["fine"].closed) == (9, 6)
    assert found["twice"].broken == ("none was closed twice: bw-1",)
    assert found["silent"].broken == ("exit 3 without figures: 3 of 9 kills (3 worker)",)
    assert found["fails"].broken == ("exit 1",)


def test_less_than_was_asked_for_is_broken() -> None:
    figure = figure_of(part("few", ""), 10, {"chaos": FINE}, 0, 1.0)
    assert figure.broken == ("only 9 of 10 kills",)
    parsers = [{"parser": "keys", "inputs": 8, "failure": None}]
    assert figure_of(part("few", ""), 9, {"parsers": parsers}, 0, 1.0).broken


def test_out_of_time_ends_what_runs_and_names_what_never_began(tmp_path: Path) -> None:
    parts = [part(f"slow {n}", "exec sleep 600") for n in range(2)]
    found = proved(tmp_path, [*parts, part("later", says(FINE))], limit_seconds=0.1)
    assert found["later"].broken == ("not begun, out of time",)
    assert all("without figures" in found[each.name].broken[0] for each in parts)


def test_pieces_of_one_name_are_one_row() -> None:
    lost = Figure("a", "kills", 6, 1.0, ("lost",))
    pieces = [Figure("a", "kills", 5, 1.0, starts=3), lost, lost]
    assert table(pieces).splitlines()[2:] == ["| a | 17 kills | 3 | 0 | 0 | 0 | lost (2 times) |"]


@pytest.mark.timeout(120)
def test_told_to_end_it_still_writes_its_table_and_figures_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    out, temporary = tmp_path / "proof.json", tmp_path / "t"
    temporary.mkdir()
    argv = [sys.executable, "-m", "tests.proof", "embedded", "--jobs", "1", "--out", str(out)]
    with subprocess.Popen(
        argv,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        until(lambda: list(temporary.glob("*/tasks.jsonl")))
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGTERM
    assert "stopped by SIGTERM" in said
    assert "| embedded | 0 kills |" in said
    written = json.loads(out.read_text())
    assert written["ended"] == "stopped by SIGTERM"
    assert len(written["figures"]) == 6
    assert all(figure["broken"] for figure in written["figures"])
    assert list(temporary.iterdir()) == []


def test_what_a_proof_does_not_count_is_none() -> None:
    told = {"cases": 9, "starts": 18, "issues": 180, "closed": 180, "broken": []}
    figure = figure_of(part("faults", "true"), 9, told, 0, 1.0)
    assert (figure.starts, figure.closed, figure.quarantined, figure.broken) == (18, 180, 0, ())
