"""What the workers of a dead run have left word of, made into what its journal lacks.

Source: docs/PROTOCOL.md, "Last words". Whoever can write into the run's directory can have written
them: they change nothing but what became of an attempt that its run had begun.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from beads_workers.core import limits
from beads_workers.core.framing import Line, LineReader
from beads_workers.core.issues import Attempt
from beads_workers.core.journal_lines import Entry
from beads_workers.core.message_types import NOT_BEGUN, Done, Failed
from beads_workers.core.messages import ProtocolError, parse
from beads_workers.core.outcomes import OutcomeKind, kept, note_of
from beads_workers.core.records import Finished
from beads_workers.core.recovery import Remains

MEASURED_SECONDS_MAX = 86_400.0
"""No longer than this a dead run is taken to have lived on."""

Words = Mapping[str, Done | Failed]
"""By request id: what was said last of that attempt."""


def read_words(chunks: Iterable[bytes], wanted: Collection[str]) -> Words:
    """The first word on each attempt that is ``wanted``, in whatever pieces the file is read."""
    found: dict[str, Done | Failed] = {}
    reader = LineReader(limits.WORD_BYTES_MAX)
    for chunk in chunks:
        for framed in reader.feed(chunk):
            said = _word(framed.text) if isinstance(framed, Line) else None
            if said is not None and said.request_id in wanted:
                found.setdefault(said.request_id, said)
    return found


def take_in(left: Remains, words: Words) -> dict[str, Entry]:
    """Let ``left`` know what these words say; returns what its journal lacks, by issue.

    A success is as good as one that was read in time. Of what a worker had not begun its run
    has nothing to give up; a failure that nobody heard is not here, and its task runs again.
    """
    ends: dict[str, Entry] = {}
    unbegun: set[str] = set()
    for issue_id, begun in left.begun.items():
        said = words.get(begun.started.request_id)
        if said is None or said.issue_id != issue_id:
            continue
        if isinstance(said, Done):
            ends[issue_id] = _end(left, begun, said)
            left.apply(ends[issue_id])
        else:
            unbegun.add(said.request_id)
    left.never_began(unbegun)
    return ends


def _word(line: bytes) -> Done | Failed | None:
    try:
        said = parse(line)
    except ProtocolError:
        return None
    if isinstance(said, Done):
        return said
    return said if isinstance(said, Failed) and said.error_detail == NOT_BEGUN else None


def _end(left: Remains, begun: Attempt, done: Done) -> Entry:
    started, milliseconds = begun.started, done.duration_ms or 0
    claimed = left.issues.known[started.issue_id].claimed
    finished = Finished(
        started.issue_id,
        started.worker_id,
        started.attempt,
        started.request_id,
        OutcomeKind.SUCCESS.value,
        "finish",
        duration_ms=milliseconds,
        note=note_of(done.result),
        result=kept(done.result, of_function=bool(claimed and claimed.path)),
        result_file=done.result_file,
    )
    # As its worker has measured it, which may say what it likes.
    seconds = min(milliseconds / 1000, MEASURED_SECONDS_MAX)
    return Entry(finished, begun.at + seconds, begun.elapsed + seconds)
