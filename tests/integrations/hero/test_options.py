"""``[hero]`` of the settings file: what it may say, and what each mistake is told."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from beads_workers.cli.config import render, resolve
from beads_workers.core.base.scripts import Context, LogRoot, ResourceLimits
from beads_workers.errors import CommandError
from beads_workers.integrations.hero.options import HeroTable
from beads_workers.options import FILE_NAME
from tests.support.mistakes import Mistake
from tests.support.trust import TRUSTED

WHOLE = """
[hero]
url = "rediss://fleet@db.example/0?password_file=/run/secrets/redis"
worker = "w1"
naming = "later"
keys = { reply = "r:{id}" }
log_root = "/var/log/hero"
log_max = "1MiB"
log_keep = 5

[hero.contexts.rhai]
command = ["rhai-run", "-"]
sandbox = ["bwrap", "--ro-bind", "/", "/"]
validator = ["./check"]
cpu_seconds = 10
memory = "512MiB"
file_size = "10MiB"
script_max = "64KiB"
env = ["STAGE", "APP_*"]

[hero.contexts."*"]
command = ["sh"]
"""


SHELL = '[hero.contexts.sh]\ncommand = ["sh"]\n'


def read(folder: Path, text: str) -> HeroTable:
    (folder / FILE_NAME).write_text(text)
    found = resolve({}, folder, TRUSTED).options.tables["hero"]
    assert found is not None
    return found


def test_everything_that_it_may_say_is_read(tmp_path: Path) -> None:
    table = read(tmp_path, WHOLE)
    limits = ResourceLimits(10, 512 << 20, 10 << 20)
    assert table == HeroTable(
        "rediss://fleet@db.example/0?password_file=/run/secrets/redis",
        "w1",
        "later",
        {"reply": "r:{id}"},
        (
            Context(
                "rhai",
                ("rhai-run", "-"),
                ("bwrap", "--ro-bind", "/", "/"),
                ("./check",),
                limits,
                64 << 10,
                ("STAGE", "APP_*"),
            ),
            Context("*", ("sh",)),
        ),
        LogRoot("/var/log/hero", 1 << 20, 5),
    )
    assert table.made_keys().reply_key("7") == "r:7"
    assert table.made_keys().work_key("w1") == "hero:q:work:type:w1"


@pytest.mark.parametrize("text", [WHOLE, "[hero]\n", SHELL, f"{SHELL}env = []\n"])
def test_what_is_shown_of_it_says_the_same_again(tmp_path: Path, text: str) -> None:
    table = read(tmp_path, text)
    shown = "\n".join(render(resolve({}, tmp_path, TRUSTED), origin=False))
    assert read(tmp_path, shown) == table
    assert tomllib.loads(shown)["hero"].keys() == table.as_table().keys()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hero = 7", "[hero]"),
        ("[hero]\nnothing = 1", "known keys there: url"),
        ('[hero]\nurl = "http://h"', "redis://"),
        ('[hero]\nurl = "redis://:hunter2@h"', "password_file"),
        ('[hero]\nworker = ""', "hero.worker"),
        ('[hero]\nnaming = "x"', "no such naming"),
        ('[hero]\nkeys = { x = "y" }', "no such key"),
        ('[hero]\nkeys = { reply = "y" }', "reply"),
        ('[hero]\nlog_root = "logs"', "a whole path"),
        ('[hero]\nlog_max = "1MB"', "log_root"),
        ("[hero.contexts.sh]\ncpu_seconds = 1", "needs command"),
        (f'{SHELL}env = ["A=B"]', "names of variables"),
        ('[hero.contexts.sh]\ncommand = "sh"', "a list of texts"),
        ('[hero.contexts.sh]\ncommand = ["sh"]\ncpu_seconds = 0', "hero.contexts.sh.cpu_seconds"),
        ('[hero.contexts.sh]\ncommand = ["sh"]\nmemory = "1KB"', "hero.contexts.sh.memory"),
        ('[hero.contexts]\nsh = ["sh"]', "[hero.contexts.sh]"),
    ],
)
def test_a_mistake_is_refused_and_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(CommandError) as caught:
        resolve({}, tmp_path, TRUSTED)
    assert caught.value.exit_code == 2
    assert told in caught.value.hint
    assert caught.value.hint.count("a table") <= 1


def test_a_mistake_is_one_line_and_a_remedy(mistake: Mistake) -> None:
    mistake("hero boo", "No such command 'boo'.", "'beads-workers hero --help'", 2)
