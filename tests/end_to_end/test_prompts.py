"""The prompt of an issue: what ``--dry-run`` prints is what the agent reads, on every tracker."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import StartFleet
from tests.support.fleet import Fleet, call

NOT_ASKED = ("-n", "1", "--skip-check", "agent")
AGENT = (*NOT_ASKED, "--agent", "claude", "--verify", "make test")
KEEPS_WHAT_IT_READS = '#!/bin/sh\ncat >"{folder}/$BW_ISSUE_ID.stdin"\nexit 1\n'


@pytest.fixture
def read(tmp_path: Path) -> Path:
    """A folder with a ``claude`` that writes there what it was given to read."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "claude").write_text(KEEPS_WHAT_IT_READS.format(folder=folder))
    (folder / "claude").chmod(0o755)
    return folder


def test_the_dry_run_prints_what_the_agent_reads(
    any_project: Any, start: StartFleet, read: Path
) -> None:
    any_project.environment |= {"PATH": f"{read}:{any_project.environment['PATH']}"}
    text = "A cart\nwith `ticks` and {title}.\n" + "A long text of a tracker.\n" * 2000
    (issue,) = any_project.create_many(
        [
            {
                "title": "Cart {x}",
                "description": text,
                "acceptance_criteria": "It adds up.",
                "design": "One class.",
                "notes": "Soon.",
            }
        ]
    )
    dry = call(any_project, "start", "--dry-run", "--json", *AGENT, issue)
    assert dry.returncode == 0, dry.stderr
    (shown,) = json.loads(dry.stdout)["prompts"]
    assert (shown["issue_id"], shown["agent"]) == (issue, "claude")
    for piece in ("It adds up.", "One class.", "Soon.", "with `ticks` and {title}.", "make test"):
        assert piece in shown["prompt"]
    assert any_project.read_all()[issue][0] == "open"
    plain = call(any_project, "start", "--dry-run", *AGENT, issue)
    assert plain.stdout.endswith(f"prompt of {issue} for claude:\n\n{shown['prompt']}\n")
    fleet: Fleet = start(any_project, "--until-empty", "--max-attempts", "1", *AGENT)
    fleet.wait()
    assert (read / f"{issue}.stdin").exists(), fleet.said()
    assert (read / f"{issue}.stdin").read_text() == shown["prompt"]


def test_its_labels_choose_the_agent(either_project: Any, read: Path) -> None:
    either_project.environment |= {"PATH": f"{read}:{either_project.environment['PATH']}"}
    with (either_project.folder / "beads-workers.toml").open("a") as file:
        file.write('\n[agents.second]\nadapter = "claude"\nprompt = "Mind {title}."\n')
    (issue,) = either_project.create_many(
        [{"title": "Cart", "labels": ["agent:second", "model:opus"]}]
    )
    dry = call(
        either_project,
        "start",
        "--dry-run",
        "--json",
        *NOT_ASKED,
        "--agent",
        "claude,second",
        issue,
    )
    assert dry.returncode == 0, dry.stderr
    assert json.loads(dry.stdout)["prompts"] == [
        {"issue_id": issue, "agent": "second", "model": "opus", "prompt": "Mind Cart."}
    ]


FILES_AN_ISSUE = """#!/bin/sh
cat >/dev/null
echo "$BEADS_ACTOR" >>"{folder}/actors"
if [ -d .beads ]; then bd create --title="Found it" >/dev/null
else "{python}" -m beads_workers add "Found it" >/dev/null; fi
exit 1
"""


def test_what_an_agent_files_waits_for_a_person(
    any_project: Any, start: StartFleet, read: Path
) -> None:
    script = FILES_AN_ISSUE.format(folder=read, python=sys.executable)
    (read / "claude").write_text(script)
    any_project.environment |= {"PATH": f"{read}:{any_project.environment['PATH']}"}
    (issue,) = any_project.create_many([{"title": "Cart"}])
    once = ("--until-empty", "--max-attempts", "1", *AGENT)
    fleet: Fleet = start(any_project, *once)
    fleet.wait()
    (actor,) = (read / "actors").read_text().split()
    assert actor.startswith("beads-workers/") and actor.endswith(f"/{issue}")
    (found,) = any_project.read_all().keys() - {issue}
    assert any_project.read_all()[found][0] == "open"
    said = fleet.said()
    assert f"1 issue filed by agents; to take it: beads-workers start {found} " in said
    # The next run holds it as well, until somebody says its name or --discovered take.
    again: Fleet = start(any_project, *once)
    again.wait()
    assert any_project.read_all()[found][0] == "open"
    third: Fleet = start(any_project, "--limit", "1", "--discovered", "take", *once)
    third.wait()
    assert any_project.read_all()[found][0] == "blocked", third.said()
