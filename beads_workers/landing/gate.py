"""The gate: run verify on the exact tree that the branch is to have, in a worktree of the lander.

Each lane has one worktree with a fixed name. So a crash leaks no worktree, and build caches that
git ignores stay warm. A warm worktree may hold more than the tree. Everything that could falsify a
verdict is removed before each run; before a branch is convicted, everything is removed. Source:
docs/LANDING.md, "The gate".

A gate is a forked child of the lander. It prepares the worktree, runs the command and writes one
``GateResult`` to a pipe. Every process that it starts has ``BW_GATE`` in its environment, and is
gone before the next gate begins.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.core.base.plain import BAD_VALUE, from_plain, to_plain
from beads_workers.core.base.text import printable, size
from beads_workers.core.base.worlds import WorldRules
from beads_workers.core.records.landing import SET_UP_FAILED, LanderSettings
from beads_workers.landing import set_up
from beads_workers.landing.queue import GateVerdict
from beads_workers.landing.repository import BROKEN, PINS
from beads_workers.landing.sees.leads import Lead, find_leads
from beads_workers.landing.shortage import Shortage
from beads_workers.runtime import sessions
from beads_workers.runtime.kernel import system
from beads_workers.runtime.locks import try_lock
from beads_workers.runtime.processes import hide, inherited
from beads_workers.worktrees import making, programs, ref_files, slots, submodules
from beads_workers.worktrees.freshness import changed_files, clear_gone
from beads_workers.worktrees.git import (
    GitError,
    answers,
    delete_refs,
    git,
    questions,
    unlock_here,
)
from beads_workers.worktrees.git import names as git_names
from beads_workers.worktrees.places import landing_folders
from beads_workers.worktrees.records import git_directories, led_to
from beads_workers.worktrees.relocation import lead_to
from beads_workers.worktrees.sparse import Cone, holds, take_cone, widened
from beads_workers.worktrees.sweep import make_writable

NO_VERDICT = (75, 126, 127)
"""Exit statuses of a command that could not be run: ``EX_TEMPFAIL``, not executable, not found.
From 128 on, a signal ended the command."""

TAIL_BYTES = 8192
TAIL_LINES = 60
"""Limits of the kept output of verify, for the person or agent that fixes the failure."""

VERDICTS_MAX = 4000
"""Number of verdicts that are kept; each has a file of at most ``TAIL_BYTES``."""

TOOL_SECONDS = 20.0
"""Time limit for a tool to print its version, in seconds."""

LOOK_SECONDS = 0.5
"""Interval of the checks for a full disk while a command runs, in seconds."""

LOCK = "beads-workers-landing.lock"
"""Name of the lock in git's common folder: one lander for a repository."""
VERDICTS = "verdicts"
"""Name of the folder of verdicts, beside the worktrees of gates."""


@value
class GateResult:
    """Result of a gate."""

    verdict: GateVerdict
    # One line, if the gate is not green.
    why: str = ""
    # The end of the output.
    text: str = ""
    seconds: float = 0.0
    # The set-up ran, and passed if the gate is green; otherwise it is what failed.
    set_up: bool = False
    # What the set-up changed that all worktrees share, in words for people.
    changed: tuple[str, ...] = ()
    # What the output says has failed (``core.base.failures``), if it is known.
    said: str = ""


@value
class GateOrder:
    """Order for a gate."""

    lane: int
    # The commit to check out.
    commit: str
    # The tree of ``commit``; "" if the verdict is not to be kept.
    tree: str
    # The tip that ``commit`` stands on.
    tip: str
    # Nothing of earlier gates is left in the worktree.
    fresh: bool = False
    # Called in the gate's process before set-up; it may raise ``OSError``.
    before: Callable[[], None] | None = None


# --- kept verdicts -------------------------------------------------------------------------------


