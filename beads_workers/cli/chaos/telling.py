"""What a chaos says: one line that is written over while it goes on, and the story at its end."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from beads_workers.cli.chaos.account import Account, Log
from beads_workers.cli.chaos.havoc import Tally
from beads_workers.cli.chaos.place import Place
from beads_workers.cli.throwaway import Promise, what_was_checked

PIPE_SECONDS = 10.0
"""In a pipe, a plain line so often."""


def opening(place: Place, seed: int, kills: int, workers: int, *, literal: bool) -> str:
    """What is about to happen."""
    return (
        f"chaos: {kills} kills, seed {seed}, {workers} workers on {place.tracker.name}"
        f"{', each calling it by itself' if literal else ''}, in {place.folder}"
    )


class Progress:
    """On stderr: on a terminal one line that changes, else a plain line now and then."""

    def __init__(self, kills: int, *, quiet: bool) -> None:
        self._kills = kills
        self._quiet = quiet
        self._draws = sys.stderr.isatty()
        self._last = time.monotonic()
        self._width = 0

    def say(self, text: str) -> None:
        """One line that stays."""
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def show(self, tally: Tally) -> None:
        """Where it stands."""
        now = time.monotonic()
        if self._quiet or not (self._draws or now >= self._last + PIPE_SECONDS):
            return
        self._last = now
        text = (
            f"{tally.kills.total()} of {self._kills} kills"
            f" ({by_kind(tally.kills)}), {tally.starts} starts, {tally.issues} issues"
        )
        if not self._draws:
            print(text, file=sys.stderr, flush=True)
            return
        text = text[: _columns()]
        print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)
        self._width = len(text)

    def end(self) -> None:
        """What follows begins on a line of its own."""
        if self._draws and self._width:
            print(f"\r{'':<{self._width}}\r", end="", file=sys.stderr, flush=True)


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns - 1


def by_kind(counts: Counter[str]) -> str:
    """The most frequent first."""
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common())


@dataclass(frozen=True, slots=True)
class Story:
    """The last words of a chaos, for people and for programs."""

    place: Place
    seed: int
    tally: Tally
    promises: Sequence[Promise]
    account: Account
    log: Log
    seconds: float
    again: str
    """The command that does the same."""
    literal: bool = False
    """Each worker claimed and closed by itself."""
    keep: bool = False
    """The user wants the folder kept."""

    @property
    def broken(self) -> list[Promise]:
        """What was not kept."""
        return [promise for promise in self.promises if promise.broken]

    def lines(self) -> Iterator[str]:
        """What was done, what became of the issues, and what was checked."""
        tally, counts = self.tally, self._counts()
        yield (
            f"{tally.kills.total()} kills in {self.seconds:.0f} s: {by_kind(tally.kills)};"
            f" {tally.freezes.total()} freezes; {tally.starts} starts of the orchestrator;"
            f" up to {max(tally.at_work, default=0)} tasks were running."
        )
        yield (
            f"{tally.issues} issues, {self.log.attempts} attempts: {counts['closed']} closed,"
            f" {counts['set_aside']} set aside with their reason;"
            f" {counts['found_closed']} closes were found done"
            f"{', by workers' if self.literal else ' by a later start'}."
        )
        yield from what_was_checked(
            self.promises, "the tracker, the journals of all runs, the tasks' own log and /proc"
        )
        if self.broken or self.keep:
            yield f"The folder is kept: {self.place.folder}"
        if self.broken:
            yield f"Once more: {self.again}"

    def as_object(self) -> dict[str, Any]:
        """The same for a program."""
        at_work = self.tally.at_work or [0]
        return {
            "chaos": {
                "seed": self.seed,
                "tracker": self.place.tracker.name,
                "bd_calls": "worker" if self.literal else "grouped",
                "folder": str(self.place.folder),
                "seconds": round(self.seconds, 1),
                "kills": self.tally.kills.total(),
                "kills_by_kind": dict(self.tally.kills),
                "freezes": self.tally.freezes.total(),
                "starts": self.tally.starts,
                "at_work": {"least": min(at_work), "most": max(at_work)},
                "issues": self.tally.issues,
                "attempts": self.log.attempts,
                **self._counts(),
                "promises": [{"text": p.text, "broken": list(p.broken)} for p in self.promises],
            }
        }

    def _counts(self) -> dict[str, int]:
        lives = self.account.lives.values()
        return {
            # What a worker closed in its orchestrator's last moment was found, and never finished.
            "closed": sum(life.done or life.found_closed > 0 for life in lives),
            "set_aside": sum(not life.done and life.verdict == "set_aside" for life in lives),
            "found_closed": sum(life.found_closed for life in lives),
            "charged": sum(life.charged for life in lives),
        }
