"""The message of a landed commit: a subject, a body, and one block of trailers.

Pure functions from the issue, the agent's own commits and ``[landing]`` to text. Source:
docs/LANDING.md, "Messages".
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace

from beads_workers.core.base import commit_form
from beads_workers.core.base.model import value
from beads_workers.core.base.text import defused
from beads_workers.core.records.landing import Add
from beads_workers.worktrees.landed import TRAILERS, trailers
from beads_workers.worktrees.ledger import LandedCommit

_SCISSORS = re.compile(r"^\S+ -{24} >8 -{24}$", re.MULTILINE)

BODY_CHARS_MAX = 4000
TITLE_CHARS_MIN = 20
"""Least room for the title; with less room, the whole subject is shortened."""
OTHER_TYPES = "chore"


@value
class AgentCommit:
    """A commit of a branch. ``author``: ``NAME <MAIL>``."""

    subject: str
    body: str = ""
    author: str = ""


@value
class Message:
    """A message. ``text``: subject and body; ``trailers``: lines of the agent's trailers, without
    ours."""

    text: str
    trailers: tuple[str, ...] = ()


def inert(add: Add, commits: Iterable[AgentCommit]) -> tuple[Add, list[AgentCommit]]:
    """Return an issue and the commits for it, in whose words a forge finds nothing to obey."""
    add = replace(add, title=defused(add.title), text=defused(add.text))
    return add, [
        replace(each, subject=defused(each.subject), body=defused(each.body)) for each in commits
    ]


def landed_message(
    form: commit_form.CommitForm, add: Add, commits: Sequence[AgentCommit], author: str
) -> Message:
    """Return the message of the commit of a whole branch. ``commits``: those of the branch, the
    oldest first; ``author``: of the commit that lands."""
    mine = [each for each in commits if not made_for_it(add, each)]
    title = (
        commit_form.one_line(add.title)
        or next((each.subject for each in reversed(commits)), "")
        or commit_form.NO_TITLE
    )
    subject, cut = (add.subject, False) if add.subject else _subject(form, add, title)
    bodies = [(each.subject, split(each.body)[0]) for each in mine]
    texts = _agent_texts(bodies, {_bare(title), _bare(subject)})
    parts = [commit_form.wrapped(title)] if cut else []
    parts += texts or [commit_form.wrapped(split(add.text)[0])]
    found = [line for each in commits for line in split(each.body)[1]]
    others = [f"Co-authored-by: {each.author}" for each in mine if each.author not in ("", author)]
    return Message(_joined(subject, parts), _unique((*found, *others)))


def replayed_message(form: commit_form.CommitForm, add: Add, commit: AgentCommit) -> Message:
    """Return the message of one commit of a branch that lands as a commit of its own."""
    body, found = split(commit.body)
    subject = commit_form.one_line(commit.subject) or commit_form.NO_TITLE
    if says_nothing(add, commit):
        subject, cut = _subject(form, add, commit_form.one_line(add.title))
        body = f"{commit_form.one_line(add.title)}\n\n{body}" if cut else body
    return Message(_joined(subject, [commit_form.wrapped(body)]), _unique(found))


def says_nothing(add: Add, commit: AgentCommit) -> bool:
    """Return whether the title of the issue says more than this commit. For a branch that has
    landed before, return False: it has its words already."""
    noise = made_for_it(add, commit) or _NOISE.fullmatch(
        commit_form.one_line(commit.subject) or commit_form.NO_TITLE
    )
    return bool(add.title and not add.subject and noise)


def revert_message(form: commit_form.CommitForm, subject: str, commit: str) -> str:
    """Return the message of a commit that takes back another one, in git's own words."""
    line = commit_form.shortened(f'Revert "{subject}', form.subject_max - 1)
    return f'{line}"\n\nThis reverts commit {commit}.'


