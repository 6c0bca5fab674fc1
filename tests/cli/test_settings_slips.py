"""What is said of a beads-workers.toml with a mistake: the line, and the line that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.cli.config import read_text
from beads_workers.cli.settings_slips import KEYS_SHOWN_MAX, TYPED, right
from beads_workers.errors import CommandError
from beads_workers.options import KEYS

FILE = Path("beads-workers.toml")

SLIPS = [
    # the file, words of the error, the end of the hint
    ("agent = claude", "line 1: agent = claude", 'write: agent = "claude"'),
    ("\n\nverify = make test", "line 3: verify = make test", 'write: verify = "make test"'),
    ("timeout = 30m  # each", "line 1: timeout = 30m", 'write: timeout = "30m"'),
    ("until_empty = yes", "until_empty = yes", "write: until_empty = true"),
    ("until_empty = True", "until_empty = True", "write: until_empty = true"),
    ("until_empty = 'true'", "cannot be 'true'", "write: until_empty = true"),
    ("workers: 8", "line 1: workers: 8", "write: workers = 8"),
    ("workers 8", "line 1: workers 8", "write: workers = 8"),
    ("workers = '8'", "workers cannot be '8'", "write: workers = 8"),
    ("command = make test", "command = make test", 'write: command = ["make", "test"]'),
    ("command = 'make test'", "cannot be 'make test'", 'write: command = ["make", "test"]'),
    ("command = ['make' 'test']", "(unclosed array)", 'write: command = ["make", "test"]'),
    ("command = ['make'\nworkers = 3", "line 1: command", 'write: command = ["make"]'),
    ("label = bug, ui", "label = bug, ui", 'write: label = ["bug", "ui"]'),
    ("agent = 'claude", "line 1: agent = 'claude", 'write: agent = "claude"'),
    ("workers = \u201c8\u201d", "(curly quotes)", 'write: workers = "8"'),
    ("workers = 3\nworkers = 4", "(workers is set twice)", "leave one of the lines out"),
    ("[worktree]\n[worktree]", "(it is there already)", "put its lines below the first one"),
    ("[worktree]\nsetup = npm ci", "line 2: setup = npm ci", 'write: setup = "npm ci"'),
    ("[agents.a]\nargv = x -y", "line 2: argv = x -y", 'write: argv = ["x", "-y"]'),
    ("agent = 'a'\n[agent.a]", "line 2: [agent.a]", "write: [agents.a]"),
    ("[agent.mine]\nargv = ['x']", "unknown table [agent]", "write [agents.mine]"),
    ("[claude]\nmodel = 'x'", "unknown table [claude]", "write [agents.claude]"),
    ("[start]\nworkers = 3", "unknown table [start]", "these keys stand at the top of the file"),
    ("[worktrees]\nbase = 'x'", "unknown table [worktrees]", "write [worktree]"),
    ("[stuff]\na = 1", "unknown table [stuff]", "all other keys stand at the top of the file"),
    ("landing = true", "landing is a table", "write [landing], and below it lines like: enabled ="),
    ("detach = true", "unknown key 'detach'", "beads-workers start --detach"),
    ("--workers = 3", "unknown key '--workers'", "did you mean workers?"),
    ("n = 3", "unknown key 'n'", "did you mean workers?"),
    ("jobs = 3", "unknown key 'jobs'", "did you mean workers?"),
    ('{"workers": 3}', 'line 1: {"workers": 3}', "a line looks like:"),
]


@pytest.mark.parametrize(("text", "message", "hint"), SLIPS)
def test_the_line_that_was_meant_is_said(text: str, message: str, hint: str) -> None:
    with pytest.raises(CommandError) as caught:
        read_text(FILE, text.encode())
    assert message in caught.value.message and hint in caught.value.hint
    assert "\n" not in caught.value.message + caught.value.hint


def test_a_line_that_is_proposed_is_read() -> None:
    proposed = [hint.partition("write: ")[2] for _, _, hint in SLIPS if "write: " in hint]
    own = [line for line in proposed if line.partition(" ")[0] in KEYS and '"8"' not in line]
    assert len(own) > 10
    for line in own:
        assert read_text(FILE, line.encode())[0]


def test_what_an_editor_puts_before_the_text_is_no_mistake() -> None:
    assert read_text(FILE, b"\xef\xbb\xbfworkers = 3")[0] == {"workers": 3}


def test_a_text_that_can_mean_nothing_proposes_nothing() -> None:
    assert right("workers", "many", KEYS["workers"]) == ""


def test_what_is_typed_only_is_no_key_and_lists_are_short() -> None:
    assert not {*TYPED} & {*KEYS} and len(KEYS) > KEYS_SHOWN_MAX
