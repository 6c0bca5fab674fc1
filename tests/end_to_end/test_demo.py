"""``demo`` as a user has it: in a pipe, in a terminal, in two at once, and left half way.

The whole run is watched once, in a pipe, while the other tests go on beside it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from beads_workers.demo.backlog import BACKLOG, ItemFate, of_fate
from beads_workers.demo.captions import HOLD_SECONDS_MIN
from beads_workers.runtime import sessions
from tests.support.embedded import FOREIGN, EmbeddedProject
from tests.support.fleet import PROGRAM, until
from tests.support.screens import TmuxScreen

pytestmark = pytest.mark.daily(2)

SECONDS_MAX = 60.0
TROUBLED = (ItemFate.FLAKY, ItemFate.BUSY, ItemFate.KILLED, ItemFate.STUCK, ItemFate.HOPELESS)


class Demo:
    """A ``demo`` with its lines, each with the time at which it came."""

    def __init__(self, folder: Path, cache: Path, *arguments: str) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        self.began = time.monotonic()
        self.lines: list[tuple[float, str]] = []
        self.process = subprocess.Popen(
            [*PROGRAM, "demo", *arguments],
            cwd=folder,
            env=kept | {"BW_CACHE": str(cache)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic() - self.began, line.rstrip("\n")))

    @property
    def text(self) -> str:
        """Everything so far."""
        return "\n".join(line for _, line in self.lines)

    def wait(self) -> int:
        """Its exit code."""
        try:
            code = self.process.wait(SECONDS_MAX)
        finally:
            if self.process.poll() is None:
                self.process.kill()
        self._reader.join()
        return code


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with issues of its own, in which demos are called."""
    project = EmbeddedProject(tmp_path_factory.mktemp("demo"))
    project.create_many([{"title": "not for the demo"}])
    return project.folder


def folders(cache: Path) -> set[Path]:
    """The folders of demos."""
    return {path for path in cache.glob("demo-*") if path.is_dir()}


def runs(folder: Path) -> list[Path]:
    """The folders of its runs."""
    return list((folder / ".beads-workers" / "runs").glob("*"))


def token_holders(run_id: str) -> list[int]:
    """Living processes of a run."""
    pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
    return [p for p in pids if sessions.has_token(p, run_id, None) and sessions.start_time(p)]


def everything_in(folder: Path) -> dict[str, bytes]:
    """All files with their contents."""
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def before(place: Path) -> dict[str, bytes]:
    """That project as it was."""
    return everything_in(place)


@pytest.fixture(scope="module")
def piped(place: Path, before: dict[str, bytes]) -> Iterator[Demo]:
    """The one that is watched from its beginning to its end; tests go on while it runs."""
    demo = Demo(place, place.parent / "cache")
    yield demo
    if demo.process.poll() is None:
        demo.process.kill()


@pytest.fixture(scope="module")
def on_screen(place: Path, piped: Demo) -> Iterator[TmuxScreen]:
    """Another one at the same time, on a terminal of 80 columns."""
    screen = TmuxScreen()
    cache = {"BW_CACHE": str(place.parent / "cache-of-screen")}
    command = f"{' '.join(PROGRAM)} demo; echo code $?"
    yield screen.start(command, 80, 40, env=cache, folder=place)
    screen.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_left_half_way_it_leaves_nothing_and_another_one_goes_on(
    number: signal.Signals, place: Path, piped: Demo, on_screen: TmuxScreen
) -> None:
    cache = place.parent / "cache"
    until(lambda: "started  shop-8" in piped.text)
    others = folders(cache)
    demo = Demo(place, cache, "--json")
    until(lambda: '"e": "started"' in demo.text and '"caption"' in demo.text)
    (folder,) = folders(cache) - others
    (run,) = runs(folder)
    demo.process.send_signal(number)
    assert demo.wait() == 128 + number
    assert token_holders(run.name) == []
    assert folders(cache) == others
    assert all(json.loads(line) for _, line in demo.lines)


