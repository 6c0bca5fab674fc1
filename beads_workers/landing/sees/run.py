"""The proof as a program: ``python -m beads_workers.landing.sees.run COMMIT LANE``.

The first line of stdin is ``LanderSettings``. Each line of stdout is a JSON object: ``{"began":
...}`` for each run of verify, and last ``{"proof": {...}}``, which is kept if it lets verify pass.
The program ends together with its parent.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from select import POLLIN, poll
from typing import Any

from beads_workers.core.base.plain import from_plain, to_plain
from beads_workers.core.base.settings import Sight
from beads_workers.core.records.landing import LanderSettings, settings_from_line, settings_to_line
from beads_workers.landing.gate import GateProcess, GateResult, Verdicts, start_gate
from beads_workers.landing.queue import GateVerdict
from beads_workers.landing.repository import BROKEN, landing_folder
from beads_workers.landing.sees.proof import Orders, Proof, Prover
from beads_workers.runtime.kernel import system
from beads_workers.runtime.locks import try_lock
from beads_workers.worktrees.git import GitError, delete_refs, git
from beads_workers.worktrees.places import GATED_REPOSITORY, make_folder

LOCK = "beads-workers-sees.lock"
"""Name of the lock in git's common folder: one proof for a repository."""


# --- kept ----------------------------------------------------------------------------------------


SAW_NOTHING = "saw nothing"
"""Key of a proof, of any tree, that the check depends on nothing: a start need not wait for the
proof of another tree."""


def kept(verdicts: Verdicts, tree: str) -> Proof | None:
    """Return the kept proof for this verify and these leads into the checkout; the caller has
    called ``look_again``. A proof that a check depends on nothing holds for this tree only: tests
    may be added."""
    for sight, key in ((Sight.BRANCH, "sees"), (Sight.NOTHING, f"sees nothing {tree}")):
        found = verdicts.find(key)
        if found is not None:
            return Proof(sight)
    return None


def keep(verdicts: Verdicts, tree: str, proof: Proof) -> None:
    """Keep a proof that lets verify pass. A refusal is not kept: its fix may be in a file that no
    key covers."""
    if proof.sight in (Sight.BRANCH, Sight.NOTHING):
        key = "sees" if proof.sight is Sight.BRANCH else f"sees nothing {tree}"
        result = GateResult(GateVerdict.GREEN, seconds=proof.seconds)
        verdicts.keep(key, result)
        if proof.sight is Sight.NOTHING:
            verdicts.keep(SAW_NOTHING, result)


# --- for whoever starts it -----------------------------------------------------------------------


@dataclass
class ProofProcess:
    """A proof under way. ``output``: readable once there is news."""

    process: subprocess.Popen[bytes]
    proof: Proof | None = None
    runs: int = 0
    _read: bytes = b""

    @property
    def output(self) -> int:
        """Descriptor of the output of the process."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def read(self) -> bool:
        """Read the news, and return whether the process has ended. Then there is a ``proof``."""
        data = os.read(self.output, 1 << 16)
        *lines, self._read = (self._read + data).split(b"\n")
        for line in map(json.loads, lines):
            self.runs += "began" in line
            if (fields := line.get("proof")) is not None:
                self.proof = from_plain(Proof, fields)
        if not data:
            self.process.wait()
            unknown = Proof(Sight.UNKNOWN, ("it ended without an answer",))
            self.proof = self.proof or unknown
        return not data

    def end(self) -> None:
        """End the process, with every process it started."""
        self.process.terminate()
        self.process.wait()


def start_proof(settings: LanderSettings, commit: str, lane: int) -> ProofProcess:
    """Start the program of the proof; raises ``OSError``."""
    command = [sys.executable, "-P", "-m", __name__, commit, str(lane)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(settings_to_line(settings))
    return ProofProcess(process)


# --- the program ---------------------------------------------------------------------------------


def prove(
    settings: LanderSettings, commit: str, lane: int, began: Callable[[str], None] = lambda at: None
) -> Proof:
    """Run the whole proof, and keep its result. ``began``: called with the commit of each run."""
    since = time.monotonic()
    common, folder = settings.worktrees.common, landing_folder(settings.worktrees)
    lock = try_lock(Path(common, LOCK))
    if lock is None:
        return Proof(Sight.UNKNOWN, ("another start is at it",))
    try:
        make_folder(folder)
        (folder / GATED_REPOSITORY).write_bytes(os.fsencode(common))
        verdicts = Verdicts(settings, folder)
        verdicts.look_again()
        tree = git(common, "rev-parse", f"{commit}^{{tree}}").strip()
        known = verdicts.find(tree)
        passes = known is not None and known.verdict is GateVerdict.GREEN
        proof = _carry_out(Prover(settings, commit, lane, passes), folder, verdicts, began)
        proof = replace(proof, seconds=time.monotonic() - since)
        keep(verdicts, tree, proof)
        return proof
    except (GitError, OSError) as error:
        return Proof(Sight.UNKNOWN, (str(error),))
    finally:
        with suppress(GitError):
            delete_refs(common, BROKEN)
        os.close(lock)


def _carry_out(
    prover: Prover, folder: Path, verdicts: Verdicts, began: Callable[[str], None]
) -> Proof:
    runs = prover.runs()
    try:
        orders = next(runs)
        while True:
            results = list[GateResult]()
            for some in _batches(prover.settings, orders):
                for order in some:
                    began(order.commit)
                results += _run(prover.settings, folder, some, verdicts)
            orders = runs.send(results)
    except StopIteration as end:
        proof: Proof = end.value
        return proof


def _batches(settings: LanderSettings, orders: Orders) -> Sequence[Orders]:
    """Return the orders side by side, or one by one if only one gate may run at a time."""
    return [orders] if settings.landing.rules.jobs > 1 else [(order,) for order in orders]


def _run(
    settings: LanderSettings, folder: Path, orders: Orders, verdicts: Verdicts
) -> list[GateResult]:
    gates = [start_gate(settings, folder, order, verdicts) for order in orders]
    return [_ended(gate) for gate in gates]


def _ended(gate: GateProcess) -> GateResult:
    ready = poll()
    ready.register(gate.pidfd, POLLIN)
    ready.poll()
    return gate.result()


def _say(news: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(news) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the program: see the module text."""
    system.die_with_parent(signal.SIGTERM)
    settings = settings_from_line(sys.stdin.buffer.readline())
    proof = prove(settings, sys.argv[1], int(sys.argv[2]), lambda at: _say({"began": at}))
    _say({"proof": to_plain(proof)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
