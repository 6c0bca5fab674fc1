"""What a function raises to be tried again: ``from beads_workers import Retry``."""

from __future__ import annotations


class Retry(Exception):
    """Raise this in a function that is to be tried again, without fault of its own.

    ``after_seconds``: no sooner than that, and a day at most; None leaves it to the back-off of
    the fleet. Such an attempt is not charged, but the twentieth in a row is. Anything that is no
    number from 0 on counts as None.
    """

    def __init__(self, reason: str = "", *, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds
