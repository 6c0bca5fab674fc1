"""``bd`` in trouble: whatever it does, nothing is claimed, closed or reopened by mistake."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from beads_workers.core.base.model import Filters
from beads_workers.core.base.source import Action, Calls, Result, Settlement, SourceError
from beads_workers.trackers.bd.calls import BdCalls, UnknownOutcome, start_time
from beads_workers.trackers.bd.source import BdSource
from tests.support.bd import NEW, BdProject
from tests.support.fleet import until

pytestmark = pytest.mark.daily(3)

US = "beads-workers/host/run-1"


class Wrapped:
    """A ``bd`` that passes everything on, except what it is told to do ``instead``."""

    def __init__(self, project: BdProject, folder: Path) -> None:
        self.program = folder / "wrapped" / "bd"
        self.program.parent.mkdir()
        self._real = project.directory / "bd"
        self.pass_on()

    def pass_on(self) -> None:
        """Pass everything on."""
        self._write("")

    def break_(self, command: str, instead: str) -> None:
        """From now on, a call whose arguments match the pattern ``command`` runs ``instead``."""
        self._write(f'case " $* " in *{command}*) {instead};; esac\n')

    def _write(self, lines: str) -> None:
        new = self.program.with_suffix(".new")
        new.write_text(f'#!/bin/sh\nBD="{self._real}"\n{lines}exec "$BD" "$@"\n')
        new.chmod(0o755)
        new.rename(self.program)


@pytest.fixture
def wrapped(project: BdProject, tmp_path: Path) -> Wrapped:
    return Wrapped(project, tmp_path)


@pytest.fixture
def source(project: BdProject, wrapped: Wrapped) -> BdSource:
    source = project.source(US, program=str(wrapped.program))
    source.describe()
    return source


FAULTS = {
    "it exits 1": "echo 'Error: database is locked' >&2; exit 1",
    "it prints garbage": "echo 'panic: <nil>'; exit 0",
    "it prints an error object": 'echo \'{"error": "no such table"}\'; exit 0',
    "it prints nothing": "exit 0",
    "it prints half an array": "echo '[{\"id\": '; exit 0",
    "it prints an array of junk": "echo '[1, null]'; exit 0",
    "it dies": "kill -9 $$",
}
each_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())


@pytest.mark.share(2)
@each_fault
def test_a_listing_that_fails_is_an_error_and_never_no_work(
    project: BdProject, wrapped: Wrapped, source: BdSource, fault: str
) -> None:
    wrapped.break_("' ready '", fault)
    with pytest.raises(SourceError, match=r"^bd ready") as trouble:
        source.take(8, ())
    assert "\n" not in str(trouble.value) and trouble.value.hint
    wrapped.pass_on()
    assert source.take(8, ()).jobs == ()


@pytest.mark.share(4)
@pytest.mark.parametrize("fault", [*FAULTS.values()][:4], ids=[*FAULTS][:4])
def test_a_write_that_fails_changes_nothing_and_can_be_done_later(
    project: BdProject, wrapped: Wrapped, source: BdSource, fault: str
) -> None:
    done, back, _ = project.create_many([{"priority": 0}, {"priority": 1}, {"priority": 4}])
    assert len(source.take(2, ()).jobs) == 2
    before = project.read_all()
    wrapped.break_("' '[bcu]*' --json '", fault)
    settlements = (Settlement(Action.CLOSE, done), Settlement(Action.RELEASE, back))
    answers = source.settle(settlements)
    assert [answer.result for answer in answers] == [Result.FAILED] * 2
    assert all(answer.error and "\n" not in answer.error for answer in answers)
    assert project.read_all() == before
    wrapped.pass_on()
    assert [answer.result for answer in source.settle(settlements)] == [Result.APPLIED] * 2


LOCKED_EACH_THIRD = """echo >>"$0.count"
[ $(($(wc -l <"$0.count") % 3)) != 0 ] || { echo 'Error: database is locked' >&2; exit 1; }"""


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("calls", "does"),
    [
        ("--json", "echo 'A new version is available.'; echo '[notice] npm i'"),
        ("--json", "printf '\\357\\273\\277'"),
        ("", LOCKED_EACH_THIRD),
    ],
    ids=["a line first", "a byte order mark", "each third call fails"],
)
def test_a_bd_that_is_wrapped_badly_is_read_all_the_same(
    project: BdProject, wrapped: Wrapped, calls: str, does: str
) -> None:
    ids = project.create_many([{} for _ in range(3)])
    wrapped.break_(calls, does)
    source = project.source(US, program=str(wrapped.program))
    left, tries = {*ids}, 0
    while left and (tries := tries + 1) < 10:
        with suppress(SourceError):
            source.describe()
            claimed = [job.issue_id for job in source.take(3, ()).jobs]
            while claimed:
                answers = source.settle([Settlement(Action.CLOSE, each) for each in claimed])
                claimed = [a.settlement.issue_id for a in answers if a.result is Result.FAILED]
        left = {i for i in ids if project.read(i)[0] != "closed"}
    assert not left


def test_when_a_look_fails_as_well_nothing_is_known(
    project: BdProject, wrapped: Wrapped, source: BdSource
) -> None:
    (held,) = project.create_many([{}])
    assert len(source.take(1, ()).jobs) == 1
    wrapped.break_("", "exit 1")
    with pytest.raises(SourceError):
        source.settle([Settlement(Action.RELEASE, held, read_first=True)])
    with pytest.raises(SourceError):
        source.settle([Settlement(Action.CLOSE, held)])
    assert project.read(held) == ("in_progress", US)


def test_a_bd_that_hangs_is_ended_and_what_it_won_is_requeued(
    project: BdProject, wrapped: Wrapped
) -> None:
    (key,) = project.create_many([{}])
    # A listing comes before the claim, and takes a second where much else runs.
    source = project.source(US, program=str(wrapped.program), call_seconds=5.0)
    source.describe()
    wrapped.break_("--claim", '"$BD" "$@"; exec sleep 60')
    with pytest.raises(SourceError, match="did not answer in 7 s") as trouble:
        source.take(1, ())
    assert trouble.value.passing and "--bd-timeout" in trouble.value.hint
    pid = int(str(trouble.value).split("pid ")[1].split(")")[0])
    assert start_time(pid) == 0, "it lives on"
    assert project.read(key) == ("in_progress", US)
    wrapped.pass_on()
    assert source.take(0, ()).listed[0].issue_id == key
    assert project.read(key) == ("open", "")
    assert [job.issue_id for job in source.take(1, ()).jobs] == [key]
    if project.version != NEW:
        assert "--no-daemon" in source.self_claiming_argv, "its daemon may be what hung"


def test_a_bd_that_outlives_its_term_is_killed_with_its_hook(tmp_path: Path) -> None:
    program, hook = tmp_path / "bd", tmp_path / "hook"
    program.write_text(f"#!/bin/sh\ntrap '' TERM\nsleep 60 & echo $! >{hook}\nsleep 60\n")
    program.chmod(0o755)
    calls = BdCalls(str(program), tmp_path, US, Calls(), call_seconds=0.3)
    with pytest.raises(UnknownOutcome, match="did not answer"):
        calls.run(["list"])
    until(lambda: start_time(int(hook.read_text())) == 0)


def test_what_was_claimed_is_told_although_a_look_beside_it_fails(
    project: BdProject, wrapped: Wrapped, source: BdSource
) -> None:
    project.create_many([{}, {}, {}])
    assert len(source.take(1, ()).jobs) == 1
    wrapped.break_("--status=in_progress", "echo 'Error: database is locked' >&2; exit 1")
    taken = source.take(1, ())
    assert len(taken.jobs) == 1 and taken.held is None and taken.unsure
    wrapped.pass_on()
    last = source.take(1, ())
    assert len(last.jobs) == 1
    assert not source.take(1, ()).unsure


LIES = {
    "says that it did nothing": "[]",
    "names another issue": '[{"id": "bw-9", "status": "in_progress", "title": "another"}]',
}


@pytest.mark.share(2)
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_what_a_lying_claim_won_is_found_and_requeued(
    project: BdProject, wrapped: Wrapped, source: BdSource, lie: str
) -> None:
    (key,) = project.create_many([{}])
    wrapped.break_("--claim", f'"$BD" "$@" >/dev/null; echo \'{lie}\'; exit 0')
    taken = source.take(1, ())
    assert taken.jobs == () and taken.unsure
    assert project.read(key) == ("in_progress", US)
    wrapped.pass_on()
    # No run ends before such a take: it finds what is in our name, and the next one requeues it.
    assert source.take(0, ()).unsure
    again = source.take(1, ())
    assert [job.issue_id for job in again.jobs] == [key]


def test_what_is_done_and_could_not_be_closed_is_never_requeued(
    project: BdProject, wrapped: Wrapped, source: BdSource
) -> None:
    (key,) = project.create_many([{}])
    assert len(source.take(1, ()).jobs) == 1
    assert not source.take(0, ()).unsure, "the look of a start is over"
    assert source.settle([Settlement(Action.RELEASE, key)])[0].result is Result.APPLIED
    assert len(source.take(1, ()).jobs) == 1
    wrapped.break_("' '[bcu]*' --json '", FAULTS["it exits 1"])
    assert source.settle([Settlement(Action.CLOSE, key)])[0].result is Result.FAILED
    wrapped.pass_on()
    for _ in range(2):
        assert not source.take(1, (key,)).unsure
    assert project.read(key) == ("in_progress", US)


@pytest.mark.share(2)
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_look_that_lies_is_no_answer(
    project: BdProject, wrapped: Wrapped, source: BdSource, lie: str
) -> None:
    (key,) = project.create_many([{}])
    assert len(source.take(1, ()).jobs) == 1
    mark = wrapped.program.with_name("lied")
    wrapped.break_("' --all '", f"mkdir \"{mark}\" 2>/dev/null && {{ echo '{lie}'; exit 0; }}")
    close = Settlement(Action.CLOSE, key, read_first=True)
    try:
        first = source.settle([close])[0].result
    except SourceError:
        first = source.settle([close])[0].result
    assert first is Result.APPLIED and mark.exists()
    assert project.read(key)[0] == "closed"


def test_nothing_is_ready_only_if_bd_says_so_twice(
    project: BdProject, wrapped: Wrapped, source: BdSource
) -> None:
    (key,) = project.create_many([{}])
    mark = wrapped.program.with_name("lied")
    wrapped.break_("' ready '", f'mkdir "{mark}" 2>/dev/null && {{ echo "[]"; exit 0; }}')
    assert [job.issue_id for job in source.take(1, ()).jobs] == [key] and mark.exists()


def bd_source(folder: Path, program: str) -> BdSource:
    return BdSource(folder, actor=US, filters=Filters(), listed_max=9, program=program)


def test_a_missing_bd_is_named_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no-such-bd not found") as trouble:
        bd_source(tmp_path, "no-such-bd").describe()
    assert "install" in trouble.value.hint


def test_a_folder_without_a_tracker_is_an_error(project: BdProject, tmp_path: Path) -> None:
    source = project.source(US)
    source.describe()
    (project.folder / ".beads").rename(tmp_path / "moved")
    with pytest.raises(SourceError, match="beads is gone") as trouble:
        source.take(0, ())
    assert "bd init" in trouble.value.hint


@pytest.mark.parametrize(
    ("version", "help_text", "said"),
    [
        ("bd version 0.9.1", "Usage:  --status string", "too old"),
        ("bd version 0.9.1", "", "help says nothing of use"),
        ("go away", "", "no version"),
    ],
)
def test_a_bd_that_cannot_claim_is_refused(
    tmp_path: Path, version: str, help_text: str, said: str
) -> None:
    program = tmp_path / "bd"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in --version) echo "{version}";; *) echo "{help_text}";; esac\n'
    )
    program.chmod(0o755)
    with pytest.raises(SourceError, match=said):
        bd_source(tmp_path, str(program)).describe()


class Recorder:
    """A ``CallLog`` that keeps what it was told."""

    def __init__(self) -> None:
        self.running: dict[int, tuple[int, Sequence[str]]] = {}
        self.commands: list[str] = []
        self.own_start = start_time(os.getpid())

    def started(self, pid: int, start_time: int, argv: Sequence[str]) -> None:
        assert start_time >= self.own_start > 0
        self.running[pid] = (start_time, argv)
        self.commands.append(argv[1])

    def ended(self, pid: int) -> None:
        del self.running[pid]


def test_every_process_is_logged_counted_and_alone_in_its_group(
    project: BdProject, wrapped: Wrapped, tmp_path: Path
) -> None:
    seen, log = tmp_path / "seen", Recorder()
    project.create_many([{}])
    source = project.source(US, program=str(wrapped.program), call_log=log)
    source.describe()
    script = f'(ps -o pgid= -p $$; echo $$; readlink /proc/$$/fd/0; ls /proc/$$/fd) >"{seen}"'
    wrapped.break_("' ready '", f'{script}; exec "$BD" "$@"')
    with (tmp_path / "ours").open("w") as ours:
        os.set_inheritable(ours.fileno(), True)
        source.take(0, ())
        assert str(ours.fileno()) not in seen.read_text().split()[3:]
    group, pid, stdin = seen.read_text().split()[:3]
    assert group == pid and stdin == os.devnull
    assert log.running == {}
    assert len(log.commands) == source.calls.count > 0
    assert source.calls.seconds > 0


@pytest.mark.parametrize(
    ("complaint", "status", "option"),
    [
        ("Warning: Daemon failed to start", 0, "--no-daemon"),
        ("Error: Database out of sync with JSONL.", 1, "--allow-stale"),
    ],
)
def test_what_the_old_bd_complains_of_is_avoided_from_then_on(
    project_old: BdProject, tmp_path: Path, complaint: str, status: int, option: str
) -> None:
    keys = project_old.create_many([{}, {}])
    wrapped, log = Wrapped(project_old, tmp_path), Recorder()
    source = project_old.source(US, program=str(wrapped.program), call_log=log)
    source.describe()
    log.commands.clear()
    instead = (
        f'[ "$1" = {option} ] || {{ echo "{complaint}" >&2; [ {status} = 0 ] || exit {status}; }}'
    )
    wrapped.break_("' ready '", instead)
    assert [row.issue_id for row in source.take(0, ()).listed] == keys
    assert [job.issue_id for job in source.take(2, ()).jobs] == keys
    again = [option] if status else []
    # The second take claims two, and asks what other runs hold.
    assert log.commands == ["ready", *again, *[option] * 4]
    assert option in source.self_claiming_argv


def test_more_output_than_a_pipe_holds_comes_through(project: BdProject) -> None:
    project.create_many([{"description": "x" * 9_000}] * 12)
    jobs = project.source(US).take(12, ()).jobs
    assert [len(job.description) for job in jobs] == [9_000] * 12


def test_a_worker_that_calls_bd_gets_options_that_fit(project: BdProject) -> None:
    program = str(project.directory / "bd")
    extra = () if project.version == NEW else ("--no-daemon", "--allow-stale")
    assert project.source(US, program="bd").self_claiming_argv == (program, *extra)
