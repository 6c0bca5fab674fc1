"""What another user has put above a folder, or into it, neither runs nor is believed.

With two users, and again with root as the victim. docs/TRUST.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from beads_workers import registry
from tests.support import warm

STRANGER, USER, ROOT = 65534, 65533, 0
READS_ALL = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
"""The Python of these tests may lie in a folder of root's."""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users"),
    pytest.mark.daily(2),
]

Ran = subprocess.CompletedProcess[str]


def user(uid: int) -> tuple[str, ...]:
    """The command that makes a process that user's."""
    who = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *READS_ALL)
    return () if uid == ROOT else who


def environment(folder: Path) -> dict[str, str]:
    """Nothing is in it that could help, beside what Python reads at its start."""
    read = {k: v for k, v in os.environ.items() if k.startswith("PYTHON") or k in warm.LOCALE}
    there = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(Path.cwd())}
    return read | there


def run_as(uid: int, argv: Sequence[str], folder: Path) -> Ran:
    """A program as that user."""
    return subprocess.run(
        [*user(uid), *argv],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment(folder),
        timeout=60,
        check=False,
    )


def ours(uid: int, folder: Path, *arguments: str) -> Ran:
    """One of our commands."""
    return warm.run(arguments, folder, environment(folder), 60, safe=True, user=user(uid))


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """As ``/tmp`` is: everybody may make things there, and take away only their own."""
    folder = Path("/tmp") / f"beads-workers-strangers-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=[USER, ROOT], ids=["user", "root"])
def victim(request: pytest.FixtureRequest) -> int:
    """Who is to be made to do something."""
    return int(request.param)


@pytest.fixture
def own_folder(shared_folder: Path, victim: int) -> Path:
    """The victim's own folder in it."""
    folder = shared_folder / "mine"
    folder.mkdir(mode=0o755)
    os.chown(folder, victim, victim)
    return folder


def plant_tracker(shared_folder: Path) -> Path:
    """An embedded tracker whose one issue brings a command; returns the file that shows it ran."""
    shown = shared_folder / "it-ran"
    assert ours(STRANGER, shared_folder, "init").returncode == 0
    added = ours(STRANGER, shared_folder, "add", "x", "--", "touch", str(shown))
    assert added.returncode == 0, added.stderr
    (shared_folder / "beads-workers.toml").unlink()
    (shared_folder / ".beads-workers").chmod(0o777)
    for each in (shared_folder / ".beads-workers").iterdir():
        each.chmod(0o666)
    return shown


def refused(ran: Ran) -> bool:
    """In one line that says whose it is."""
    return ran.returncode == 2 and f"belongs to another user (uid {STRANGER})" in ran.stderr


def test_a_tracker_that_a_stranger_put_above_us_runs_nothing(
    shared_folder: Path, own_folder: Path, victim: int
) -> None:
    shown = plant_tracker(shared_folder)
    for command in (
        ("start", "-n", "1", "--until-empty", "--", "true"),
        ("add", "mine"),
        ("list",),
        ("config", "verify"),
    ):
        ran = ours(victim, own_folder, *command)
        assert refused(ran), (command, ran.returncode, ran.stderr)
    assert not shown.exists()
    doctor = ours(victim, own_folder, "doctor", "--json", "--", "true")
    assert "belongs to another user" in doctor.stdout and doctor.returncode != 0
    # A tracker of one's own, and nearer, is found first.
    assert ours(victim, own_folder, "init").returncode == 0
    ran = ours(victim, own_folder, "start", "-n", "1", "--until-empty", "--", "true")
    assert (ran.returncode, shown.exists()) == (0, False), ran.stderr


def test_a_folder_of_beads_that_a_stranger_put_above_us_is_not_asked(
    shared_folder: Path, own_folder: Path, victim: int
) -> None:
    run_as(STRANGER, ["mkdir", ".beads"], shared_folder)
    assert refused(ours(victim, own_folder, "start", "--", "true"))
    (shared_folder / ".beads").rmdir()
    (own_folder / "real").mkdir()
    run_as(STRANGER, ["ln", "-s", str(own_folder / "real"), ".beads"], shared_folder)
    assert refused(ours(victim, own_folder, "start", "--", "true")), "the link is the stranger's"


@pytest.mark.parametrize("command", ["status", "stop", "logs", "report", "pause", "watch", "clean"])
def test_a_fleet_that_a_stranger_pretends_is_not_talked_to(
    shared_folder: Path, own_folder: Path, victim: int, command: str
) -> None:
    state = shared_folder / ".beads-workers"
    run_as(STRANGER, ["mkdir", str(state)], shared_folder)
    told = {"pid": 1, "run_id": "20260101-000000.000-aaaaaa", "control_socket": "/nowhere"}
    run_as(STRANGER, ["sh", "-c", f"echo '{json.dumps(told)}' >{state}/run.json"], shared_folder)
    assert refused(ours(victim, own_folder, command))
    assert refused(ours(victim, own_folder, command, "--state-dir", str(state)))


