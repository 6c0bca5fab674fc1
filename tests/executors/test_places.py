"""Whether a module is there is found out without importing anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from beads_workers.executors.functions import is_there


@pytest.mark.parametrize(
    ("module", "there"),
    [
        ("shop_here", True),
        ("shop_here.tasks", True),
        ("shop_here.tasks.mail", True),
        ("shop_here.tasks.post", False),
        ("shop_here.task", False),
        ("single", True),
        ("single.part", False),
        ("bare.inner", True),
        ("nowhere_at_all", False),
        ("beads_workers.core", True),
        ("json", True),
        ("sys", True),
    ],
)
def test_modules_are_looked_for_in_the_folder_and_in_this_python(
    tmp_path: Path, module: str, *, there: bool
) -> None:
    for file in ("shop_here/__init__.py", "shop_here/tasks/__init__.py", "shop_here/tasks/mail.py",
                 "single.py", "bare/inner.py"):  # fmt: skip
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("raise SystemExit('imported')\n")
    assert is_there(module, str(tmp_path)) is there
    assert "shop_here" not in sys.modules


def test_a_module_below_packages_without_files_is_found(tmp_path: Path) -> None:
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    (tmp_path / "outer" / "inner" / "tasks.py").touch()
    assert is_there("outer.inner.tasks", str(tmp_path))
    assert not is_there("outer.inner.other", str(tmp_path))
