"""Steps of ours as forks of their worker, in which the zygote has loaded their modules.

Loading is nearly all that such a step costs: 0.15 s of CPU time, twice for each attempt. A fork
begins as ``python -P -m MODULE`` would: a process group of its own, with the signals, descriptors
and environment of a new program. One thing differs: ``/proc`` shows the command line and the
environment of the zygote, without the worker's token. So the fork keeps the run's ``alive`` open,
as its worker does: whoever looks for the processes of a run, or asks whether one is part of an
attempt, finds it. No program that it starts gets that descriptor.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import ModuleType

from beads_workers.runtime.kernel import system
from beads_workers.runtime.processes import DEFAULT_SIGNALS

OURS = (sys.executable, "-P", "-m")
"""Words with which the command of a step of ours begins; the name of the module follows."""

ALIVE = "/alive"
_loaded: set[str] = set()


def load(modules: Iterable[str]) -> None:
    """Load these modules, for forks of this process: call in the zygote."""
    import gc  # No worker needs these.
    import importlib

    for name in modules:
        importlib.import_module(name)
        _loaded.add(name)
    gc.freeze()  # What was loaded is no garbage in any fork, and stays shared with all of them.


def loaded(argv: Sequence[str]) -> ModuleType | None:
    """Return the module that a command runs, if it is one of ours that was loaded ahead."""
    if tuple(argv[:3]) != OURS or len(argv) != 4 or argv[3] not in _loaded:
        return None
    return sys.modules[argv[3]]


def fork_in_group(
    module: ModuleType, environment: Mapping[bytes, bytes], standard: tuple[int, int, int]
) -> int:
    """Run ``main`` of a module in a fork, in the current folder, the first of a process group of
    its own; return the pid. ``standard``: its stdin, stdout and stderr. Raises ``OSError``."""
    # A signal that comes before the fork has its own handlers must not reach the worker by it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.setpgid(0, 0)
                _reset_signals()
                _keep_only(standard)
                os.environb.clear()
                os.environb.update(environment)
                sys.argv = [str(module.__file__)]
                sys.stdin, sys.stdout, sys.stderr = (_stream(number) for number in range(3))
                _name(module.__name__.rpartition(".")[2])
                status = module.main()
            except SystemExit as ended:
                status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            except BaseException:
                # It must never run on as a second worker.
                import traceback  # Few need it.

                traceback.print_exc()
            finally:
                with suppress(Exception):
                    sys.stdout.flush()
                os._exit(status)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with suppress(OSError):  # Both do it, so that it is done for both.
        os.setpgid(pid, pid)
    return pid


def _reset_signals() -> None:
    """Set the signals as in a new Python."""
    signal.set_wakeup_fd(-1)
    handled = (n for n in signal.valid_signals() if callable(signal.getsignal(n)))
    for number in {*DEFAULT_SIGNALS, *handled}:
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _keep_only(standard: tuple[int, int, int]) -> None:
    """Make these descriptors 0, 1 and 2, and close all others but the lock of the run."""
    # First above the three, so that none is overwritten before it was copied.
    copies = [os.dup(descriptor) if descriptor < 3 else descriptor for descriptor in standard]
    for number, descriptor in enumerate(copies):
        os.dup2(descriptor, number, inheritable=True)
    for descriptor in system.own_descriptors():
        if descriptor > 2 and not system.name_of_descriptor(descriptor).endswith(ALIVE):
            os.close(descriptor)


def _stream(number: int) -> io.TextIOWrapper:
    mode, errors = ("r", "strict") if number == 0 else ("w", "backslashreplace")
    raw = io.FileIO(number, mode, closefd=False)
    buffered = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, "utf-8", errors, line_buffering=number == 2)


def _name(name: str) -> None:
    system.name_process(f"bw-{name}")
