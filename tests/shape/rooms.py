"""Whether a feature is a room of its own: deleted in a copy, nothing else misses it.

Its file, its row and its own tests go. What is left must import, pass mypy and the tests of the
core, and keep to the protocol but for what it does not claim any more.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.shape.journey import ROOT

ROOMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "choosing": (("choosing",), ("O-9.11-1",)),
    "heartbeats": (("heartbeat",), ("O-9.8-1",)),
    "pausing": (("pausing", "paused_with_a_queue"), ("O-9.10-1",)),
    "queueing": (("prefetch", "batch", "paused_with_a_queue"), ("O-9.5-1", "O-9.12-1")),
    "telling": (("throttled_messages", "worker_status"), ()),
}
"""By file: its own tests of the core, and the requirements of which it is all."""

ISSUES = 200


def try_rooms(names: Sequence[str]) -> int:
    """Delete each of these, and say what misses it; returns an exit code."""
    broken = 0
    for name in names:
        found = list(missed(name))
        print(f"{name:12}{'; '.join(found) or 'nothing misses it'}", flush=True)
        broken += bool(found)
    return min(broken, 1)


def missed(name: str) -> Iterator[str]:
    """What goes wrong without this feature, a line each."""
    own, unclaimed = ROOMS[name]
    with tempfile.TemporaryDirectory(prefix="bw-room-") as folder:
        copy = Path(folder) / "tree"
        for part in ("beads_workers", "tests", "pyproject.toml", "docs", "README.md"):
            source, target = ROOT / part, copy / part
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        _delete(copy, name, own)
        python = [sys.executable, "-m"]
        for what, command in (
            ("mypy", [*python, "mypy", "beads_workers"]),
            ("core", [*python, "pytest", "-q", "-x", "tests/core"]),
            ("kit", [*python, "tests.shape.rooms", *unclaimed]),
        ):
            environment = {**os.environ, "PYTHONPATH": str(copy)}
            ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
            if ran.returncode:
                yield f"{what}: {(ran.stdout + ran.stderr).strip()[-300:]}"


def _delete(copy: Path, name: str, own: Sequence[str]) -> None:
    features = copy / "beads_workers" / "core" / "workers" / "features"
    (features / f"{name}.py").unlink()
    table = features / "table.py"
    text = table.read_text("utf-8")
    row = re.search(rf"from \S+\.{name} import (\w+)\n", text)
    assert row is not None, f"{name} has no row"
    table.write_text(text.replace(row[0], "").replace(f"    {row[1]},\n", ""), "utf-8")
    for tests in own:
        (copy / "tests" / "core" / f"test_{tests}.py").unlink()


def _kit(unclaimed: Sequence[str]) -> int:
    """Our orchestrator in the kit, which is not asked for what it does not claim."""
    from beads_workers.conformance.bench import Timing
    from beads_workers.conformance.orchestrator_suite import try_orchestrator
    from tests.support.embedded import EmbeddedProject
    from tests.support.fleet import Fleet

    with tempfile.TemporaryDirectory(prefix="bw-kit-") as folder:
        project = EmbeddedProject(Path(folder))
        project.create_many([{}] * ISSUES)
        fleet = Fleet(project, "-n", "0", "--retry-delay", "1s", "--", "true").started()
        try:
            stop = ("kill", "-TERM", str(fleet.pid))
            report = try_orchestrator(str(fleet.socket), Timing(20.0), (), stop, unclaimed)
        finally:
            fleet.end()
    print(*report.lines(), sep="\n")
    return 0 if report.is_conformant else 1


if __name__ == "__main__":
    sys.exit(_kit(sys.argv[1:]))