def our_trailers(form: commit_form.CommitForm, of: LandedCommit, *, last: bool) -> list[str]:
    """Return the lines of our own trailers. ``last``: the commit has the tree that was verified."""
    issue = [f"Issue: {of.issue_id}"] if of.issue_id else []
    if form.trailers != "full":
        return issue if form.trailers == "short" else []
    if of.undoes:
        issue.append(f"Undoes: {' '.join(of.undoes)}")
    elif issue:
        issue += [f"Attempt: {of.attempt}", f"Run: {of.run_id}"]
    key = "Verified" if last or not of.verified else "Verified-in"
    return [*issue, f"{key}: {of.verified or 'none'}"]


def sealed(message: Message, ours: Iterable[str], signer: str) -> str:
    """Return the whole text of a commit. ``ours``: our trailers, in lines; ``signer``: who signs it
    off, as ``NAME <MAIL>``, "" for nobody."""
    last = [f"Signed-off-by: {signer}"] if signer else []
    lines = _unique((*message.trailers, *ours))
    block = "\n".join([*(line for line in lines if line not in last), *last])
    # Below a line of scissors git finds no trailers.
    text = _SCISSORS.sub(r" \g<0>", message.text)
    return f"{text}\n\n{block}\n" if block else f"{text}\n"


def made_for_it(add: Add, commit: AgentCommit) -> bool:
    """Return whether we made this commit, of changes that the attempt had left uncommitted."""
    values = trailers(f"-\n\n{commit.body}")
    if values.get("Issue") == add.issue_id and "Attempt" in values:
        return True
    body, title = split(commit.body)[0], commit_form.one_line(add.title)
    subjects = (title, commit_form.shortened(title, commit_form.SUBJECT_COLUMNS))
    return bool(title) and commit.subject in subjects and _bare(body) == _bare(add.text)


# --- the subject ----------------------------------------------------------------------------------


def _subject(form: commit_form.CommitForm, add: Add, title: str) -> tuple[str, bool]:
    """Return the subject, and whether it leaves out a part of the title."""
    title = title if title.endswith("..") else title.removesuffix(".")
    line = _filled(form, add, title)
    if len(line) <= form.subject_max:
        return line, "{title" not in form.subject
    room = form.subject_max - (len(line) - len(title))
    if "{title" in form.subject and room >= TITLE_CHARS_MIN:
        line = _filled(form, add, commit_form.shortened(title, room))
    return commit_form.shortened(line, form.subject_max), True


def _filled(form: commit_form.CommitForm, add: Add, title: str) -> str:
    def fill(found: re.Match[str]) -> str:
        before, name, after = found.groups()
        text = _value(form, add, title, name)
        # Brackets around an empty text go with it.
        return f"{before}{text}{after}" if text or not (before and after) else ""

    line = commit_form.one_line(commit_form.PLACEHOLDER.sub(fill, form.subject))
    return line.lstrip(":-/ ") if form.subject.startswith("{label:") else line


def _value(form: commit_form.CommitForm, add: Add, title: str, name: str) -> str:
    match name.partition(":"):
        case "id", _, _:
            return add.issue_id
        case "title", _, "lower":
            return _lowered(title)
        case "title", _, _:
            return title
        case "type", _, _:
            return dict(form.types).get(add.issue_type, OTHER_TYPES)
        case _, _, prefix:
            found = (each for each in add.labels if each.startswith(prefix))
            return commit_form.one_line(next(found, "").removeprefix(prefix))


def _lowered(title: str) -> str:
    """Return the title with a beginning in lower case: "Add it", "README", "HTTPServer" become "add
    it", "readme", "httpServer"."""
    return re.sub(r"^(?:[A-Z]+(?![a-z])|\w)", lambda found: found[0].lower(), title)


# --- the body -------------------------------------------------------------------------------------

