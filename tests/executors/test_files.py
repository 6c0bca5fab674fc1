"""Ids become file names that cannot leave their folder."""

from __future__ import annotations

import subprocess

from beads_workers.executors.files import NAME_CHARS_MAX, branch_part, file_name, log_file

IDS = [
    *("bw-1", "bw-1.2", "a/b", "../../etc/passwd", ".", "..", ".hidden", "-rf", "%2F", "/"),
    *("a b", "a\nb", "a\0b", "é", "\ud800", "x" * 119, "x" * 120, "x" * 121, "x" * 122, "é" * 90),
]


def test_usual_ids_stay_as_they_are() -> None:
    assert file_name("bw-a3f8.1") == "bw-a3f8.1"
    assert log_file("/run", "bw-1", 2) == "/run/logs/bw-1.2.log"


def test_every_name_is_safe_short_and_its_own() -> None:
    names = [file_name(issue_id) for issue_id in IDS]
    assert len(set(names)) == len(IDS)
    for name in names:
        assert 0 < len(name) <= NAME_CHARS_MAX
        assert name.isascii() and name.isprintable()
        assert "/" not in name and " " not in name
        assert name[0] not in ".-"


def test_git_takes_every_id_as_one_part_of_a_branch_of_its_own() -> None:
    ids = [*IDS, "a..b", "a...b", "a.lock", "a.b.lock", "end.", "@{x}", "a~b", "HEAD", "@"]
    parts = [branch_part(issue_id) for issue_id in ids]
    assert len(set(parts)) == len(ids)
    for part in parts:
        done = subprocess.run(["git", "check-ref-format", "--branch", f"bw/{part}/1"], check=False)
        assert done.returncode == 0, part
        assert "/" not in part
    assert branch_part("bw-a3f8.1") == "bw-a3f8.1"
