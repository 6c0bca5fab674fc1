"""The base check: ``--verify`` must pass on the commit where attempts begin.

A command that fails on this commit would fail after each attempt. The gate (``landing.gate``) runs
the command in the gate's own worktree, and keeps the verdict for the tree. If a tree has passed,
neither the lander nor the next start tests this tree again. Source: docs/AGENTS.md, "Before the
night".
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from select import POLLIN, poll

from beads_workers.checks.beginning import Beginning, find_beginning
from beads_workers.checks.plan import Progress
from beads_workers.checks.rules import Check, Grade, misused, ok, warn
from beads_workers.core.base.settings import FleetSettings, Landing, Worktrees
from beads_workers.core.base.text import printable
from beads_workers.core.records.landing import SET_UP_FAILED, LanderSettings
from beads_workers.core.workers.worker import reason
from beads_workers.landing.gate import (
    LOCK,
    NO_VERDICT,
    VERDICTS,
    GateOrder,
    GatePlace,
    GateResult,
    Verdicts,
    start_gate,
)
from beads_workers.landing.queue import GateVerdict
from beads_workers.landing.repository import landing_folder
from beads_workers.runtime.locks import try_lock
from beads_workers.worktrees.git import GitError, git
from beads_workers.worktrees.making import base_of
from beads_workers.worktrees.places import GATED_REPOSITORY, make_folder

NAME = "base"
SHA_CHARS = 12
TEXT_CHARS = 400
NOT_ENDED = " seconds"
_CANNOT_RUN = re.compile(
    rf"verify: exit status (?:{'|'.join(map(str, NO_VERDICT[1:]))})$"
    rf"|{SET_UP_FAILED}: exit status \d+(?:: |$)"
    rf"|(?:verify|{SET_UP_FAILED}): it had not ended after \S+{NOT_ENDED}(?:: |$)"
)
"""Reasons for which a gate gives no verdict, and which the base check treats as red all the same:
every attempt would fail.

