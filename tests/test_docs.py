"""What the documents say is true: commands run, links lead somewhere, examples are messages.

Conventions for code fences: ``bash run`` is run by this test in an empty folder with ``bin``
beside it; ``python worker`` is a minimal worker, run against a scripted peer.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beads_workers.conformance.requirements import ORCHESTRATOR, WORKER
from beads_workers.core.base import wire
from beads_workers.core.base.limits import LINE_BYTES_MAX
from beads_workers.core.base.model import IssueId

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROTOCOL = ROOT / "docs" / "PROTOCOL.md"
RUN_SECONDS = 100

FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def fences(path: Path, tag: str) -> list[str]:
    """The contents of all code fences of a document that have this tag."""
    return [body for name, body in FENCE.findall(path.read_text("utf-8")) if name.strip() == tag]


def name(path: Path) -> str:
    """The document as the reader of a failure wants it."""
    return str(path.relative_to(ROOT))


# --- links ------------------------------------------------------------------------------------


def slugs(path: Path) -> set[str]:
    """The anchors that a document's headings have where it is shown."""
    text = FENCE.sub("", path.read_text("utf-8"))
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def broken_links(path: Path) -> list[str]:
    """Relative links that lead nowhere."""
    text = FENCE.sub("", path.read_text("utf-8"))
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        missing = not target.exists()
        if missing or (anchor and target.suffix == ".md" and anchor not in slugs(target)):
            broken.append(link)
    return broken


MARKS_OF_A_MERGE = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_no_half_done_merge_was_committed(path: Path) -> None:
    assert MARKS_OF_A_MERGE.findall(path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_relative_links_lead_somewhere(path: Path) -> None:
    assert broken_links(path) == []


def test_the_link_checker_catches_a_missing_file_and_a_missing_heading(tmp_path: Path) -> None:
    document = tmp_path / "x.md"
    document.write_text("# One two\n[a](#one-two) [b](#three) [c](y.md) [d](https://e.f/g)\n")
    assert broken_links(document) == ["#three", "y.md"]


# --- commands ---------------------------------------------------------------------------------


def named_commands(path: Path) -> set[str]:
    """Every X of ``beads-workers X`` in code of a document."""
    text = path.read_text("utf-8")
    code = [body for tag, body in FENCE.findall(text) if tag.split()[:1] in ([], ["bash"], ["sh"])]
    code += re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    # The word must be at the beginning of a command: not in a path, an option or a sentence.
    call = re.compile(r"(?:^|[;&|(]\s*|\$ |bin/)beads-workers +([a-z][a-z-]*)\b(?!/)", re.MULTILINE)
    return {word for piece in code for word in call.findall(piece)}


@pytest.mark.skipif(not (ROOT / "beads_workers/cli/app.py").exists(), reason="not written yet")
@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_every_command_that_a_document_names_exists(path: Path) -> None:
    from beads_workers.registry import COMMANDS

    known = {command for commands in COMMANDS.values() for command in commands} | {"version"}
    assert named_commands(path) - known == set()


def test_the_command_checker_finds_commands_in_code_only(tmp_path: Path) -> None:
    document = tmp_path / "x.md"
    document.write_text(
        "beads-workers sings. `beads-workers start -n 8` `/tmp/beads-workers x`\n"
        "```bash\ncd x && beads-workers fly\nbin/beads-workers swim\n```\n"
    )
    assert named_commands(document) == {"start", "fly", "swim"}


def runnable() -> list[object]:
    """One parameter per ``bash run`` fence of all documents."""
    return [
        pytest.param(script, id=f"{name(path)}-{number}")
        for path in DOCUMENTS
        for number, script in enumerate(fences(path, "bash run"), 1)
    ]


def run_script(script: str, folder: Path) -> str:
    """Run it as a reader would, in a session of its own; what it leaves running is ended."""
    (folder / "bin").symlink_to(ROOT / "bin")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    child = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=RUN_SECONDS)
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
    assert child.returncode == 0, output
    return output


@pytest.mark.parametrize("script", runnable())
def test_a_command_marked_to_run_runs(script: str, tmp_path: Path) -> None:
    run_script(script, tmp_path)


def test_a_script_that_fails_in_the_middle_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="before"):
        run_script("echo before\nfalse | true\necho after", tmp_path)


@pytest.mark.parametrize(
    ("module", "document"),
    [
        ("beads_workers.core.base.states", "docs/internals/STATES.md"),
        ("beads_workers.checks", "docs/CONDITIONS.md"),
    ],
)
def test_a_generated_document_is_what_the_tables_print(module: str, document: str) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", module], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout
    assert (ROOT / document).read_text("utf-8") == printed, f"python -m {module} > {document}"


# --- docs/PROTOCOL.md -------------------------------------------------------------------------


def examples() -> list[str]:
    """Every message shown in the document, as a line."""
    shown = [body.strip() for body in fences(PROTOCOL, "json")]
    for body in fences(PROTOCOL, ""):
        shown += re.findall(r"^[<>] (\{.*\})$", body, re.MULTILINE)
    return [line for text in shown for line in text.splitlines() if '"type"' in line]


@pytest.mark.parametrize("text", examples())
def test_every_message_shown_is_one_and_has_its_fields_in_order(text: str) -> None:
    message = wire.parse(text.encode())
    assert not getattr(message, "warnings", ())
    shown = list(json.loads(text))
    assert shown in [
        list(json.loads(wire.encode(message, "W1", 1.0, v1=v1))) for v1 in (True, False)
    ]


