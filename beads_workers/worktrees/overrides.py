"""What every call of ours takes out of the hands of git's configuration.

People set these for themselves, and agents may: colours of a pager, signatures in ``log``, columns,
a program that watches files. Each would change what a call of ours does or prints. A value here is
git's own default, or what keeps a call from doing more than it was asked for. A key that is not
here is the user's: identities, attributes, filters, line ends, merge drivers, credentials,
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
    # What we do to a repository by ourselves runs none of its hooks: some write to the tracker.
    "core.hooksPath": "/dev/null",
    # Those that the configuration names do not lie in a folder; git 2.55 can switch them off.
    **{f"hook.{event}.enabled": "false" for event in HOOK_EVENTS},
}

PRINTED: Mapping[str, str] = {
    # Only ``column.ui`` would be overruled by what is said of one command.
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
"""What a call prints, as far as we read it."""

DONE: Mapping[str, str] = {
    "branch.autoSetupMerge": "false",
    "branch.autoSetupRebase": "never",
    "checkout.defaultRemote": "",
    "checkout.guess": "false",
    # ``strip`` eats the subject ``#12 ...``, ``scissors`` what follows a line of scissors.
    "commit.cleanup": "whitespace",
    "commit.status": "false",
    "commit.verbose": "false",
    "core.editor": "true",
    # A program that the repository names and that each look would run.
    "core.fsmonitor": "false",
    "core.safecrlf": "false",
    # With feature.manyFiles, git 2.55 loses files of an index that it has split, and commits that.
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
    # A fetch first, which with protocol.version=0 fails, and now and then ends the push by SIGPIPE.
    "push.negotiate": "false",
    "push.recurseSubmodules": "no",
    "rerere.autoUpdate": "false",
    "rerere.enabled": "false",
    # Shells that agents open hand ``explicit`` down; we call git in common directories.
    "safe.bareRepository": "all",
    "status.renames": "true",
    "status.showUntrackedFiles": "normal",
    "submodule.recurse": "false",
    "tag.gpgSign": "false",
    "worktree.guessRemote": "false",
    # An extension in the user's repository that older gits refuse.
    "worktree.useRelativePaths": "false",
}
"""What a call does."""

WAITS: Mapping[str, str] = {
    # It gives up after 100 ms, and everybody who writes a ref holds this lock; after a second if
    # refs are packed, which is what git's own maintenance does beside us.
    "core.packedRefsTimeout": "5000",
    "reftable.lockTimeout": "2000",
}

ALL: Mapping[str, str] = {**HOOKS, **PRINTED, **DONE, **WAITS}

OPTIONS = tuple(word for key, value in ALL.items() for word in ("-c", f"{key}={value}"))
"""The same as words of a command line: they win over files and over variables."""

VARIABLES = frozenset(
    {"GIT_DIFF_OPTS", "GIT_EXTERNAL_DIFF", "GIT_GLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"}
    | {"GIT_LITERAL_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_NOTES_REF", "GIT_REFLOG_ACTION"}
)
"""Variables that would do the same; no call of ours gets them."""

SAID = {
    # Nobody is there to be asked, and looking must not write to an index that somebody uses.
    "GIT_EDITOR": "true",
    "GIT_MERGE_AUTOEDIT": "no",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
"""Variables that each call of ours gets."""
