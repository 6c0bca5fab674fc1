"""The ledger: what has landed, kept beside the commits, whatever their messages say.

``refs/bw/landed/<branch>`` is a chain of commits without files, one for each train. The message has
a line of JSON for each commit that landed with the train, or was taken back. The ledger moves in
the same transaction as the integration branch, and only ever grows. If two clones have each begun a
ledger, a commit joins both. Source: docs/LANDING.md, "Messages".
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from beads_workers.core.base.model import value
from beads_workers.core.base.plain import BAD_VALUE, from_plain, to_plain
from beads_workers.executors.files import branch_part
from beads_workers.worktrees.git import (
    FALLBACK_IDENTITY,
    git,
    is_ancestor,
    is_object,
    lines,
    log_format,
    objects,
    rows,
)

LEDGERS = "refs/bw/landed"

CANDIDATES_MAX = 2000
"""Number of the newest commits that are compared after a person has rewritten the branch."""


@value
class LandedCommit:
    """One commit that the lander wrote."""

    commit: str = ""
    issue_id: str = ""
    attempt: int = 0
    run_id: str = ""
    # As in ``landing.Landed``.
    verified: str = ""
    # The commits that it takes back; without a ``commit``, the branch went back to before them.
    undoes: tuple[str, ...] = ()
    # The issues in the tree of ``verified``.
    train: tuple[str, ...] = ()
    # Its name before a person rewrote it.
    was: str = ""


def ledger_ref(branch: str) -> str:
    """Return the ref of the ledger of an integration branch, ``bw-landing/main``."""
    return f"{LEDGERS}/{branch_part(branch.partition('/')[2])}"


def entry_text(entries: Sequence[LandedCommit]) -> str:
    """Return the message of one commit of the ledger."""
    names = dict.fromkeys(each.issue_id for each in entries if each.issue_id)
    texts = [json.dumps(to_plain(each, sparse=True), sort_keys=True) for each in entries]
    what = "taken back" if any(each.undoes for each in entries) else "landed"
    return "\n".join([" ".join([f"{what}:", *names]), "", *texts, ""])


def entry_commit(folder: str, parents: Iterable[str], entries: Sequence[LandedCommit]) -> str:
    """Write a commit of the ledger; raises ``GitError``."""
    tree = empty_tree(folder)
    named = [word for parent in parents for word in ("-p", parent)]
    made = (*FALLBACK_IDENTITY, "-c", "commit.gpgSign=false", "commit-tree", tree, *named)
    return git(folder, *made, stdin=entry_text(entries)).strip()


@functools.cache
def empty_tree(folder: str) -> str:
    """Write the tree without files, once, and return its name; raises ``GitError``. The entries
    keep it."""
    return git(folder, "mktree", stdin="").strip()


def entries(folder: str, branch: str = "") -> list[LandedCommit]:
    """Return all that ever landed, the oldest first; ``branch``: on this integration branch only.
    Raises ``GitError``."""
    ref = ledger_ref(branch) if branch else f"{LEDGERS}/*"
    # A pattern may match nothing; a plain name may not.
    pattern = f"{LEDGERS}/[{ref[len(LEDGERS) + 1]}]{ref[len(LEDGERS) + 2 :]}" if branch else ref
    output = git(folder, "log", "--topo-order", "--reverse", f"--glob={pattern}", log_format("%B"))
    message_lines = [line for (message,) in rows(output, 1) for line in message.split("\n")]
    read = (read_entry(line) for line in message_lines if line.startswith("{"))
    return [each for each in read if each is not None]


def read_entry(line: str) -> LandedCommit | None:
    """Parse one line of an entry; None if no lander of this version wrote it: others push there,
    too."""
    try:
        read = from_plain(LandedCommit, json.loads(line))
    except (*BAD_VALUE, RecursionError):
        return None
    return read if all(map(is_object, filter(None, (read.commit, *read.undoes)))) else None


def on_branch(known: Iterable[LandedCommit]) -> dict[str, LandedCommit]:
    """Return the entries that nobody has taken back, by their commits. ``known``: the oldest
    first."""
    found: dict[str, LandedCommit] = {}
    for each in known:
        for undone in each.undoes:
            found.pop(undone, None)
        if each.commit and not each.undoes:
            found[each.commit] = each
    return found


# --- after a person has rewritten the branch ------------------------------------------------------


def moved(
    folder: str, known: Sequence[LandedCommit], tip: str, seen: Sequence[str]
) -> tuple[dict[str, LandedCommit], list[LandedCommit]]:
    """Find landed commits that a person has rebased or amended. Return the entries by their new
    commits, which are among ``seen``, and the entries whose commits are gone. Raises
    ``GitError``."""
    there = on_branch(known)
    newest = next(reversed(there), None)
    if newest is None or newest in seen or is_ancestor(folder, newest, tip):
        return {}, []
    kept = {*objects(git(folder, "rev-list", "--first-parent", tip))}
    lost = {commit: each for commit, each in there.items() if commit not in kept}
    ours = {each.commit for each in known}
    strangers = [commit for commit in seen[:CANDIDATES_MAX] if commit not in ours]
    by_patch = {patch: commit for commit, patch in _patches(folder, [*lost]).items()}
    found = dict[str, LandedCommit]()
    for commit, patch in _patches(folder, strangers).items():
        if (before := lost.pop(by_patch.pop(patch, ""), None)) is not None:
            found[commit] = replace(before, commit=commit, was=before.commit)
    return found, list(lost.values())


_PATCH = ("diff-tree", "-p", "--no-ext-diff", "--no-textconv", "--stdin", "--root")


def _patches(folder: str, commits: Sequence[str]) -> dict[str, str]:
    """Return the patch-id of each existing commit, against its first parent. Raises
    ``GitError``."""
    asked = "".join(f"{name}{end}\n" for name in commits for end in ("", "^1"))
    if not asked:
        return {}
    output = lines(git(folder, "cat-file", "--batch-check=%(objectname)", stdin=asked))
    pairs = zip(output[::2], output[1::2], strict=True)
    both = "".join(f"{commit} {parent}\n" for commit, parent in pairs if " " not in commit + parent)
    patches = git(folder, *_PATCH, stdin=both) if both else ""
    output = lines(git(folder, "patch-id", "--stable", stdin=patches)) if patches else []
    return {line.split(" ")[1]: line.split(" ")[0] for line in output}
