"""Loaded by each Python of a counted run: writes its CPU seconds to a file when the process ends.

``BENCH_PYTHON`` names the folder. Forked processes of ours end by ``os._exit``.
"""

from __future__ import annotations

import atexit
import os
import resource
from typing import NoReturn

_FOLDER = os.environ.get("BENCH_PYTHON", "")
_exit = os._exit


def _note() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open(f"{_FOLDER}/{os.getpid()}", "w") as file:
        file.write(f"{used.ru_utime + used.ru_stime:.6f}")


def _ending(status: int) -> NoReturn:
    try:
        _note()
    finally:
        _exit(status)


if _FOLDER:
    atexit.register(_note)
    os._exit = _ending
