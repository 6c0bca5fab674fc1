"""Truth: what is closed is done, and what is done is closed, whatever an agent says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.night.figures import Row, Rows
from tests.night.ground import Ground, ground
from tests.support.bd import NEW, bd_program

VERIFY = 'test -n "$BW_GATE" || test -e "ok-$BW_ISSUE_ID"'
"""A gate knows nothing of issues: what it is shown has passed in the attempt."""
OK = 'run "touch ok-$BW_ISSUE_ID"'
WORK = 'write shop.py "total = 1"'
"""Each issue has a file of its own instead: what has landed already would be no work."""


@dataclass(frozen=True, slots=True)
class Case:
    """``is_done``: whether it may be closed without ``--verify``, and with it."""

    name: str
    script: str
    is_done: tuple[bool, bool]
    labels: tuple[str, ...] = ()


FALSE, TRUE = (False, False), (True, True)
UNCHECKED = (True, False)
"""It has done some work, which nobody checks."""

CASES = (
    Case("liar", 'say "I have written shop.py and all tests pass. Outcome: done"', FALSE),
    Case("liar after a look", 'run ls; say "Everything is done.\\nOutcome: done"', FALSE),
    Case("refusal", "refuse", FALSE),
    Case("refusal after work", f"{WORK}; refuse", FALSE),
    Case("question", 'ask "Which currency?"', FALSE),
    Case("empty answer", "empty", FALSE),
    Case("stops in mid-task", f"{WORK}; midtask", FALSE),
    Case("cut off by its model", f"{WORK}; cutoff", FALSE),
    Case("blocked", f'{WORK}; say "I cannot.\\nOutcome: blocked: no database"', FALSE),
    Case("no change, unasked", 'say "It exists.\\nOutcome: no change needed: it exists"', FALSE),
    Case("wrong work", WORK, UNCHECKED),
    Case("closes its own issue", f'{WORK}; run "bd close $BW_ISSUE_ID"; say "Closed."', UNCHECKED),
    Case("committed", f"{WORK}; {OK}; commit", TRUE),
    Case("not committed", f"{WORK}; {OK}", TRUE),
    Case("no words", f"{OK}; {WORK}; empty", TRUE),
    Case("asks behind its work", f'{OK}; ask "Should I commit this?"', TRUE),
    Case("a command failed", f'run "false"; {OK}; {WORK}', TRUE),
    Case("talks of errors", f'{OK}; say "Fixed: usage limit reached, 429, login failed."', TRUE),
)


def _bd_cases() -> tuple[Case, ...]:
    own = f'run "{bd_program(NEW)} close $BW_ISSUE_ID --reason done"'
    return (
        Case("closes its own issue", f'{WORK}; run "bd close $BW_ISSUE_ID"; say "Closed."', FALSE),
        Case("done", f"{OK}; {WORK}", TRUE),
        Case("closes it by an absolute path", f'{WORK}; {own}; say "Closed."', FALSE),
    )


def prove(size: int, folder: Path) -> list[Row]:
    """All cases, without ``--verify`` and with it; few where ``size`` is small."""
    cases = CASES if size >= 20 else CASES[::3]
    rows = Rows("truth")
    for verified in (False, True):
        with ground(folder, f"truth-{verified}") as place:
            place.project.create_many(_issues(cases))
            _run(place, rows, cases, verified=verified)
    with ground(folder, "truth-bd", bd=NEW) as place:
        bd_cases = _bd_cases()
        place.project.create_many(_issues(bd_cases))
        _run(place, rows, bd_cases, verified=True, tracker=", bd 1.3.0")
    return rows.rows


def _issues(cases: tuple[Case, ...]) -> list[dict[str, object]]:
    return [
        {
            "title": case.name,
            "description": f"[[stub: {case.script.replace('shop.py', f'shop-{number}.py')}]]",
            "labels": list(case.labels),
        }
        for number, case in enumerate(cases, 1)
    ]


def _run(
    place: Ground, rows: Rows, cases: tuple[Case, ...], *, verified: bool, tracker: str = ""
) -> None:
    options = ["-n", "4", "--agent", "claude", "--until-empty", "--max-attempts", "1"]
    options += ["--fix-rounds", "0"]
    place.start(*options, *(("--verify", VERIFY) if verified else ()))
    place.finish()
    found = place.project.read_all()
    closed = {f"bw-{n}": found[issue_id][0] == "closed" for n, issue_id in _ids(found)}
    false_closes, false_failures = [], []
    for number, case in enumerate(cases, 1):
        is_closed, is_done = closed[f"bw-{number}"], case.is_done[verified]
        if is_closed and not is_done:
            false_closes.append(case.name)
        elif is_done and not is_closed:
            false_failures.append(case.name)
    how = f"with{'' if verified else 'out'} verify{tracker}"
    rows.none(f"false closes, {how}", false_closes, len(cases))
    rows.none(f"false failures, {how}", false_failures, len(cases))


def _ids(found: object) -> list[tuple[int, str]]:
    assert isinstance(found, dict)
    return [(int(str(issue_id).rpartition("-")[2]), issue_id) for issue_id in found]
