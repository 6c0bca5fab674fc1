"""The result of a run of the kit: a verdict for each requirement, as lines, JSON or JUnit XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from beads_workers.conformance.link import Breach

LATE = "the machine was too busy"


UNFORESEEN = (LookupError, TypeError, ValueError, AttributeError)
"""Exceptions that unexpected messages of a peer may cause in a case."""


class Judgement(Enum):
    """Verdict. ``NOT_REACHED``: the case that would have shown the requirement failed before."""

    PASS = "pass"
    FAIL = "fail"
    NOT_CLAIMED = "not claimed"
    NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict of one case on one requirement.

    ``why`` and ``transcript`` are set for all verdicts but ``PASS``.
    """

    requirement: str
    verdict: Judgement
    case: str
    why: str = ""
    transcript: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """``findings``: one for each requirement, in the order of the table."""

    of: str
    findings: Sequence[Finding]
    texts: Mapping[str, str]
    seconds: float

    @property
    def is_conformant(self) -> bool:
        """Whether no requirement failed."""
        return not any(each.verdict is Judgement.FAIL for each in self.findings)

    def count(self, verdict: Judgement) -> int:
        """Return how many requirements have this verdict."""
        return sum(1 for each in self.findings if each.verdict is verdict)

    def lines(self) -> Iterator[str]:
        """Yield lines for people: one for each requirement, then the failures with their
        transcripts."""
        for each in self.findings:
            why = f" ({each.why})" if each.why and each.verdict is not Judgement.PASS else ""
            text = self.texts[each.requirement]
            yield f"{each.verdict.value:11}  {each.requirement:9}  {text}{why}"
        for each in self.findings:
            if each.verdict is Judgement.FAIL:
                yield ""
                yield f"{each.requirement} {self.texts[each.requirement]}"
                yield f"  {each.why}"
                yield f"  case {each.case}, > is the worker, < the orchestrator:"
                yield from (f"    {line}" for line in each.transcript)
        counts = ", ".join(f"{self.count(verdict)} {verdict.value}" for verdict in Judgement)
        yield ""
        yield f"{self.of}: {counts}, in {self.seconds:.1f} s"
        if late := sum(1 for each in self.findings if LATE in each.why):
            yield f"{LATE} for {late}: try them again when it has less to do, with --only ID"
        if hidden := Counter(each.why for each in self.hidden()):
            [(why, number)] = hidden.most_common(1)
            yield f"begin with {why.removeprefix('see ')}: it hides {number} of those not reached"

    def hidden(self) -> Iterator[Finding]:
        """Yield the findings that were not reached because of the failure that ``why`` names."""
        for each in self.findings:
            if each.verdict is Judgement.NOT_REACHED and each.why.startswith("see "):
                yield each

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "of": self.of,
            "conformant": self.is_conformant,
            "seconds": round(self.seconds, 3),
            "requirements": [
                {
                    "id": each.requirement,
                    "text": self.texts[each.requirement],
                    "verdict": each.verdict.value,
                    "case": each.case,
                    "why": each.why,
                    "transcript": list(each.transcript),
                }
                for each in self.findings
            ],
        }

    def as_junit(self) -> str:
        """Return the report as JUnit XML; requirements not claimed or not reached count as
        skipped."""
        from xml.sax.saxutils import escape, quoteattr

        failed = self.count(Judgement.FAIL)
        skipped = len(self.findings) - failed - self.count(Judgement.PASS)
        lines = [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuite name="beads-workers conformance {self.of}" tests="{len(self.findings)}"'
            f' failures="{failed}" errors="0" skipped="{skipped}" time="{self.seconds:.3f}">',
        ]
        for each in self.findings:
            name = quoteattr(f"{each.requirement} {self.texts[each.requirement]}")
            lines.append(f'<testcase classname="conformance.{self.of}" name={name}>')
            if each.verdict is Judgement.FAIL:
                shown = escape("\n".join(each.transcript))
                lines.append(f"<failure message={quoteattr(each.why)}>{shown}</failure>")
            elif each.verdict is not Judgement.PASS:
                message = quoteattr(each.why or each.verdict.value)
                lines.append(f"<skipped message={message}/>")
            lines.append("</testcase>")
        return "\n".join([*lines, "</testsuite>", ""])


def as_breach(error: Exception, ids: Sequence[str]) -> Breach:
    """Return an exception in a case of these requirements as a broken requirement."""
    if isinstance(error, Breach):
        return error
    return Breach(ids[0] if ids else "O-4.1-1", f"its words make no sense here ({error!r:.100})")


def of_breach(error: Breach, case: str, transcript: Sequence[str], late: float) -> Finding:
    """Return the finding about a broken requirement.

    ``late``: seconds by which a slow machine excuses the peer; 0: not excused.
    """
    verdict = Judgement.NOT_REACHED if late else Judgement.FAIL
    why = f"{error.why}; {late_by(late)}" if late else error.why
    return Finding(error.requirement, verdict, case, why, tuple(transcript))


def late_by(seconds: float) -> str:
    """Return the text for a slow machine; empty for 0."""
    return f"{LATE} ({seconds:.1f} s for a processor)" if seconds else ""


def settle(found: Iterable[Finding], texts: Mapping[str, str]) -> list[Finding]:
    """Return one finding for each requirement: a failure outweighs a pass, a pass all others."""
    weight = [Judgement.FAIL, Judgement.PASS, Judgement.NOT_REACHED, Judgement.NOT_CLAIMED]
    best: dict[str, Finding] = {}
    for each in found:
        known = best.get(each.requirement)
        if known is None or weight.index(each.verdict) < weight.index(known.verdict):
            best[each.requirement] = each
    nobody = "no case has shown it"
    return [
        best.get(requirement, Finding(requirement, Judgement.NOT_REACHED, "", nobody))
        for requirement in texts
    ]
