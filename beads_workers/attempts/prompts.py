"""Prompts for an agent in an attempt: at its beginning, and when its work was not enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from beads_workers.agents.adapter import load
from beads_workers.agents.prompt import TEMPLATE, Delivered, Lessons, block, of_issue, render
from beads_workers.core.base.source import answers, read_replies
from beads_workers.core.records.assignment import Assignment
from beads_workers.core.records.landing import Mend
from beads_workers.core.records.receipts import close_reason

if TYPE_CHECKING:
    from beads_workers.core.records.journal import Finished


def first_prompt(
    asked: Assignment,
    ends: Mapping[str, Finished],
    *,
    resumed: bool,
    worktree: bool,
    room: int | None,
    standing: Sequence[str] = (),
    unmerged: str = "",
    submodules: Sequence[str] = (),
) -> str:
    """Return the whole issue, and what earlier attempts have taught.

    ``ends``: ends of the issue's dependencies, see ``attempts.delivered``. ``resumed``: the agent
    knows the issue, so only what is new is said. ``room``: bytes that the prompt may have.
    ``standing``: files in which conflicts with landed work are to be resolved. ``unmerged``: why
    landed work could not be merged at all. ``submodules``: of the worktree.
    """
    commits, talk = _commits(asked), _conversation(asked)
    lessons = _lessons(asked, resumed=resumed)
    if asked.repair is not None:
        merged = _merged(asked.repair, standing, unmerged)
        lessons = replace(lessons, error=f"{lessons.error}\n\n{merged}".strip(), mends=True)
    if resumed and talk:
        return "\n\n".join((_ANSWERED, talk, _rules(commits)))
    if resumed:
        why = block("How it ended", lessons.error)
        learnt = block("What was found", lessons.verify_output or lessons.remarks)
        return "\n\n".join(each for each in (_GO_ON, why, learnt, _rules(commits)) if each)
    briefing = of_issue(asked.issue, asked.asking.comments)
    briefing = replace(
        briefing,
        delivered=tuple(
            _with_journal(each, ends.get(each.issue_id)) for each in briefing.delivered
        ),
        id=asked.issue_id,
        title=asked.title,
        attempt=asked.attempt,
        lessons=lessons,
        verify=asked.verify or "",
        worktree=worktree,
        commits=commits,
        may_ask=asked.may_ask,
        submodules=tuple(submodules),
        pushes_submodules=asked.pushes_submodules,
    )
    room = room and room - len(talk.encode()) - 2
    prompt = render(briefing, asked.agent.prompt or TEMPLATE, room)
    return f"{prompt}\n\n{talk}" if talk else prompt


def told_since(asked: Assignment) -> list[str]:
    """Return what people have answered to its question."""
    found = answers(read_replies(asked.issue), asked.asked_at) if asked.question else []
    return [each.text for each in found]


def _conversation(asked: Assignment) -> str:
    """Return what the agent asked, and what people said since; "" if it asked nothing."""
    if not asked.question:
        return ""
    found = answers(read_replies(asked.issue), asked.asked_at)
    told = [block("The answer", each.text, each.author) for each in found] or [_UNANSWERED]
    return "\n\n".join((block("You asked", asked.question), *told))


def _merged(repair: Mend, standing: Sequence[str], unmerged: str) -> str:
    """Return what was done to the branch so that it can be mended, and how to see both sides."""
    tip = repair.tip[:12]
    if unmerged:
        return _UNMERGED.format(tip=tip, why=unmerged)
    if not standing:
        return _FITS.format(tip=tip)
    return _CONFLICTS.format(tip=tip, files="\n".join(f"  {name}" for name in standing))


def mend_prompt(asked: Assignment, found: str) -> str:
    """Return what is wrong with the work, for the session that did it."""
    first, _, rest = found.partition("\n")
    shown = block("What was found", rest) if rest.strip() else ""
    return "\n\n".join(each for each in (_REPAIR, first, shown, _rules(_commits(asked))) if each)


def _commits(asked: Assignment) -> bool:
    adapter = load(asked.agent.adapter)
    return adapter is None or adapter.commits


def _rules(commits: bool) -> str:
    return _RULES.format(commit="commit finished work" if commits else "do not commit")


def _with_journal(done: Delivered, end: Finished | None) -> Delivered:
    """Return ``done`` with what our journal knows better than the reason of a close."""
    receipt = end.receipt if end is not None else None
    if end is None or receipt is None:
        return done
    commit = (receipt.head or receipt.commits[-1]) if receipt.commits else done.commit
    ours = close_reason(receipt, end.attempt)
    reasons = [done.summary, *([ours] if ours not in done.summary else [])]
    return replace(done, commit=commit, summary="\n".join(each for each in reasons if each))


def _lessons(asked: Assignment, *, resumed: bool) -> Lessons:
    earlier = asked.earlier
    if asked.question:
        return Lessons(same_session=resumed)  # The question is no failure.
    if earlier is None:
        return Lessons(error=asked.error)
    first, _, rest = earlier.lesson.partition("\n")
    reviewed = first.startswith("the reviewer")
    return Lessons(
        error=asked.error or earlier.why,
        verify_output="" if reviewed else rest.strip(),
        remarks=rest.strip() if reviewed else "",
        same_session=resumed,
    )


_FITS = """\
What has landed meanwhile (commit {tip}) is merged into your branch. 'git log HEAD...{tip}' and
'git diff {tip}' show what came, and what is yours. Mend your work so that it fits."""
_UNMERGED = """\
What has landed meanwhile (commit {tip}) is not merged into your branch: {why}.
Merge it yourself, this once: 'git merge {tip}'. Keep what both sides wanted, and commit."""
_CONFLICTS = """\
What has landed meanwhile (commit {tip}) is being merged into your branch, and conflicts stand in:
{files}
'git diff' shows both sides, 'git log --merge -p' the commits behind them. Keep what both wanted,
remove every conflict mark, and commit."""
_ANSWERED = "Your question was looked at. Go on with the issue, in this session."
_UNANSWERED = """\
Nobody answered, and the issue was opened again. Decide it yourself if you can; do not ask the same
again."""
_GO_ON = "You worked on this issue before, in this session. It is not done yet: go on with it."
_REPAIR = "Your work was looked at, and it is not done yet. Mend it, and all that follows from it."
_RULES = """\
The same rules hold: {commit}, do not settle the issue in the tracker, do not push,
and end with a line "Outcome: done", "Outcome: no change needed:" or "Outcome: blocked:"."""
