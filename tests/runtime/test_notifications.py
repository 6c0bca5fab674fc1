"""The command of ``--notify``: real commands that work, hang, fail and flood."""

from __future__ import annotations

import json
import selectors
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.core.views.snapshot import Board
from beads_workers.runtime import notifications, sessions
from beads_workers.ui.notices import Notice
from tests.support.fleet import until

PATIENCE_SECONDS = 20.0
SOON = notifications.NotificationLimits(command=0.1, grace=0.1, end=1.0)


class Run:
    """A notifier in a loop of its own."""

    def __init__(
        self, folder: Path, command: str, limits: notifications.NotificationLimits
    ) -> None:
        self.folder = folder
        self.began = time.monotonic()
        self.selector = selectors.DefaultSelector()
        self.warnings: list[str] = []
        self.board = Board()
        self.notifier = notifications.Notifier(
            command, folder, self.board, self.elapsed, self.warnings.append, limits
        )
        self.notifier.attach(self.selector)
        self.tell(rec.RunStarted("run-1", 1, "actor", "memory", "/project"))

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def tell(self, *records: rec.Record) -> None:
        """Journal these."""
        for record in records:
            entry = Entry(record, 1_700_000_000.0, self.elapsed())
            self.board.apply(entry)
            self.notifier.add(entry)

    def turn_until(self, holds: Callable[[], object]) -> None:
        """Turn the loop, as the orchestrator does."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < ends, self.log()
            self.notifier.pump()
            left = self.notifier.deadline() - self.elapsed()
            for key, mask in self.selector.select(min(max(left, 0.0), 0.05)):
                key.data(mask)

    def log(self) -> str:
        file = self.folder / "notify.log"
        return file.read_text() if file.exists() else ""

    def lines(self, name: str = "told") -> list[str]:
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []


MakeRun = Callable[..., Run]
PAUSED = rec.RunChanged("paused", "why")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[MakeRun]:
    runs: list[Run] = []

    def make(command: str, limits: notifications.NotificationLimits = notifications.LIMITS) -> Run:
        runs.append(Run(tmp_path, command.replace("TMP", str(tmp_path)), limits))
        return runs[-1]

    yield make
    for each in runs:
        assert not each.selector.get_map(), "something is still watched"


def living(pid: int) -> bool:
    """Whether it runs still; a zombie does not."""
    process = sessions.read_process(pid)
    return process is not None and not process.zombie


def test_the_command_has_the_notice_in_its_environment_and_on_stdin(run: MakeRun) -> None:
    notified = run('cat >TMP/json; echo "$BW_EVENT: $BW_TEXT $BW_RUN_ID" >TMP/told; echo hello')
    notified.tell(PAUSED)
    notified.turn_until(notified.lines)
    notified.notifier.finish()
    (line,) = notified.lines()
    assert line.startswith("paused: the fleet is paused (why)") and line.endswith(" run-1")
    assert json.loads(notified.lines("json")[0])["event"] == "paused"
    assert "hello\n" in notified.log()
    assert notified.warnings == []


def test_one_runs_at_a_time_in_their_order(run: MakeRun) -> None:
    notified = run('echo "begin $BW_EVENT" >>TMP/told; sleep 0.05; echo end >>TMP/told')
    notified.tell(PAUSED, *(rec.SourceTrouble("x", 1.0, "", n) for n in (1, 2, 3)))
    notified.turn_until(lambda: len(notified.lines()) == 4)
    notified.notifier.finish()
    assert notified.lines() == ["begin paused", "end", "begin tracker_failing", "end"]


def test_one_that_hangs_is_ended_with_its_children_and_the_next_one_runs(run: MakeRun) -> None:
    notified = run(
        'echo "$$" >>TMP/told; [ "$BW_EVENT" = paused ] || exit 0;'
        ' trap "" TERM; sleep 300 & echo "$!" >>TMP/told; wait; sleep 300',
        SOON,
    )
    notified.tell(PAUSED, *(rec.SourceTrouble("x", 1.0, "", n) for n in (1, 2, 3)))
    notified.turn_until(lambda: len(notified.lines()) == 3)
    notified.notifier.finish()
    until(lambda: not any(map(living, map(int, notified.lines()))))
    (warning,) = notified.warnings
    assert "took too long" in warning and str(notified.folder) in warning


def test_one_that_fails_is_warned_of_once(run: MakeRun) -> None:
    notified = run("echo x >>TMP/told; echo wrong >&2; exit 3")
    notified.tell(PAUSED, PAUSED)
    notified.turn_until(lambda: len(notified.lines()) == 2)
    notified.notifier.finish()
    assert len(notified.warnings) == 1 and "status 3" in notified.warnings[0]
    assert notified.log().count("wrong\nended with status 3\n") == 2


def test_one_that_cannot_be_started_is_a_failure_like_another(
    run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    notified = run("desktop")
    notified.tell(PAUSED)
    notified.notifier.pump()
    notified.notifier.finish()
    assert "notify-send" in notified.warnings[0]


def test_one_that_floods_is_cut_and_holds_up_nobody(run: MakeRun) -> None:
    notified = run("yes; echo ended >TMP/told")
    notified.tell(PAUSED)
    notified.turn_until(notified.lines)
    notified.notifier.finish()
    assert len(notified.log()) < notifications.OUTPUT_BYTES_MAX + 1000
    assert "was cut" in notified.log()


def test_what_it_leaves_in_the_background_does_not_outlive_it(run: MakeRun) -> None:
    notified = run("sleep 300 & echo $! >TMP/told")
    notified.tell(PAUSED)
    notified.turn_until(notified.lines)
    notified.notifier.finish()
    until(lambda: not living(int(notified.lines()[0])))


def test_too_many_waiting_notices_are_dropped_but_never_the_last_word(run: MakeRun) -> None:
    notified = run('echo "$BW_EVENT" >>TMP/told')
    notified.tell(*[PAUSED] * (notifications.QUEUE_MAX + 5), rec.RunEnded(0))
    notified.notifier.finish()
    assert notified.lines() == ["paused"] * notifications.QUEUE_MAX + ["finished"]
    assert notified.log().count("dropped") == 5


def test_at_the_end_hanging_ones_leave_half_of_the_time_to_the_last_word(run: MakeRun) -> None:
    notified = run(
        '[ "$BW_EVENT" = finished ] || sleep 300; echo "$BW_EVENT" >>TMP/told',
        notifications.NotificationLimits(9.0, 0.1, 1.0),
    )
    notified.tell(PAUSED, PAUSED, PAUSED, rec.RunEnded(0))
    began = time.monotonic()
    notified.notifier.finish()
    assert notified.lines() == ["finished"]
    assert time.monotonic() - began < 5.0


def test_a_last_word_that_hangs_is_ended_in_time(run: MakeRun) -> None:
    notified = run('trap "" TERM; echo $$ >TMP/told; while :; do sleep 1; done', SOON)
    notified.tell(rec.RunEnded(0))
    notified.notifier.finish()
    until(lambda: not living(int(notified.lines()[0])))


def test_a_folder_that_is_gone_does_no_harm(run: MakeRun) -> None:
    notified = run("true")
    notified.tell(PAUSED)
    notified.folder.rmdir()
    notified.notifier.pump()
    notified.notifier.finish()
    assert notified.warnings == []


def test_the_desktop_is_told_without_a_shell_and_without_markup() -> None:
    notice = Notice("quarantined", "-x <b>$(touch pwned)</b> & more", 0.0, "run-1", "/project")
    argv = notifications.argv_of("desktop", notice)
    assert argv[0] == "notify-send"
    assert argv[-3:] == [
        "--",
        "beads-workers: quarantined",
        "-x &lt;b&gt;$(touch pwned)&lt;/b&gt; &amp; more",
    ]
