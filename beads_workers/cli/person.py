"""The person at the terminal: the name under which they write, and what they write."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beads_workers.core.base.text import printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE


def author() -> str:
    """Return the name of who writes: ``BEADS_ACTOR`` (agents have one), git's, or the login's."""
    named = os.environ.get("BEADS_ACTOR") or os.environ.get("BD_ACTOR") or _in_git()
    if not named:
        import getpass

        try:
            named = getpass.getuser()
        except (KeyError, OSError):  # A user without an entry, as in some containers.
            named = str(os.getuid())
    return valid(named)


def signed(control: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a request as they are sent: with the person's name if it writes in that
    name, and with the comments on lines of a diff (``comments``) in the text."""
    if control == "bw.answer":
        return {**fields, "author": author()}
    if control == "bw.reject":
        from beads_workers.ui.line_comments import with_comments

        text = with_comments(fields.get("text", ""), fields.get("comments", ()))
        return {"issue_ids": fields["issue_ids"], "text": text}
    return fields


def valid(text: str) -> str:
    """Return an argument as a tracker can store it: one that is not UTF-8 has lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


def text_given(typed: str | None, what: str) -> str:
    """Return a text: as ``typed``, else from stdin if that is no terminal, else from the editor.

    ``what``: the command that needs it. Raise ``CommandError`` if there is none.
    """
    if typed is None and sys.stdin.isatty():
        typed = in_editor("")
    elif typed is None or typed == "-":
        typed = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not typed.strip():
        hint = f"{what} TEXT, or pipe the text in, or type it in your $EDITOR"
        raise CommandError("an empty text: nothing was written", hint, EXIT_USAGE)
    return valid(typed.rstrip())


def in_editor(text: str) -> str:
    """Return the text as the person leaves it in ``$VISUAL``, ``$EDITOR`` or ``vi``."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="beads-workers-") as folder:
        file = Path(folder, "text.md")
        file.write_text(text, encoding="utf-8")
        try:
            ended = subprocess.run([*shlex.split(editor), str(file)], check=False)
        except (OSError, ValueError) as error:
            why = f"{printable(editor, 60)} cannot be run: {error}"
            raise CommandError(why, "set $EDITOR, or pipe the text in") from None
        if ended.returncode != 0:
            why = f"{printable(editor, 60)} ended with exit {ended.returncode}: nothing was written"
            raise CommandError(why)
        return file.read_text(encoding="utf-8", errors="replace")


def _in_git() -> str:
    from beads_workers.worktrees.git import GitError, git_or_none

    try:
        return (git_or_none(".", "config", "user.name") or "").strip()
    except GitError:
        return ""  # No git, or a broken configuration: the login's name does.
