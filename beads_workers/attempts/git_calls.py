"""Calls of git that an attempt depends on: no answer is not an answer.

A git that was killed, hangs or cannot be started has said nothing of what it was asked. It is asked
again; then it is ``GitNoAnswer``, which nobody may read as "no change".
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from beads_workers.core.model import value
from beads_workers.worktrees.git import GitCall, GitError, call

TRIES_MAX = 3
TRY_AGAIN_SECONDS = 0.1
"""Another git may hold one of its short locks."""
GIT_SECONDS = 600.0
"""A commit of a large worktree, or a program that signs, takes minutes; none takes longer."""


class GitNoAnswer(GitError):
    """git was killed, hung or could not be started, again and again."""


class Misplaced(GitError):
    """Whoever worked has removed its worktree, or put another repository in its place."""


@value
class Git:
    """git in one folder. ``seconds``: what a call may take."""

    folder: str
    seconds: float = GIT_SECONDS

    def __call__(
        self,
        *arguments: str,
        given: str | None = None,
        index: str | None = None,
        places: Mapping[str, str] | None = None,
    ) -> str:
        """Return what it prints; raises ``GitError``, which is ``GitNoAnswer`` if git said nothing.

        ``index``: another than the folder's own; ``places``: as in ``worktrees.git.call``.
        """
        places = {**(places or {}), **({"GIT_INDEX_FILE": index} if index else {})}
        done = self.ask(*arguments, given=given, places=places)
        if done.status != 0:
            raise GitError(done.error or f"git {arguments[0]} exited with {done.status}")
        return done.output

    def ask(
        self,
        *arguments: str,
        given: str | None = None,
        places: Mapping[str, str] | None = None,
        good: tuple[int, ...] = (0,),
    ) -> GitCall:
        """Return how it ended, for a call that may be made twice; raises ``GitNoAnswer``.

        ``good``: exit statuses that are answers; after any other one it is asked again.
        """
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                done = self.once(*arguments, given=given, places=places)
            except GitNoAnswer:
                if not tries_left:
                    raise
            else:
                if done.status in good or not tries_left:
                    return done
            time.sleep(TRY_AGAIN_SECONDS)
        raise AssertionError("the last try returns or raises")

    def once(
        self,
        *arguments: str,
        given: str | None = None,
        places: Mapping[str, str] | None = None,
    ) -> GitCall:
        """The same without another try, for a call that changes something."""
        try:
            done = call(self.folder, *arguments, given=given, places=places, seconds=self.seconds)
        except GitError as error:
            if not Path(self.folder).is_dir():
                raise Misplaced(f"{self.folder} is gone") from None
            raise GitNoAnswer(str(error)) from None
        if done.status < 0:
            raise GitNoAnswer(f"git {arguments[0]} was ended by signal {-done.status}")
        return done
