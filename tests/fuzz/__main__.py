"""``scripts/fuzz``: many hostile inputs for every parser, on every core, the same again by seed."""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests.fuzz.minimiser import minimised
from tests.fuzz.runner import CHUNK, Failure, fault, the_input, try_chunk
from tests.fuzz.table import PARSERS

INPUTS = 20_000
LINE_SECONDS = 10.0
GROWTH_BYTES_MAX = 100 << 20
"""A process that has tried all parsers may hold this much more than at its start."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one parser; ``seconds`` by the clock."""

    parser: str
    inputs: int
    seconds: float
    failure: Failure | None


class Limit:
    """Until when more is tried; SIGTERM, whose handler ``end`` is, makes it now."""

    def __init__(self, until: float) -> None:
        self._until = until

    def is_over(self) -> bool:
        """Whether no more may be begun."""
        return time.monotonic() > self._until

    def end(self, number: int, frame: FrameType | None) -> None:
        """Tell what was found so far, and try no more."""
        self._until = float("-inf")


class Telling:
    """Progress on stderr: a line that is written over on a terminal; with ``lines``, some more."""

    def __init__(self, count: int, parsers: int, *, quiet: bool, lines: bool) -> None:
        self._count = count
        self._parsers = parsers
        self._ended = 0
        self._draws = sys.stderr.isatty() and not quiet
        self._lines = lines
        self._failed = False
        self._last = time.monotonic()

    def show(self, name: str, done: int, failed: bool) -> None:
        """``done`` of the inputs of this parser were tried."""
        self._failed = self._failed or failed
        now = time.monotonic()
        if self._draws:
            print(f"\r{name:<16} {done:>9,} of {self._count:,}\x1b[K", end="", file=sys.stderr)
        elif self._lines and now - self._last > LINE_SECONDS:
            self._last = now
            done += self._ended * self._count
            broken = ", BROKEN" if self._failed else ""
            of = f"{done:,} of {self._count * self._parsers:,} inputs"
            print(f"{of}, {name} at the moment{broken}", file=sys.stderr, flush=True)

    def parser_ended(self) -> None:
        """The next one comes."""
        self._ended += 1


def main(arguments: Sequence[str]) -> int:
    """0: everything held; 1: something did not, and how it is made again was printed."""
    said = _parsed(arguments)
    names = said.parser or list(PARSERS)
    if said.only is not None:
        return _again(names[0], said.seed, said.only)
    if said.file is not None:
        return _try(names[0], Path(said.file).read_bytes())
    limit = Limit(time.monotonic() + said.minutes * 60 if said.minutes else float("inf"))
    signal.signal(signal.SIGTERM, limit.end)
    before = _peak_bytes()
    results: list[Result] = []
    telling = Telling(said.inputs, len(names), quiet=said.json, lines=said.progress)
    with ProcessPoolExecutor(said.jobs) as pool:
        for name in names:
            results.append(_all_of(pool, name, said.seed, said.inputs, limit, telling))
    grown = _peak_bytes() - before
    _report(results, said.seed, grown, as_json=said.json)
    return 1 if any(r.failure for r in results) or grown > GROWTH_BYTES_MAX else 0


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    add = parser.add_argument
    add("--inputs", type=int, default=INPUTS, help=f"for each parser (default {INPUTS})")
    add("--parser", action="append", choices=[*PARSERS], metavar="NAME", help=", ".join(PARSERS))
    add("--seed", type=int, default=1, help="other inputs (default 1)")
    add("--minutes", type=float, help="stop after so long, whatever is left")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: cores)")
    add("--json", action="store_true", help="one JSON object on stdout")
    add("--progress", action="store_true", help="on stderr, also into a pipe")
    add("--only", type=int, metavar="N", help="input N of this seed and one --parser, by itself")
    add("--file", help="the bytes of this file as the input of one --parser")
    said = parser.parse_args(arguments)
    if (said.only is not None or said.file is not None) and len(said.parser or []) != 1:
        parser.error("--only and --file need one --parser")
    return said


def _all_of(
    pool: ProcessPoolExecutor, name: str, seed: int, count: int, limit: Limit, telling: Telling
) -> Result:
    """All chunks of one parser, never more under way than keeps the cores at work."""
    began = time.monotonic()
    sizes = _chunks(count)
    waiting: dict[Future[Failure | None], int] = {}
    done = 0
    failure: Failure | None = None
    while True:
        while failure is None and len(waiting) < 4 * (os.cpu_count() or 1):
            chunk, size = next(sizes, (0, 0))
            if not size or limit.is_over():
                break
            waiting[pool.submit(_chunk, name, seed, chunk, size)] = size
        if not waiting:
            break
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            done += waiting.pop(future)
            found = future.result()
            # The first by number, whichever process was faster.
            failure = min((f for f in (failure, found) if f), key=lambda f: f.number, default=None)
        telling.show(name, done, failure is not None)
    telling.parser_ended()
    return Result(name, done, time.monotonic() - began, failure)


def _chunks(count: int) -> Iterator[tuple[int, int]]:
    for chunk in range((count + CHUNK - 1) // CHUNK):
        yield chunk, min(CHUNK, count - chunk * CHUNK)


def _chunk(name: str, seed: int, chunk: int, count: int) -> Failure | None:
    return try_chunk(PARSERS[name], seed, chunk, count)


def _report(results: Sequence[Result], seed: int, grown: int, *, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "parser": r.parser,
                "inputs": r.inputs,
                "seconds": round(r.seconds, 2),
                "failure": r.failure and {"number": r.failure.number, "why": r.failure.why},
            }
            for r in results
        ]
        print(json.dumps({"seed": seed, "grown_bytes": grown, "parsers": rows}))
    else:
        print("\r\x1b[K" if sys.stderr.isatty() else "", end="", file=sys.stderr)
        for r in results:
            mark = "FAILED" if r.failure else "ok"
            print(f"{r.parser:<16} {r.inputs:>10,} inputs  {r.seconds:>7.1f} s  {mark}")
        print(f"seed {seed}; memory grew by {grown >> 20} MB (at most {GROWTH_BYTES_MAX >> 20})")
    for r in results:
        if r.failure:
            print(_told(r.failure), file=sys.stderr)


def _told(failure: Failure) -> str:
    return (
        f"\n{failure.parser}: {failure.why}\n"
        f"  input ({len(failure.data)} bytes), made small: {_shown(failure.small)}\n"
        f"  again: scripts/fuzz --parser {failure.parser} --seed {failure.seed}"
        f" --only {failure.number}\n{failure.trace}"
    )


def _again(name: str, seed: int, number: int) -> int:
    return _try(name, the_input(PARSERS[name], seed, number))


def _try(name: str, data: bytes) -> int:
    parser = PARSERS[name]
    error = fault(parser, parser.target, data)
    if error is None:
        print(f"ok: {name} takes these {len(data)} bytes")
        return 0
    small = minimised(data, lambda less: type(fault(parser, parser.target, less)) is type(error))
    print(f"{name}: {type(error).__name__}: {error}\n  made small: {_shown(small)}")
    return 1


def _shown(data: bytes) -> str:
    return repr(data) if len(data) <= 400 else f"{data[:400]!r}... ({len(data)} bytes)"


def _peak_bytes() -> int:
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in whose) * 1024


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