def test_a_reader_that_has_seen_enough_ends_it(place: Path, piped: Demo) -> None:
    cache = place.parent / "cache-of-head"
    call = f"{' '.join(PROGRAM)} demo | head -n 2"
    environment = os.environ | {"BW_CACHE": str(cache)}
    done = subprocess.run(
        ["bash", "-c", call], cwd=place, env=environment, capture_output=True, text=True, timeout=30
    )
    assert "Traceback" not in done.stderr and len(done.stdout.splitlines()) == 2
    until(lambda: not folders(cache), what="its folder stayed")


def test_on_a_terminal_the_dashboard_tells_the_story(on_screen: TmuxScreen) -> None:
    for words in ("killed (kill -9)", "has done shop-20", "ignored TERM", "waited for 8 others"):
        rows = on_screen.wait_for(words).splitlines()
        assert words in rows[-2], "the caption stands above the keys"
        assert on_screen.has("alternate_on")
    shown = on_screen.wait_for("code 0", SECONDS_MAX)
    assert not on_screen.has("alternate_on")
    assert "BROKEN" not in shown and "That was a real run: 43 of 44 issues closed" in shown
    # The folder's own path may be of any length.
    rows = [row for row in shown.splitlines() if not row.startswith("  cd ")]
    assert [row for row in rows if len(row) >= 80] == [], "nothing is wrapped"


def test_in_a_pipe_it_keeps_every_promise_in_under_a_minute(piped: Demo) -> None:
    assert piped.wait() == 0, piped.text
    assert piped.lines[-1][0] < SECONDS_MAX
    assert piped.text.count("\n  ok ") == 6 and "BROKEN" not in piped.text


def test_every_caption_stands_long_enough_to_be_read(piped: Demo) -> None:
    piped.wait()
    captions = [(at, line) for at, line in piped.lines if line.startswith("-- ")]
    assert len(captions) == len({line for _, line in captions}) == 10, piped.text
    gaps = [later - at for (at, _), (later, _) in pairwise(captions)]
    assert min(gaps) >= HOLD_SECONDS_MIN, gaps
    for fate in TROUBLED:
        assert any(of_fate(fate)[0].issue_id in line for _, line in captions)


def test_its_figures_are_those_of_its_journal(piped: Demo, place: Path) -> None:
    piped.wait()
    (folder,) = folders(place.parent / "cache")
    (run,) = runs(folder)
    journal = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    finished = [record for record in journal if record["e"] == "finished"]
    counts = Counter(record["outcome"] for record in finished)
    assert counts == Counter(success=43, error=6, retry=1, timeout=1, lost=1)
    assert f"43 of {len(BACKLOG)} issues closed" in piped.text
    assert "8 failed attempts" in piped.text
    (lost,) = (record for record in finished if record["outcome"] == "lost")
    (victim,) = (r for r in journal if r["e"] == "worker_exited" and r["status"] == 137)
    assert f"{lost['worker_id']} (pid {victim['pid']}, now" in piped.text
    assert token_holders(run.name) == []


def test_what_it_says_to_type_next_works(piped: Demo, place: Path) -> None:
    piped.wait()
    (folder,) = folders(place.parent / "cache")
    assert f"cd {folder}" in piped.text
    for words, answer in (
        (("why", "shop-31"), "401 Unauthorized"),
        (("report",), "43 closed, 1 quarantined"),
        (("replay",), "done     shop-44"),
    ):
        assert f"  beads-workers {' '.join(words)} " in piped.text
        done = subprocess.run(
            [*PROGRAM, *words], cwd=folder, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0 and answer in done.stdout, done


def test_the_project_in_which_it_was_called_is_as_it_was(
    piped: Demo, place: Path, before: dict[str, bytes]
) -> None:
    piped.wait()
    assert everything_in(place) == before
