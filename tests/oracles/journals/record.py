"""``python -m tests.oracles.journals.record [NAME...]``: record these histories, or all anew."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.oracles.journals import BYTES_MAX, KEPT
from tests.oracles.journals.scenarios import SCENARIOS
from tests.oracles.journals.stage import Stage

COPIED = ("journal*.jsonl", "ended.json", "settled", "result_spool", "logs/*.log", "results/*")
"""Of a run's folder: what is read once the run is over."""


def record(name: str, kept: Path = KEPT) -> int:
    """Have one history happen and keep it there, by its name; return its size in bytes."""
    scenario = SCENARIOS[name]
    folder = Path(tempfile.mkdtemp(prefix=f"{name.replace('_', '-')}-"))
    stage = Stage(folder, scenario)
    try:
        scenario.play(stage)
        return keep(stage, kept / name)
    finally:
        stage.close()
        shutil.rmtree(folder, ignore_errors=True)


def keep(stage: Stage, there: Path) -> int:
    """Copy what is left of a history; return its size in bytes."""
    shutil.rmtree(there, ignore_errors=True)
    runs = stage.state / "runs"
    for pattern in COPIED:
        for file in runs.glob(f"*/{pattern}"):
            copy = there / "runs" / file.relative_to(runs)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    (there / "issues.jsonl").write_text(stage.exported(), encoding="utf-8")
    size = sum(file.stat().st_size for file in there.rglob("*") if file.is_file())
    assert size <= BYTES_MAX, f"{there.name} has {size} bytes"
    return size


def main(names: list[str]) -> int:
    """1 if one of them could not be recorded."""
    failed = []
    for name in names or SCENARIOS:
        began = time.monotonic()
        try:
            print(f"{name}: {record(name)} bytes, {time.monotonic() - began:.0f} s", flush=True)
        except (AssertionError, OSError) as error:
            failed.append(name)
            print(f"{name} failed: {error}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
