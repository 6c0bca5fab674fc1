"""The command line: every way in which a command can end. ``registry.COMMANDS`` has them all.

Only the module of the command that is called is imported, and for ``--help`` none at all:
``status`` must cost no more than an empty application.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from typing import Any, NoReturn

from beads_workers import __version__
from beads_workers.cli.errors import CommandError
from beads_workers.exits import EXIT_ERROR

MACHINE = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS),
        *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS),
    }
)
"""Errors that say something of the machine, and nothing of this program."""

HELP = frozenset({"-h", "--help"})


def main() -> None:
    """Run a command; every way it can fail ends in one line, a hint and an exit code."""
    if sys.argv[1:] == ["--version"]:
        print(__version__)
        return
    if not (HELP & {*sys.argv[1:]} or _is_linux()):
        _fail(
            "this system cannot run a fleet: Linux 5.3 or later is needed (pidfd_open)",
            "in a virtual machine or a container with Linux it runs as it is",
            EXIT_ERROR,
        )
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
            error.show()  # No error at all: what there is to choose from.
            sys.exit(error.exit_code)
        from beads_workers.cli.meant import explained  # Most calls have no mistake in them.

        _fail(*explained(error, sys.argv[1:]), error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader has seen enough. Python would complain once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
    except OSError as error:
        if error.errno not in MACHINE:
            raise  # A bug, and its traceback says where.
        place = f": {error.filename}" if error.filename else ""
        hint = "'beads-workers doctor' looks at the limits of this machine"
        _fail(f"{error.strerror}{place}", hint, EXIT_ERROR)
    except _git_error() as error:
        _fail(f"git: {_printable(str(error))}", "", EXIT_ERROR)
    sys.exit(code if isinstance(code, int) else 0)


def _loaded() -> Any:
    """The application. Nothing of it is garbage, and looking for some would take a sixth of a short
    command: while it is loaded, and once more at the end."""
    gc.disable()
    try:
        from beads_workers.cli.application import build

        return build(sys.argv[1:])
    finally:
        gc.freeze()
        gc.enable()


def _git_error() -> type[Exception]:
    from beads_workers.worktrees.git import GitError  # Asked only once something was raised.

    return GitError


def _printable(text: str) -> str:
    from beads_workers.core.text import printable

    return printable(text)


def _is_linux() -> bool:
    """Whether a process can be watched by a descriptor, as everything here does."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except AttributeError:
        return False
    except OSError as error:
        return error.errno != errno.ENOSYS
    return True


def _usage_errors() -> type[Any]:
    """What the parser raises: typer carries its own copy of click, or uses the real one."""
    from typer import BadParameter

    return next(kind for kind in BadParameter.__mro__ if kind.__name__ == "ClickException")


def _fail(message: str, hint: str, exit_code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    sys.exit(exit_code)
