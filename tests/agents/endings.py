"""The corpus of recorded endings: how an ending is kept, and how it is read again.

``tests.agents.record`` makes it, and its docstring describes the format.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

CORPUS = Path(__file__).parent / "corpus"

Verdict = Literal[
    "limited", "needs_person", "transient", "capped", "unfinished", "question", "no_change", "done"
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True)
class Label:
    """The truth about an ending, said by whoever wrote its scenario.

    ``until``: epoch seconds of the announced reset; ``None`` where the program could not know it.
    ``window``: of a limit, as ``rateLimitType`` of claude calls it (``five_hour``).
    """

    verdict: Verdict
    until: int | None = None
    window: str = ""


@dataclass(frozen=True, slots=True)
class Git:
    """What the run left in its repository. ``commits``: new ones; ``changed``: files that are not
    committed (untracked ones too)."""

    commits: int
    changed: bool


@dataclass(frozen=True, slots=True)
class RunEnding:
    """One run of a real command line, from its start to its end.

    ``status`` is the exit status and ``signal`` the name of the signal (``TERM``) that ended the
    process: one of them is ``None``. ``sent``: the signal that the recorder sent, else empty.
    ``form``: ``stream-json`` or ``text`` of what is on stdout. ``began``: epoch seconds; ``zone``:
    ``TZ`` of the process, for times of day in its texts. ``stderr``: the last 2,000 characters.
    """

    name: str
    agent: str
    version: str
    form: str
    scenario: str
    label: Label
    status: int | None
    signal: str | None
    sent: str
    git: Git
    began: int
    seconds: float
    zone: str
    arguments: tuple[str, ...]
    stderr: str
    stdout: bytes

    @property
    def folder(self) -> Path:
        """Where the endings of this program and version are."""
        return CORPUS / f"{self.agent}-{self.version}"

    def write(self) -> None:
        """Keep it as two files, over an older recording of the same name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        facts: dict[str, Any] = asdict(self)
        (self.folder / f"{self.name}.out").write_bytes(facts.pop("stdout"))
        text = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
        (self.folder / f"{self.name}.json").write_text(text, encoding="utf-8")


def read_ending(facts: Path) -> RunEnding:
    """One ending from its ``.json`` and the ``.out`` beside it."""
    kept = json.loads(facts.read_text(encoding="utf-8"))
    kept["label"] = Label(**kept["label"])
    kept["git"] = Git(**kept["git"])
    kept["arguments"] = tuple(kept["arguments"])
    return RunEnding(**kept, stdout=facts.with_suffix(".out").read_bytes())


def read_corpus(agent: str = "") -> list[RunEnding]:
    """All endings, or those of one program, in the order of their paths."""
    return [read_ending(path) for path in sorted(CORPUS.glob(f"{agent or '*'}-*/*.json"))]
