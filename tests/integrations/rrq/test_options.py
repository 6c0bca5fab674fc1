"""The option that names executors: a text, or tables of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.cli.config import resolve
from beads_workers.errors import CommandError
from beads_workers.options import FILE_NAME
from tests.support.trust import TRUSTED


def write(folder: Path, text: str) -> None:
    (folder / FILE_NAME).write_text(text)


def test_executors_may_be_tables(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        [[executor]]
        name = "py"
        command = ["serve", "--with", "a word"]
        [[executor]]
        name = "new"
        protocol = "rrq2"
        command = "rrq-runner --settings x.y"
        """,
    )
    executors = resolve({}, tmp_path, TRUSTED).options.executor
    assert executors == ("py=rrq:serve --with 'a word'", "new=rrq2:rrq-runner --settings x.y")


@pytest.mark.parametrize(
    "value", ['"serve"', '"rrq:"', '"rrq3:x"', "\"rrq:a 'b\"", "{}", '{command = 1}', "{name = 2}",
              '{command = "a", port = 1}', '{command = "a", name = "a b"}', "[3]"]
)  # fmt: skip
def test_an_executor_that_says_no_program_is_refused(tmp_path: Path, value: str) -> None:
    write(tmp_path, f"executor = {value}")
    with pytest.raises(CommandError, match="executor cannot be"):
        resolve({}, tmp_path, TRUSTED)
