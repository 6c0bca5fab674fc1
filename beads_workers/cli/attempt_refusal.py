"""Commands by which a person decides: refused to attempts of the same project."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from beads_workers.cli.layout import LaidOut
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE
from beads_workers.runtime.within_attempt import GO_ON, belong, marks, refusal


def for_persons(kind: type[LaidOut]) -> type[LaidOut]:
    """Return this kind of command, as one that refuses attempts before it does anything."""

    class ForPersons(kind):  # type: ignore[misc, valid-type]
        """A command that decides; ``--help`` is for everybody."""

        def invoke(self, ctx: Any) -> Any:
            """See click."""
            refuse_attempts(str(self.name), ctx.params.get("state_dir"))
            return super().invoke(ctx)

    return ForPersons


def refuse_attempts(command: str, state_dir: str | None) -> None:
    """Raise ``CommandError`` if this process is part of an attempt of the project that the command
    is about: that of ``state_dir``, whose fleet is asked, or that of the current folder, whose
    tracker is written."""
    if not (found := marks(os.getpid())):
        return
    from beads_workers.cli.client import find_state_directory  # A person's command loads it later.

    for directory in map(find_state_directory, dict.fromkeys((state_dir, None))):
        if belong(found, directory):
            _note(command, directory)
            raise CommandError(refusal(command), GO_ON, EXIT_USAGE)


def _note(command: str, directory: Path) -> None:
    """Add the refusal to those that the attempt's receipt lists."""
    log = Path(os.environ.get("BW_GUARD_LOG", ""))
    if log.is_relative_to(directory.resolve()):
        with suppress(OSError), log.open("a") as file:
            file.write(f"beads-workers {command}\n")
