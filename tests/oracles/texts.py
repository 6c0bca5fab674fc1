"""Bytes and words that others read: the wire, the journal, ``status``, ``--help``, exit codes."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import types
import typing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from beads_workers.core.base import wire as message_types
from beads_workers.core.base.wire import encode as encode_message
from beads_workers.core.records.journal import KINDS, Entry, encode
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import status
from beads_workers.registry import COMMANDS
from tests.oracles.calls import ROOT, call
from tests.simulation.journal import Journal
from tests.simulation.mutants import Mutant
from tests.simulation.nodes import Node
from tests.simulation.world import Options, World

STATUS_SEEDS = 12
EVERY = 97
"""Of a world's records, after every so many ``status`` is asked."""


def wire() -> str:
    """Every message of the worker protocol: as version 1 and as 1.1, bare and with all fields."""
    lines = b""
    asides = [k for k in vars(message_types).values() if isinstance(k, type)]
    asides = [k for k in asides if issubclass(k, message_types.Aside)]
    kinds = dict.fromkeys([*typing.get_args(message_types.Message), *asides])
    for kind in (k for k in kinds if k is not message_types.Aside):
        bare = {name: hint for name, hint in _hints(kind).items() if name in _required(kind)}
        for fields in (bare, _hints(kind)):
            message = kind(**{name: _sample(name, hint) for name, hint in fields.items()})
            for v1 in (True, False):
                lines += encode_message(message, "W1", 1_700_000_000.5, v1=v1)
    return lines.decode()


def journal() -> str:
    """A line of every kind: with nothing but what it needs, and with all of its fields."""
    lines = b""
    for kind in KINDS.values():
        bare = {name: hint for name, hint in _hints(kind).items() if name in _required(kind)}
        for fields in (bare, _hints(kind)):
            record = kind(**{name: _sample(name, hint) for name, hint in fields.items()})
            lines += encode(Entry(record, 1_700_000_000.25, 12.5))
    return lines.decode()


def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}


def _required(kind: type) -> set[str]:
    missing = dataclasses.MISSING
    return {
        f.name
        for f in dataclasses.fields(kind)
        if f.default is missing and f.default_factory is missing
    }


def _sample(name: str, hint: Any) -> Any:
    """A value of that type that is not its default, the same each time."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _sample(name, inner[0])
    if origin is tuple:
        return tuple(_sample(name, one) for one in inner if one is not ...)
    if origin is frozenset:
        return frozenset({f"{name}-1", f"{name}-2"})
    if origin is not None:
        return {"key": name, "more": [1, 2.5, None]}
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return hint(**{each: _sample(each, inner) for each, inner in _hints(hint).items()})
    supertype = getattr(hint, "__supertype__", hint)
    if isinstance(supertype, type) and hasattr(supertype, "__members__"):
        return list(supertype)[1]
    samples = {bool: True, int: 7, float: 2.5, str: f"{name} é\n1"}
    return samples.get(supertype, {"any": name})


def statuses() -> str:
    """``status --json`` in the course of some simulated worlds, a line each time."""
    lines: list[str] = []
    for seed in range(STATUS_SEEDS):
        board = [Board()]
        count = [0]

        class Watched(Journal):
            """As ever; a board follows it."""

            def append(self, record: Any, seen=board, number=count) -> Entry:  # type: ignore
                entry = super().append(record)
                if type(record).__name__ == "RunStarted":
                    seen[0] = Board()
                seen[0].apply(entry)
                number[0] += 1
                if number[0] % EVERY == 0:
                    lines.append(json.dumps(status(seen[0], entry.elapsed)) + "\n")
                return entry

        class WatchedNode(Node):
            """As ever, with that journal."""

            journal_class = Watched

        class WatchedWorld(World):
            """As ever, with such nodes."""

            node_class = WatchedNode

        WatchedWorld(Options(seed, 3.0), Mutant()).run()
    return "".join(lines)


# --- the command line ---------------------------------------------------------------------------


def helps() -> str:
    """``--help`` of every command, and of those below ``hero`` and ``config``."""
    words = [[], *([name] for commands in COMMANDS.values() for name in commands), ["version"]]
    words += [["hero", name] for name in ("run", "list", "status", "stop", "logs")]
    words += [["config", "show"]]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        told = pool.map(lambda name: call(Path(folder), *name, "--help"), words)
        return "".join(
            f"$ beads-workers {' '.join([*name, '--help'])}\n{said.text}\n\n"
            for name, said in zip(words, told, strict=True)
        )


CALLS = (
    "status", "stop", "watch --json", "wait", "scale 3", "pause", "resume", "release x", "retry x",
    "logs", "report", "replay", "why", "metrics", "list", "show x", "add", "add x", "boo",
    "start --workers x", "start -n 2", "start -n 2 --until-empty -- no-such-command",
    "doctor --boo", "start --source what://x -- true", "start --agent nobody",
    "start --timeout 5q -- true", "start --executor rrq:x --agent claude",
    "start --allow-module no.such.module", "submit --help=1", "config show --boo",
    "worker -- true", "rrq-executor --listen", "hero run", "chaos --kills x",
    "start --bd-calls nobody -- true", "start --metrics 99999 -- true", "start x -- true",
)  # fmt: skip


def exits() -> str:
    """How commands end that cannot do what they are asked, in a folder with nothing in it."""
    lines = []
    for words in CALLS:
        with tempfile.TemporaryDirectory() as folder:
            said = call(Path(folder), *words.split())
        lines.append(f"$ beads-workers {words}\n{said.text}\n\n")
    return "".join(lines)


def worker_imports() -> str:
    """What a worker process has loaded that is not ours: a hundred workers pay for each.

    Not ``unicodedata``: the compiler has it where a source that is not compiled yet says ``\\N{}``.
    """
    code = (
        "import sys; before = set(sys.modules)\n"
        "import beads_workers.runtime.worker\n"
        "print('\\n'.join(sorted(m for m in set(sys.modules) - before"
        " if not m.startswith(('beads_workers', 'unicodedata')))))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
