"""The work of an attempt: what git sees of it, what is committed for it, and what is kept."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from beads_workers.agents.planted import OBEYED, WATCHED, is_watched
from beads_workers.attempts.work import CannotCommit, Workplace
from beads_workers.core.records.receipts import Receipt
from tests.support.repository import IDENTITY, commit, git, make_repository, ref_lock


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worktree on a branch of its own, as an attempt finds it."""
    checkout = make_repository(tmp_path / "checkout")
    commit(checkout, "cart.py", "total = 0\n")
    worktree = tmp_path / "worktree"
    git(checkout, "worktree", "add", "-q", "-b", "bw/i-1/1", str(worktree))
    for name, text in IDENTITY.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("BW_WORKTREE", str(worktree))
    monkeypatch.setenv("BW_BRANCH", "bw/i-1/1")
    monkeypatch.setenv("BW_BASE", git(worktree, "rev-parse", "HEAD"))
    return worktree


def entered(folder: Path) -> Workplace:
    return Workplace.enter(str(folder), "i-1", 1, "run")


def test_nothing_has_changed_at_first(folder: Path) -> None:
    place = entered(folder)
    assert place.own
    assert not place.changes().any
    assert (place.commit("T"), place.diffstat(), place.diff()) == (None, "", "")


def test_what_lies_there_is_committed_with_trailers(folder: Path) -> None:
    place = entered(folder)
    (folder / "cart.py").write_text("total = 1\n")
    (folder / "new file.py").write_text("x\n")
    assert set(place.changes().files) == {"cart.py", "new file.py"}
    made = place.commit("A\ncart \x1b[31m" + "of things " * 20, f"All {'of it ' * 20}\n\n")
    assert made == place.head() == place.changes().commits[0]
    subject, _, rest = git(folder, "log", "-1", "--format=%B").partition("\n")
    assert subject == f"A cart [31m{'of things ' * 6}".rstrip(), "cut at a word"
    body, trailers = rest.strip().split("\n\n")
    assert body == textwrap.fill(f"All {'of it ' * 20}", 72)
    assert trailers == "Issue: i-1\nAttempt: 1\nRun: run"
    assert place.diffstat().startswith("2 files changed")
    assert git(folder, "status", "--porcelain") == ""


LITTER = (".aider.chat.history.md", ".aider.tags.cache.v4/a", "__pycache__/a.pyc")


@pytest.mark.parametrize(
    ("files", "ignored", "is_work"),
    [
        (LITTER, "*.o\n.aider*\n.env\n", False),
        ((".cache/a",), "", False),
        ((".aider.conf.yml",), "", True),
        ((*LITTER, "cart2.py"), "", True),
        ((), "*.o\n.env\n", True),
        ((), ".aider*\n", True),
    ],
    ids=["all", "cache", "settings", "work", "ignored", "unhidden"],
)
def test_a_history_a_cache_and_the_lines_that_hide_them_are_no_work(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: tuple[str, ...],
    ignored: str,
    is_work: bool,
) -> None:
    monkeypatch.setenv("BW_BASE", commit(folder, ".gitignore", "*.o\n"))
    place = entered(folder)
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x\n")
    if ignored:
        (folder / ".gitignore").write_text(ignored)
    assert place.changes().any is is_work
    if is_work:
        assert place.commit("T")
    elif ignored:
        with pytest.raises(CannotCommit, match=r"nothing changed but an agent's own files: "):
            place.commit("T")
    else:
        assert place.commit("T") is None, "a command has succeeded, and there is nothing to land"


def test_what_is_committed_for_an_agent_says_so_and_is_signed_off(folder: Path) -> None:
    place = entered(folder)
    place.agent = "claude"
    place.trailers = ("Co-authored-by: {agent} <a@x>", "Signed-off-by: {committer}")
    (folder / "cart.py").write_text("total = 1\n")
    place.commit("A cart")
    signer = git(folder, "log", "-1", "--format=%cn <%ce>")
    message = git(folder, "log", "-1", "--format=%B")
    assert message == f"A cart\n\nCo-authored-by: claude <a@x>\nSigned-off-by: {signer}"


def test_what_a_killed_git_has_locked_is_committed_all_the_same(folder: Path) -> None:
    locks = [Path(git(folder, "rev-parse", "--absolute-git-dir"), "index.lock")]
    locks += [ref_lock(folder.parent / "checkout", "refs/heads/bw/i-1/1")]
    for lock in locks:
        assert lock.parent.is_dir()
        lock.touch()
    (folder / "cart.py").write_text("total = 1\n")
    assert entered(folder).commit("T") == git(folder, "rev-parse", "bw/i-1/1")
    assert not any(lock.exists() for lock in locks)


