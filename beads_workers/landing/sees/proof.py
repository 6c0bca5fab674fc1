"""The proof: run verify on broken sources, and with broken files over the checkout's sources.

If the check is green on broken sources, either it does not depend on the sources, or it reads the
checkout. If the check is red while broken files are bound over the checkout's sources, it reads the
checkout, whatever else it reads.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.core.base.settings import Sight
from beads_workers.core.records.landing import LanderSettings
from beads_workers.landing.gate import GateOrder, GateResult
from beads_workers.landing.queue import GateVerdict
from beads_workers.landing.repository import BROKEN
from beads_workers.landing.sees.broken import Sources, break_sources, find_sources
from beads_workers.landing.sees.leads import Lead, find_leads, top_of
from beads_workers.runtime.kernel.mounts import bind
from beads_workers.worktrees.git import call, names

CHECKOUT = "BW_CHECKOUT"
NAMED_MAX = 3
Orders = tuple[GateOrder, ...]
"""Gates that may run side by side."""
Runs = Generator[Orders, list[GateResult], "Proof"]


@value
class Proof:
    """Result of a proof."""

    sight: Sight
    # If the check reads the checkout, what shows this, such as leads; if ``sight`` is ``UNKNOWN``
    # or ``RED``, the reason.
    found: tuple[str, ...] = ()
    # The corrected line of verify, or advice in words.
    remedy: str = ""
    seconds: float = 0.0


@dataclass
class Prover:
    """The proof of one commit."""

    # Settings of the gate.
    settings: LanderSettings
    # The commit whose sources are broken.
    commit: str
    # Number of the gate worktree in which the proof runs the check; if two runs are side by side,
    # the second run uses the next number.
    lane: int
    # Verify is known to pass on ``commit``.
    passes: bool = False
    top: Path = field(init=False)
    leads: tuple[Lead, ...] = field(init=False)
    sources: Sources = field(init=False)

    def runs(self) -> Runs:
        """Yield the gates to run, receive their results by ``send``, and return the proof.

        Raises ``GitError`` and ``OSError``.
        """
        worktrees, verify = self.settings.worktrees, self.settings.verify or ""
        self.top = top_of(worktrees)
        self.leads = find_leads(worktrees, verify)
        lines = f"{verify} {worktrees.rules.setup or ''}"
        about = lines, worktrees.prefix, worktrees.cone
        self.sources = find_sources(worktrees.common, self.commit, *about)
        if not self.sources.files:
            return Proof(Sight.UNKNOWN, ("it has no sources that could be broken",))
        with tempfile.TemporaryDirectory() as folder:
            copies = self._broken_copies(Path(folder))
            bound = (self._bound(copies, self.lane + 1),) if copies else ()
            broken, *first = yield (self._broken(self.sources), *bound)
            if not _is_told(broken):
                return Proof(Sight.UNKNOWN, (broken.why,))
            reads, output = yield from self._reads(Path(folder), *first)
        depends = broken.verdict is not GateVerdict.GREEN
        if reads:
            return self._convicted(output)
        if depends and not (self.passes or (first and reads is False)):
            (unbroken,) = yield (self._order(self.commit),)
            if unbroken.verdict is not GateVerdict.GREEN:
                return Proof(Sight.RED, (unbroken.why,))
        if reads is None:
            return (yield from self._without_mounts(depends=depends))
        return Proof(Sight.BRANCH if depends else Sight.NOTHING)

    # --- runs -------------------------------------------------------------------------------------

    def _broken(self, sources: Sources) -> GateOrder:
        commit = break_sources(self.settings.worktrees.common, self.commit, sources, BROKEN)
        return self._order(commit)

    def _order(self, commit: str) -> GateOrder:
        return GateOrder(self.lane, commit, "", self.commit)

    def _bound(self, mounts: Mapping[Path, Path], lane: int) -> GateOrder:
        return replace(self._order(self.commit), lane=lane, before=partial(bind, mounts))

    def _reads(
        self, folder: Path, *first: GateResult
    ) -> Generator[Orders, list[GateResult], tuple[bool | None, str]]:
        """Return whether the check reads the checkout, and the output of the check if it does.

        The check reads the checkout if three runs, each in a mount namespace, end red, green and
        red. The first and the third run have broken files over the checkout's sources; the second
        run has no broken files. ``first``: result of the first run; left out if the checkout has
        none of the sources.

        Return None instead of a bool if the answer is not known, for one of these reasons: mounts
        are not allowed, a run tells nothing, or the check also fails without broken files.
        """
        results, output = list(first), ""
        if not results:
            return False, ""
        for is_broken in (True, False, True):
            if not results:
                # Write the copies again each time: build caches compare modification times.
                copies = self._broken_copies(folder) if is_broken else {}
                results = yield (self._bound(copies, self.lane),)
            result = results.pop()
            is_green = result.verdict is GateVerdict.GREEN
            if not _is_told(result) or not (is_broken or is_green):
                return None, ""
            if is_broken and is_green:
                return False, ""
            output = result.text or output
        return True, output

    def _broken_copies(self, folder: Path) -> dict[Path, Path]:
        copies = {}
        for each in self.sources.files:
            place = self.top / each.name
            if place.is_file() and not place.is_symlink():
                file = folder / f"broken{place.suffix}"
                file.write_text(self.sources.text_of(each.name))
                copies[place] = file
        return copies

    def _without_mounts(self, *, depends: bool) -> Runs:
        """Decide by what leads into the checkout."""
        if depends and (led := self._led()).files and led != self.sources:
            (narrow,) = yield (self._broken(led),)
            if _is_told(narrow) and narrow.verdict is GateVerdict.GREEN:
                return self._convicted("")
        if not depends and (self.leads or self._naming()):
            return self._convicted("")
        return Proof(Sight.BRANCH if depends else Sight.NOTHING)

    def _led(self) -> Sources:
        return self.sources.within(lead.to for lead in self.leads)

    # --- a conviction -----------------------------------------------------------------------------

    def _convicted(self, output: str) -> Proof:
        found = [self._read(output), *(f"{lead.found} leads to {lead.to}" for lead in self.leads)]
        naming = self._naming()
        found[1:1] = [f"{name} names ${CHECKOUT}" for name in naming]
        shown = tuple(each for each in found if each)
        return Proof(Sight.CHECKOUT, shown[: NAMED_MAX + 1], self._remedy(naming))

    def _read(self, output: str) -> str:
        """Return a text about the first source of the checkout that the output names; "" if the
        output names none."""
        known = {str(self.top / each.name) for each in self.sources.files}
        named = re.findall(rf"{re.escape(str(self.top))}/[^\s:\"',)]+", output)
        return next((f"it read {path}" for path in named if path in known), "")

    def _naming(self) -> list[str]:
        """Return the places that mention ``$BW_CHECKOUT``: the line of verify, and files of the
        project."""
        verify = self.settings.verify or ""
        asked = ("grep", "-l", "-z", "-F", "-e", CHECKOUT, self.commit)
        files = names(call(self.settings.worktrees.common, *asked).output)
        line = ["verify"] if CHECKOUT in verify else []
        return line + [each.partition(":")[2] for each in files][:NAMED_MAX]

    def _remedy(self, naming: list[str]) -> str:
        verify = self.settings.verify or ""
        if before := next((each.before for each in self.leads if each.before), ""):
            name = before.partition("=")[0]
            rest = re.sub(rf"(?<![\w$]){name}=(\"[^\"]*\"|'[^']*'|\S*)\s*", "", verify)
            if re.search(
                r"[;&|\n]", rest
            ):  # Without export, only the first command has the variable.
                before = f"export {before.rstrip()}; "
            return f"verify = '{before}{rest}'" if "'" not in rest else f"{before}{rest}"
        if self.leads:
            return self.leads[0].remedy
        if naming:
            return f"leave ${CHECKOUT} out of {naming[0]}: verify runs in $BW_WORKTREE"
        return f"let it read nothing below {self.top}: verify runs in $BW_WORKTREE"


def _is_told(result: GateResult) -> bool:
    """Return whether the result tells something about the sources.

    The result tells nothing in these cases:

    - A signal ended the check.
    - The check ended with an exit status of 128 or more.
    - Memory or disk ran out.
    - Our own preparation failed.
    """
    if result.verdict is not GateVerdict.NONE:
        return True
    ended = _ENDED.match(result.why)
    return ended is not None and int(ended[1] or 0) < 128


_ENDED = re.compile(
    r"(?:verify|setup failed): (?:exit status (\d+)|it had not ended after \S+ seconds)(?=:|$)"
)
"""Matches the reason of a run that ended by itself, or that was stopped at its time limit. A reason
to which the gate has appended a note on a shortage of memory or disk (``; ...``) does not match."""
