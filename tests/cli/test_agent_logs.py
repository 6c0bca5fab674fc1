"""Logs of agents: whose lines they are, and which of them people see."""

from __future__ import annotations

import json
from pathlib import Path

from beads_workers.views.logs import ReadableLog, of_tail

BEGINS = "[beads-workers] agent fast, adapter claude, session s-1"
EDITS = json.dumps(
    {
        "type": "assistant",
        "message": {
            "id": "m1",
            "content": [
                {"type": "tool_use", "id": "t", "name": "Edit", "input": {"file_path": "a.py"}}
            ],
        },
    }
)
NOISE = json.dumps({"type": "system", "subtype": "status"})


def shown(*lines: str) -> list[str | None]:
    """These lines of one log, none of which says more than one."""
    log = ReadableLog()
    return [next(iter(log.line(line)), None) for line in lines]


def test_lines_of_an_agent_are_short_and_noise_is_left_out() -> None:
    assert shown(BEGINS, EDITS, NOISE, "plain text") == [
        BEGINS, "editing a.py", None, "plain text",
    ]  # fmt: skip


def test_a_result_does_not_repeat_the_last_words() -> None:
    words = json.dumps(
        {
            "type": "assistant",
            "message": {"id": "m", "content": [{"type": "text", "text": "Done."}]},
        }
    )
    ended = json.dumps({"type": "result", "subtype": "success", "result": "Done.", "num_turns": 1})
    assert shown(BEGINS, words, NOISE, ended)[1:] == ["> Done.", None, None]
    assert shown(BEGINS, words, BEGINS, words)[1::2] == ["> Done.", "> Done."]


def test_lines_before_any_agent_and_of_verify_are_as_they_were() -> None:
    verify = "[beads-workers] verify: make test"
    assert shown(EDITS) == [EDITS]
    assert shown(BEGINS, verify, EDITS, BEGINS, EDITS)[2::2] == [EDITS, "editing a.py"]


def test_an_adapter_that_is_not_there_changes_nothing() -> None:
    assert shown("[beads-workers] agent x, adapter nobody", EDITS)[1] == EDITS
    assert shown("[beads-workers] agent x, adapter ../etc", EDITS)[1] == EDITS


def test_the_end_of_a_log_is_that_of_the_agent_that_began_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"worktree made\n{BEGINS}\n{EDITS}\n")
    assert of_tail(log).line(EDITS) == ["editing a.py"]
    log.write_text("plain\n")
    assert of_tail(log).line(EDITS) == [EDITS]
