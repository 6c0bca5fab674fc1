"""Calls of git that an attempt depends on: no answer is not an answer.

A git that was killed, hangs or cannot be started has said nothing about the question. It is asked
again; then the call raises ``GitNoAnswer``, which must never be read as "no change". The same holds
for a git that fails.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.worktrees import git


class Misplaced(git.GitError):
    """Error: an agent or command has removed its worktree, or put another repository in its
    place."""


@value
class Git:
    """git in one folder. ``seconds``: the longest time of a call; ``places``: as in
    ``worktrees.git.call``, for each call."""

    folder: str
    seconds: float = git.SECONDS_MAX
    places: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __call__(
        self,
        *arguments: str,
        stdin: str | None = None,
        index: str | None = None,
        places: Mapping[str, str] | None = None,
    ) -> str:
        """Return git's output; raises ``GitError``, which is ``GitNoAnswer`` if git said nothing.

        ``index``: another index than the folder's own; ``places``: as in ``worktrees.git.call``.
        """
        places = {**(places or {}), **({"GIT_INDEX_FILE": index} if index else {})}
        done = self.ask(*arguments, stdin=stdin, places=places)
        if done.status != 0:
            raise git.failure(arguments, done)
        return done.output

    def ask(
        self,
        *arguments: str,
        stdin: str | None = None,
        places: Mapping[str, str] | None = None,
        good: tuple[int, ...] = (0,),
    ) -> git.GitCall:
        """Return how git ended, for a call that may be made twice; raises ``GitNoAnswer``.

        ``good``: exit statuses that are answers; after any other status git is asked again.
        """
        for tries_left in reversed(range(git.TRIES_MAX)):
            try:
                done = self.once(*arguments, stdin=stdin, places=places)
            except git.GitNoAnswer:
                if not tries_left:
                    raise
            else:
                if done.status in good or not tries_left:
                    return done
            time.sleep(git.TRY_AGAIN_SECONDS)
        raise AssertionError("the last try returns or raises")

    def answered(self, *arguments: str, good: tuple[int, ...]) -> git.GitCall:
        """Ask as ``ask`` does; any exit status not in ``good`` is an error. Raises ``GitError``."""
        done = self.ask(*arguments, good=good)
        if done.status not in good:
            raise git.failure(arguments, done)
        return done

    def once(
        self,
        *arguments: str,
        stdin: str | None = None,
        places: Mapping[str, str] | None = None,
    ) -> git.GitCall:
        """Call git without another try, for a call that changes something."""
        try:
            return git.call(
                *(self.folder, *arguments),
                stdin=stdin,
                places={**self.places, **(places or {})},
                seconds=self.seconds,
                tries=1,
            )
        except git.GitNoAnswer:
            if not Path(self.folder).is_dir():
                raise Misplaced(f"{self.folder} is gone") from None
            raise
