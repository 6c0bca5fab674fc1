"""The integration branch as one pull request, which lists what is on it. Source: docs/PULLS.md."""

from __future__ import annotations

import time
from collections.abc import Callable

from beads_workers.core.base import pulls
from beads_workers.core.base.pulls import PullRequest, PullRequests
from beads_workers.core.base.text import counted
from beads_workers.core.records.landing import Into, LanderSettings, News, Pull, pull_text
from beads_workers.landing.repository import LandingRepository
from beads_workers.worktrees.landed import still_landed
from beads_workers.worktrees.ledger import LandedCommit


class RunInReview:
    """Opens it once something has landed, and keeps its text. People merge it."""

    def __init__(
        self,
        settings: LanderSettings,
        repository: LandingRepository,
        forge: PullRequests,
        say: Callable[[News], None],
    ) -> None:
        self._repository, self._forge, self._say = repository, forge, say
        self._rules = settings.landing.rules.pulls
        repository.login = forge.login_of_git()
        self._head, self._base = settings.landing.branch, settings.landing.proposed_for
        self._listed: tuple[str, str] | None = None
        self._told: Into | None = None
        self._tip = ""
        self.due = 0.0
        """When ``look`` is to be called, in monotonic seconds."""

    def is_behind(self, tip: str) -> bool:
        """Return whether the pull request does not list yet what is on the branch."""
        return tip != self._tip

    def look(self, tip: str) -> None:
        """Open it or bring it up to date, and say how it is. Raises ``GitError``, and
        ``SourceError`` for a forge that does not answer."""
        self.due = time.monotonic() + self._rules.look_seconds
        found = self._forge.of_head(self._head)
        landed = self._landed(tip, found)
        is_open = next((each for each in found if each.state == pulls.OPEN), None)
        if landed:
            title, text = self._text(landed)
            if is_open is None:
                new = pulls.NewPull(self._head, self._base, title, text, draft=self._rules.draft)
                is_open = self._forge.open(new)
            elif self._listed != (title, text):
                self._forge.edit(is_open.number, title, text)
            self._listed = title, text
            seen = self._forge.look([is_open.number]).get(is_open.number, is_open)
            self._tell(tip, seen)
        self._tip = tip

    def _landed(self, tip: str, found: list[PullRequest]) -> list[LandedCommit]:
        """Return what is on the branch, and in no pull request that was merged."""
        repository = self._repository
        merged = (each.commit for each in found if each.state == pulls.MERGED)
        since = next((e for e in merged if repository.commit_of(e)), None)
        since = since or repository.at_remote(f"refs/heads/{self._base}")
        return still_landed(list(repository.landed(since, tip)))

    def _text(self, landed: list[LandedCommit]) -> tuple[str, str]:
        """Return the title and the text, the first issue first."""
        subjects = {each.commit: self._repository.message(each.commit)[0] for each in landed}
        lines = [f"- {each.issue_id}: {subjects[each.commit]}" for each in reversed(landed)]
        if len(landed) == 1:
            return subjects[landed[0].commit], f"For {landed[0].issue_id}, by beads-workers.\n"
        about = f"{counted(len(landed), 'issue')}, by beads-workers:"
        return f"{about[:-1]}", "\n".join([about, "", *lines, ""])

    def _tell(self, tip: str, seen: PullRequest) -> None:
        pull = Pull(seen.number, seen.url, checks=seen.verdict, review=seen.review)
        news = Into(self._base, tip, pull_text(pull), url=seen.url)
        if news != self._told:
            self._told = news
            self._say(news)
