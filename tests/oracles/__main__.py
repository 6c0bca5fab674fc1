"""``python -m tests.oracles [--write]``: compares today's texts with the golden ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.oracles import doctors, histories, journals, texts, traces

GOLDEN = Path(__file__).parent / "golden"

ORACLES: dict[str, Callable[[], str]] = {
    "wire": texts.wire,
    "journal": texts.journal,
    "status": texts.statuses,
    "help": texts.helps,
    "exits": texts.exits,
    "worker_imports": texts.worker_imports,
    "doctor": doctors.doctors,
    "doctor_bd": doctors.doctors_of_bd,
}
ORACLES |= {
    f"traces_{batch:02}": partial(traces.lines, batch)
    for batch in range(traces.SEEDS // traces.BATCH)
}
ORACLES |= {f"history_{name}": partial(histories.history, name) for name in journals.names()}


def compared(name: str) -> str:
    """What differs from the golden text, as the first line that does; empty where none does."""
    old = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").split("\n")
    new = ORACLES[name]().split("\n")
    if old == new:
        return ""
    number = next((n for n, pair in enumerate(zip(old, new)) if pair[0] != pair[1]), -1)  # noqa: B905
    return f"{name}, line {number + 1}:\n- {old[number]}\n+ {new[number]}"


def written(name: str) -> str:
    """Takes today's text for the golden one."""
    (GOLDEN / f"{name}.txt").write_text(ORACLES[name](), encoding="utf-8")
    return ""


def main(arguments: list[str]) -> int:
    """1 where something differs."""
    names = [name for name in arguments if not name.startswith("-")] or list(ORACLES)
    with ProcessPoolExecutor(2) as pool:
        faults = list(pool.map(written if "--write" in arguments else compared, names))
    for name, fault in zip(names, faults, strict=True):
        print(fault or f"same: {name}")
    return int(any(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
