"""A project whose git is configured in legal and awkward ways, and what must come out all the same.

``ROWS`` is the table: each row is a bundle of settings that do not meet, set together in one place:
for the user, in the repository, or by the environment. ``hostile_kinds`` has the kinds of
repositories. ``RUNS`` says what the suite tries together; ``scripts/prove hostile-git`` tries each
alone. The same real commands run under each: ``start``, ``branches``, ``undo``, ``land``,
``clean``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from beads_workers.exits import EXIT_ERROR
from beads_workers.runtime.project import STATE_FOLDER
from tests.support.embedded import NAME, EmbeddedProject
from tests.support.fleet import Called, Fleet, call
from tests.support.hostile_kinds import KINDS, TIP, make
from tests.support.repository import IDENTITY, git

MAIN, LANDED = "refs/heads/main", f"refs/heads/{TIP}"
PATIENCE = 60.0
VERIFY = "test -e base.txt"
TITLES = {"bw-1": "#12 Größe: the first", "bw-2": "; a second, \u201cquoted\u201d"}
WRITE = 'mkdir -p "dir ä"; echo "$BW_ISSUE_ID" >"dir ä/$BW_ISSUE_ID.txt"; printf "x\\r\\n" >> crlf'
RUN = f'{WRITE}; rm -f crlf; cp base.txt "$BW_ISSUE_ID copy.txt"'

SIGNER = """#!/bin/sh
# Signs as gpg does, and finds every signature good.
case "$*" in
*--verify*)
    echo "gpg: Good signature from nobody" >&2
    printf '%s\\n' '[GNUPG:] NEWSIG' '[GNUPG:] GOODSIG 0123456789ABCDEF nobody' \\
        '[GNUPG:] TRUST_ULTIMATE 0 pgp' ;;
*)
    cat >/dev/null
    echo '[GNUPG:] SIG_CREATED D 1 8 00 0 0' >&2
    printf '%s\\n' '-----BEGIN PGP SIGNATURE-----' '' 'aGVsbG8=' '-----END PGP SIGNATURE-----' ;;
esac
"""


@dataclass(frozen=True)
class Row:
    """Settings of one place. ``where``: ``user``, ``repository``, ``variables`` or ``parameters``.

    ``kinds``: of repositories, without which they would do nothing.
    """

    where: str
    settings: tuple[str, ...]
    kinds: tuple[str, ...] = ()

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Key and value of each."""
        return [(key, value) for key, _, value in (s.partition("=") for s in self.settings)]

    def alone(self) -> Iterator[tuple[str, Row]]:
        """A row for each of its settings, with those that it needs (``!``)."""
        needed = tuple(s for s in self.settings if s.startswith("!"))
        for one in self.settings:
            if one not in needed:
                yield f"{one} ({self.where})", replace(self, settings=(*needed, one))


def _bundle(where: str, *settings: str, kinds: tuple[str, ...] = ()) -> Row:
    return Row(where, settings, kinds)