_NOISE = re.compile(
    r"(?:wip|fixup!.*|squash!.*|amend!.*|te?mp|checkpoint|save|update[sd]?|change[sd]?|fix(?:e[sd])?"
    r"|lint|format(?:ting)?|typos?|cleanup|more|work|done|progress|misc|commit)\W*",
    re.IGNORECASE,
)
"""Pattern of subjects, and of whole paragraphs, that say nothing."""


def _agent_texts(commits: Iterable[tuple[str, str]], known: set[str]) -> list[str]:
    """Return subjects and bodies of the agent's commits, each text only once; ``known``: texts that
    are in the message already."""
    found = list[str]()
    for subject, body in commits:
        parts = [part for part in (subject, *body.split("\n\n")) if part.strip()]
        kept = [part for part in parts if _is_new(part, known)]
        if kept:
            found.append(commit_form.wrapped("\n\n".join(kept)))
    if len(found) <= 1:
        return found
    points = [f"- {textwrap.indent(text, '  ')[2:]}" for text in found]
    # A list that has only subjects has no empty lines.
    return ["\n".join(points)] if all("\n\n" not in text for text in points) else points


def _is_new(part: str, known: set[str]) -> bool:
    bare = _bare(part)
    if not bare or bare in known or _NOISE.fullmatch(part.strip()):
        return False
    known.add(bare)
    return True


def _bare(text: str) -> str:
    return re.sub(r"\W+", " ", text).strip().casefold()


def _joined(subject: str, parts: Iterable[str]) -> str:
    body = "\n\n".join(part for part in parts if part)
    if len(body) > BODY_CHARS_MAX:
        body = body[:BODY_CHARS_MAX].rpartition("\n")[0].rstrip() + "\n\n[...]"
    return f"{subject}\n\n{body}".rstrip()


# --- trailers -------------------------------------------------------------------------------------

_TRAILER = re.compile(r"(?P<key>[A-Za-z0-9][A-Za-z0-9-]*): +\S.*|\(cherry picked from commit .*\)")
_BREAKING = re.compile(r"BREAKING[ -]CHANGE: .*")
"""Footer of Conventional Commits. git does not count it as a trailer: it stays in the body."""
_KNOWN = re.compile(
    r"(?:[a-z-]+-by|fixes|closes|resolves|refs?|references|see-also|link|bug|cc|change-id): ",
    re.IGNORECASE,
)


def split(body: str) -> tuple[str, list[str]]:
    """Split a body: return it without its trailers, and the trailers without ours."""
    paragraphs, found = re.split(r"\n[ \t]*\n", body.strip()), list[str]()
    while paragraphs and (lines := _unfolded(paragraphs[-1])) is not None:
        named = [line for line in lines if not _BREAKING.fullmatch(line)]
        # git reads the last paragraph only. Earlier ones count if they are certainly trailers.
        if found and not all(map(_KNOWN.match, named)):
            break
        found[:0] = named
        stays = [line for line in lines if line not in named]
        paragraphs[-1:] = ["\n".join(stays)] if stays else []
        if stays:
            break
    ours = {key.casefold() for key in TRAILERS}
    kept = [line for line in found if line.partition(":")[0].casefold() not in ours]
    return "\n\n".join(paragraphs).strip(), [row for line in kept for row in _fold(line)]


def _unfolded(paragraph: str) -> list[str] | None:
    """Return the lines of a paragraph of trailers; None for any other paragraph."""
    lines = re.sub(r"\n[ \t]+", " ", paragraph.strip("\n")).split("\n")
    fits = all(_TRAILER.fullmatch(line) or _BREAKING.fullmatch(line) for line in lines)
    return lines if fits and paragraph.strip() else None


def _fold(line: str) -> list[str]:
    if len(line) <= commit_form.TRAILER_COLUMNS:
        return [line]
    wrap = textwrap.wrap(
        line,
        commit_form.TRAILER_COLUMNS,
        subsequent_indent=" ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return ["\n".join(wrap)]


def _unique(lines: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for line in lines:
        found.setdefault(line.casefold(), line)
    return tuple(found.values())