def test_what_the_agent_committed_counts_oldest_first(folder: Path) -> None:
    place = entered(folder)
    made = [commit(folder, name) for name in ("a.py", "b.py")]
    assert place.changes().commits == tuple(made)
    assert place.commit("T") is None
    assert "+++ b/a.py" in place.diff()


def test_ignored_files_are_no_work(folder: Path) -> None:
    place = entered(folder)
    (folder / ".env").write_text("KEY=1\n")
    assert not place.changes().any
    assert place.commit("T") is None


@pytest.mark.parametrize("operation", ["merge", "rebase"])
def test_nothing_is_committed_in_the_middle_of_an_operation(folder: Path, operation: str) -> None:
    place = entered(folder)
    git(folder, "checkout", "-q", "-b", "other")
    commit(folder, "cart.py", "total = 2\n")
    git(folder, "checkout", "-q", "bw/i-1/1")
    commit(folder, "cart.py", "total = 3\n")
    git(folder, operation, "other", check=False)
    with pytest.raises(CannotCommit, match=r"conflicts stand in cart\.py|rebase is under way"):
        place.commit("T")
    assert place.keep() is not None
    assert "<<<<<<<" in git(folder, "show", "refs/bw/attempts/i-1/1:cart.py")


def test_a_merge_whose_conflicts_are_gone_ends_with_the_commit(folder: Path) -> None:
    place = entered(folder)
    git(folder, "checkout", "-q", "-b", "other")
    commit(folder, "cart.py", "total = 2\n")
    tip = git(folder, "rev-parse", "HEAD").strip()
    git(folder, "checkout", "-q", "bw/i-1/1")
    commit(folder, "cart.py", "total = 3\n")
    assert place.merge(tip) == ("cart.py",)
    assert place.merge(tip) == ("cart.py",), "an attempt that was cut off left it so"
    (folder / "cart.py").write_text("total = 5\n")
    assert place.commit("T") is not None
    assert git(folder, "rev-list", "--count", f"{tip}..HEAD").strip() == "2"
    assert place.changes().commits and not place.changes().files
    assert place.merge(tip) == ()


@pytest.mark.parametrize("untracked", [False, True])
def test_a_check_that_wrote_is_not_in_the_way_of_a_merge(folder: Path, untracked: bool) -> None:
    checkout = folder.parent / "checkout"
    tip = commit(checkout, "new.py" if untracked else "cart.py", "total = 5\n")
    place = entered(folder)
    (folder / ("new.py" if untracked else "cart.py")).write_text("formatted\n")
    assert place.merge(tip) == ()
    assert git(folder, "status", "--porcelain") == ""
    assert git(folder, "merge-base", "--is-ancestor", tip, "HEAD") == ""
    kept = git(folder, "ls-tree", "-r", "--name-only", "refs/bw/attempts/i-1/1")
    assert ("new.py" in kept) is untracked


def test_nobody_ever_said_who_commits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*IDENTITY, "EMAIL", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.useConfigOnly")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    place = entered(folder)
    (folder / "a.py").write_text("x\n")
    assert place.commit("T") is not None
    assert (
        git(folder, "log", "-1", "--format=%an <%ae>") == "beads-workers <beads-workers@localhost>"
    )


def locked(folder: Path) -> None:
    """The user signs, and the signer has nobody to ask."""
    git(folder, "config", "commit.gpgSign", "true")
    git(folder, "config", "gpg.program", "false")


def test_a_locked_signer_is_not_asked_for_commits_of_an_attempt(folder: Path) -> None:
    place = entered(folder)
    locked(folder)
    (folder / "new").write_text("x")
    commit = place.commit("It")
    assert commit is not None
    (folder / "left").write_text("x")
    assert place.keep() is not None
    raw = git(folder, "cat-file", "commit", commit)
    assert "gpgsig" not in raw


def test_nor_for_the_merge_of_what_has_landed(folder: Path) -> None:
    place = entered(folder)
    (folder / "mine").write_text("x")
    place.commit("Mine")
    git(folder, "checkout", "--quiet", "-b", "landed", str(place.base))
    tip = commit(folder, "theirs")
    git(folder, "checkout", "--quiet", "-")
    locked(folder)
    assert place.merge(tip) == ()
    assert git(folder, "rev-list", "--merges", "--count", "HEAD") == "1"