Any other reason of a gate without a verdict, such as a signal or a full disk, gives a warning.
"""

_LACKS = re.compile(
    r"not found|[Cc]annot find (?:module|package)|No module named|MODULE_NOT_FOUND"
    r"|[Cc]ould not (?:find|resolve)|Unable to resolve"
)
"""What is said where dependencies are not installed."""
_LACKED = "a new worktree lacks what git ignores: [worktree] setup"
WRITES_SETUP = "beads-workers config verify --write"


def check_base(settings: FleetSettings, progress: Progress) -> Check | None:
    """Return the result of the base check. If the tree is known to pass, verify does not run.

    Return None, without a check, if another process is landing in the repository: the start will
    report that a fleet runs.
    """
    lander = lander_settings(settings)
    with alone(lander.worktrees) as free:
        return _BaseCheck(lander, progress).run() if free else None


def known(settings: FleetSettings) -> Check:
    """Return what is known of the check without a run: for ``doctor``."""
    lander = lander_settings(settings)
    base = _BaseCheck(lander, lambda name, text: None)
    try:
        tree = base.begins()
        # ``doctor`` makes no folders.
        is_there = (landing_folder(lander.worktrees) / VERDICTS).is_dir()
        result = verdicts_here(lander).find(tree) if is_there else None
    except GitError as error:
        return warn(NAME, printable(f"not checked: {error}", TEXT_CHARS))
    return base.judged(result)


def lander_settings(settings: FleetSettings) -> LanderSettings:
    """Return the settings for a gate that runs before a fleet starts."""
    work = settings.work
    assert work.verify and work.worktrees, "nothing is judged if nobody asks for it"
    landing = settings.landing or Landing(work.worktrees.base_name, work.worktrees.base)
    return LanderSettings(landing, work.worktrees, "", work.verify, work.term_grace_seconds)


def verdicts_here(settings: LanderSettings) -> Verdicts:
    """Return the verdicts of earlier gates, as they hold now. Raises ``GitError``."""
    folder = landing_folder(settings.worktrees)
    make_folder(folder)
    verdicts = Verdicts(settings, folder)
    verdicts.look_again()
    return verdicts


def base_commit(settings: LanderSettings) -> tuple[str, str]:
    """Return the commit that attempts begin with, and its name; raise ``GitError``."""
    found = find_beginning(settings.landing, settings.worktrees)
    if isinstance(found, Beginning):
        return found.commit, found.name
    # The user's branch and the landing branch conflict: another condition reports the conflict.
    worktrees = settings.worktrees
    return base_of(worktrees), worktrees.base_name


@contextmanager
def alone(worktrees: Worktrees) -> Iterator[bool]:
    """Hold the lock of landing; yield False if another process has it."""
    lock = try_lock(Path(worktrees.common, LOCK))
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


class _BaseCheck:
    def __init__(self, settings: LanderSettings, progress: Progress) -> None:
        self._settings, self._progress = settings, progress
        self._folder = landing_folder(settings.worktrees)

    def begins(self) -> str:
        """Return the tree where attempts begin. Raises ``GitError``."""
        self._commit, name = base_commit(self._settings)
        self._where = f"{name} ({self._commit[:SHA_CHARS]})"
        checkout = self._settings.worktrees.checkout
        return git(checkout, "rev-parse", f"{self._commit}^{{tree}}").strip()

    def judged(self, result: GateResult | None) -> Check:
        """Return the line about a verdict that was kept, or that there is none."""
        if result is not None:
            return self._judge(replace(result, seconds=0.0), was_red=False)
        text = f"a start first runs {self._command()} on {self._where}, and ends if that fails"
        check = ok(NAME, printable(text, TEXT_CHARS))
        if setup := self._proposed_setup():
            lacks = f"{_LACKED} = {json.dumps(setup)} is not set"
            check = warn(NAME, printable(f"{text}; {lacks}", TEXT_CHARS), WRITES_SETUP)
        return replace(check, pending=True)

    def run(self) -> Check:
        """Run the gate. If the verdict is red, run the gate once more, on a clean tree: verify may
        be flaky."""
        settings, folder = self._settings, self._folder
        make_folder(folder)
        (folder / GATED_REPOSITORY).write_bytes(os.fsencode(settings.worktrees.common))
        try:
            tree = self.begins()
            verdicts = verdicts_here(settings)
        except GitError as error:
            return warn(NAME, printable(f"not checked: {error}", TEXT_CHARS))
        known = verdicts.find(tree)
        if known is not None and known.verdict is GateVerdict.GREEN:
            return self._judge(replace(known, seconds=0.0), was_red=False)
        order = GateOrder(0, self._commit, tree, self._commit)
        # Imported here: nearly every start knows the verdict.
        from beads_workers.worktrees.pool import MadeMeanwhile

        with MadeMeanwhile(settings.worktrees):
            result = self._gate(order, verdicts)
        was_red = result.verdict is GateVerdict.RED
        changed = result.changed
        if was_red:
            result = self._gate(replace(order, fresh=True), verdicts)
        check = self._judge(result, was_red=was_red)
        if changed and check.status is not Grade.FAIL:
            check = warn(NAME, "; ".join((check.text, *changed)))
        return check

    def _gate(self, order: GateOrder, verdicts: Verdicts) -> GateResult:
        again = " once more, on a clean tree" if order.fresh else ""
        text = f"{self._command()} runs on {self._where}{again}"
        self._progress(NAME, text)
        gate = start_gate(self._settings, self._folder, order, verdicts)
        ready = poll()
        ready.register(gate.pidfd, POLLIN)
        seconds, ended = 0, False
        try:
            while not (ended := bool(ready.poll(1000))):
                seconds += 1
                self._progress(NAME, f"{text}, {seconds} s")
        finally:
            self._progress(NAME, "")
            if not ended:  # Interrupted, most likely by Ctrl-C.
                gate.end()
                if not ready.poll(self._settings.term_grace_seconds * 1000):
                    gate.end(signal.SIGKILL)
            result = gate.result()
            if not ended:
                GatePlace(self._settings, self._folder, order.lane).sweep()
        return result

    def _judge(self, result: GateResult, *, was_red: bool) -> Check:
        took = f", in {result.seconds:.0f} s" if result.seconds >= 1 else ""
        if result.verdict is GateVerdict.GREEN and was_red:
            text = f"{self._command()} failed on {self._where}, and passed the next time"
            return warn(NAME, printable(text, TEXT_CHARS))
        if result.verdict is GateVerdict.GREEN:
            return ok(
                NAME, printable(f"{self._command()} passes on {self._where}{took}", TEXT_CHARS)
            )
        if result.verdict is GateVerdict.RED or _CANNOT_RUN.match(result.why):
            return self._red(result)
        text = f"{self._command()} on {self._where}: {result.why}"
        return warn(NAME, printable(text, TEXT_CHARS))

    def _red(self, result: GateResult) -> Check:
        command = self._command()
        why = result.said or reason(result.text) or result.why.removeprefix("verify: ")
        if result.why.startswith(SET_UP_FAILED):
            command = f"[worktree] setup, '{self._settings.worktrees.rules.setup}',"
        elif result.why.endswith(NOT_ENDED):
            why = result.why.removeprefix("verify: ")
        log = shlex.quote(str(GatePlace(self._settings, self._folder, 0).log))
        mend, remedy = "fix this first, or you pay for attempts that cannot pass", ""
        if _LACKS.search(result.text) and (setup := self._proposed_setup()):
            mend, remedy = f"{_LACKED} = {json.dumps(setup)}", WRITES_SETUP
        return misused(
            NAME,
            f"{printable(command, 100)} fails on {self._where} already, where attempts begin:"
            f" {printable(why, 200)}",
            f"{mend} (the whole output: {log})",
            remedy,
        )

    def _proposed_setup(self) -> str:
        """Return what would fill a new worktree, if nothing does."""
        from beads_workers.checks.verify import propose

        worktrees = self._settings.worktrees
        found = None if worktrees.rules.setup else propose(Path(worktrees.checkout))
        return found.setup if found is not None else ""

    def _command(self) -> str:
        return f"'{printable(self._settings.verify or '', 60)}'"