def test_a_run_directory_that_a_stranger_made_is_not_taken(
    shared_folder: Path, own_folder: Path, victim: int
) -> None:
    state = shared_folder / "state"
    run_as(STRANGER, ["mkdir", "-m", "777", str(state)], shared_folder)
    assert ours(victim, own_folder, "init").returncode == 0
    assert refused(
        ours(victim, own_folder, "start", "--state-dir", str(state), "-n", "1", "--", "true")
    )
    assert list(state.iterdir()) == []


def test_what_a_stranger_links_into_our_folder_writes_nowhere_else(
    shared_folder: Path, own_folder: Path, victim: int
) -> None:
    precious = own_folder / "precious"
    precious.write_text("mine\n")
    os.chown(precious, victim, victim)
    assert ours(victim, own_folder, "init").returncode == 0
    state = own_folder / ".beads-workers"
    for name in ("run.json.new", "run.json", "lock", "ended.json.new"):
        (state / name).unlink(missing_ok=True)
        (state / name).symlink_to(precious)
        os.lchown(state / name, STRANGER, STRANGER)
    ours(victim, own_folder, "add", "x", "--", "true")
    ours(victim, own_folder, "start", "-n", "1", "--until-empty", "--", "true")
    assert precious.read_text() == "mine\n"
    for link in state.iterdir():
        if link.is_symlink():
            link.unlink()
    ran = ours(victim, own_folder, "start", "-n", "1", "--until-empty", "--", "true")
    assert ran.returncode == 0, ran.stderr


def test_the_owner_of_the_folder_where_we_are_is_believed(shared_folder: Path) -> None:
    """In a container the user is often not who checked out."""
    theirs = shared_folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, STRANGER, STRANGER)
    plant_tracker(theirs)
    assert ours(ROOT, theirs, "list").returncode == 0


SQUATTED = """
cd /
mount -t tmpfs -o mode=1777 none /tmp || exit 75
cd /tmp
{stranger} sh -c 'for n in $(seq 3000); do : >beads-workers-$((($0 + n) % {pids})).sock; done' $$
{stranger} mkdir -m 777 {folders}
mkdir -m 755 mine && chown {victim}:{victim} mine && cd mine && export HOME=/tmp/mine
{ours} init && {ours} add x -- true && {ours} start -n 1 --until-empty && {ours} list --all
"""


@pytest.mark.skipif(
    any(each.is_relative_to("/tmp") for each in (Path(sys.prefix), Path.cwd())),
    reason="what is run lies in /tmp itself",
)
@pytest.mark.parametrize("folders", ["/tmp/other", "/tmp/other /tmp/beads-workers-{victim}"])
def test_names_of_sockets_that_a_stranger_has_taken_keep_no_fleet_from_starting(
    victim: int, folders: str
) -> None:
    """In a /tmp of its own, where other fleets of this machine do not meet the stranger."""

    def by(uid: int, argv: str = "") -> str:
        who = f"setpriv --reuid={uid} --regid={uid} --clear-groups" if uid != ROOT else ""
        return f"{who} {' '.join(READS_ALL) if who else ''} {argv}"

    script = SQUATTED.format(
        victim=victim,
        pids=Path("/proc/sys/kernel/pid_max").read_text().strip(),
        stranger=by(STRANGER),
        folders=folders.format(victim=victim),
        ours=by(victim, f"{sys.executable} -P -m beads_workers"),
    )
    ran = run_as(ROOT, ["unshare", "--mount", "sh", "-ec", script], Path("/"))
    if ran.returncode == 75 or ran.stderr.startswith("unshare:"):
        pytest.skip(f"no file system can be mounted here: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr
    assert "closed" in ran.stdout
    ours = f"/tmp/beads-workers-{victim}/"
    socket = "/tmp/mine/.beads-workers/worker.sock" if "{" in folders else ours
    assert f", {socket}" in ran.stderr, ran.stderr


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_all_that_is_kept_is_for_its_owner_alone_whatever_the_umask(
    own_folder: Path, victim: int, umask: int
) -> None:
    metrics = ("--metrics", "0") if registry.service("metrics") else ()
    before = os.umask(umask)
    try:
        assert ours(victim, own_folder, "init").returncode == 0
        ours(victim, own_folder, "add", "x", "--", "sh", "-c", "echo said; exit 3")
        end = ("--until-empty", "--max-attempts", "1")
        ran = ours(victim, own_folder, "start", "-n", "2", *end, *metrics)
        ours(victim, own_folder, "status")
    finally:
        os.umask(before)
    assert "quarantined 1" in ran.stdout + ran.stderr, ran.stdout + ran.stderr
    open_to_others = [
        (str(each.relative_to(own_folder)), oct(each.lstat().st_mode))
        for root in (".beads-workers", ".cache", ".local")
        for each in (own_folder / root).rglob("*")
        if not each.is_symlink() and each.lstat().st_mode & 0o077
    ]
    assert open_to_others == []
    assert (own_folder / ".beads-workers").stat().st_mode & 0o077 == 0
