"""What ``doctor`` says of functions that issues and tasks may call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.cli.allowing import check_modules
from beads_workers.cli.doctor_remedies import sentence
from beads_workers.cli.errors import CommandError
from beads_workers.core.checks import Check, fail, ok

if TYPE_CHECKING:
    from beads_workers.cli.options import Options


def functions(options: Options, folder: Path) -> Check:
    """Whether the modules of ``--allow-module`` are there; none of them is imported."""
    try:
        check_modules(options, folder)
    except CommandError as error:
        return fail("command", sentence(error))
    modules = ", ".join(options.allow_module or ())
    return ok("command", f"functions of {modules}, which are there")
