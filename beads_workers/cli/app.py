"""The entry point: runs a command and reports every failure. See ``registry.COMMANDS``.

Only the module of the called command is imported, and none for ``--help``: ``status`` must cost no
more than an empty application.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from typing import Any, NoReturn

from beads_workers import __version__
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_ERROR

MACHINE = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS),
        *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS),
    }
)
"""Error numbers that show a problem of the machine, not a bug of this program."""

VERSION = (["--version"], ["-v"], ["-V"])
"""Whole command lines that ask for the version."""

HELP = frozenset({"-h", "--help"})


def main() -> None:
    """Run a command; each failure prints one line and a hint, and sets an exit code."""
    _open_standard_streams()
    try:
        try:
            _main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _write_to_nothing(1)  # The reader has closed the pipe.
    except OSError as error:
        if error.errno not in MACHINE:
            raise  # A bug: its traceback shows where.
        _write_to_nothing(1)  # It may be stdout's disk that is full.
        place = f": {error.filename}" if error.filename else ""
        hint = "'beads-workers doctor' looks at the limits of this machine"
        _fail(f"{error.strerror}{place}", hint, EXIT_ERROR)
    except (MemoryError, RuntimeError) as error:
        from beads_workers.runtime.processes import lacking

        if not (text := lacking(error)):
            raise
        _fail(text, "see 'ulimit -v', 'ulimit -u' and the limits of the container", EXIT_ERROR)


def _open_standard_streams() -> None:
    """Open closed standard streams on /dev/null: else the next file or socket takes the number, and
    whatever reads or prints meets that."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "w" if fd else "r", closefd=False))  # noqa: SIM115


def _write_to_nothing(fd: int) -> None:
    """From here on, write nothing to ``fd``: Python would report the error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


def _main() -> None:
    if sys.argv[1:] in VERSION:
        print(__version__)
        return
    if sys.argv[1:2] == ["help"]:
        sys.argv[1:] = [*sys.argv[2:], "--help"]
    if not HELP & {*sys.argv[1:]} and (lacks := _lacks()):
        hint = "in a virtual machine or a container with Linux it runs as it is"
        _fail(f"this system cannot run a fleet: {lacks}", hint, EXIT_ERROR)
    try:
        os.getcwd()  # noqa: PTH109 - pathlib is not loaded yet
    except FileNotFoundError:
        _fail("the folder you are in is gone", "go to one that exists: cd ~", EXIT_ERROR)
    try:
        code = _loaded()(prog_name="beads-workers", standalone_mode=False)
    except CommandError as error:
        _fail(error.message, error.hint, error.exit_code)
    except _usage_errors() as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # Not an error: the help text, as no command was given.
            sys.exit(error.exit_code)
        from beads_workers.cli.suggestions import (
            explained,  # Imported here: most calls have no mistake.
        )

        _fail(*explained(error, sys.argv[1:]), error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except _git_error() as error:
        _fail(f"git: {_printable(str(error))}", "", EXIT_ERROR)
    sys.exit(code if isinstance(code, int) else 0)


def _loaded() -> Any:
    """Return the application.

    The loaded modules are no garbage, but two collections would take a sixth of a short command's
    time. Collection is off while modules load, and then their objects are frozen.
    """
    gc.disable()
    try:
        from beads_workers.cli.application import build

        return build(sys.argv[1:])
    finally:
        gc.freeze()
        gc.enable()


def _git_error() -> type[Exception]:
    from beads_workers.worktrees.git import GitError  # Imported after an exception only.

    return GitError


def _printable(text: str) -> str:
    from beads_workers.core.base.text import printable

    return printable(text)


def _lacks() -> str:
    from beads_workers.runtime.kernel import system

    return system.missing()[0]


def _usage_errors() -> type[Any]:
    """Return the parser's error class: typer has its own copy of click, or uses the real one."""
    from typer import BadParameter

    return next(kind for kind in BadParameter.__mro__ if kind.__name__ == "ClickException")


def _fail(message: str, hint: str, exit_code: int) -> NoReturn:
    try:
        print(f"error: {message}", file=sys.stderr)
        if hint:
            print(f"hint: {hint}", file=sys.stderr)
    except OSError:
        _write_to_nothing(2)
    sys.exit(exit_code)
