"""A forge: issues, comments and labels of one repository, as Gitea and Forgejo have them.

An adapter makes these values of what its forge answers. Nothing here is trusted: texts are data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from beads_workers.core.base.model import value
from beads_workers.core.base.pulls import PullRefused
from beads_workers.core.base.source import Calls, SourceError

FORMS = ("github:OWNER/REPO", "gitea:https://HOST/OWNER/REPO", "forge:")
"""Texts of ``--source``; the last one means the remote of the repository here."""
TOKENS = ("GITEA_TOKEN", "FORGEJO_TOKEN")
"""Variables with a token for Gitea, the first one that is set."""
GH_TOKENS = ("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
NO_GH_LOGIN = "GH_CONFIG_DIR=/nonexistent"
"""For whatever is not to have the login of ``gh``."""


class ForgeError(SourceError):
    """The forge did not answer as it should."""


class ForgeDown(ForgeError):
    """The forge cannot be reached, or wants to be left alone for a while."""

    passing = True


class Gone(ForgeError):
    """There is no such issue or comment, or it cannot be seen."""


class NotTaken(PullRefused, ForgeError):
    """The forge does not do what it was asked for."""


@value
class ForgeRepository:
    """A repository on a forge. ``url``: of the forge, without a slash at its end."""

    kind: str
    url: str
    owner: str
    name: str

    @property
    def text(self) -> str:
        """The repository, for people."""
        return f"{self.url.partition('://')[2]}/{self.owner}/{self.name}"


@value
class ForgeIssue:
    """An issue. Times are RFC 3339 texts of the forge's clock."""

    number: int
    title: str
    body: str
    author: str
    is_open: bool
    labels: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()
    created_at: str = ""
    updated_at: str = ""
    closed_at: str = ""
    # Nobody may work on it: locked, or moved elsewhere.
    is_locked: bool = False
    # Whether the body was ever changed, and when, if the forge says that.
    is_edited: bool = False
    edited_at: str = ""
    # It says by itself that it waits for others, or may; False if there is nothing to ask for.
    may_wait: bool = True


@value
class ForgeComment:
    """A comment; ``comment_id`` grows with time."""

    comment_id: int
    author: str
    text: str
    created_at: str = ""
    is_bot: bool = False


@value
class LabelEvent:
    """Somebody has put a label on an issue, or taken it off."""

    label: str
    author: str
    at: str
    is_on: bool


@value
class Thread:
    """An issue with its whole conversation, oldest first."""

    issue: ForgeIssue
    comments: tuple[ForgeComment, ...] = ()
    label_events: tuple[LabelEvent, ...] = ()
    # When the title was changed last; "" for never.
    renamed_at: str = ""


@value
class Blocker:
    """An issue that another one waits for. ``place``: ``OWNER/NAME`` of another repository."""

    number: int
    is_open: bool
    place: str = ""


@value
class IssueChange:
    """A change of an issue; None leaves a field as it is."""

    title: str | None = None
    body: str | None = None
    is_open: bool | None = None
    labels_on: tuple[str, ...] = ()
    labels_off: tuple[str, ...] = ()
    assignees: tuple[str, ...] | None = None


class Forge(Protocol):
    """One repository of a forge, as one login sees it. Everything may raise ``ForgeError``."""

    repository: ForgeRepository
    calls: Calls

    lag_seconds: float
    """Time after which everybody sees a comment."""

    def is_past(self, at: str, seconds: float = 0.0) -> bool:
        """Return whether everybody has seen by now what was written then, and since so many
        seconds; by the forge's own clock."""

    def login(self) -> str:
        """Return whose token is used."""

    def describe(self) -> str:
        """Return one line for people: the program or the version, and whose login it is."""

    def issues(self, since: str) -> list[ForgeIssue]:
        """Return what has changed since then, closed ones too; with "", all open issues."""

    def thread(
        self, number: int, issue: ForgeIssue | None = None, *, history: bool = True
    ) -> Thread:
        """Return an issue and what was said. ``issue``: as it was just read. Without ``history``
        what became of labels and title may be missing. Raises ``Gone``."""

    def blockers(self, number: int) -> tuple[Blocker, ...]:
        """Return the issues that an issue waits for, by the forge's own dependencies."""

    def can_write(self, login: str) -> bool:
        """Return whether somebody may write to the repository."""

    def comment(self, number: int, text: str) -> ForgeComment:
        """Write a comment; raises ``Gone``."""

    def edit_comment(self, comment_id: int, text: str) -> None:
        """Replace the text of a comment; raises ``Gone``."""

    def delete_comment(self, comment_id: int) -> None:
        """Delete a comment; nothing happens if it is gone."""

    def change(
        self, number: int, change: IssueChange, seen: Sequence[str] = ()
    ) -> ForgeIssue | None:
        """Change an issue; return it if the answer tells of it. ``seen``: the labels that it had.
        Raises ``Gone``."""

    def create(self, change: IssueChange) -> int:
        """Open an issue; return its number."""

    def depend(self, number: int, other: int, *, on: bool) -> None:
        """Let an issue wait for another one, or no more."""