def test_no_hook_of_the_users_runs(folder: Path, tmp_path: Path) -> None:
    hooks = tmp_path / "checkout" / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    (folder / "a.py").write_text("x\n")
    assert entered(folder).commit("T") is not None


def test_what_is_kept_leaves_index_and_files_as_they_are(folder: Path) -> None:
    place = entered(folder)
    (folder / "staged.py").write_text("1\n")
    git(folder, "add", "staged.py")
    (folder / "loose.py").write_text("2\n")
    before = git(folder, "status", "--porcelain")
    assert place.keep() == "refs/bw/attempts/i-1/1"
    assert git(folder, "status", "--porcelain") == before
    names = git(folder, "ls-tree", "--name-only", "refs/bw/attempts/i-1/1").splitlines()
    assert {"staged.py", "loose.py", "cart.py"} <= set(names)


def test_what_others_run_once_it_is_merged_is_a_flag(folder: Path) -> None:
    place = entered(folder)
    commit(folder, "cart.py")
    assert place.receipt(Receipt("done")).flags == ()
    for name in ("beads-workers.toml", "part/.claude/settings.json", ".beads/hooks/on_close"):
        commit(folder, name)
    (flag,) = place.receipt(Receipt("done")).flags
    assert flag == (
        "changes what is run by whoever merges it: .beads/hooks/on_close beads-workers.toml"
        " part/.claude/settings.json"
    )


def test_what_git_runs_since_an_attempt_is_a_flag(folder: Path) -> None:
    place = entered(folder)
    assert place.receipt(Receipt("done")).flags == ()
    for key, setting in (("user.name", "x"), ("branch.main.remote", ".")):
        git(folder, "config", key, setting)
    for key in (
        "filter.x.clean",
        "core.fsmonitor",
        "core.sshCommand",
        "alias.st",
        "merge.y.driver",
    ):
        git(folder, "config", key, "touch ran")
    git(folder, "config", "includeIf.gitdir:~/x.path", "/nowhere")
    git(folder, "config", "--unset", "alias.st")
    hook = Path(git(folder, "rev-parse", "--git-common-dir"), "hooks/post-merge")
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    exclude = hook.parent.parent / "info/exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("*.txt\n")
    assert entered(folder).receipt(Receipt("done")).flags == (
        "changed what git runs in this repository: core.fsmonitor core.sshcommand filter.x.clean"
        " hooks/post-merge includeif.gitdir:~/x.path ...",
        "changed settings that all worktrees share: branch.main.remote info/exclude user.name",
    )
    assert not (folder / "ran").exists()


def test_in_a_shared_folder_nothing_is_committed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BW_WORKTREE")
    (folder / "users.py").write_text("x\n")
    place = entered(folder)
    assert not place.own and not place.changes().any
    (folder / "agents.py").write_text("x\n")
    assert place.changes().files == ("agents.py",)
    assert (place.commit("T"), place.keep()) == (None, None)


def test_outside_of_git_nobody_can_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BW_WORKTREE", raising=False)
    place = entered(tmp_path)
    assert (place.changes().known, place.changes().any) == (False, True)
    assert (place.diff(), place.diffstat(), place.keep()) == ("", "", None)


def test_files_that_others_obey_are_found_as_git_finds_them(folder: Path) -> None:
    names = [
        *(".mcp.json", "a/.mcp.json", ".mcp.json/x", "a.mcp.json", "b/.mcp.jsonl", ".env", "x.env"),
        *("beads-workers.toml", "sub/.beads/hooks/pre", ".beads/hooked", ".claude/settings.json"),
    ]
    for name in names:
        one = folder / name
        if one.parent.is_file():
            continue
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_text("x\n")
    git(folder, "add", "--all", "--force")
    by_git = git(folder, "diff", "--cached", "--name-only", "HEAD", "--", *WATCHED).splitlines()
    everything = git(folder, "diff", "--cached", "--name-only", "HEAD").splitlines()
    assert by_git == [name for name in everything if is_watched(name)] != []


def test_a_moved_file_that_others_obeyed_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BW_BASE", commit(folder, ".mcp.json", "A=1\n" * 20))
    place = entered(folder)
    git(folder, "mv", ".mcp.json", "mcp.txt")
    place.commit("T")
    assert place.receipt(Receipt()).flags == (f"{OBEYED}: .mcp.json",)
