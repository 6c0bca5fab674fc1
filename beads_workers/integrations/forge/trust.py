"""Whose text reaches an agent: an issue may be anybody's, and an agent obeys what it reads."""

from __future__ import annotations

from collections.abc import Collection

from beads_workers.integrations.forge import marks
from beads_workers.integrations.forge.api import Forge, ForgeComment, ForgeIssue, Thread

WRITERS, LABELLED, ANYONE = "writers", "labelled", "anyone"
FROM = (WRITERS, LABELLED, ANYONE)


class Trust:
    """Decides for one repository. ``trusted``: logins that count as writers, bots too."""

    def __init__(
        self, forge: Forge, texts_from: str, trusted: Collection[str], labels: Collection[str]
    ) -> None:
        self._forge, self._from = forge, texts_from
        self._trusted, self._labels = frozenset(trusted), frozenset(labels)
        self._labelled: dict[tuple[int, str], tuple[str, str]] = {}
        """Title and body that had the label, by number and time of the label."""

    def is_writer(self, login: str, *, is_bot: bool = False) -> bool:
        """Return whether somebody may write to the repository, or is trusted by name."""
        if login in self._trusted:
            return True
        return bool(login) and not is_bot and self._forge.can_write(login)

    def refusal(self, issue: ForgeIssue) -> str:
        """Return why no agent may read an issue, by what a list shows; "" if one may."""
        if self._from != WRITERS or self.is_writer(issue.author):
            return ""
        return f"its author, {issue.author or 'nobody'}, may not write to the repository"

    @property
    def reads_history(self) -> bool:
        """Whether it matters who put a label on an issue, and when."""
        return self._from == LABELLED

    def asks_for_text(self, issue: ForgeIssue) -> bool:
        """Return whether ``refusal_of_text`` may refuse it."""
        return self.reads_history and not self.is_writer(issue.author)

    def refusal_of_text(self, thread: Thread) -> str:
        """Return why no agent may read the text as it is now; "" if one may."""
        issue = thread.issue
        if not self.asks_for_text(issue):
            return ""
        put = [each for each in thread.label_events if each.is_on and each.label in self._labels]
        put = [each for each in put if self.is_writer(each.author)]
        if not put:
            return "nobody with write access has put the label on it"
        at = max(each.at for each in put)
        known = self._labelled.get((issue.number, at))
        if known is not None:
            same = known == (issue.title, issue.body)
        else:
            # Times are whole seconds: within the one of the label, nobody knows what came first.
            same = not issue.is_edited or "" < issue.edited_at < at
            same = same and (not thread.renamed_at or thread.renamed_at < at)
        if not same:
            return "its text was changed after somebody had put the label on it"
        self._labelled[issue.number, at] = issue.title, issue.body
        return ""

    def comments(self, thread: Thread) -> tuple[ForgeComment, ...]:
        """Return the comments that an agent may read; of ours, those that say something."""
        login = self._forge.login()
        found = []
        for each in thread.comments:
            kind, _ = marks.mark_of(each, login)
            if kind in (marks.CLAIM, marks.DONE):
                continue
            by_writer = kind or self.is_writer(each.author, is_bot=each.is_bot)
            if by_writer or self._from == ANYONE:
                found.append(each)
        return tuple(found)

    def answers(self, thread: Thread) -> list[ForgeComment]:
        """Return what people with write access have said after our last question, by the forge's
        own order."""
        login = self._forge.login()
        asked = marks.of_kind(thread.comments, login, marks.QUESTION)
        if not asked:
            return []
        return [
            each
            for each in thread.comments
            if each.comment_id > asked[-1].comment_id
            and not marks.mark_of(each, login)[0]
            and self.is_writer(each.author, is_bot=each.is_bot)
        ]
