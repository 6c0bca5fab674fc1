"""A hook of claude's: refuses a push, and commands that settle its own issue, before they run.

``python hook.py ISSUE`` reads the call of a tool from stdin; exit status 2 refuses the call, and
claude is told the text on stderr. The hook is an early warning, not a wall: it lets pass what it
does not understand, and the guards refuse that (``attempts.guards``). Run as a file, so it imports
nothing of ours.
"""

from __future__ import annotations

import json
import re
import shlex
import sys

REFUSED = (
    *("close", "claim", "update", "label", "edit", "delete", "reopen", "done", "assign"),
    *("unclaim", "defer", "supersede", "duplicate", "rename"),
)
"""Subcommands of the tracker that settle an issue, or change what decides about it."""

NEVER = ("batch", "sql", "import")
"""Subcommands that can do the same without naming an issue in their arguments."""

TRACKER_VALUED = ("--actor", "--db", "--directory", "-C", "--lock-timeout")
"""Global options of the tracker whose value may follow as an argument of its own."""

SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
WRAPPERS = frozenset({"command", "env", "exec", "nohup", "sudo", "time", "timeout", "xargs"})
VALUED = {
    "git": frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"}),
    "bd": frozenset(TRACKER_VALUED),
}
DEPTH_MAX = 5
"""Depth of shells within shells."""

PUSH = (
    "git push is refused: nothing is pushed in this task. Commit your work and end your turn; what"
    " becomes of the branch is decided afterwards."
)
SETTLED = (
    "'{command}' of {issue} is refused: the issue is settled for you when your work has passed its"
    " checks. Go on without it, and say at the end what came of it."
)

_BREAKS = re.compile(r"[;&|()\n]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


def refusal(line: str, issue: str, depth: int = 0) -> str:
    """Return why this line of a shell is refused; empty if it is not, or cannot be read."""
    for words in _commands(line):
        name = words[0].rpartition("/")[2]
        if name in SHELLS and depth < DEPTH_MAX:
            scripts = [words[at + 1] for at, word in enumerate(words[:-1]) if _is_script(word)]
            if why := next(filter(None, (refusal(s, issue, depth + 1) for s in scripts)), ""):
                return why
        elif name == "git" and _subcommand(words, "git")[:1] == ["push"]:
            return PUSH
        elif name in ("bd", "beads"):
            rest = _subcommand(words, "bd")
            if rest and rest[0] in (*REFUSED, *NEVER) and _is_meant(rest[1:], issue):
                return SETTLED.format(command=f"{name} {rest[0]}", issue=issue)
    return ""


def _commands(line: str) -> list[list[str]]:
    """Return the simple commands of a line, each without assignments and wrappers before it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if _BREAKS.fullmatch(word):
                found.append([])
            elif found[-1] or not _is_before(word):
                found[-1].append(word)
    except ValueError:
        return []  # A quotation without an end: the shell reports it itself.
    return [words for words in found if words]


def _is_before(word: str) -> bool:
    return word in WRAPPERS or _ASSIGNMENT.fullmatch(word) is not None


def _is_script(option: str) -> bool:
    return option.startswith("-") and not option.startswith("--") and option.endswith("c")


def _subcommand(words: list[str], program: str) -> list[str]:
    """Return the arguments behind the global options of a program."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in VALUED[program] else 1
    return words[at:]


def _is_meant(arguments: list[str], issue: str) -> bool:
    named = [each for each in arguments if each == issue or not each.startswith("-")]
    return not named or issue in named


def main() -> int:
    """Run the hook; return 2 for a refusal, with the reason on stderr, and 0 otherwise."""
    try:
        call = json.load(sys.stdin)
        line = call["tool_input"]["command"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
    why = refusal(line, sys.argv[1]) if isinstance(line, str) and len(sys.argv) > 1 else ""
    if why:
        sys.stderr.write(f"beads-workers: {why}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
