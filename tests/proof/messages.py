"""Messages of landed commits before the real commitlint (config-conventional) and a DCO hook.

    scripts/prove messages
    python -m tests.proof.messages [--cases N] [--json] [--progress]

Titles and commits of every kind are linted as text. Then a remote's hook lints what is pushed:
without the settings it refuses in its own words, with them all of it lands.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from beads_workers.core.base.commit_form import TRAILERS_KEPT, CommitForm
from beads_workers.core.records.landing import Add, Idle, LandingPaused
from beads_workers.landing.message import AgentCommit, landed_message, our_trailers, sealed
from beads_workers.worktrees.ledger import LandedCommit
from tests.landing.program import Program
from tests.landing.world import LandingWorld
from tests.support.repository import git

VERSION = "20.5.3"
PROMISE = "messages satisfy commitlint (config-conventional) and a DCO hook"
TITLES = (
    *("Add the export", "README lies.", "`Foo` fails", "HTTPServer hangs", "API", "iOS", "A"),
    *("Foo.bar() raises", "--help is wrong", "[urgent] Fix it", "fix: a colon", "Étude", "日本語"),
    *("Upper Case Title Here", "it ends...", "ALL CAPS TITLE", "12 errors in one", "#12 is open"),
    "Write what the exporter has read into the folder that the user has named, or say why not",
)
WORDS = (
    "Reads",
    "the",
    "file.",
    "Fixes: #12",
    "a\n\nb",
    "- item",
    "wip",
    "https://e.org/x",
    "\n\n",
)
ENDS = (
    "",
    "Co-authored-by: C <c@x>",
    "Fixes: #1\nRefs: #2",
    f"Link: {'y ' * 80}",
    "BREAKING CHANGE: x",
)
LINT = """
import load from '@commitlint/load'; import lint from '@commitlint/lint';
const { rules } = await load({ extends: ['@commitlint/config-conventional'] });
let told = '';
process.stdin.setEncoding('utf8');
for await (const part of process.stdin) told += part;
for (const text of told.split('\\0').filter(Boolean)) {
  const { errors } = await lint(text, rules);
  if (errors.length) console.log(JSON.stringify([text, ...errors.map((each) => each.message)]));
}
"""
HOOK = """#!/bin/sh
while read -r old new ref; do
  case $ref in refs/heads/*) ;; *) continue ;; esac
  for commit in $(git rev-list "$old..$new"); do
    git log -1 --format=%B "$commit" >message
    (cd COMMITLINT && node node_modules/.bin/commitlint) <message || exit 1
    grep -q '^Signed-off-by: .*<.*>' message || exit 1
  done
done
"""


def commitlint() -> Path:
    """Where ``scripts/setup-peers commitlint`` has put it; raises ``RuntimeError``."""
    cache = os.environ.get("BW_CACHE") or str(Path.home() / ".cache" / "beads-workers")
    folder = Path(cache, "peers", f"commitlint-{VERSION}")
    if not (folder / "complete").exists():
        raise RuntimeError(f"{folder} is missing: run scripts/setup-peers commitlint")
    return folder


def messages(cases: int, seed: int = 1) -> Iterator[str]:
    """Texts of landed commits, of whatever agents and people write."""
    chance = random.Random(seed)
    for _ in range(cases):
        kind = chance.choice(("bug", "feature", "task"))
        add = Add("app-7", 1, "20261122-181500.120-4c1d2e", "c" * 40, "b" * 40, issue_type=kind)
        form = CommitForm(
            "{type}: {title:lower}", signoff=True, trailers=chance.choice(TRAILERS_KEPT)
        )
        commits = [
            AgentCommit(
                chance.choice((*TITLES, "wip")), f"{body}\n\n{chance.choice(ENDS)}", "C <c@x>"
            )
            for body in (" ".join(chance.choices(WORDS, k=chance.randrange(60))) for _ in range(3))
        ]
        title = " and ".join(chance.choices(TITLES, k=chance.choice((1, 1, 2, 3))))
        said = landed_message(form, replace(add, title=title), commits, "A <a@x>")
        ours = our_trailers(form, LandedCommit("", "app-7", 1, add.run_id, "d" * 64), last=False)
        yield sealed(said, ours, "Me <m@x>")


def linted(cases: int) -> list[str]:
    """What commitlint has against them."""
    told = "\0".join(messages(cases)).encode()
    argv = ["node", "--input-type=module", "-e", LINT]
    done = subprocess.run(argv, cwd=commitlint(), input=told, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().splitlines()


def pushed(folder: Path) -> list[str]:
    """What is wrong with a remote that lints."""
    os.environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    world = LandingWorld(folder)
    for key, text in (("user.name", "tester"), ("user.email", "tester@localhost")):
        git(world.top, "config", key, text)
    git(folder, "clone", "--quiet", "--bare", str(world.top), "origin.git")
    git(world.top, "remote", "add", "origin", str(folder / "origin.git"))
    hook = folder / "origin.git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    broken, adds = [], [world.work(f"app-{n}", {f"f{n}": ""}, title=TITLES[n]) for n in range(9)]
    program = Program(world.settings(remote="origin"))
    program.until(lambda news: isinstance(news, Idle))
    hook.write_text(HOOK.replace("COMMITLINT", str(commitlint())))
    hook.chmod(0o755)
    program.tell(*adds)
    paused = program.until(lambda news: isinstance(news, LandingPaused))
    broken += [] if "type may not be empty" in paused.why else [f"not its words: {paused.why}"]
    program.end()
    form = CommitForm("{type}: {title:lower}", signoff=True)
    program = Program(world.settings(remote="origin", form=form), *adds)
    program.until(lambda news: isinstance(news, Idle | LandingPaused), 300.0)
    program.end()
    left = {add.issue_id for add in adds} - program.landed
    return [*broken, *(f"{each} does not land: {program.of(LandingPaused)}" for each in left)]


def main(arguments: list[str]) -> int:
    """0 if nothing is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    said = parser.parse_args(arguments)
    began = time.monotonic()
    broken = linted(said.cases)
    with tempfile.TemporaryDirectory(prefix="bw-messages-") as folder:
        broken += pushed(Path(folder))
    promise = {"text": PROMISE, "broken": broken[:20], "seconds": None}
    told = {"cases": said.cases, "seconds": time.monotonic() - began, "promises": [promise]}
    print(json.dumps(told) if said.json else "\n".join([*broken, f"{said.cases} messages"]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
