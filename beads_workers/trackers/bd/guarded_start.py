"""A process that starts its program only when its caller says so, and never after the caller's
death.

A caller can be killed between the start of a process and the journal's line about it. A ``bd`` that
is not in the journal could then claim an issue after the next start has read all issues. So a shell
takes its place until the line is written. The shell waits for a word on its stdin, and then becomes
the program; at the end of the stream it exits (docs/SEMANTICS.md, "The tracker in trouble"). Pid
and start time stay the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

SHELL = "/bin/sh"
NAME = "cannot begin"
"""Name of the shell in its error message, if the program vanishes at that very moment."""
SCRIPT = 'input=$1; shift; read -r go && exec "$@" <"$input"'
WORD = b"go\n"
NOT_STARTED = (126, 127)
"""Exit statuses of a shell that found no program, or could not run it."""


class GatedProcess:
    """A process that waits at its gate. ``let_go`` opens the gate; leaving the ``with`` block
    without that ends the process.

    Raises ``OSError`` if the process cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        stdin: IO[bytes] | None,
        stdout: IO[bytes],
        stderr: IO[bytes],
    ) -> None:
        """Start the shell. ``stdin``: a file to be read from its start; None is empty."""
        _check_program(argv[0], folder, environment)
        word, self._gate = os.pipe()
        source = os.devnull if stdin is None else f"/dev/fd/{stdin.fileno()}"
        try:
            self.process = subprocess.Popen(
                [SHELL, "-c", SCRIPT, NAME, source, *argv],
                cwd=folder,
                env=environment,
                stdin=word,
                stdout=stdout,
                stderr=stderr,
                pass_fds=() if stdin is None else (stdin.fileno(),),
                process_group=0,
            )
        except (OSError, ValueError):
            os.close(self._gate)
            raise
        finally:
            os.close(word)

    def __enter__(self) -> GatedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._gate)

    def let_go(self) -> None:
        """Let the program start: its caller has written it down."""
        try:
            os.write(self._gate, WORD)
        except BrokenPipeError:
            pass  # The process was killed at its gate: its exit status says so.


def _check_program(program: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Raise the errors of ``exec``: the shell could report them only as text."""
    path = str(folder / program) if "/" in program else program
    if shutil.which(path, path=environment.get("PATH")) is None:
        if "/" in program and Path(path).exists():
            raise PermissionError(f"{program} is not executable")
        raise FileNotFoundError(program)


def could_not_begin(status: int, stderr: bytes) -> bool:
    """Return whether an exit status is the shell's own, because the program could not be run."""
    return status in NOT_STARTED and stderr.startswith(NAME.encode())
