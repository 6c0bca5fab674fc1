"""``start --service``: the systemd user unit that runs this fleet, with these options."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from beads_workers.checks.condition import Stage, conditions, listed
from beads_workers.checks.plan import FleetPlan
from beads_workers.cli.preparation import refuse_failed
from beads_workers.core.base import limits
from beads_workers.core.base.redaction import typed_secret
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.text import printable
from beads_workers.core.schedule.hours import is_of_day
from beads_workers.errors import CommandError
from beads_workers.exits import (
    EXIT_NOT_RUNNING,
    EXIT_RUNNING,
    EXIT_UNFINISHED,
    EXIT_UNKNOWN,
    EXIT_USAGE,
)
from beads_workers.options import KEYS

FLAG = "--service"

FINAL = (EXIT_USAGE, EXIT_NOT_RUNNING, EXIT_UNKNOWN, EXIT_RUNNING, EXIT_UNFINISHED, 124)
"""Exit codes of ends after which the same start would end alike, or spend what it must not."""

SIGNALLED = (129, 130, 143)
"""Exit codes of a fleet that was stopped by HUP, INT or TERM, as asked."""

UNIT = """\
# {name}.service: runs the fleet of {folder}.
#
#   beads-workers {typed} > ~/.config/systemd/user/{name}.service
#   systemctl --user daemon-reload
#   systemctl --user enable --now {name}
#   journalctl --user -u {name} -f
#
# A user unit ends when you log out, unless 'loginctl enable-linger' is set for you.
# Keys (NAME=value, one a line) go into ~/.config/beads-workers/{project}.env, with chmod 600.
# Other users and programs may read this file: write no key into it.

[Unit]
Description=beads-workers in {description}
StartLimitIntervalSec=10min
StartLimitBurst=5

[Service]
Type=exec
WorkingDirectory={directory}
{environment}
EnvironmentFile=-%E/beads-workers/{project}.env
ExecStart={command}
Restart=on-failure
RestartSec=10s
RestartPreventExitStatus={final}
SuccessExitStatus={signalled}
# Only the client is told to stop: it has what runs requeued.
KillMode=mixed
TimeoutStopSec={stop_seconds}s
StandardOutput=journal
StandardError=journal
SyslogIdentifier={name}

[Install]
WantedBy=default.target
"""


def check(plan: FleetPlan) -> None:
    """Check what a unit needs of the options; raise ``CommandError``.

    The rest of the conditions is checked by each start of the unit.
    """
    for condition in conditions():
        if condition.stage in (Stage.SETTINGS, Stage.TRACKER, Stage.WORK) or condition.typed:
            for found in listed(condition.look(plan)):
                refuse_failed(condition, found)
    options = plan.options
    if options.start_at:
        raise CommandError(
            "a unit begins when systemd starts it: --start-at would wait again at each restart",
            "leave it out, and start the unit by a timer (docs/OPERATIONS.md, As a service)",
            EXIT_USAGE,
        )
    if options.until and not is_of_day(options.until):
        raise CommandError(
            f"--until {options.until} would be another moment at each restart of the unit",
            "give a time of day: --until 07:00",
            EXIT_USAGE,
        )


def unit(settings: FleetSettings, origin: Mapping[str, str], argv: Sequence[str], path: str) -> str:
    """Return the text of the unit.

    ``origin``: of each option, as in ``Resolved``; ``argv``: the typed words, without the program;
    ``path``: the variable ``PATH``, on which the fleet finds its agents.
    """
    folder = Path(settings.folder)
    if not str(folder).isprintable():
        raise CommandError("a unit cannot name this folder", "rename the folder", EXIT_USAGE)
    project = re.sub(r"[^A-Za-z0-9_.-]", "-", Path(settings.project).name).strip("-.") or "project"
    at = argv.index(FLAG)  # The first one: a command behind "--" may have its own.
    words = (*argv[:at], *argv[at + 1 :])
    variables = {"PATH": path}
    variables |= {name: os.environ[name] for name in _variables(origin) if name in os.environ}
    stop = settings.ending.stop_seconds + limits.SETTLE_TIMEOUT_SECONDS + limits.BD_SECONDS
    return UNIT.format(
        name=f"beads-workers-{project}",
        project=project,
        folder=folder,
        typed=printable(shlex.join(argv), 1000),
        description=_specifiers(str(folder)),
        directory=_specifiers(str(folder)),
        environment="\n".join(
            f"Environment={quoted(f'{name}={value}')}" for name, value in variables.items()
        ),
        command=" ".join(quoted(word.replace("$", "$$")) for word in (*_program(), *words)),
        final=" ".join(map(str, FINAL)),
        signalled=" ".join(map(str, SIGNALLED)),
        stop_seconds=round(stop),
    )


def quoted(word: str) -> str:
    """Return a word as systemd reads it back: quotes, escapes as in C, and no specifiers."""
    if re.fullmatch(r"[\w@+=:,./-]+", word, re.ASCII):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"' + "".join(map(_escaped, escaped)) + '"'


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _program() -> tuple[str, ...]:
    """Return the words that call this program again."""
    called = Path(sys.argv[0]).absolute()
    if called.name == "beads-workers" and os.access(called, os.X_OK):
        return (str(called),)
    return sys.executable, "-P", "-m", "beads_workers"


def _variables(origin: Mapping[str, str]) -> list[str]:
    """Return the variables that set an option in force."""
    return [each.variable for key, each in KEYS.items() if each.variable == origin[key] != ""]


def refuse_secrets(argv: Sequence[str]) -> None:
    """Raise ``CommandError``, without the secret, if one was typed."""
    option = "start"
    for before, word in zip(("", *argv), argv, strict=False):
        option = word.partition("=")[0] if word.startswith("-") else option
        if typed_secret(word, os.environ, before):
            raise CommandError(
                f"a unit holds no secrets, and {printable(option, 40)} has one",
                "set it as a variable in the unit's EnvironmentFile and write $NAME in a line that"
                " a shell runs; an address of a source goes into beads-workers.toml",
                EXIT_USAGE,
            )