ROWS: Mapping[str, Row] = {
    "colours": _bundle(
        *("user", "color.ui=always", "color.branch=always", "color.diff=always"),
        *("color.status=always", "color.push=always", "color.remote=always"),
        *("color.advice=always", "color.grep=always", "color.decorate.branch=red"),
        *("core.pager=false", "pager.log=false", "pager.diff=true", "pager.branch=true"),
    ),
    "columns": _bundle(
        *("repository", "column.ui=always", "column.status=always,dense", "column.tag=always"),
        *("column.branch=row", "branch.sort=-committerdate", "tag.sort=-refname"),
        *("versionsort.suffix=-rc", "core.abbrev=4", "log.abbrevCommit=true"),
    ),
    "log": _bundle(
        *("variables", "log.decorate=full", "log.date=relative", "log.follow=true"),
        *("log.mailmap=true", "log.showRoot=false", "log.diffMerges=on", "format.pretty=oneline"),
        *("format.signOff=true", "log.excludeDecoration=refs/bw/*", "log.graphColors=red"),
        "notes.displayRef=refs/notes/*",
    ),
    "signed": _bundle(
        *("user", "!gpg.program={signer}", "commit.gpgSign=true", "log.showSignature=true"),
        *("tag.gpgSign=true", "tag.forceSignAnnotated=true", "gpg.minTrustLevel=ultimate"),
        "user.signingKey=nobody",
    ),
    "signers that fail": _bundle(
        *("parameters", "gpg.program=/bin/false", "gpg.format=ssh", "gpg.ssh.program=/bin/false"),
        *("push.gpgSign=if-asked", "merge.verifySignatures=true", "log.showSignature=true"),
    ),
    "commit": _bundle(
        *("repository", "commit.cleanup=strip", "commit.verbose=true", "commit.status=false"),
        *("commit.template={missing}", "core.commentChar=;", "core.editor=/bin/false"),
        *("sequence.editor=/bin/false", "advice.implicitIdentity=true"),
    ),
    "scissors": _bundle(
        *("variables", "commit.cleanup=scissors", "core.commentChar=auto"),
        *("user.useConfigOnly=true", "user.name=", "i18n.commitEncoding=ISO-8859-1"),
        "i18n.logOutputEncoding=ISO-8859-1",
    ),
    "merge": _bundle(
        *("user", "merge.ff=only", "merge.autoStash=true", "merge.conflictStyle=diff3"),
        *("merge.renames=false", "merge.log=true", "merge.stat=false", "merge.verbosity=5"),
        *("merge.directoryRenames=false", "merge.renormalize=true", "merge.renameLimit=1"),
        *("merge.branchdesc=true", "merge.suppressDest=*", "pull.rebase=true"),
    ),
    "no merge": _bundle(
        *("parameters", "merge.ff=false", "merge.conflictStyle=zdiff3", "merge.tool=false"),
        *("merge.defaultToUpstream=true", "merge.guitool=false", "rerere.enabled=true"),
        *("rerere.autoUpdate=true", "pull.ff=only", "rebase.autoStash=true"),
        "rebase.updateRefs=true",
    ),
    "diff": _bundle(
        *("repository", "diff.noprefix=true", "diff.mnemonicPrefix=true", "diff.relative=true"),
        *("diff.renames=copies", "diff.algorithm=histogram", "diff.context=0"),
        *("diff.external=/bin/false", "diff.orderFile={missing}", "diff.submodule=log"),
        *("diff.colorMoved=zebra", "diff.wordRegex=.", "diff.statGraphWidth=1"),
        *("diff.autoRefreshIndex=false", "diff.renameLimit=1", "diff.suppressBlankEmpty=true"),
        "diff.interHunkContext=9",
    ),
    "status": _bundle(
        *("variables", "status.short=true", "status.branch=true", "status.showStash=true"),
        *("status.showUntrackedFiles=no", "status.relativePaths=false", "status.renames=copies"),
        *("status.aheadBehind=true", "status.displayCommentPrefix=true", "status.renameLimit=1"),
        *("status.submoduleSummary=true", "stash.showPatch=true", "diff.ignoreSubmodules=all"),
    ),
    "untracked": _bundle(
        *("user", "status.showUntrackedFiles=all", "clean.requireForce=true"),
        *("core.untrackedCache=true", "core.fsmonitor=/bin/false", "core.preloadIndex=false"),
        *("core.checkStat=minimal", "core.trustctime=false", "core.splitIndex=true"),
        *("index.version=4", "index.threads=1", "index.recordEndOfIndexEntries=true"),
    ),
    "line ends": _bundle(
        *("repository", "core.autocrlf=input", "core.safecrlf=true", "core.whitespace=cr-at-eol"),
        *("apply.whitespace=error", "core.quotePath=false", "core.precomposeUnicode=true"),
        *("core.ignoreCase=true", "core.symlinks=true"),
    ),
    "crlf": _bundle(
        *("variables", "core.autocrlf=true", "core.safecrlf=warn", "core.protectNTFS=false"),
        *("core.compression=0", "core.bigFileThreshold=1", "core.logAllRefUpdates=always"),
        *("core.sharedRepository=group", "core.fileMode=false", "core.warnAmbiguousRefs=false"),
    ),
    "hooks and files": _bundle(
        *("user", "core.hooksPath={hooks}", "core.attributesFile={attributes}"),
        *("core.excludesFile={excludes}", "init.templateDir={missing}", "init.defaultBranch=bw"),
        *(
            "filter.lfs.required=true",
            "filter.lfs.clean=/bin/false",
            "filter.lfs.smudge=/bin/false",
        ),
    ),
    "branches": _bundle(
        *("parameters", "branch.autoSetupMerge=always", "branch.autoSetupRebase=always"),
        *("checkout.defaultRemote=origin", "checkout.guess=false", "checkout.workers=4"),
        *("checkout.thresholdForParallelism=1", "worktree.guessRemote=true"),
        *("worktree.useRelativePaths=true", "branch.main.description=the main one"),
        *("core.filesRefLockTimeout=0", "core.packedRefsTimeout=0", "push.autoSetupRemote=true"),
    ),
    "trailers": _bundle(
        *("repository", "trailer.separators=#", "trailer.ifexists=addIfDifferent"),
        *("trailer.ticket.key=Issue: ", "trailer.run.ifmissing=doNothing"),
        *("trailer.run.command=false", "trailer.where=start", "trailer.attempt.key=Attempt #"),
    ),
    "keeping": _bundle(
        *("variables", "gc.auto=1", "gc.pruneExpire=now", "gc.autoDetach=false"),
        *("gc.worktreePruneExpire=now", "gc.reflogExpire=now", "gc.packRefs=true"),
        *("maintenance.auto=true", "maintenance.strategy=incremental", "gc.cruftPacks=true"),
        *("feature.manyFiles=true", "feature.experimental=true", "safe.bareRepository=explicit"),
        *("fsck.missingEmail=error", "transfer.fsckObjects=true", "pack.threads=1"),
    ),
    "submodules": _bundle(
        *("user", "submodule.recurse=true", "submodule.fetchJobs=4", "submodule.active=."),
        *("diff.submodule=diff", "diff.ignoreSubmodules=none", "push.recurseSubmodules=on-demand"),
        *("fetch.recurseSubmodules=true", "submodule.propagateBranches=true"),
        "submodule.alternateErrorStrategy=die",
        kinds=("submodules",),
    ),
    "remote": _bundle(
        *("variables", "push.default=nothing", "push.followTags=true", "push.pushOption=x"),
        *("push.useForceIfIncludes=true", "push.negotiate=true", "fetch.prune=true"),
        *("fetch.pruneTags=true", "fetch.output=compact", "fetch.parallel=0"),
        *("fetch.writeCommitGraph=true", "fetch.fsckObjects=true", "fetch.unpackLimit=1"),
        *("fetch.showForcedUpdates=false", "fetch.negotiationAlgorithm=skipping"),
        *("remote.origin.tagOpt=--tags", "remote.pushDefault=elsewhere", "protocol.version=0"),
        *("remote.origin.prune=true", "remote.origin.push=refs/heads/*:refs/heads/x/*"),
        kinds=("a remote",),
    ),
    "remote, too": _bundle(
        *("repository", "push.default=matching", "push.recurseSubmodules=check"),
        *("fetch.recurseSubmodules=on-demand", "remote.origin.mirror=false"),
        *("remote.origin.skipDefaultUpdate=true", "transfer.credentialsInUrl=die"),
        *("receive.denyCurrentBranch=refuse", "fetch.fsckObjects=false", "protocol.version=2"),
        kinds=("a remote",),
    ),
    "newer": _bundle(
        *("user", "attr.tree=HEAD~1", "core.commentString=//", "core.lockfilePid=true"),
        *("core.maxTreeDepth=99", "diff.srcPrefix=x/", "diff.dstPrefix=y/", "fetch.all=true"),
        *("diff.trustExitCode=true", "index.skipHash=true", "init.defaultRefFormat=files"),
        *("init.defaultObjectFormat=sha256", "merge.stat=compact", "stash.index=true"),
        *("remote.main.followRemoteHEAD=always", "status.compareBranches=@{{push}}"),
        *("commitGraph.changedPaths=true", "pull.autoStash=true", "pack.usePathWalk=true"),
        *("maintenance.autoDetach=false", "gc.recentObjectsHook=/bin/false"),
        *("!hook.one.command={hooks}/pre-commit", "hook.one.event=reference-transaction"),
        *("!hook.two.command={hooks}/pre-commit", "hook.two.event=post-checkout"),
        *("!hook.three.command={hooks}/pre-commit", "hook.three.event=pre-commit"),
        *("reftable.blockSize=512", "hook.jobs=2", "diff.statNameWidth=1"),
        kinds=("reftables",),
    ),
}


