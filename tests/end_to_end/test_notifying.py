"""``start --notify``: told by a real fleet, to a command and to the desktop."""

from __future__ import annotations

import os
from pathlib import Path

from tests.end_to_end.conftest import StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call, until

TELL = (
    'printf "%s|%s|%s\\n" "$BW_EVENT" "$BW_ISSUE_TITLE" "$BW_ERROR" >>"$TOLD"; cat >>"$TOLD.json"'
)


def test_a_command_is_told_of_what_is_quarantined_of_a_pause_and_of_the_end(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    embedded.create_many([{"title": "one $(touch pwned)"}])
    file = tmp_path / "told"
    options = ("-n", "1", "--max-attempts", "1", "--notify", TELL, "--detach")
    command = ("sh", "-c", "echo kaputt; exit 1")
    fleet = start(embedded, *options, "--", *command, environment={"TOLD": str(file)})
    assert fleet.wait() == 0, fleet.said()
    until(lambda: file.exists() and len(file.read_text().splitlines()) == 1)
    assert fleet.call("pause").returncode == 0
    until(lambda: len(file.read_text().splitlines()) == 2)
    assert fleet.call("stop").returncode == 0
    # Nothing is left to wait for: the orchestrator has told its last word before it ended.
    assert file.read_text().splitlines() == [
        "quarantined|one $(touch pwned)|kaputt",
        "paused||",
        "finished||",
    ]
    assert not (embedded.folder / "pwned").exists()
    assert len((tmp_path / "told.json").read_text().splitlines()) == 3
    fleet.leaves_nothing()


def test_the_desktop_is_told_through_notify_send_or_the_user_how_to_get_it(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    embedded.create_many([{}])
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    program = bin_folder / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{tmp_path}/shown\n')
    program.chmod(0o755)
    path = f"{bin_folder}:{os.environ['PATH']}"
    options = ("--until-empty", "--notify", "desktop", "--", "true")
    fleet = start(embedded, *options, environment={"PATH": path})
    assert fleet.wait() == 0, fleet.said()
    shown = (tmp_path / "shown").read_text().splitlines()
    assert shown[-2] == "beads-workers: finished"
    assert shown[-1].endswith("closed 1, failed attempts 0, quarantined 0")
    embedded.environment["PATH"] = "/usr/bin-without-it"
    refused = call(embedded, "start", "--notify", "desktop", "--", "/bin/true")
    assert refused.returncode == 2
    assert "notify-send" in refused.stderr and "hint: install it" in refused.stderr


def test_an_issue_s_text_may_not_become_part_of_the_command(embedded: EmbeddedProject) -> None:
    refused = call(embedded, "start", "--notify", "echo {title}", "--", "true")
    assert refused.returncode == 2 and '"$BW_ISSUE_TITLE"' in refused.stderr
