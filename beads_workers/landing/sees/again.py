"""The proof once more while branches land: if the leads into the user's checkout have changed, or
if verify was red at the first proof."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from dataclasses import dataclass, field

from beads_workers.core.base.settings import Sight
from beads_workers.core.records.landing import LanderSettings
from beads_workers.landing.gate import Verdicts
from beads_workers.landing.sees.leads import Lead
from beads_workers.landing.sees.proof import Proof
from beads_workers.landing.sees.run import ProofProcess, kept, start_proof

REFUSED = "verify tests the checkout, not the branch: "


@dataclass
class LookBeforeTrains:
    """Check before trains. ``ended``: called when a proof has ended, whatever its result."""

    settings: LanderSettings
    selector: selectors.BaseSelector
    ended: Callable[[], None]
    _proved: dict[tuple[Lead, ...], Proof] = field(default_factory=dict)
    _process: ProofProcess | None = None
    _of: tuple[Lead, ...] = ()

    def why_not(self, verdicts: Verdicts, commit: str, tree: str) -> str:
        """Return why nothing may land now; "" if it may. The leads at the beginning of landing were
        checked by ``start``, which also says if no check is wanted. Raises ``OSError``."""
        leads = verdicts.leads
        if not self.settings.sight:
            return ""
        if not self._proved and self.settings.sight != Sight.RED:
            self._proved[leads] = Proof(Sight(self.settings.sight))
        if self._process is None and leads not in self._proved:
            if (known := kept(verdicts, tree)) is not None:
                self._proved[leads] = known
            else:
                self._start(leads, commit)
        if self._process is not None:
            if not self._proved:
                return "verify did not pass at the start, so only now it is seen what it tests"
            news = ", ".join(sorted({lead.found for lead in leads} - self._known())) or "less"
            return f"what leads into the checkout has changed ({news}), so verify is seen again"
        proof = self._proved[leads]
        if proof.sight is Sight.RED:
            del self._proved[leads]  # The gate decides now, and the next train asks again.
        if proof.sight is Sight.CHECKOUT:
            return f"{REFUSED}{'; '.join((*proof.found, proof.remedy))}"
        return ""

    @property
    def is_under_way(self) -> bool:
        """Whether a proof runs."""
        return self._process is not None

    def close(self) -> None:
        """End the proof that runs."""
        if self._process is not None:
            self._process.end()

    def _known(self) -> set[str]:
        return {lead.found for leads in self._proved for lead in leads}

    def _start(self, leads: tuple[Lead, ...], commit: str) -> None:
        self._process = start_proof(self.settings, commit, self.settings.landing.rules.jobs)
        self._of = leads
        self.selector.register(self._process.output, selectors.EVENT_READ, self._read)

    def _read(self) -> None:
        process = self._process
        assert process is not None
        output = process.output
        if not process.read():
            return
        self.selector.unregister(output)
        assert process.proof is not None, "it has ended"
        self._proved[self._of], self._process = process.proof, None
        self.ended()
