"""What the core was told and what it asked for, in two hundred simulated worlds: a digest each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from beads_workers.core.orchestrator import Orchestrator
from beads_workers.core.records.journal import Entry
from beads_workers.core.schedule.commands import Command
from beads_workers.core.schedule.events import Event
from tests.oracles.notation import neutral
from tests.simulation import journal as simulated
from tests.simulation.mutants import Mutant
from tests.simulation.seeds import PUSH_EACH, push_world
from tests.simulation.world import Options, World

SEEDS = 200
MINUTES = 3.0
BATCH = 20
"""Seeds whose digests stand in one line."""

LINE_BYTES = 512
"""The simulated disk fills up and tears lines by their length: each is a multiple of this."""


def _padded(encode: Callable[[Entry], bytes]) -> Callable[[Entry], bytes]:
    def padded(entry: Entry) -> bytes:
        line = encode(entry)
        return line[:-2] + b" " * (-len(line) % LINE_BYTES) + line[-2:]

    return padded


@contextmanager
def _neutral_lengths() -> Iterator[None]:
    """While this lasts, no fault of a simulated disk depends on how long a word is."""
    encode, repeated = simulated.encode, simulated.encode_repeated
    simulated.encode, simulated.encode_repeated = _padded(encode), _padded(repeated)
    try:
        yield
    finally:
        simulated.encode, simulated.encode_repeated = encode, repeated


def digest(seed: int) -> str:
    """Of everything that the cores of this world heard and said, in order."""
    told = hashlib.sha256()

    def note(*values: Any) -> None:
        told.update(json.dumps(neutral(values)).encode())

    class Observed(Orchestrator):
        """As ever; every call is noted with its commands."""

        def start(self, now: float) -> list[Command]:
            commands = super().start(now)
            note("start", now, commands)
            return commands

        def handle(self, event: Event, now: float, *, more: bool = False) -> list[Command]:
            commands = super().handle(event, now, more=more)
            note("handle", event, now, commands)
            return commands

        def after_events(self, now: float) -> list[Command]:
            commands = super().after_events(now)
            note("conclude", now, commands)
            return commands

        def on_deadline(self, now: float) -> list[Command]:
            commands = super().on_deadline(now)
            note("deadline", now, commands)
            return commands

    world = push_world() if seed % PUSH_EACH == 1 else World
    with _neutral_lengths():
        outcome = world(Options(seed, MINUTES), replace(Mutant(), orchestrator=Observed)).run()
    assert not outcome.violation, outcome.violation
    return told.hexdigest()[:12]


def lines(batch: int) -> str:
    """The digests of one batch of seeds, a line each."""
    seeds = range(batch * BATCH, (batch + 1) * BATCH)
    return "".join(f"{seed} {digest(seed)}\n" for seed in seeds)
