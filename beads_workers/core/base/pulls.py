"""Pull requests, as the lander sees them: plain values, and the protocol of a forge that has them.

The service ``pull_requests`` of the registry makes a ``PullRequests``. Texts are data: nothing here
is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from beads_workers.core.base.model import value
from beads_workers.core.base.source import SourceError

OPEN, MERGED, CLOSED = "open", "merged", "closed"
"""States of a pull request; the last one: closed without a merge."""
PENDING, GREEN, RED = "pending", "green", "red"
"""States of a check, and of all checks of a commit together; "" if there is none."""


class PullRefused(SourceError):
    """The forge has answered, and does not do what it was asked for."""


@value
class CheckRun:
    """The verdict of the forge's CI on a commit, one of several. ``url``: where people read it."""

    name: str
    state: str
    url: str = ""
    # What it says by itself.
    text: str = ""
    # What asks for its log; "" if there is none.
    key: str = ""


@value
class ReviewRemark:
    """What somebody who may write says of a pull request. ``key``: of this remark alone; ``place``:
    file and line, "" for the whole."""

    key: str
    author: str
    text: str
    place: str = ""


@value
class PullRequest:
    """A pull request as the forge shows it."""

    number: int
    url: str
    state: str
    # The commit of its head, by its full name.
    commit: str
    # The branch that it is for.
    base: str
    # The commit as which it was merged; "" until then.
    merged_as: str = ""
    # Whether it merges with its base; None while the forge does not know.
    merges: bool | None = None
    checks: tuple[CheckRun, ...] = ()
    is_approved: bool = False
    # Somebody who may write wants changes.
    is_refused: bool = False
    remarks: tuple[ReviewRemark, ...] = ()
    # Remarks of people who may not write, and of programs.
    others: int = 0
    # The checks were asked for just now.
    is_fresh: bool = True

    @property
    def review(self) -> str:
        """What people who may write think of it: ``changes`` are wanted, ``approved``, or ""."""
        return "changes" if self.is_refused else "approved" if self.is_approved else ""

    @property
    def verdict(self) -> str:
        """The state of all checks together."""
        states = {each.state for each in self.checks}
        return next((each for each in (RED, PENDING, GREEN) if each in states), "")


@value
class NewPull:
    """A pull request to open. ``head`` and ``base`` are names of branches."""

    head: str
    base: str
    title: str
    body: str
    draft: bool = False


class PullRequests(Protocol):
    """The pull requests of one repository. Everything may raise ``SourceError``."""

    def of_head(self, head: str) -> list[PullRequest]:
        """Return all pull requests of a branch of the repository, closed ones too, the newest
        first. Checks and remarks may be missing."""

    def look(self, numbers: Sequence[int], *, again: bool = False) -> dict[int, PullRequest]:
        """Return these pull requests as they are now; ``again``: their checks, too, even if those
        were green."""

    def open(self, new: NewPull) -> PullRequest:
        """Open a pull request; raises ``PullRefused``."""

    def edit(self, number: int, title: str, body: str) -> None:
        """Change its title and its text."""

    def comment(self, number: int, text: str) -> object:
        """Write a comment."""

    def close(self, number: int) -> None:
        """Close it without a merge."""

    def ask_for(self, number: int, labels: Sequence[str], reviewers: Sequence[str]) -> None:
        """Label it, and ask these people and teams for a review; raises ``PullRefused``."""

    def run_again(self, check: CheckRun) -> bool:
        """Have a red check run once more; return False if the forge cannot."""

    def log(self, check: CheckRun) -> str:
        """Return the end of what a check has printed; "" if there is nothing to read."""

    def merge(self, pull: PullRequest, title: str, text: str) -> None:
        """Merge it with its head as it is in ``pull``; raises ``PullRefused``."""

    def merge_later(self, pull: PullRequest, title: str, text: str) -> None:
        """Have the forge merge it once it may; raises ``PullRefused``."""

    def hurdles(self, base: str, *, may_be_fork: bool) -> list[str]:
        """Return what is in the way of pull requests for a branch, each as a sentence; raises
        ``SourceError`` if there can be none."""

    def login_of_git(self) -> Mapping[str, str]:
        """Return the settings of git, by their keys, with which it may push to the repository."""
