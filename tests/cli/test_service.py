"""``start --service``: a unit that systemd itself accepts, and that holds no key."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from beads_workers.cli.service import FINAL, quoted
from beads_workers.core.base.redaction import typed_secret
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call

NASTY = [
    "{id}", "a b", "", '"', "'", "\\", "\\n", "%n", "100%", "%%", "$HOME", "${HOME}", "$$", "a;b",
    ";", "#", "# no comment", "-x", "@/bin/true", "~", "*", "é", "日本", "a\nb", "\t", "\x1b[2J",
    "`id`", "echo \"$BW_ISSUE_ID\" 'x' > %h", "a\\", "=", "FOO=bar baz", "\\x41", "|", "&&",
    "u\u202er",
]  # fmt: skip


@pytest.fixture
def embedded(tmp_path: Path) -> EmbeddedProject:
    return EmbeddedProject(tmp_path)


def verified(unit: str, folder: Path, name: str = "beads-workers-test.service") -> str:
    """What ``systemd-analyze verify`` says of a unit, down to the words that it reads."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(unit)
    with tempfile.TemporaryDirectory() as runtime:  # Sockets below it have short names.
        told = {"XDG_RUNTIME_DIR": runtime, "SYSTEMD_LOG_TARGET": "console"}
        command = ["systemd-analyze", "verify", "--user", "--man=no", str(folder / name)]
        quiet, whole = (
            subprocess.run(
                command,
                env=os.environ | told | {"SYSTEMD_LOG_LEVEL": level},
                capture_output=True,
                text=True,
            )
            for level in ("info", "debug")
        )
    # Other units of this machine are not judged.
    assert quiet.returncode == 0 and name not in quiet.stderr, quiet.stderr
    return whole.stdout + whole.stderr


def read_back(told: str) -> list[str]:
    """The words of the command as systemd has read them, and will expand them."""
    (line,) = re.findall(r"Command Line: (.*)\n", told)
    escapes = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}

    def char(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] == "x":
            return chr(int(code[1:], 16))
        return chr(int(code, 8)) if code.isdigit() else escapes.get(code, code)

    pieces = re.findall(r"\$?'((?:\\.|[^'\\])*)'|\"((?:\\.|[^\"\\])*)\"|(\S+)", line)
    words = ("".join(piece) for piece in pieces)
    return [re.sub(r"\\(x[0-9a-f]{2}|[0-7]{3}|.)", char, word).replace("$$", "$") for word in words]


def test_every_word_reaches_the_command_as_it_was_typed(tmp_path: Path) -> None:
    words = " ".join(quoted(word.replace("$", "$$")) for word in NASTY)
    told = verified(f"[Service]\nExecStart=/bin/true {words}\n", tmp_path)
    assert read_back(told) == ["/bin/true", *NASTY]


def printed(project: EmbeddedProject, *options: str, **variables: str) -> Any:
    """``start --service`` with these options."""
    project.environment |= variables
    return call(project, "start", "--service", *options)


def test_the_unit_is_accepted_and_starts_this_fleet_with_these_options(
    embedded: EmbeddedProject, tmp_path: Path
) -> None:
    options = ("-n", "2", "--until", "07:00", "--verify", 'test "$X" != 100%')
    command = ("--", "sh", "-c", "exec true --service {id}", "--service")
    made = printed(embedded, *options, *command, BEADS_WORKERS_COUNT="3")
    assert (made.returncode, made.stderr) == (0, "")
    told = verified(made.stdout, tmp_path / "units")
    words = read_back(told)
    typed = words[words.index("start") + 1 :]
    assert [word for word in typed if word != "--skip-base-check"] == [*options, *command]
    assert f"WorkingDirectory: {embedded.folder}" in told
    lines = made.stdout.splitlines()
    assert f"RestartPreventExitStatus={' '.join(map(str, FINAL))}" in lines
    assert "Restart=on-failure" in lines and "StandardOutput=journal" in lines
    assert any(re.fullmatch(r"EnvironmentFile=-%E/beads-workers/\S+\.env", each) for each in lines)
    assert "loginctl enable-linger" in made.stdout
    assert "Environment=BEADS_WORKERS_COUNT" not in made.stdout, "-n was typed"


def test_a_variable_that_sets_an_option_is_in_the_unit(embedded: EmbeddedProject) -> None:
    made = printed(embedded, "--", "true", BEADS_WORKERS_COUNT="3")
    assert "\nEnvironment=BEADS_WORKERS_COUNT=3\n" in made.stdout


def test_the_program_of_the_unit_runs(embedded: EmbeddedProject, tmp_path: Path) -> None:
    made = printed(embedded, "--limit", "1", "--until-empty", "--", "true")
    words = read_back(verified(made.stdout, tmp_path / "units"))
    embedded.create_many([{}])
    ran = subprocess.run(
        words, cwd=embedded.folder, env=embedded.environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "closed 1" in ran.stdout


SECRET = "abcd-efgh-1234"


@pytest.mark.parametrize(
    "options",
    [
        ("--verify", f"API_TOKEN={SECRET} make test"),
        ("--verify", f"curl --api-key {SECRET} x"),
        ("--notify", f"curl -H 'Authorization: Bearer {SECRET}' x"),
        ("--notify", f"curl -u me:{SECRET} x"),
        ("--notify", f"https://hook.example/x?token={SECRET}"),
        ("--notify", "echo sk-ant-api03-aaaaaaaaaaaaaaaa"),
        ("--source", f"redis://:{SECRET}@127.0.0.1/0"),
        ("--", "./do", "--password", SECRET),
        ("--", "./do", f"--password={SECRET}"),
        # A shell has put it there.
        ("--", "./do", f"x{SECRET}y"),
    ],
)
def test_a_secret_that_was_typed_is_refused_and_not_said(
    embedded: EmbeddedProject, options: tuple[str, ...]
) -> None:
    more = () if "--" in options else ("--", "true")
    made = printed(embedded, *options, *more, DEPLOY_TOKEN=SECRET)
    assert made.returncode == 2, made.stdout
    assert made.stdout == ""
    assert "EnvironmentFile" in made.stderr or "--source" in made.stderr
    assert SECRET not in made.stderr and "sk-ant" not in made.stderr


@pytest.mark.parametrize(
    "word",
    [
        "API_TOKEN=$API_TOKEN make test", 'curl -H "Authorization: Bearer $TOKEN" x', "make",
        "https://git@github.com/a/b", "ssh://deploy@host/x", "--max-tokens 4000", "MAX_TOKENS=4000",
        "https://u:$PASSWORD@host/x", "claude-sonnet-4-5-20250929", "npm test -- --grep key",
        "PYTHONPATH=src pytest -k token", "src/auth/session.py", "--author me",
    ],
)  # fmt: skip
def test_what_only_names_a_secret_is_none(word: str) -> None:
    assert not typed_secret(word, {"API_TOKEN": SECRET, "SHORT_KEY": "make"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--start-at", "23:00"), "start the unit by a timer"),
        (("--until", "8h"), "give a time of day"),
        (("-d",), "runs in the foreground"),
        (("--land-on", "x", "--no-worktree"), "landing needs a worktree"),
        (("--approve", "--no-worktree"), "--approve needs a worktree"),
    ],
)
def test_what_a_unit_cannot_keep_is_refused(
    embedded: EmbeddedProject, options: tuple[str, ...], said: str
) -> None:
    made = printed(embedded, *options, "--", "true")
    assert (made.returncode, made.stdout) == (2, "")
    assert said in made.stderr
