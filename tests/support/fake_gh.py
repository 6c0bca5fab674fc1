"""A ``gh`` that keeps issues in a JSON file beside itself: as much of it as a tracker calls.

``install`` puts it into a folder as a program. It is run without ``site`` and loads hardly a
module, so that a call takes a few milliseconds.
"""

from __future__ import annotations

import fcntl
import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

DATE = "2026-01-02T03:04:05Z"


def install(folder: Path) -> Path:
    """The program, in ``folder``, with no issues yet."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "gh"
    with open(__file__) as source:
        program.write_text(f"#!{sys.executable} -SE\n{source.read()}")
    program.chmod(0o755)
    (folder / "issues.json").write_text("[]")
    return program


def create(program: Path, title: str, body: str = "", labels: tuple[str, ...] = ()) -> str:
    """One more issue; returns its number."""
    file = program.with_name("issues.json")
    issues = json.loads(file.read_text())
    issues.append(
        {
            "number": len(issues) + 1,
            "title": title,
            "body": body,
            "state": "OPEN",
            "labels": list(labels),
            "comments": [],
            "createdAt": DATE,
            "closedAt": None,
        }
    )
    file.write_text(json.dumps(issues))
    return str(len(issues))


def read(program: Path, number: str) -> dict[str, Any]:
    """One issue, as it is kept."""
    return read_all(program)[number]


def read_all(program: Path) -> dict[str, dict[str, Any]]:
    """All issues, as they are kept, by their numbers."""
    issues = json.loads(program.with_name("issues.json").read_text())
    return {str(issue["number"]): issue for issue in issues}


def change(program: Path, number: str, **fields: Any) -> None:
    """What a person does to it behind everybody's back."""
    file = program.with_name("issues.json")
    issues = json.loads(file.read_text())
    issues[int(number) - 1] |= fields
    file.write_text(json.dumps(issues))


def _fail(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.exit(1)


def _find(issues: list[dict[str, Any]], number: str) -> dict[str, Any]:
    if not number.isdecimal() or not 0 < int(number) <= len(issues):
        _fail(f"could not find issue {number}")
    return issues[int(number) - 1]


def _act(issues: list[dict[str, Any]], verb: str, words: list[str]) -> None:
    if verb == "list":
        names = words[words.index("--json") + 1].split(",")
        rows = [{name: issue[name] for name in names} for issue in issues]
        for row in rows:
            row["labels"] = [{"name": label} for label in row["labels"]]
        print(json.dumps(rows))
        return
    issue = _find(issues, words[0])
    if verb == "comment":
        issue["comments"].append(words[words.index("--body") + 1])
    elif verb == "reopen":
        issue["state"], issue["closedAt"] = "OPEN", None
    elif verb == "close":
        issue["state"], issue["closedAt"] = "CLOSED", DATE
        if "--comment" in words:
            issue["comments"].append(words[words.index("--comment") + 1])
    elif verb == "edit":
        for word in words:
            option, _, label = word.partition("=")
            if option == "--add-label" and label not in issue["labels"]:
                issue["labels"].append(label)
            if option == "--remove-label" and label in issue["labels"]:
                issue["labels"].remove(label)
    else:
        _fail(f"unknown command {verb}")


def _main(words: list[str]) -> None:
    if words == ["--version"]:
        print("gh version 2.60.0 (fake)")
        return
    if words[:1] != ["issue"] or "--repo" not in words:
        _fail("what is this?")
    with open(f"{__file__.rpartition('/')[0]}/issues.json", "r+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        issues = json.load(stream)
        _act(issues, words[1], words[2:])
        stream.seek(0)
        stream.truncate()
        json.dump(issues, stream)


if __name__ == "__main__":
    _main(sys.argv[1:])
