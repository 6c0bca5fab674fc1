"""``scripts/bench`` runs what it is asked to, and says what it found as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_a_quick_benchmark_prints_ratios_against_its_peers() -> None:
    done = bench("cli", "--quick", "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    figures = {f["name"]: f for f in json.loads(done.stdout)["figures"]}
    shown = figures["cli: --version / empty typer"]
    assert shown["ratio"] == round(shown["ours_median"] / shown["peer_median"], 3) > 0
    assert shown["reached"] is (shown["ratio"] <= shown["goal"])
    assert {"cli: status of a fleet / empty typer", "cli: --help / bare Python"} <= figures.keys()


def test_a_benchmark_that_does_not_exist_is_named() -> None:
    done = bench("dispach")
    assert done.returncode == 2
    assert "no such benchmark: dispach" in done.stderr
