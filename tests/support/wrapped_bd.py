"""A ``bd`` on PATH that passes everything on, but for some calls, at which something dies, once.

The script knows two processes: itself (``$$``) and the orchestrator, which is its parent.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.bd import BdProject

KILL_ORCHESTRATOR = "kill -9 $PPID"


class MortalBd:
    """Put in front of PATH: see ``at``. ``struck`` says whether each moment has come."""

    def __init__(self, project: BdProject, folder: Path) -> None:
        self._folder = folder / "mortal"
        self._folder.mkdir()
        self._real = project.directory / "bd"
        self._moments: list[tuple[Path, str]] = []
        project.environment = {
            **project.environment,
            "PATH": f"{self._folder}:{project.environment['PATH']}",
        }

    @property
    def struck(self) -> bool:
        """Whether each call has come, and was answered by its ``then``."""
        return all(mark.exists() for mark, _ in self._moments)

    def at(self, pattern: str, then: str) -> None:
        """The next call whose arguments match runs ``then`` (sh); ``$BD`` is the real one."""
        mark = self._folder / f"struck-{len(self._moments)}"
        strikes = f'if mkdir "{mark}" 2>/dev/null; then {then}; exit 1; fi'
        self._moments.append((mark, f'case " $* " in {pattern})\n  {strikes};;\nesac\n'))
        cases = "".join(case for _, case in self._moments)
        # Renamed into its place: a shell reads its script as it goes on.
        program = self._folder / "bd.new"
        program.write_text(f'#!/bin/sh\nBD="{self._real}"\n{cases}exec "$BD" "$@"\n')
        program.chmod(0o755)
        program.rename(self._folder / "bd")