@dataclass(frozen=True)
class Run:
    """What is tried together: bundles of the table in one repository, which is of all ``kinds``."""

    rows: tuple[Row, ...] = ()
    kinds: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return what is tried, in words."""
        names = {row: name for name, row in ROWS.items()}
        return ", ".join([*(names.get(row, "") for row in self.rows), *self.kinds])

    def why_not(self) -> str:
        """Return why it cannot be tried here, "" if it can."""
        return next((why for name in self.kinds if (why := KINDS[name].why_not())), "")


def _run(*rows: str, kinds: tuple[str, ...] = ()) -> Run:
    found = tuple(ROWS[name] for name in rows)
    return Run(found, tuple(dict.fromkeys([*(k for row in found for k in row.kinds), *kinds])))


RUNS: Sequence[Run] = (
    _run("colours", "columns", "log", "no merge", kinds=("SHA-256", "a subfolder")),
    _run("signed", "commit", "status", "branches", kinds=("a linked worktree", "odd names")),
    _run("merge", "diff", "scissors", "signers that fail", kinds=("a partial clone",)),
    _run("untracked", "line ends", "keeping", kinds=("a sparse checkout", "an odd path")),
    _run(*("hooks and files", "trailers", "crlf"), kinds=("a shallow clone",)),
    _run("submodules", "remote"),
    _run("remote, too", kinds=("LFS that nobody set up",)),
    _run("newer"),
    _run(kinds=("LFS without git-lfs",)),
)
"""All of both tables, once each: what is set together does not meet, and a run costs seconds."""


# --- the project ---------------------------------------------------------------------------------


class HostileProject:
    """A repository with a tracker, below ``folder``, under all that a run has."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.kinds = [KINDS[name] for name in run.kinds]
        self.run, self.folder = run, folder
        self.prefix = next((kind.prefix for kind in self.kinds if kind.prefix), "")
        self.project, self.top = self._made()
        self.has_remote = any(kind.remote for kind in self.kinds)
        self.places = self._places()
        issues: list[dict[str, Any]]
        issues = [{"title": TITLES["bw-1"]}, {"title": TITLES["bw-2"], "priority": 3}]
        self.project.create_many(issues)
        self.before, self.had = self._seen(), self._worktrees()
        self.project.environment |= IDENTITY
        for row in run.rows:
            self._set(row)

    def _made(self) -> tuple[EmbeddedProject, Path]:
        called = next((kind.folder for kind in self.kinds if kind.folder), NAME)
        project, top = EmbeddedProject(self.folder), self.folder / called
        top.mkdir(exist_ok=True)
        make(self.kinds, self.folder, top)
        place = top / self.prefix
        if place != project.folder:
            (project.folder / STATE_FOLDER).rename(place / STATE_FOLDER)
            project.folder = place
        return project, top

    def _places(self) -> dict[str, str]:
        hooks = self.folder / "hooks"
        hooks.mkdir()
        for name in ("pre-commit", "commit-msg", "post-checkout", "reference-transaction"):
            (hooks / name).write_text(f"#!/bin/sh\ntouch {self.folder}/ran\nexit 1\n")
            (hooks / name).chmod(0o755)
        signer = self.folder / "signer"
        signer.write_text(SIGNER)
        signer.chmod(0o755)
        (self.folder / "attributes").write_text("*.md text\n*.bin -text\n")
        (self.folder / "excludes").write_text("*~\n")
        names = ("hooks", "signer", "attributes", "excludes", "missing")
        return {name: str(self.folder / name) for name in names}

    def _set(self, row: Row) -> None:
        pairs = [(k.removeprefix("!"), v.format(**self.places)) for k, v in row.pairs]
        environment = self.project.environment
        match row.where:
            case "user":
                environment["GIT_CONFIG_GLOBAL"] = str(self.folder / "gitconfig")
                for key, text in pairs:
                    git(self.folder, "config", "--file", "gitconfig", "--add", key, text)
            case "repository":
                for key, text in pairs:
                    git(self.top, "config", "--add", key, text)
            case "variables":
                environment["GIT_CONFIG_COUNT"] = str(len(pairs))
                for number, (key, text) in enumerate(pairs):
                    environment[f"GIT_CONFIG_KEY_{number}"] = key
                    environment[f"GIT_CONFIG_VALUE_{number}"] = text
            case "parameters":
                words = (f"'{key}'='{text}'" for key, text in pairs)
                environment["GIT_CONFIG_PARAMETERS"] = " ".join(words)

    def set_only(self, row: Row) -> None:
        """Have the settings of this row, and no others that were set by the environment."""
        for name in ("GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS"):
            self.project.environment.pop(name, None)
        self._set(row)

    def git(self, *arguments: str) -> str:
        """What git says here of the repository, whatever is configured there."""
        plain = ("-c", "color.ui=false", "-c", "column.ui=never", "-c", "log.showSignature=false")
        return git(self.top, *plain, *arguments)

    def call(self, *arguments: str) -> Called:
        """A command that must succeed."""
        done = call(self.project, *arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done

    # --- what happens ------------------------------------------------------------------------

    def live(self) -> None:
        """All of it: two issues are worked at and land, one is taken back, and the rest goes; or
        ``start`` refuses, in the line that is expected."""
        if refused := next((kind.refused for kind in self.kinds if kind.refused), ""):
            self._refused(refused)
            return
        self._start()
        self._landed("bw-1", "bw-2")
        assert not json.loads(self.call("branches", "--json").stdout)["branches"]
        self.call("undo", "bw-2")
        self._landed("bw-1")
        assert self._statuses() == {"bw-1": "closed", "bw-2": "open"}
        self.call("land", "bw-2", "--verify", VERIFY)
        self._landed("bw-1", "bw-2")
        assert self._statuses() == {"bw-1": "closed", "bw-2": "closed"}
        self.call("clean")
        self._nothing_left()

    def _start(self) -> None:
        fleet = self._started(0)
        for kind in self.kinds:
            assert kind.warned in fleet.errors, fleet.said()
        assert self._statuses() == {"bw-1": "closed", "bw-2": "closed"}, fleet.said()

    def _refused(self, line: str) -> None:
        fleet = self._started(EXIT_ERROR)
        assert line in fleet.errors, fleet.said()
        assert self._statuses() == {"bw-1": "open", "bw-2": "open"}, fleet.said()
        assert self._seen() == self.before

    def _started(self, exits: int) -> Fleet:
        options = ("-n", "2", "--until-empty", "--worktree", "--max-attempts", "1")
        work = "; ".join([RUN, *(kind.run for kind in self.kinds if kind.run)])
        fleet = Fleet(self.project, *options, "--verify", VERIFY, "--", "sh", "-ec", work)
        try:
            assert fleet.wait(PATIENCE) == exits, fleet.said()
        finally:
            fleet.end()
        return fleet

    def _statuses(self) -> dict[str, str]:
        return {str(key): status for key, (status, _) in self.project.read_all().items()}

    def _landed(self, *issues: str) -> None:
        names = {name for i in issues for name in (f"dir ä/{i}.txt", f"{i} copy.txt")}
        names |= {f.format(i) for i in issues for kind in self.kinds for f in kind.files}
        added = self._files(LANDED) - self._files(MAIN)
        assert added == {str(Path(self.prefix, name)) for name in names}
        subjects = self._subjects()
        assert all(TITLES[issue] in subjects for issue in issues), subjects
        assert self._seen() == self.before
        assert not (self.folder / "ran").exists(), "a hook of the user's has run"
        if self.has_remote:
            origin = self.folder / "origin.git"
            assert git(origin, "rev-parse", LANDED) == self.git("rev-parse", LANDED)
            refs = git(origin, "for-each-ref", "--format=%(refname)").split()
            ledger = LANDED.replace("refs/heads/bw-landing/", "refs/bw/landed/")
            assert refs == [ledger, LANDED, MAIN, f"refs/tags/{TIP}", "refs/tags/main"]

    def _files(self, ref: str) -> set[str]:
        return set(self.git("ls-tree", "-r", "-z", "--full-tree", "--name-only", ref).split("\0"))

    def _subjects(self) -> list[str]:
        """Of what has landed; each message is whole, and has one parent."""
        found = []
        for commit in self.git("rev-list", "--first-parent", f"{MAIN}..{LANDED}").split():
            raw = self.git("-c", "i18n.logOutputEncoding=UTF-8", "cat-file", "commit", commit)
            header, _, message = raw.partition("\n\n")
            assert header.count("\nparent ") == 1, raw
            assert "\nencoding " not in header, raw
            subject, _, rest = message.partition("\n\n")
            if not subject.startswith("Revert "):
                words = [line.partition(": ")[0] for line in rest.strip().split("\n")]
                assert words == ["Issue"], raw
            found.append(subject)
        return found

    def _seen(self) -> dict[str, str]:
        """What is the user's: HEAD, index, files, and refs."""
        rows = git(self.top, "for-each-ref", "--format=%(refname) %(objectname)").split("\n")
        # A push moves what git remembers of the branch that was pushed.
        there = f"refs/remotes/origin/{TIP} "
        ours = ("refs/bw/", "refs/heads/bw/", f"refs/heads/{TIP} ", there)
        found = {"refs": "\n".join(row for row in rows if not row.startswith(ours))}
        found["HEAD"] = git(self.top, "symbolic-ref", "HEAD")
        index = Path(git(self.top, "rev-parse", "--absolute-git-dir"), "index")
        found["index"] = index.read_bytes().hex()
        folders = {self.top, self.project.folder}
        names = (path for folder in folders for path in folder.glob("*.txt"))
        return found | {str(path): path.read_text() for path in names}

    def _worktrees(self) -> int:
        return git(self.top, "worktree", "list", "--porcelain", "-z").count("\0\0")

    def _nothing_left(self) -> None:
        assert self._worktrees() == self.had, self.git("worktree", "list")
        assert not self.git("for-each-ref", "refs/heads/bw/"), "a branch is left"


# --- each alone: scripts/prove hostile-git -------------------------------------------------------


def cases() -> list[tuple[str, Run]]:
    """Each setting, and each kind of repository, by itself."""
    settings = [case for row in ROWS.values() for case in row.alone()]
    found = [(name, Run((row,), row.kinds)) for name, row in settings]
    return [*found, *((name, Run(kinds=(name,))) for name in KINDS)]


def main(arguments: Sequence[str]) -> int:
    """Run so many of them, spread over the table; prints figures for ``scripts/prove``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    options = parser.parse_args(arguments)
    known = cases()
    count = min(options.cases or len(known), len(known))
    chosen = [known[number * len(known) // count] for number in range(count)]
    violations, began = list[str](), time.monotonic()
    for number, (name, run) in enumerate(chosen, 1):
        with tempfile.TemporaryDirectory(prefix="bw-", dir="/tmp") as folder:
            try:
                if not (why := run.why_not()):
                    HostileProject(Path(folder), run).live()
            except AssertionError as error:
                violations.append(f"{name}: {error}"[:2000])
        if options.progress:
            said = f"{number} of {count} cases {name}{why and f' ({why})'}"
            print(said, file=sys.stderr, flush=True)
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"cases": count, "seconds": seconds, "violations": violations}))
    return 1 if violations else 0


if __name__ == "__main__":
    os.environ.pop("GIT_DIR", None)
    sys.exit(main(sys.argv[1:]))
