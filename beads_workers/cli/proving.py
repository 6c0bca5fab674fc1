"""A proof that runs beside the first attempts: if verify tests the checkout, the run is drained."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from beads_workers.checks.base import lander_settings
from beads_workers.checks.rules import Check, Grade
from beads_workers.checks.sees import LIFTED_BY, check_of
from beads_workers.cli.checking import sentence
from beads_workers.cli.client import try_to_connect
from beads_workers.cli.refusals import refusal
from beads_workers.core.base.settings import FleetSettings
from beads_workers.exits import EXIT_USAGE
from beads_workers.landing.sees.run import ProofProcess


class Proving:
    """Watcher of a proof that goes on while the fleet runs."""

    def __init__(self, process: ProofProcess, settings: FleetSettings) -> None:
        self._process = process
        self._lander = lander_settings(settings)
        self._state_directory = Path(settings.state_directory)
        self._check: Check | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Wait for the proof at the end of the run, and print its result.

        Raise ``CommandError`` if verify tests the checkout.
        """
        self._thread.join()
        if self._check is None:
            return
        if self._check.status is Grade.FAIL:
            raise refusal(self._check, LIFTED_BY)
        print(f"{self._check.status.value} {sentence(self._check)}", file=sys.stderr)

    def _watch(self) -> None:
        while not self._process.read():
            pass
        assert self._process.proof is not None, "it has ended"
        self._check = check_of(self._process.proof, self._lander)
        if self._check.status is not Grade.FAIL:
            return
        client = try_to_connect(self._state_directory)
        if client is not None:
            client.send("bw.stop", {"drain": True, "exit_code": EXIT_USAGE})
            client.close()
