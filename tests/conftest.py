"""Fixtures shared by the whole suite live in ``tests/support``."""

from __future__ import annotations

import signal

pytest_plugins = ["tests.support.bd", "tests.support.peers", "tests.support.postgres"]


def pytest_configure() -> None:
    """What runs under a test gets signals as in a terminal, also where ``nohup`` started us."""
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
