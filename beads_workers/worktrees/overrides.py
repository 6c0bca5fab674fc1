"""Overrides of git's configuration for each of our calls.

People set these keys for themselves, and agents may: colours of a pager, signatures in ``log``,
columns, a program that watches files. Each would change what one of our calls does or prints. A
value here is git's own default, or keeps a call from doing more than it was asked for. All other
keys are left to the user: identities, attributes, filters, line ends, merge drivers, credentials,
``includeIf``. Source: ``git help config`` of 2.39 and 2.55.
"""

from __future__ import annotations

from collections.abc import Mapping

HOOK_EVENTS = (
    *("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-merge-commit"),
    *("post-merge", "post-rewrite", "post-checkout", "post-index-change", "reference-transaction"),
    "pre-auto-gc",
)

HOOKS: Mapping[str, str] = {
    # Our own operations on a repository run none of its hooks: some write to the tracker.
    "core.hooksPath": "/dev/null",
    # Hooks that the configuration names are not in a folder; git 2.55 can switch them off.
    **{f"hook.{event}.enabled": "false" for event in HOOK_EVENTS},
}

PRINTED: Mapping[str, str] = {
    # ``column.ui`` alone would be overruled by the setting for one command.
    **{f"column.{what}": "never" for what in ("ui", "branch", "clean", "status", "tag")},
    **{
        f"color.{what}": "false"
        for what in ("ui", "advice", "branch", "diff", "grep", "push", "remote", "status")
    },
    "core.abbrev": "auto",
    "core.quotePath": "true",
    "diff.colorMoved": "no",
    "diff.mnemonicPrefix": "false",
    "diff.noprefix": "false",
    "diff.orderFile": "/dev/null",
    "diff.relative": "false",
    "diff.submodule": "short",
    "format.pretty": "medium",
    "i18n.logOutputEncoding": "UTF-8",
    "log.abbrevCommit": "false",
    "log.date": "default",
    "log.decorate": "false",
    "log.diffMerges": "separate",
    "log.follow": "false",
    "log.mailmap": "false",
    "log.showRoot": "true",
    "log.showSignature": "false",
    "notes.displayRef": "",
    "status.aheadBehind": "false",
    "status.branch": "false",
    "status.relativePaths": "true",
    "status.short": "false",
    "status.showStash": "false",
    "status.submoduleSummary": "false",
}
"""Settings of the output that we parse."""

DONE: Mapping[str, str] = {
    "branch.autoSetupMerge": "false",
    "branch.autoSetupRebase": "never",
    "checkout.defaultRemote": "",
    "checkout.guess": "false",
    # ``strip`` removes the subject ``#12 ...``, ``scissors`` all text after a line of scissors.
    "commit.cleanup": "whitespace",
    "commit.status": "false",
    "commit.verbose": "false",
    "core.editor": "true",
    # A program that the repository names and that each status would run.
    "core.fsmonitor": "false",
    "core.safecrlf": "false",
    # With feature.manyFiles, git 2.55 loses files of a split index, and commits the loss.
    "core.splitIndex": "false",
    "core.untrackedCache": "keep",
    "diff.ignoreSubmodules": "untracked",
    "diff.renames": "true",
    "fetch.prune": "false",
    "fetch.pruneTags": "false",
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "maintenance.auto": "false",
    "merge.autoStash": "false",
    "merge.branchdesc": "false",
    "merge.ff": "true",
    "merge.log": "false",
    "merge.stat": "false",
    "merge.verifySignatures": "false",
    "push.followTags": "false",
    "push.gpgSign": "false",
    # It fetches first, which fails with protocol.version=0 and may end the push by SIGPIPE.
    "push.negotiate": "false",
    "push.recurseSubmodules": "no",
    "rerere.autoUpdate": "false",
    "rerere.enabled": "false",
    # Shells of agents pass ``explicit`` on; we call git in common directories.
    "safe.bareRepository": "all",
    "status.renames": "true",
    "status.showUntrackedFiles": "normal",
    "submodule.recurse": "false",
    "tag.gpgSign": "false",
    "worktree.guessRemote": "false",
    # An extension in the user's repository that older gits refuse.
    "worktree.useRelativePaths": "false",
}
"""Settings of what a call does."""

WAITS: Mapping[str, str] = {
    # git gives up after 100 ms, and every writer of a ref holds this lock; after a second if refs
    # are packed, which git's own maintenance does beside us.
    "core.packedRefsTimeout": "5000",
    "reftable.lockTimeout": "2000",
}

ALL: Mapping[str, str] = {**HOOKS, **PRINTED, **DONE, **WAITS}

OPTIONS = tuple(word for key, value in ALL.items() for word in ("-c", f"{key}={value}"))
"""The overrides as words of a command line: they win over files and over variables."""

VARIABLES = frozenset(
    {"GIT_DIFF_OPTS", "GIT_EXTERNAL_DIFF", "GIT_GLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"}
    | {"GIT_LITERAL_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_NOTES_REF", "GIT_REFLOG_ACTION"}
)
"""Variables with the same effects; no call of ours gets them."""

OWN_VARIABLES = {
    # There is nobody to ask, and a status must not write to an index that others use.
    "GIT_EDITOR": "true",
    "GIT_MERGE_AUTOEDIT": "no",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
"""Variables that each call of ours gets."""