class Verdicts:
    """Verdicts of trees. They hold for one command, set-up hook, set of copied files, set of tools,
    and set of leads into the user's checkout."""

    def __init__(self, settings: LanderSettings, folder: Path) -> None:
        self._folder = folder / VERDICTS
        self._folder.mkdir(parents=True, exist_ok=True)
        self._settings = settings
        self._tools = [
            _output(tool, settings.worktrees.checkout) for tool in settings.landing.rules.tools
        ]
        self._holds_for = ""
        self.leads: tuple[Lead, ...] = ()
        files = sorted(self._folder.iterdir(), key=lambda file: file.stat().st_mtime)
        for file in files[:-VERDICTS_MAX]:
            file.unlink(missing_ok=True)

    def look_again(self) -> None:
        """Read the copied files and the leads into the checkout again, before a train: they may
        have changed. Raises ``GitError``."""
        worktrees, verify = self._settings.worktrees, self._settings.verify or ""
        self.leads = find_leads(worktrees, verify)
        leads = to_plain(self.leads)
        copied = making.copied_state(worktrees)
        about = [verify, worktrees.rules.setup, worktrees.prefix, copied, self._tools, leads]
        about += [] if worktrees.cone is None else [worktrees.cone]
        if (worlds := worktrees.rules.worlds) != WorldRules():
            about += [worlds.world, worlds.env]
        self._holds_for = hashlib.sha256(json.dumps(about).encode()).hexdigest()

    @property
    def recipe(self) -> str:
        """Hash of everything that the verdicts depend on."""
        return self._holds_for

    def find(self, tree: str) -> GateResult | None:
        """Return the kept verdict of this tree; None if there is none."""
        try:
            return from_plain(GateResult, json.loads(self._file(tree).read_bytes()))
        except (OSError, *BAD_VALUE):
            return None

    def has_passed(self, tree: str) -> bool:
        """Return whether a gate has passed on this tree."""
        found = self.find(tree)
        return found is not None and found.verdict is GateVerdict.GREEN

    def keep(self, tree: str, result: GateResult) -> None:
        """Keep the result, if it is a verdict on the tree: a failed set-up depends on more."""
        is_red = result.verdict is GateVerdict.RED and not result.set_up
        if is_red or result.verdict is GateVerdict.GREEN:
            file = self._file(tree)
            fresh = file.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(to_plain(result)))
            fresh.rename(file)

    def _file(self, tree: str) -> Path:
        key = hashlib.sha256(f"{tree} {self._holds_for}".encode()).hexdigest()
        return self._folder / f"{key}.json"


