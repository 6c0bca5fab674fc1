"""The second half of the base check: ``--verify`` must test the branch, not the checkout.

It applies to everything that lands. The proof is ``landing.sees``. Source: docs/LANDING.md.
"""

from __future__ import annotations

import select
import time
from dataclasses import replace

from beads_workers.checks.base import base_commit, lander_settings, verdicts_here
from beads_workers.checks.plan import Progress
from beads_workers.checks.rules import Check, misused, ok, warn
from beads_workers.core.base.model import value
from beads_workers.core.base.settings import FleetSettings, Sight
from beads_workers.core.base.text import printable
from beads_workers.core.records.landing import LanderSettings
from beads_workers.core.records.receipts import INDEPENDENT
from beads_workers.landing.gate import VERDICTS
from beads_workers.landing.repository import landing_folder
from beads_workers.landing.sees.leads import find_leads
from beads_workers.landing.sees.proof import Proof
from beads_workers.landing.sees.run import SAW_NOTHING, ProofProcess, kept, start_proof
from beads_workers.worktrees.git import GitError, git

NAME = "sees"
LIFTED_BY = "--skip-base-check"
TEXT_CHARS = 600
WITHOUT_BASE_SECONDS = 30.0
"""Time to wait for the proof if the base check did not run, so its duration is unknown."""
LEAST_SECONDS = 5.0
"""Least time to wait for the proof: its result should be known before an agent costs money."""


@value
class Sighting:
    """Result of the check."""

    # The line for people.
    check: Check
    # None if nothing is known while ``process`` still runs.
    proof: Proof | None = None
    process: ProofProcess | None = None


def check_sees(settings: LanderSettings, progress: Progress, *, waits: bool) -> Sighting:
    """Prove that verify tests the branch, unless that is known.

    ``waits``: wait to the end. Otherwise wait no longer than the base check took, and let the
    process go on; do not wait at all if a check that depends on nothing was reported before.
    """
    try:
        commit, _ = base_commit(settings)
        tree = git(settings.worktrees.common, "rev-parse", f"{commit}^{{tree}}").strip()
        verdicts = verdicts_here(settings)
        if (known := kept(verdicts, tree)) is not None:
            return Sighting(check_of(known, settings), known)
        base = verdicts.find(tree)
        seconds = max(base.seconds, LEAST_SECONDS) if base is not None else WITHOUT_BASE_SECONDS
        process = start_proof(settings, commit, settings.landing.rules.jobs)
        saw_nothing = not waits and verdicts.find(SAW_NOTHING) is not None
    except (GitError, OSError) as error:
        return Sighting(warn(NAME, printable(f"not checked: {error}", TEXT_CHARS)))
    if saw_nothing:
        # Until the proof is there, what lands is marked as it was.
        return Sighting(_as_before(settings), Proof(Sight.NOTHING), process)
    if _wait(process, progress, None if waits else seconds):
        assert process.proof is not None, "it has ended"
        return Sighting(check_of(process.proof, settings), process.proof)
    text = "whether verify tests the branch is checked beside the first attempts: it takes longer"
    return Sighting(ok(NAME, f"{text} than verify itself"), process=process)


def _as_before(settings: LanderSettings) -> Check:
    command = f"'{printable(settings.verify or '', 60)}'"
    text = f"{command} passed on broken sources at an earlier start: what lands is verified"
    more = "whether that still holds is checked beside the first attempts"
    return warn(NAME, printable(f"{text} {INDEPENDENT}; {more}", TEXT_CHARS))


def known(settings: FleetSettings) -> Check | None:
    """Return what is known without a run: for ``doctor``."""
    try:
        lander = lander_settings(settings)
        commit, _ = base_commit(lander)
        tree = git(lander.worktrees.common, "rev-parse", f"{commit}^{{tree}}").strip()
        # ``doctor`` makes no folders.
        is_there = (landing_folder(lander.worktrees) / VERDICTS).is_dir()
        found = kept(verdicts_here(lander), tree) if is_there else None
        leads = find_leads(lander.worktrees, lander.verify or "")
    except (GitError, OSError) as error:
        return warn(NAME, printable(f"not checked: {error}", TEXT_CHARS))
    if found is not None:
        return check_of(found, lander)
    text = "the next start checks whether verify tests the branch"
    if leads:
        named = ", ".join(f"{lead.found} to {lead.to}" for lead in leads[:3])
        text = f"these lead into the checkout, and {text}: {named}"
    return replace(ok(NAME, printable(text, TEXT_CHARS)), pending=True)


def check_of(proof: Proof, settings: LanderSettings) -> Check:
    """Return the line that people see about a proof."""
    command = f"'{printable(settings.verify or '', 60)}'"
    took = f", seen in {proof.seconds:.1f} s" if proof.seconds else ""
    found = "; ".join(proof.found)
    if proof.sight is Sight.CHECKOUT:
        text = f"verify tests the checkout, not the branch: {found or command}"
        return misused(NAME, printable(text, TEXT_CHARS), proof.remedy)
    if proof.sight is Sight.RED:
        text = f"{command} does not pass where attempts begin, so it is seen later what it tests"
        return warn(NAME, printable(f"{text}: {found}", TEXT_CHARS))
    if proof.sight is Sight.UNKNOWN:
        text = f"it is not known whether {command} tests the branch: {found}"
        return warn(NAME, printable(text, TEXT_CHARS))
    if proof.sight is Sight.NOTHING:
        text = f"{command} passes on broken sources{took}: what lands is verified {INDEPENDENT}"
        return warn(NAME, printable(text, TEXT_CHARS))
    return ok(NAME, f"{command} tests the branch{took}")


def _wait(process: ProofProcess, progress: Progress, seconds: float | None) -> bool:
    """Wait for the process, at most so long; return whether it has ended."""
    began, over = time.monotonic(), False
    text = "verify runs on broken sources, to see whether it tests the branch"
    try:
        progress(NAME, text)
        while not over and (seconds is None or time.monotonic() < began + seconds):
            if select.select([process.output], [], [], 1.0)[0]:
                over = process.read()
            progress(NAME, f"{text}, {time.monotonic() - began:.0f} s")
    except BaseException:  # Most likely Ctrl-C.
        process.end()
        raise
    finally:
        progress(NAME, "")
    return over
