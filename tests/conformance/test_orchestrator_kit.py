"""The orchestrator kit: the reference passes, and each of its mutants is caught by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from beads_workers.conformance.bench import Timing
from beads_workers.conformance.floor import ONLY_VERSION_1
from beads_workers.conformance.orchestrator_suite import try_orchestrator
from beads_workers.conformance.report import LATE, Judgement
from beads_workers.conformance.requirements import ORCHESTRATOR

REFERENCE = str(Path(__file__).with_name("reference_orchestrator.py"))
VERSION_1 = Path(__file__).with_name("version_1_orchestrator.py").read_text("utf-8")
QUICK = Timing(patience=2.0, quiet=0.4, hold=1.0)
TRIES = 5
"""On a machine that is too busy to tell."""

IN = "\n            "
READY = f"worker.is_known = worker.is_ready = True{IN}"
ANSWER = "self.answer(worker)\n"
STRAY = f"elif not worker.is_told:{IN}"
WAIT = 'self.say(worker, "WAIT", wait_seconds=1)'
LONG_WAIT = WAIT.replace("1", "9")
TASK = 'self.say(worker, "TASK", issue_id=worker.task, priority=2, title="Try it")'
HELLO = """worker.unsent += b'{"type": "HELLO"}\\n'"""
FORGETS = f"worker.is_ready = False{IN}"
NL = "\n        "
MARKED = 'json.dumps(message).encode("utf-8-sig")'
NAMED = f"worker = next((w for w in self.workers.values() if w.name == whole), worker){IN}"
WAITS = "each is not worker and each.is_known and not each.task"
PUSHES = f"[self.answer(each) for each in [*self.workers.values()] if {WAITS}]"
ANYBODYS = f"""holder = next((w for w in self.workers.values() if w.task == issue), None)
        if holder:{IN}holder.task = ""{IN}"""
ENDS = f'worker.task = ""{IN}'
WRONG: dict[str, tuple[tuple[str, str], ...]] = {
    "O-2.1-1": (("os.umask(0o177)", "os.umask(0o022)"),),
    "O-2.1-2": (("listen(512)", "listen(1)"), ("self.count += 1", "time.sleep(0.05)")),
    "O-3-1": (("json.dumps(message).encode()", "str(message).encode()"),),
    "O-3-2": (("(worker.unread + data).split", "data.split"),),
    "O-3-4": (('worker.unread, worker.skips = b"", True', "worker.is_gone = True"),),
    "O-4.1-1": (('"timestamp": time.time()', '"timestamp": "now"'),),
    "O-4.1-1 with another priority": (("priority=2", "priority=9"),),
    **{
        f"O-4.1-1 with a WAIT of {seconds}": (
            (f"else:{IN}{WAIT}", f"else:{IN}{WAIT[:-2]}{seconds})"),
        )
        for seconds in ("0", "3601", "1.5")
    },
    "O-4.1-1 with a long title": (('title="Try it"', 'title="x" * 501'),),
    "O-3-1 with Infinity": (('"timestamp": time.time()', '"timestamp": float("inf")'),),
    "O-3-1 with a byte-order mark": (("json.dumps(message).encode()", MARKED),),
    "O-5.1-1 and tells those who wait": (('"FAILED" else []', f'"FAILED" else []{IN}{PUSHES}'),),
    "O-5.1-2 before READY": (("if worker.uid == os.getuid():", f"{WAIT}{NL}if True:"),),
    "O-5.1-2 with the next TASK": ((ENDS, f"{ENDS}self.answer(worker){IN}"),),
    "O-5.3-1 with another title": (('title="Try it"', "title=str(time.time())"),),
    "O-6-1 and takes DONE for anybody's": ((f"if issue == worker.task:{IN}{ENDS}", ANYBODYS),),
    "O-6-1 by the name that it gave": ((READY, f"{NAMED}{READY}"),),
    "O-6-1 by the name of READY": (
        (READY, f"worker.said = whole{IN}{READY}"),
        ("isinstance(issue, str):", "isinstance(issue, str) and worker.said == whole:"),
    ),
    "O-7-1 at any time": (("(silent and not worker.is_known)", "silent"),),
    "O-8-2 but takes it for an answer": (
        ('kind in ("DONE", "FAILED") and', 'kind != "READY" and'),
    ),
    "O-8-2 but takes it for READY": (('if kind == "READY" and', 'if kind[0] not in "DF" and'),),
    "O-8-3 of an integer only": (
        ("isinstance(issue, str):", 'isinstance(message.get("duration_ms", 0), int):'),
    ),
    "O-4.7-1": (("if self.stops:", "if False:"), ("if self.stops and", "if False and")),
    "O-5.1-1": ((TASK, f"{TASK}{IN}{TASK}"),),
    "O-5.1-1 with words of its own": ((TASK, f"{HELLO}{IN}{TASK}"),),
    "O-5.1-1 and is gone": ((TASK, "sys.exit(1)"),),
    "O-5.1-2": ((ENDS, f"{ENDS}{LONG_WAIT}{IN}"),),
    "O-5.3-1": (("if not worker.task and self.issues:", "if self.issues:"),),
    "O-5.3-2": ((f"{STRAY}{WAIT}", f"{STRAY}{LONG_WAIT}"),),
    "O-5.3-3": ((f"{READY}{ANSWER}", f"{READY}pass\n"), (STRAY, f"{STRAY}{FORGETS}")),
    "O-5.3-4": ((STRAY, f"{STRAY}{ENDS}"),),
    "O-5.3-5": ((f"if worker.is_told:{IN}return", "pass"),),
    "O-6-1": ((READY, f"{READY}worker.name = whole{IN}"),),
    "O-6-2": (('"worker_id": worker.name', '"worker_id": f"{worker.name}.{time.time()}"'),),
    "O-6-3": (("self.issues.pop(0)", "self.issues[0]"),),
    "O-7-1": (("HELLO_SECONDS = 10.0", "HELLO_SECONDS = 1e9"),),
    "O-7-2": (("self.lost.append((worker.pid, worker.task))", "pass"),),
    "O-7-3": ((STRAY, f"{STRAY}self.lost = [e for e in self.lost if e[1] != issue]{IN}"),),
    "O-7-4": (("UNSENT_BYTES_MAX = 4 << 20", "UNSENT_BYTES_MAX = 1 << 40"),),
    "O-8-1": (("WRONG_MAX = 1000", "WRONG_MAX = 1"),),
    "O-8-2": ((f"or not isinstance(kind, str):{IN}", f"or True:{IN}worker.is_gone = True{IN}"),),
    "O-8-3": (("isinstance(issue, str):", "isinstance(issue, str) and whole:"),),
    "O-8-4": (("WRONG_MAX = 1000", "WRONG_MAX = 10**9"),),
    "O-9.1-1": (('title="Try it"', 'title="Try it", version="1.1"'),),
}
"""Wrong orchestrators of version 1, by the requirement that each breaks: what stands in its text,
and in place of it."""


@contextmanager
def reference(folder: Path, broken: str = "") -> Iterator[tuple[str, Sequence[str]]]:
    """The socket of a reference orchestrator, or of one of its mutants, and what stops it."""
    with running(folder, REFERENCE, *(["--break", broken] if broken else [])) as listens:
        yield listens


@contextmanager
def running(folder: Path, program: str, *options: str) -> Iterator[tuple[str, Sequence[str]]]:
    """The socket of an orchestrator, and what stops it."""
    path = str(folder / "o.sock")
    command = [sys.executable, "-S", "-E", program, path, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"listens\n"
        yield path, ("kill", "-TERM", str(child.pid))
        child.kill()


def test_the_reference_orchestrator_passes(tmp_path: Path) -> None:
    with reference(tmp_path) as (path, stop):
        report = try_orchestrator(path, Timing(patience=20.0), stop=stop)
    assert report.count(Judgement.PASS) == len(ORCHESTRATOR), "\n".join(report.lines())


def test_a_right_orchestrator_of_version_1_passes_and_claims_nothing_of_1_1(tmp_path: Path) -> None:
    program = Path(__file__).with_name("version_1_orchestrator.py")
    with running(tmp_path, str(program)) as (path, stop):
        report = try_orchestrator(path, Timing(patience=20.0), stop=stop)
    passed = {each.requirement for each in report.findings if each.verdict is Judgement.PASS}
    only_1_1 = {name for name in ORCHESTRATOR if name.startswith("O-9")} - {"O-9.1-1"}
    assert passed == ORCHESTRATOR.keys() - only_1_1, "\n".join(report.lines())
    left = {each.why for each in report.findings if each.verdict is Judgement.NOT_CLAIMED}
    assert left == {ONLY_VERSION_1} and report.is_conformant


@pytest.mark.share(12)
@pytest.mark.parametrize("broken", WRONG)
def test_a_wrong_orchestrator_of_version_1_is_named(broken: str, tmp_path: Path) -> None:
    text, requirement = VERSION_1, broken.partition(" ")[0]
    for right, wrong in WRONG[broken]:
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    (tmp_path / "wrong.py").write_text(text, "utf-8")
    for _ in range(TRIES):
        with running(tmp_path, str(tmp_path / "wrong.py")) as (path, stop):
            report = try_orchestrator(path, QUICK, [requirement], stop)
        (tmp_path / "o.sock").unlink()
        if not any(LATE in each.why for each in report.findings):
            break
    named = {each.requirement for each in report.findings if each.verdict is Judgement.FAIL}
    assert requirement in named, "\n".join(report.lines())


@pytest.mark.share(8)
@pytest.mark.parametrize("requirement", ORCHESTRATOR)
def test_an_orchestrator_that_breaks_a_requirement_is_caught_by_its_name(
    requirement: str, tmp_path: Path
) -> None:
    with reference(tmp_path, requirement) as (path, stop):
        report = try_orchestrator(path, QUICK, [requirement], stop)
    [finding] = [each for each in report.findings if each.requirement == requirement]
    assert finding.verdict is Judgement.FAIL, "\n".join(report.lines())


def test_what_it_does_not_claim_is_not_asked_of_it(tmp_path: Path) -> None:
    pause = ["O-9.10-1"]
    with reference(tmp_path, *pause) as (path, stop):
        report = try_orchestrator(path, QUICK, pause, stop, without=pause)
    [finding] = report.findings
    assert finding.verdict is Judgement.NOT_CLAIMED and report.is_conformant