def _output(tool: str, folder: str) -> list[object]:
    try:
        done = subprocess.run(
            ["sh", "-c", tool],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TOOL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [tool, str(error)]
    return [tool, done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")]


# --- running gates -------------------------------------------------------------------------------


class GateProcess:
    """One gate as the lander sees it. ``pidfd`` is readable once the gate has ended."""

    def __init__(self, order: GateOrder, pid: int, results: int) -> None:
        self.order = order
        self.began = time.monotonic()
        self.pidfd = system.exit_descriptor(pid)
        self._pid, self._results, self._shortage = pid, results, Shortage()

    def end(self, number: int = signal.SIGTERM) -> None:
        """Ask the gate to end, with every process it started."""
        with contextlib.suppress(ProcessLookupError):
            system.send(self.pidfd, number)

    def result(self) -> GateResult:
        """Return the result of a gate that has ended."""
        os.waitpid(self._pid, 0)
        output = bytearray()
        with open(self._results, "rb") as file:
            output += file.read()
        os.close(self.pidfd)
        try:
            return from_plain(GateResult, json.loads(output))
        except BAD_VALUE:
            why, short = "the gate ended without an answer", self._shortage.why()
            return GateResult(GateVerdict.NONE, f"{why}; {short}" if short else why)


def start_gate(
    settings: LanderSettings, folder: Path, order: GateOrder, keep: Verdicts
) -> GateProcess:
    """Fork a gate. Raises ``OSError``."""
    results, result_fd = system.pipe()
    # Without its own handler yet, the child would report a signal to it as one to the lander.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    try:
        pid = os.fork()
        if pid == 0:
            _be_gate(settings, folder, order, keep, result_fd)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        os.close(result_fd)
    return GateProcess(order, pid, results)


def _be_gate(
    settings: LanderSettings, folder: Path, order: GateOrder, keep: Verdicts, result_fd: int
) -> None:
    """Run the gate in the child process, which exits here."""
    place = GatePlace(settings, folder, order.lane, keep.recipe)
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _told_to_end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        system.die_with_parent(signal.SIGTERM)
        system.adopt()
        # Above all the lander's lock: a gate that outlives the lander must not hold it.
        os.closerange(3, result_fd)
        os.closerange(result_fd + 1, 1 << 16)
        place.redirect_output()
        hide(settings.secrets)
        result = place.run(order)
        if order.tree:
            with contextlib.suppress(OSError):  # A full disk: the tree is gated again if needed.
                keep.keep(order.tree, result)
        os.write(result_fd, json.dumps(to_plain(result)).encode())
    except _Ended:
        told = GateResult(GateVerdict.NONE, changed=place.changed)
        os.write(result_fd, json.dumps(to_plain(told)).encode())
    except OSError as error:
        why = f"{error.filename or 'gate'}: {error.strerror}"
        os.write(result_fd, json.dumps(to_plain(GateResult(GateVerdict.NONE, why))).encode())
    except Exception:
        # A bug of ours: without an answer there is no verdict, and the log has the traceback.
        _say(traceback.format_exc())
    finally:
        os._exit(0)


class _Ended(Exception):
    """The lander does not want the verdict any more, or is gone."""


def _told_to_end(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Ended


def common_directory(project: Path) -> Path | None:
    """Return the git directory of the project's repository; None if it has none."""
    try:
        return Path(answers(git(str(project), *questions("--git-common-dir")))[0])
    except GitError:
        return None


def clean_gates(common: Path, *, dry_run: bool) -> list[Path]:
    """Remove the worktrees of gates in the repository of this git directory, and trains of a killed
    lander. They hold nothing but builds. Nothing is removed while a lander is at work there. Return
    the worktrees that were removed, or would be."""
    # If nothing ever landed there is no such file, and none is to be made.
    lock = try_lock(common / LOCK) if (common / LOCK).exists() else None
    if lock is None:
        return []
    try:
        if not dry_run:
            with contextlib.suppress(GitError):
                delete_refs(str(common), PINS, BROKEN)
        # A worktree of somebody else with such a name has no verdicts beside it.
        ours = [
            (directory, folder)
            for directory, folder in git_directories(str(common))
            if _NAMED.fullmatch(folder.name) and (folder.parent / VERDICTS).is_dir()
        ]
        planned = [each for each in ours if _may_go(*each)]
        if dry_run:
            return [folder for _, folder in planned]
        return [folder for directory, folder in planned if _went(common, directory, folder)]
    finally:
        os.close(lock)


def clean_landing_folders(*, dry_run: bool) -> list[tuple[Path, int]]:
    """Remove the folders of gates in the user's cache folder whose repository is gone. Return them
    with their size in bytes."""
    found = []
    for folder, common in landing_folders():
        gates = [f"BW_GATE={gate}" for gate in folder.glob("bw-gate-*")]
        if common is None or common.exists() or any(map(sessions.with_variable, gates)):
            continue
        found.append((folder, _bytes_below(folder)))
        if not dry_run:
            shutil.rmtree(folder, onerror=make_writable)
    return found


def _bytes_below(folder: Path) -> int:
    count = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                count += Path(place, name).lstat().st_blocks * 512
    return count


def _may_go(directory: Path, folder: Path) -> bool:
    """Return whether the worktree may be removed: nothing runs there, and it belongs to this
    repository, not to one that this repository was copied from."""
    led = led_to(folder)
    of_this = led is None or not led.exists() or led.samefile(directory)
    return of_this and not sessions.with_variable(f"BW_GATE={folder}")


def _went(common: Path, directory: Path, folder: Path) -> bool:
    try:
        if folder.exists():
            lead_to(directory, folder)  # The link is wrong if the project was moved.
        with making.alone(str(common)):
            git(str(common), "worktree", "remove", "--force", "--force", str(folder))
    except (GitError, OSError):
        if directory.exists():
            return False
        if folder.exists():  # A killed git may have removed everything already.
            shutil.rmtree(folder, onerror=make_writable)
    return True


_NAMED = re.compile(r"bw-gate-\d+")

# --- one lane's worktree -------------------------------------------------------------------------


@dataclass(slots=True)
class GatePlace:
    """The worktree of a lane, and the commands that run in it. ``recipe``: hash of everything that
    a set-up depends on. ``changed``: as in ``GateResult``, once the set-up has run."""

    settings: LanderSettings
    folder: Path
    lane: int
    recipe: str = ""
    changed: tuple[str, ...] = ()
    _set_up: set_up.KeptSetUp | None = None
    _claim: slots.Claim | None = None

    @property
    def path(self) -> Path:
        """The worktree of this lane."""
        return self.folder / f"bw-gate-{self.lane}"

    @property
    def log(self) -> Path:
        """The log file of the last gate in this worktree."""
        return self.folder / f"gate-{self.lane}.log"

    @property
    def token(self) -> str:
        """Entry in the environment of every process of this worktree's gates."""
        return f"BW_GATE={self.path}"

    def redirect_output(self) -> None:
        """Redirect the output of this process to the log."""
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for descriptor, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, target)

    def run(self, order: GateOrder) -> GateResult:
        """Prepare the worktree and gate the tree. Raises ``OSError``."""
        began, shortage = time.monotonic(), Shortage(self.folder, Path(tempfile.gettempdir()))
        common = Path(self.settings.worktrees.common)
        shared, asks = programs.current(common), partial(git, str(common))
        for tries_left in reversed(range(making.TRIES_MAX)):
            try:
                self._prepare(order)
                break
            except (GitError, _CannotGate) as error:
                if not tries_left or isinstance(error, _CannotGate):
                    return GateResult(GateVerdict.NONE, str(error))
            time.sleep(making.TRY_AGAIN_SECONDS)
        runs = self.settings.worktrees.rules.setup is not None and self._set_up is None
        with contextlib.ExitStack() as world:
            try:
                self._end_world()
                self._claim = slots.take(self.settings.worktrees, str(self.path), "gate")
                world.callback(self._end_world)
                world.enter_context(slots.held(self._claim))
            except slots.NoSlot as error:
                return GateResult(GateVerdict.NONE, str(error))
            world.callback(self.sweep)
            status, elsewhere = self._run_set_up(order, shortage), ""
            now = programs.current(common)
            self.changed = tuple(programs.told(shared, now, asks, "setup "))
            if is_set_up := status == 0:
                assert self.settings.verify is not None, "without a command there is no gate"
                elsewhere = self._elsewhere("setup") or self._make_world(order, shortage)
                if not elsewhere:
                    status = self._command(self.settings.verify, order, shortage)
                    elsewhere = self._elsewhere("verify")
        took = time.monotonic() - began
        if elsewhere:
            set_up.save(self._set_up_file, None)
            return GateResult(GateVerdict.NONE, elsewhere, self._tail(), took)
        if status == 0:
            return GateResult(GateVerdict.GREEN, "", "", took, runs, self.changed)
        from beads_workers.runtime.output import failure_in  # Most gates are green.

        text = self._tail()
        with open(self.log, "rb") as file:
            said = failure_in(file.fileno(), str(self.path))
        short = shortage.why(text)
        how = _ended(status, self.settings.landing.rules.gate_timeout_seconds, short)
        untold = status is None or status < 0 or status >= 128 or status in NO_VERDICT
        why = "verify: " + (how if untold or short or not said else said)
        if not is_set_up:
            why = ": ".join(filter(None, (SET_UP_FAILED, how, said or _last_line(text))))
        # A set-up that fails without any branch is the fault of none.
        untold = untold or (order.commit == order.tip and not is_set_up)
        verdict = GateVerdict.NONE if untold or short else GateVerdict.RED
        if self._set_up is not None:
            set_up.save(self._set_up_file, None)  # Verify may have spoiled it unseen.
        return GateResult(verdict, why, text, took, not is_set_up, self.changed, said)

    def _elsewhere(self, command: str) -> str:
        """Return why this is not the tree: a submodule that the command has filled with another
        commit; "" if none is."""
        try:
            found = [each for each in submodules.look(str(self.path)) if each.is_elsewhere]
        except GitError as error:
            return f"{command}: {error}"
        return f"{command}: submodule {found[0].path}: {found[0].differs}" if found else ""

    def sweep(self) -> None:
        """Send KILL to every process that an earlier gate has left running here."""
        for _ in range(sessions.ROUNDS_MAX):
            found = sessions.with_variable(self.token)
            if not any(sessions.kill(p.pid, p.started, signal.SIGKILL) for p in found):
                return

    # --- the worktree -----------------------------------------------------------------------------

    def _prepare(self, order: GateOrder) -> None:
        self.sweep()
        floor, free = self.settings.worktrees.rules.disk_floor_bytes, making.free_bytes(self.folder)
        if free < floor:
            raise _CannotGate(
                f"{size(free)} of disk are free at {self.folder}, and the floor is {size(floor)}"
            )
        self._check_out(order)
        self._copy()
        moved = submodules.restore(str(self.path))
        if self._set_up is not None and (moved or not self._set_up.is_whole(self.path)):
            self._set_up = None
            git(str(self.path), "clean", "--quiet", "-ffd")
            self._copy()
        if order.before is not None:
            order.before()

    def _check_out(self, order: GateOrder) -> None:
        mark, path = self.folder / f"gate-{self.lane}.at", str(self.path)
        at = mark.read_text() if mark.exists() else ""
        # From here on, a killed gate leaves a worktree without a mark: the next gate does not trust
        # it.
        mark.unlink(missing_ok=True)
        directory, head = self._enter() or self._add(order.commit)
        unlock_here(directory, Path(self.settings.worktrees.common))
        cone, trusts = self._cone(order), not order.fresh and head == at
        changed = changed_files(path, at, order.commit) if trusts else None
        if changed is None:
            self._empty(directory)
        git(path, "checkout", "--quiet", "--force", "--detach", order.commit)
        take_cone(path, cone)
        # A proof (no tree) runs set-up each time, and leaves no set-up that a gate would keep.
        may_keep = changed is not None and order.tree
        kept = set_up.load(self._set_up_file, self.recipe) if may_keep else None
        if kept is not None and not kept.holds(
            self.path, self.settings.worktrees, at, changed or ()
        ):
            kept = None
        git(path, "clean", "--quiet", "-ffd", *set_up.excluded(kept.in_sight if kept else ()))
        clear_gone(path, changed or ())
        self._set_up = kept
        mark.write_text(order.commit)

    def _cone(self, order: GateOrder) -> Cone | None:
        """Return the folders to check out: those of the checkout, and those of the changes."""
        if (cone := self.settings.worktrees.cone) is None:
            return None
        asked = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", order.tip, order.commit)
        changed = git_names(git(str(self.path), *asked))
        return widened(cone, {name.rpartition("/")[0] for name in changed if not holds(cone, name)})

    def _enter(self) -> tuple[Path, str] | None:
        """Return the git directory of the worktree, and its commit; None if there is no
        worktree."""
        if (found := ref_files.places(self.path)) is not None:
            directory, common, top = found
            head = ref_files.loose_ref(Path(directory), "HEAD")
        if found is None or not head:
            asked = ("--show-toplevel", "--git-common-dir", "--absolute-git-dir", "HEAD")
            try:
                output = git(str(self.path), *questions(*asked))
                top, common, directory, head = answers(output, len(asked))
            except GitError:
                return None
        ours = Path(self.settings.worktrees.common).resolve()
        if Path(top) != self.path.resolve() or Path(common).resolve() != ours:
            return None
        return Path(directory), head

    def _add(self, commit: str) -> tuple[Path, str]:
        for tries_left in reversed(range(making.TRIES_MAX)):
            try:
                return self._try_to_add(commit), ""
            except GitError:
                if not tries_left:
                    raise
                # A ``git worktree prune`` of somebody else removed the half-made worktree.
                time.sleep(making.TRY_AGAIN_SECONDS)
        raise AssertionError("the last try returns or raises")

    def _try_to_add(self, commit: str) -> Path:
        shutil.rmtree(self.path, ignore_errors=True)
        common, path = self.settings.worktrees.common, str(self.path)
        add = ("worktree", "add", "--quiet", "--force", "--force", "--detach", "--no-checkout")
        with making.alone(common):
            git(common, *add, path, commit)
        take_cone(path, self.settings.worktrees.cone)
        found = self._enter()
        if found is None:
            raise GitError(f"git does not know the worktree that it made: {path}")
        return found[0]

    def _empty(self, directory: Path) -> None:
        (directory / "index").unlink(missing_ok=True)
        for inner in list(self.path.iterdir()):
            if inner.name == ".git":
                continue
            if inner.is_dir() and not inner.is_symlink():
                shutil.rmtree(inner, onerror=make_writable)
            else:
                inner.unlink()

    def _copy(self) -> None:
        for warning in making.refresh_copies(self.settings.worktrees, str(self.path)):
            _say(f"warning: {warning}")

    # --- the set-up -------------------------------------------------------------------------------

    @property
    def _set_up_file(self) -> Path:
        return self.folder / f"gate-{self.lane}.setup"

    def _run_set_up(self, order: GateOrder, shortage: Shortage) -> int | None:
        """Run the set-up if it is needed; return as ``_command`` does, or 0 if it is not needed."""
        setup, file = self.settings.worktrees.rules.setup, self._set_up_file
        if setup is None or self._set_up is not None:
            return 0
        earlier = set_up.load(file, self.recipe)
        set_up.save(file, None)
        if not order.tree:
            return self._command(setup, order, shortage)
        watch = set_up.watch(self.path, Path(self.settings.worktrees.checkout), earlier)
        try:
            status = self._command(setup, order, shortage, watch)
            if status == 0 and watch is not None:
                with contextlib.suppress(GitError, OSError):
                    kept = watch.kept(self.recipe, setup, self._environment(order))
                    set_up.save(file, kept)
        finally:
            if watch is not None:
                watch.close()
        return status

    # --- commands ---------------------------------------------------------------------------------

    def _command(
        self, script: str, order: GateOrder, shortage: Shortage, watch: set_up.Watch | None = None
    ) -> int | None:
        """Return the exit status of the script, or minus the number of a signal; None if it took
        too long."""
        _say(f"$ {script}")
        process = subprocess.Popen(
            ["sh", "-c", script],
            cwd=self.path / self.settings.worktrees.prefix,
            env=self._environment(order),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            with _pidfd(process.pid) as pidfd:
                ready = select.poll()
                ready.register(pidfd, select.POLLIN)
                if watch is not None and watch.fd >= 0:
                    ready.register(watch.fd, select.POLLIN)
                until = time.monotonic() + self.settings.landing.rules.gate_timeout_seconds
                ended = False
                while not ended and (left := until - time.monotonic()) > 0:
                    events = ready.poll(min(left, LOOK_SECONDS) * 1000)
                    ended = any(descriptor == pidfd for descriptor, _ in events)
                    shortage.look()
                    if watch is not None:
                        watch.drain()
                if not ended:
                    os.killpg(process.pid, signal.SIGTERM)
                    ready.poll(self.settings.term_grace_seconds * 1000)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
            # Processes that left the process group are children of ours by now.
            sessions.end(())
        return status if ended else None

    def _make_world(self, order: GateOrder, shortage: Shortage) -> str:
        """Make what the gate has outside of its worktree; return why that failed."""
        assert self._claim is not None, "the gate holds its number"
        slots.begin(self.settings.worktrees, self._claim)
        line = self.settings.worktrees.rules.worlds.world
        status = self._command(line, order, shortage) if line is not None else 0
        if status == 0:
            return ""
        how = _ended(status, self.settings.landing.rules.gate_timeout_seconds, shortage.why())
        return f"world: {how}"

    def _end_world(self) -> None:
        with contextlib.suppress(slots.NoSlot):  # Then whoever is at it ends it.
            if wrong := slots.end(str(self.path)):
                _say(f"warning: {wrong}")

    def _environment(self, order: GateOrder) -> dict[str, str]:
        worktrees = self.settings.worktrees
        environment = inherited() | {
            "BW_GATE": str(self.path),
            "BW_WORKTREE": str(self.path),
            "BW_BRANCH": self.settings.landing.branch,
            "BW_BASE": order.tip,
            "BW_CHECKOUT": worktrees.checkout,
            "PWD": os.path.normpath(f"{self.path}/{worktrees.prefix}"),
        }
        environment |= self._claim.variables if self._claim is not None else {}
        if worktrees.beads is not None:
            environment["BEADS_DIR"] = worktrees.beads
        if not order.tree:
            # A proof leaves no bytecode of broken sources behind, and sees when sources are opened.
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        return environment

    def _tail(self) -> str:
        with open(self.log, "rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
        return "\n".join([line.rstrip() for line in lines if line.strip()][-TAIL_LINES:])


class _CannotGate(Exception):
    """Nothing can be gated here now; ``str()`` is one line."""


@contextlib.contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    descriptor = system.exit_descriptor(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _last_line(text: str) -> str:
    last = (text.splitlines() or [""])[-1]
    return "" if last.startswith("$ ") else printable(last, 200)


def _ended(status: int | None, seconds: float, short: str) -> str:
    if status is None:
        how = f"it had not ended after {seconds:g} seconds"
    else:
        how = f"exit status {status}" if status >= 0 else f"ended by signal {-status}"
    return f"{how}; {short}" if short else how


def _say(text: str) -> None:
    os.write(1, os.fsencode(f"{text}\n"))