def test_every_type_feature_and_limit_is_in_the_protocol() -> None:
    text = PROTOCOL.read_text("utf-8")
    shown = {json.loads(line)["type"] for line in examples()}
    assert shown == {*wire.NAMES.values()}
    for word in (*map("`{}`".format, wire.FEATURES), f"{LINE_BYTES_MAX:,} bytes"):
        assert word in text


LINES_MAX = 400
"""Of docs/PROTOCOL.md: more than that nobody reads before the first line of a worker."""

ID = r"[WO]-(\d+(?:\.\d+)?)-\d+"
DEFINED = re.compile(rf"\*\*({ID})\*\*|`({ID})`")


def test_the_protocol_is_short_enough_to_implement_from() -> None:
    assert len(PROTOCOL.read_text("utf-8").splitlines()) <= LINES_MAX


def requirements(text: str) -> list[str]:
    """The ids that a specification gives, in its order."""
    return [found[0] or found[2] for found in DEFINED.findall(text)]


def without_id(text: str) -> list[str]:
    """Lines of a specification that ask for something and have no id."""
    asking = [line for line in text.splitlines() if "MUST" in line and "cell is a MUST" not in line]
    return [line for line in asking if not DEFINED.search(line)]


def test_every_must_of_the_protocol_has_one_id_in_its_section() -> None:
    text = FENCE.sub("", PROTOCOL.read_text("utf-8"))
    _, _terms, *sections = re.split(r"^(?=##+ [\d.]+ )", text, flags=re.MULTILINE)
    given = []
    for section in sections:
        number = section.split()[1]
        for name in (given_here := requirements(section)):
            assert re.fullmatch(ID, name)[1] == number, name  # type: ignore[index]
        given += given_here
        assert without_id(section) == []
    assert len(given) == len({*given}) > 100
    assert {*re.findall(r"[WO]-\d[\d.]*-\d+", text)} == {*given}


def test_the_kit_tries_the_requirements_in_bold() -> None:
    bold = re.findall(rf"\*\*({ID})\*\*", PROTOCOL.read_text("utf-8"))
    assert {whole for whole, _ in bold} == {*WORKER, *ORCHESTRATOR}


def test_the_checker_of_ids_finds_a_must_without_one() -> None:
    text = "- **W-1-1** It MUST.\n- `O-1-2` It MUST NOT.\n- It MUST, too.\n| x (**W-1-3**) |\n"
    assert requirements(text) == ["W-1-1", "O-1-2", "W-1-3"]
    assert without_id(text) == ["- It MUST, too."]


class Peer:
    """A scripted orchestrator for one worker: sends what it is told, reads what comes."""

    def __init__(self, path: Path) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._server.settimeout(20)

    def accept(self) -> None:
        """Wait for the worker."""
        self._link, _ = self._server.accept()
        self._link.settimeout(20)
        self._lines = self._link.makefile("rb")

    def say(self, message: wire.Message) -> None:
        """Send a version 1 message."""
        self._link.sendall(wire.encode(message, "W1", 1733423456.789, v1=True))

    def hear(self) -> wire.Message:
        """The worker's next message."""
        return wire.parse(self._lines.readline())

    def close(self) -> None:
        """Go away without a word."""
        self._lines.close()
        self._link.close()
        self._server.close()


@pytest.fixture(params=["PROTOCOL.md", "WRITE-A-WORKER.md"])
def minimal_worker(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Peer, subprocess.Popen[bytes]]]:
    """The worker of the document, connected; its command fails for the issue ``bad``."""
    [source] = fences(ROOT / "docs" / request.param, "python worker")
    path = tmp_path / "s"
    peer = Peer(path)
    command = ["sh", "-c", 'test "$1" != bad', "sh"]
    child = subprocess.Popen(
        [sys.executable, "-c", source, *command], env=os.environ | {"BW_SOCKET": str(path)}
    )
    peer.accept()
    yield peer, child
    peer.close()
    child.kill()
    child.wait()


def test_the_minimal_worker_works_fails_waits_and_leaves(
    minimal_worker: tuple[Peer, subprocess.Popen[bytes]],
) -> None:
    peer, child = minimal_worker
    assert peer.hear() == wire.Ready("W0")
    peer.say(wire.Task(IssueId("good"), 2, "a title"))
    done = peer.hear()
    assert isinstance(done, wire.Done) and done.issue_id == "good" and not done.warnings
    assert peer.hear() == wire.Ready("W0")
    peer.say(wire.Task(IssueId("bad"), 0, "another"))
    failed = peer.hear()
    assert isinstance(failed, wire.Failed) and failed.issue_id == "bad" and not failed.warnings
    assert failed.error == "exit status 1"
    assert peer.hear() == wire.Ready("W0")
    peer.say(wire.Wait(1))
    assert peer.hear() == wire.Ready("W0")
    peer.say(wire.Shutdown("idle_timeout"))
    assert child.wait(20) == 0


def test_the_minimal_worker_exits_with_an_error_when_it_loses_the_orchestrator(
    minimal_worker: tuple[Peer, subprocess.Popen[bytes]],
) -> None:
    peer, child = minimal_worker
    assert peer.hear() == wire.Ready("W0")
    peer.close()
    assert child.wait(20) == 1
