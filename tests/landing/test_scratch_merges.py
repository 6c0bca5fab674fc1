"""Trains on real repositories: what merges, what it becomes, and what git would do by itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from beads_workers.core.base.commit_form import CommitForm
from beads_workers.core.base.settings import LANDING_STYLES
from beads_workers.core.records.landing import Add
from beads_workers.landing.repository import LandingRepository
from beads_workers.landing.scratch_merges import CannotMerge, Conflict, Coupled, Follow, Passenger
from beads_workers.worktrees.git import GitError
from tests.landing.world import LandingWorld
from tests.support.repository import git

FULL = CommitForm(trailers="full")
LINES = "".join(f"line {number}\n" for number in range(40))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LandingWorld:
    return LandingWorld(tmp_path, monkeypatch)


def couple(repository: LandingRepository, onto: str, passenger: Passenger) -> Coupled:
    """It merges."""
    found = repository.builder.couple(onto, passenger)
    assert isinstance(found, Coupled), found
    return found


def land(repository: LandingRepository, *passengers: Passenger) -> list[str]:
    """One train of all of them, which land."""
    onto, changes = repository.tip(), []
    for passenger in passengers:
        found = couple(repository, onto, passenger)
        onto = found.commit
        changes.append(found.changes)
    return repository.land(repository.tip(), changes)


def log(world: LandingWorld, form: str, many: int = 1) -> str:
    """What git says of the last commits that landed."""
    return git(world.top, "log", f"-{many}", f"--format={form}", world.tip())


# --- what it becomes ------------------------------------------------------------------------------


def test_a_branch_becomes_one_commit_with_its_author_and_trailers(world: LandingWorld) -> None:
    git(world.desk, "checkout", "--quiet", "-B", "bw/app-1/1", world.start)
    world.commit(world.desk, {"a": "1\n"}, "first")
    git(world.desk, "config", "--worktree", "user.name", "x", check=False)
    (world.desk / "a").write_text("2\n")
    author = "--author=An Agent <agent@example.org>"
    git(world.desk, "commit", "-qa", author, "--date=1700000000 +0200", "-m", "second")
    add = world.added("app-1", world.start, title="Do\nthe thing", text="Because.")
    (sha,) = land(world.repository(form=FULL), add)
    assert sha == world.tip()
    assert log(world, "%an <%ae> %ad|%cn|%P").split("|") == [
        "An Agent <agent@example.org> Wed Nov 15 00:13:20 2023 +0200",
        "tester",
        world.start,
    ]
    assert log(world, "%B") == (
        "Do the thing\n\n- first\n- second\n\nCo-authored-by: tester <tester@localhost>\n"
        "Issue: app-1\nAttempt: 1\nRun: run-1\nVerified: none"
    )


def test_a_train_is_a_commit_for_each_branch(world: LandingWorld) -> None:
    adds = [world.work(f"app-{n}", {f"f{n}": f"{n}\n"}) for n in range(3)]
    commits = land(world.repository(), *adds)
    assert (
        git(world.top, "rev-list", "--reverse", f"{world.start}..{world.tip()}").split() == commits
    )
    assert world.files() == [".gitignore", "f0", "f1", "f2"]


def test_a_merge_keeps_the_branch_and_a_rebase_its_commits(world: LandingWorld) -> None:
    for style in ("merge", "rebase"):
        base = world.repository().tip()
        git(world.desk, "checkout", "--quiet", "-B", f"bw/{style}/1", base)
        for number in range(3):
            world.commit(world.desk, {f"{style}{number}": "x\n"}, f"{style} step {number}")
        add = world.added(style, base)
        land(world.repository(style=style), world.work(f"before-{style}", {style: "y"}, base), add)
        if style == "merge":
            assert log(world, "%P").split()[1] == add.commit
        else:
            subjects = log(world, "%s", 3).splitlines()
            assert subjects == ["rebase step 2", "rebase step 1", "rebase step 0"]
            assert log(world, "%b") == "Issue: rebase"


def test_commits_that_say_nothing_join_the_one_before_that_has_the_title_already(
    world: LandingWorld,
) -> None:
    for number, subject in enumerate(("wip", "fixup! wip", "Test it", "wip")):
        if number:
            world.commit(world.desk, {f"f{number}": "x\n"}, subject)
        else:
            world.work("a", {"f0": "x\n"})
            git(world.desk, "commit", "--quiet", "--amend", "-m", subject)
    land(world.repository(style="rebase"), world.added("a", world.start, title="Do it"))
    assert log(world, "%s", 3).splitlines() == ["Do it", "Test it", "Do it"]
    assert git(world.top, "rev-list", "--count", f"{world.start}..{world.tip()}") == "3"
    assert set(world.files()) >= {"f0", "f1", "f2", "f3"}


def test_a_rebase_of_a_branch_with_merges_is_one_commit(world: LandingWorld) -> None:
    repository = world.repository(style="rebase")
    land(repository, world.work("one", {"one": "1\n"}))
    add = world.work("two", {"two": "2\n"})
    git(world.desk, "merge", "--quiet", "--no-edit", world.tip())
    land(repository, world.added("two", add.base))
    assert log(world, "%s|%P").endswith(f"|{git(world.top, 'rev-parse', world.tip() + '~1')}")
    assert world.read("two") == "2" and world.read("one") == "1"


def test_what_brings_nothing_new_has_no_commit(world: LandingWorld) -> None:
    repository = world.repository()
    land(repository, world.work("one", {"a": "1\n"}))
    assert couple(repository, world.tip(), world.work("two", {"a": "1\n"})).changes == ()


@pytest.mark.parametrize("style", ["squash", "rebase"])
def test_a_commit_that_was_made_for_the_attempt_says_once_what_it_is(
    world: LandingWorld, style: str
) -> None:
    own = "Issue: app-1\nAttempt: 1\nRun: run-1"
    git(world.desk, "checkout", "--quiet", "-B", "bw/app-1/1", world.start)
    world.commit(world.desk, {"a": "1\n"}, f"Do the thing\n\nBecause.\n\n{own}")
    repository = world.repository(style=style, form=FULL)
    land(repository, world.added("app-1", world.start, title="Do the thing", text="Because."))
    assert log(world, "%B") == f"Do the thing\n\nBecause.\n\n{own}\nVerified: none"


def test_a_message_of_an_agent_cannot_pass_for_our_trailers(world: LandingWorld) -> None:
    repository = world.repository()
    text = "Issue: other\nAttempt: 7\nVerified: yes"
    land(repository, world.work("mine", {"a": "1"}, text=text))
    (found,) = repository.landed(world.start, world.tip())
    assert (found.issue_id, found.attempt, found.run_id) == ("mine", 1, "run-1")


SCISSORS = "# ------------------------ >8 ------------------------"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("trailer.separators", "#"),
        ("trailer.issue.key", "Ticket: "),
        ("trailer.verified.key", "Verified #"),
        ("core.commentChar", ";"),
    ],
)
def test_our_trailers_are_found_whatever_git_takes_for_trailers(
    world: LandingWorld, key: str, text: str
) -> None:
    git(world.top, "config", key, text)
    repository = world.repository(form=FULL)
    for issue_id, title in (("a", SCISSORS), ("b", SCISSORS.replace("#", ";")), ("c", "#12 c")):
        land(repository, world.work(issue_id, {issue_id: "1"}, title=title))
    found = repository.landed(world.start, world.tip())
    assert [each.issue_id for each in found] == ["c", "b", "a"]
    git(world.top, "update-ref", "-d", "refs/bw/landed/main")
    found = repository.landed(world.start, world.tip())
    assert [each.issue_id for each in found] == ["c", "b", "a"], "by the trailers alone"
    assert log(world, "%s") == "#12 c"


def test_what_the_tracker_writes_into_every_branch_does_not_land(world: LandingWorld) -> None:
    world.main({".beads/issues.jsonl": "old\n", "code": "1\n"})
    repository = world.repository()
    adds = [
        world.work(f"app-{n}", {".beads/issues.jsonl": f"by {n}\n", f"f{n}": "x\n"}) for n in (1, 2)
    ]
    new = world.work("app-3", {".beads/other.jsonl": "x", ".beads-workers/run": "x", "f3": "x"})
    gone = world.work("app-4", {".beads/issues.jsonl": None, "f4": "x"})
    only = world.work("app-5", {".beads/issues.jsonl": "nothing else\n"})
    land(repository, *adds, new, gone)
    assert world.read(".beads/issues.jsonl") == "old"
    assert world.files() == [".beads/issues.jsonl", ".gitignore", "code", "f1", "f2", "f3", "f4"]
    assert couple(repository, world.tip(), only).changes == ()


@pytest.mark.parametrize("style", LANDING_STYLES)
def test_no_file_of_the_tracker_is_removed_and_its_identity_stays(
    world: LandingWorld, style: str
) -> None:
    """As ``git rm -r --cached .beads`` does; ``bd`` finds no issue without its metadata."""
    files = ["issues.jsonl", "metadata.json", "config.yaml", ".gitignore", "hooks/pre-push"]
    world.main({f".beads/{name}": f"{name}\n" for name in files})
    repository = world.repository(style=style)
    gone = world.work("app-1", {**{f".beads/{name}": None for name in files}, "f1": "x\n"})
    new = {".beads/metadata.json": "other\n", ".beads/config.yaml": "asked for\n"}
    land(repository, gone, world.work("app-2", new))
    assert {name: world.read(f".beads/{name}") for name in files} == {
        **{name: name for name in files},
        "config.yaml": "asked for",
    }
    assert world.read("f1") == "x"


# --- conflicts ------------------------------------------------------------------------------------


def test_a_conflict_names_its_files(world: LandingWorld) -> None:
    world.main({"a b": "1\n", "c": "1\n"})
    repository = world.repository()
    land(repository, world.work("one", {"a b": "2\n", "c": "2\n"}))
    found = repository.builder.couple(world.tip(), world.work("two", {"a b": "3\n", "c": "3\n"}))
    assert isinstance(found, Conflict)
    assert found.files == ("a b", "c")
    assert "CONFLICT (content): Merge conflict in a b" in found.text.splitlines()


def test_a_merge_driver_that_dies_merges_nothing(world: LandingWorld) -> None:
    """Trap 9: a conflict to git 2.39, and no answer at all from newer ones."""
    git(world.top, "config", "merge.dies.driver", "kill -9 $$")
    world.main({".gitattributes": "gen merge=dies\n", "gen": "0\n"})
    repository = world.repository()
    land(repository, world.work("one", {"gen": "1\n"}))
    two = world.work("two", {"gen": "2\n"})
    try:
        assert isinstance(repository.builder.couple(world.tip(), two), Conflict)
    except CannotMerge as error:
        assert str(error)
    assert world.read("gen") == "1"


def test_history_that_is_not_shared_is_no_conflict(world: LandingWorld) -> None:
    repository = world.repository()
    git(world.desk, "checkout", "--quiet", "--orphan", "stranger")
    stranger = world.commit(world.desk, {"a": "1\n"})
    add = Add("a", 1, "run-1", stranger, stranger)
    with pytest.raises(CannotMerge, match="unrelated histories"):
        repository.builder.couple(repository.tip(), add)
    with pytest.raises(GitError, match="no history in common"):
        repository.contains(add, repository.tip())


# --- as git merge does it -------------------------------------------------------------------------


def test_renames_modes_links_binaries_and_folders_merge_as_in_git(world: LandingWorld) -> None:
    world.main({"old/one": LINES, "old/two": "2\n" + LINES, "tool": "#!/bin/sh\n", "blob": b"\0\1"})
    (world.top / "link").symlink_to("tool")
    (world.top / "place").write_text("a file\n")
    world.main({"link2": "x"})
    git(world.top, "add", "link", "place")
    git(world.top, "commit", "-qm", "more")
    world.start = git(world.top, "rev-parse", "HEAD")
    repository = world.repository()
    git(world.desk, "checkout", "-q", "-B", "bw/move/1", world.start)
    git(world.desk, "mv", "old", "new")
    (world.desk / "tool").chmod(0o755)
    git(world.desk, "rm", "-q", "place")
    moved = world.commit(world.desk, {"place/inside": "now a folder\n", "tool": "#!/bin/sh\n"})
    git(world.desk, "commit", "-qam", "all", check=False)
    assert moved
    move = world.added("move", world.start)
    edit = world.work("edit", {"old/one": LINES.replace("line 7", "seven"), "blob": b"\0\2"})
    fresh = world.work("fresh", {"old/three": "into a folder that was renamed\n"})
    land(repository, move, edit, fresh)
    assert "seven" in world.read("new/one")
    assert world.files() == [
        *(".gitignore", "blob", "link", "link2", "new/one", "new/three", "new/two"),
        *("place/inside", "tool"),
    ]
    modes = git(world.top, "ls-tree", world.tip(), "tool", "link")
    assert modes.startswith("120000") and "100755 blob" in modes


def test_a_merge_driver_of_the_users_own_is_used(world: LandingWorld) -> None:
    git(world.top, "config", "merge.ours2.driver", "cp %B %A")
    world.main({".gitattributes": "gen merge=ours2\n", "gen": "0\n"})
    repository = world.repository()
    land(repository, world.work("one", {"gen": "1\n"}), world.work("two", {"gen": "2\n"}))
    assert world.read("gen") == "2"


def test_the_tips_attributes_decide_and_not_those_of_the_users_checkout(
    world: LandingWorld,
) -> None:
    """Trap 1, both ways."""
    world.main({".gitattributes": "*.log merge=union\n", "deep/a.log": "0\n"})
    repository = world.repository()
    adds = [world.work(f"app-{n}", {"deep/a.log": f"0\n{n}\n"}) for n in (1, 2)]
    (world.top / ".gitattributes").write_text("")
    land(repository, *adds)
    assert world.read("deep/a.log") == "0\n1\n2"
    gone = world.work("gone", {".gitattributes": ""}, world.tip())
    again = [
        world.work(f"more-{n}", {"deep/a.log": f"0\n1\n2\n{n}\n"}, world.tip()) for n in (3, 4)
    ]
    (world.top / ".gitattributes").write_text("*.log merge=union\n")
    land(repository, gone, again[0])
    assert isinstance(repository.builder.couple(world.tip(), again[1]), Conflict)


def test_attributes_that_come_with_the_train_hold_for_those_behind(world: LandingWorld) -> None:
    world.main({"sub/a.log": "0\n"})
    repository = world.repository()
    first = world.work("first", {"sub/.gitattributes": "*.log merge=union\n"})
    adds = [world.work(f"app-{n}", {"sub/a.log": f"0\n{n}\n"}) for n in (1, 2)]
    land(repository, first, *adds)
    assert world.read("sub/a.log") == "0\n1\n2"


def test_renormalizing_and_filters_do_not_run(world: LandingWorld) -> None:
    ran = world.folder / "filter-ran"
    git(world.top, "config", "filter.lfs.clean", f"touch {ran}; cat")
    git(world.top, "config", "filter.lfs.smudge", f"touch {ran}; cat")
    git(world.top, "config", "merge.renormalize", "true")
    world.main({".gitattributes": "*.bin filter=lfs merge=lfs -text\n"})
    world.main({"a.bin": "version 1\npointer\n", "b.bin": "version 1\nb\n"})
    adds = [world.work(n, {f"{n}.bin": f"version 1\nnew {n}\n"}) for n in ("a", "b")]
    repository = world.repository()
    ran.unlink(missing_ok=True)
    land(repository, *adds)
    assert world.read("a.bin") == "version 1\nnew a"
    assert not ran.exists()


def test_line_ends_are_those_of_the_branch(world: LandingWorld) -> None:
    git(world.top, "config", "core.autocrlf", "true")
    repository = world.repository()
    git(world.desk, "-c", "core.autocrlf=false", "checkout", "-q", "-B", "x", world.start)
    (world.desk / "crlf").write_bytes(b"a\r\nb\r\n")
    git(world.desk, "-c", "core.autocrlf=false", "add", "crlf")
    git(world.desk, "-c", "core.autocrlf=false", "commit", "-qm", "x")
    add = world.added("crlf", world.start)
    land(repository, add, world.work("lf", {"lf": "a\nb\n"}))
    sizes = git(world.top, "ls-tree", "-l", world.tip(), "crlf", "lf").split()
    assert (sizes[3], sizes[8]) == ("6", "4")


def test_submodules_merge_where_one_side_moved_and_conflict_where_both_did(
    world: LandingWorld,
) -> None:
    """Trap 12."""
    shas = [world.work(f"sub-{n}", {"s": str(n)}).commit for n in range(3)]
    git(world.desk, "checkout", "-q", "--detach", world.start)

    def moved(issue_id: str, sha: str, base: str) -> Add:
        git(world.desk, "checkout", "-q", "-f", "--detach", base)
        git(world.desk, "update-index", "--add", "--cacheinfo", f"160000,{sha},module")
        git(world.desk, "commit", "-qm", issue_id)
        return world.added(issue_id, base)

    repository = world.repository()
    land(repository, moved("one", shas[0], world.start))
    base = world.tip()
    land(repository, moved("two", shas[1], base), world.work("three", {"x": "1"}, base))
    found = repository.builder.couple(world.tip(), moved("four", shas[2], base))
    assert isinstance(found, Conflict) and found.files == ("module",)


# --- hooks, identity, signatures ------------------------------------------------------------------


def test_no_hook_runs(world: LandingWorld) -> None:
    hooks = world.top / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in (
        "reference-transaction",
        "post-checkout",
        "commit-msg",
        "post-commit",
        "post-merge",
    ):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {world.folder}/hooked\nexit 1\n")
    add = world.work("a", {"a": "1"})
    for hook in hooks.iterdir():
        hook.chmod(0o755)
    land(world.repository(), add)
    assert not (world.folder / "hooked").exists()


def test_a_machine_without_an_identity_lands_all_the_same(world: LandingWorld) -> None:
    add = world.work("a", {"a": "1"})
    git(world.top, "config", "--unset", "user.name")
    git(world.top, "config", "--unset", "user.email")
    git(world.top, "config", "user.useConfigOnly", "true")
    land(world.repository(), add)
    assert log(world, "%an|%cn") == "tester|beads-workers"


def signer(world: LandingWorld, script: str) -> None:
    """Commits are signed, by this program."""
    program = world.folder / "gpg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    git(world.top, "config", "gpg.program", str(program))
    git(world.top, "config", "commit.gpgSign", "true")


def test_commits_are_signed_where_the_user_signs(world: LandingWorld) -> None:
    add = world.work("a", {"a": "1"})
    signature = "-----BEGIN PGP SIGNATURE-----\\n\\nsigned\\n-----END PGP SIGNATURE-----\\n"
    counts = f"cat >/dev/null; echo >>{world.folder}/signed"
    signer(world, f"{counts}; printf '\\n[GNUPG:] SIG_CREATED x\\n' >&2; printf -- '{signature}'")
    land(world.repository(), add)
    # Trains are scratch: only what lands is signed.
    assert (world.folder / "signed").read_text() == "\n"
    header = r"^gpgsig(-sha256)? -----BEGIN PGP SIGNATURE-----$"
    assert re.search(header, git(world.top, "cat-file", "-p", world.tip()), re.MULTILINE)


# --- the user's branch ----------------------------------------------------------------------------


def test_the_users_branch_is_taken_as_it_is_or_merged(world: LandingWorld) -> None:
    repository = world.repository()
    one = world.work("one", {"one": "1"})
    by_hand = world.main({"hand": "1"})
    follow = repository.follow(repository.tip())
    assert follow == Follow("main", by_hand)
    assert land(repository, follow) == [by_hand]
    assert repository.follow(repository.tip()) is None
    land(repository, one)
    again = world.main({"hand": "2"})
    follow = repository.follow(repository.tip())
    assert follow is not None
    land(repository, follow)
    assert log(world, "%s|%P").endswith(again)
    assert log(world, "%s") == "Merge branch 'main'"
    assert world.files() == [".gitignore", "hand", "one"]
