"""A ``bd`` on PATH that passes everything on, but for one call, once, at which something dies.

The script knows two processes: itself (``$$``) and the orchestrator, which is its parent.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.bd import BdProject

KILL_ORCHESTRATOR = "kill -9 $PPID"


class MortalBd:
    """Put in front of PATH: see ``at``. ``struck`` says whether the moment has come."""

    def __init__(self, project: BdProject, folder: Path) -> None:
        self._folder = folder / "mortal"
        self._folder.mkdir()
        self._real = project.directory / "bd"
        self._mark = self._folder / "struck"
        project.environment = {
            **project.environment,
            "PATH": f"{self._folder}:{project.environment['PATH']}",
        }

    @property
    def struck(self) -> bool:
        """Whether the call has come, and was answered by ``then``."""
        return self._mark.exists()

    def at(self, pattern: str, then: str) -> None:
        """The first call whose arguments match runs ``then`` (sh); ``$BD`` is the real one."""
        program = self._folder / "bd"
        program.write_text(
            f'#!/bin/sh\nBD="{self._real}"\n'
            f'case " $* " in {pattern})\n'
            f'  if mkdir "{self._mark}" 2>/dev/null; then {then}; exit 1; fi;;\nesac\n'
            'exec "$BD" "$@"\n'
        )
        program.chmod(0o755)
