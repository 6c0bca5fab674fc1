"""``settings.json`` of earlier versions, as ``restart`` and ``land`` read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beads_workers.cli.config import resolve
from beads_workers.options import KEYS, given, value_of
from beads_workers.runtime.run_directory import SETTINGS_FILE, RunDirectory

KEPT = sorted(Path(__file__).parent.glob("settings/*.json"))


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.stem)
def test_what_was_typed_is_read_from_the_settings_of_an_earlier_version(
    kept: Path, tmp_path: Path
) -> None:
    """Other fields may move: nobody reads them. What was typed counts, to the second."""
    written = json.loads(kept.read_bytes())
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / SETTINGS_FILE).write_bytes(kept.read_bytes())
    read = RunDirectory(tmp_path).read_settings("r")
    assert read is not None and read.typed is not None
    assert (read.typed, read.folder, read.owned) == (
        *(written["typed"], written["folder"], written["owned"]),
    )
    assert [*read.argv] == written["argv"] and [*read.filters.only] == written["filters"]["only"]
    again = resolve(given(read.typed), tmp_path, {}).options
    typed = {name: list(v) if isinstance(v, tuple) else v for name, v in _values(again).items()}
    assert {name: typed[name] for name in written["typed"]} == written["typed"]


def _values(options: object) -> dict[str, object]:
    return {key: value_of(options, key) for key in KEYS}  # type: ignore[arg-type]
