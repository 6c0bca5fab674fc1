"""What people mistype: what is said of each mistake, the remedy that is named, the exit code.

Those of an integration's commands and options are in its own tests.
"""

from __future__ import annotations

import pytest

from tests.support.mistakes import Mistake

MISTAKES = [
    # arguments, words of the error, words of the hint (empty: there is none), exit code
    ("boo", "No such command 'boo'.", "'beads-workers --help'", 2),
    ("sttus", "No such command 'sttus'.", "type: beads-workers status", 2),
    ("scale", "Missing argument 'N'.", "'beads-workers scale --help'", 2),
    (
        "scale x",
        "Invalid value for 'N': 'x' is not a number of workers; write 8, +1 or -1 (at",
        "'beads-workers scale --help'",
        2,
    ),
    (
        "scale +x",
        "Invalid value for 'N': '+x' is not a number of workers; write 8, +1 or -1 (at",
        "'beads-workers scale --help'",
        2,
    ),
    (
        "scale --boo",
        "Invalid value for 'N': '--boo' is not a number of workers; write 8, +1 or -1",
        "'beads-workers scale --help'",
        2,
    ),
    (
        "scale 1025",
        "Invalid value for 'N': '1025' is not a number of workers; write 8, +1 or -1",
        "'beads-workers scale --help'",
        2,
    ),
    ("scale 3", "no fleet is running here", "beads-workers start", 3),
    ("scale +1", "no fleet is running here", "beads-workers start", 3),
    ("status --boo", "No such option: --boo", "'beads-workers status --help'", 2),
    ("status", "no fleet is running here", "beads-workers start", 3),
    ("status --envelopes", "--envelopes goes with --json", "add --json", 2),
    ("stop", "no fleet is running here", "beads-workers start", 3),
    ("stop --timeout x", "--timeout cannot be 'x'", "it must be a number", 2),
    ("stop --boo", "No such option: --boo", "'beads-workers stop --help'", 2),
    ("wait", "no fleet is running here", "beads-workers start", 3),
    ("wait --timeout x", "--timeout cannot be 'x'", "it must be a number", 2),
    ("pause", "no fleet is running here", "beads-workers start", 3),
    ("resume", "no fleet is running here", "beads-workers start", 3),
    ("release", "which issues?", "'beads-workers status'", 2),
    ("release x", "no fleet is running here", "beads-workers start", 3),
    ("retry", "which issues?", "'beads-workers retry ID' tries one again, 'beads-workers", 2),
    ("retry x", "no tracker here", "'beads-workers init'", 6),
    (
        "retry x --all",
        "--all takes no issues",
        "'beads-workers retry ID' tries one again, 'beads-workers",
        2,
    ),
    ("retry --all --boo", "No such option: --boo", "'beads-workers retry --help'", 2),
    ("logs x", "nothing has run here yet", "'beads-workers start'", 1),
    ("logs", "nothing has run here yet", "'beads-workers start'", 1),
    ("logs -n x", "--lines cannot be 'x'", "it must be a whole number of 0 or more", 2),
    ("logs --since 5q", "nothing has run here yet", "'beads-workers start'", 1),
    ("report", "nothing has run here yet", "'beads-workers start'", 1),
    ("report nosuch", "nothing has run here yet", "'beads-workers start'", 1),
    ("replay", "nothing has run here yet", "'beads-workers start'", 1),
    ("replay nosuch", "nothing has run here yet", "'beads-workers start'", 1),
    ("replay --speed 0", "--speed cannot be '0.0'", "it must be a number of 0.001 or more", 2),
    ("watch", "no fleet is running here", "beads-workers start", 3),
    ("watch --boo", "No such option: --boo", "'beads-workers watch --help'", 2),
    ("why x", "no tracker here", "'beads-workers init'", 6),
    ("why --boo", "No such option: --boo", "'beads-workers why --help'", 2),
    ("list --boo", "No such option: --boo", "'beads-workers list --help'", 2),
    ("list", "no tracker here", "'beads-workers init'", 6),
    ("show", "Missing argument 'ID'.", "'beads-workers show --help'", 2),
    ("show x", "no tracker here", "'beads-workers init'", 6),
    ("add", "Missing argument 'TITLE'.", "'beads-workers add --help'", 2),
    ("add x", "no tracker here", "'beads-workers init'", 6),
    ("add x -p 9", "--priority cannot be '9'", "it must be a whole number from 0 to 4", 2),
    ("import", "Missing argument 'FILE'.", "'beads-workers import --help'", 2),
    ("import no-such-file", "/no-such-file", "beads-workers import -", 2),
    ("export --boo", "No such option: --boo", "'beads-workers export --help'", 2),
    ("init --boo", "No such option: --boo", "'beads-workers init --help'", 2),
    ("clean --boo", "No such option: --boo", "'beads-workers clean --help'", 2),
    ("undo", "Missing argument 'RUN|ISSUE...'.", "'beads-workers undo --help'", 2),
    ("land --boo", "No such option: --boo", "'beads-workers land --help'", 2),
    ("branches --boo", "No such option: --boo", "'beads-workers branches --help'", 2),
    ("chaos --kills x", "--kills cannot be 'x'", "it must be a whole number", 2),
    ("chaos --source boo", "no such source: boo", "write --source sqlite or --source bd", 2),
    ("demo --boo", "No such option: --boo", "'beads-workers demo --help'", 2),
    ("doctor --boo", "No such option: --boo", "'beads-workers doctor --help'", 2),
    ("config boo", "No such command 'boo'.", "'beads-workers config --help'", 2),
    ("config show --boo", "No such option: --boo", "'beads-workers config show --help'", 2),
    (
        "worker",
        "no command; write what the worker runs after --",
        "beads-workers worker --socket PATH -- COMMAND [ARG]...",
        2,
    ),
    (
        "worker -- true",
        "which fleet? No --socket, BW_SOCKET or ORCHESTRATOR_PID is given",
        "'beads-workers status --json' shows the socket of the fleet",
        2,
    ),
    ("conformance boo", "No such command 'boo'.", "'beads-workers conformance --help'", 2),
    ("start --boo", "No such option: --boo", "'beads-workers start --help'", 2),
    ("start --workers x", "--workers cannot be 'x'", "it must be a whole number from 0 to 1024", 2),
    (
        "start -n -1 -- true",
        "--workers cannot be -1",
        "it must be a whole number from 0 to 1024",
        2,
    ),
    ("start -n 2", "no tracker here", "'beads-workers init'", 6),
    (
        "start -n 5000 -- true",
        "--workers cannot be 5000",
        "it must be a whole number from 0 to 1024",
        2,
    ),
    (
        "start --timeout 5q -- true",
        "--timeout cannot be '5q'",
        "it must be a duration of 0.001 s or more: 90, 90s, 5m or 2h",
        2,
    ),
    (
        "start --timeout 0 -- true",
        "--timeout cannot be 0",
        "it must be a duration of 0.001 s or more: 90, 90s, 5m or 2h",
        2,
    ),
    ("start --source what://x -- true", "no tracker here", "'beads-workers init'", 6),
    ("start --source sqlite -- true", "no tracker here", "'beads-workers init'", 6),
    ("start --agent nobody", "no tracker here", "'beads-workers init'", 6),
    (
        "start --max-attempts 0 -- true",
        "--max-attempts cannot be 0",
        "it must be a whole number from 1 to 1000",
        2,
    ),
    (
        "start --fix-rounds x -- true",
        "--fix-rounds cannot be 'x'",
        "it must be a whole number from 0 to 20",
        2,
    ),
    (
        "start --retry never -- true",
        "--retry cannot be 'never'",
        'it must be "continue" or "fresh"',
        2,
    ),
    (
        "start --comments mine -- true",
        "--comments cannot be 'mine'",
        'it must be "all" or "owner" or "none"',
        2,
    ),
    (
        "start --discovered maybe -- true",
        "--discovered cannot be 'maybe'",
        'it must be "hold" or "take"',
        2,
    ),
    ("start --budget much -- true", "--budget cannot be 'much'", "dollars (20)", 2),
    (
        "start --orphan-grace x -- true",
        "--orphan-grace cannot be 'x'",
        "it must be a duration of 0.1 s or more: 90, 90s, 5m or 2h;",
        2,
    ),
    ("start --allow-module no.such.module", "no tracker here", "'beads-workers init'", 6),
    (
        "start --until-empty=1 -- true",
        "Option '--until-empty' does not take a value.",
        "'beads-workers start --help'",
        2,
    ),
    (
        "start --limit 0 -- true",
        "--limit cannot be 0",
        "it must be a whole number from 1 to 1000000000",
        2,
    ),
    ("start -- true", "no tracker here", "'beads-workers init'", 6),
    (
        "start --priority 9 -- true",
        "--priority cannot be 9",
        "it must be a whole number from 0 to 4",
        2,
    ),
    ("worker -- true {idd}", "{idd} is not a placeholder; did you mean {id}?", "", 2),
    ("undo x", "this is not a git repository", "in the folder of the project", 1),
    ("land", "this is not a git repository", "in the folder of the project", 1),
    ("branches", "this is not a git repository", "in the folder of the project", 1),
    ("start --wait -- true", "it goes with -d", "'beads-workers start --help'", 2),
    ("wait 2001", "nothing has run here yet", "'beads-workers start'", 1),
    ("start x -- true", "no tracker here", "'beads-workers init'", 6),
    ("start -n 2 sh -p", "No such option of 'start': -p", "beads-workers start -n 2 -- sh -p", 2),
    ("start sh --boo", "No such option of 'start': --boo", "beads-workers start -- sh --boo", 2),
    ("start no-such-program --boo", "No such option: --boo", "'beads-workers start --help'", 2),
    ("runs", "nothing has run here yet", "'beads-workers start'", 1),
    ("start -n 2 claude -p", "No such option of 'start': -p", "start -n 2 -- claude -p", 2),
    ("start -d claude -p", "No such option of 'start': -p", "start -d -- claude -p", 2),
    ("start --agent claude --boo", "No such option: --boo", "'beads-workers start --help'", 2),
    ("start --source sh --boo", "No such option: --boo", "'beads-workers start --help'", 2),
    ("runs -n 0", "--number cannot be '0'", "it must be a whole number of 1 or more", 2),
    ("retry bw-1 --al", "No such option: --al", "type: beads-workers retry bw-1 --all", 2),
]


@pytest.mark.parametrize(
    ("typed", "message", "remedy", "code"), MISTAKES, ids=[row[0] for row in MISTAKES]
)
def test_a_mistake_is_one_line_and_a_remedy(
    mistake: Mistake, typed: str, message: str, remedy: str, code: int
) -> None:
    mistake(typed, message, remedy, code)


def test_there_are_ninety_of_them_and_each_is_another() -> None:
    assert len({typed for typed, *_ in MISTAKES}) == len(MISTAKES) >= 90
