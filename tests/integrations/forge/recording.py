"""``python -m tests.integrations.forge.recording [--write]``: a few issues on each forge, recorded:
what was asked, and what was answered.

Gitea's is of the real program, which ``scripts/setup-gitea`` builds. GitHub's is of our own server
in ``tests/support/github.py``, asked by the real ``gh``: nothing here was said by GitHub itself.
``test_descriptions`` holds that server to GitHub's public descriptions. Without ``--write`` nothing
is kept, and what would change is shown.

Answers are cut to what an adapter may read. Addresses are left out, and times stand for others in
the same order.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from beads_workers.core.base.model import Filters, IssueId, Job
from beads_workers.core.base.source import Action, IssueEdit, Settlement, reopening
from beads_workers.integrations.forge.api import Forge, ForgeRepository
from beads_workers.integrations.forge.gitea import Gitea
from beads_workers.integrations.forge.github import THREAD, GitHub
from beads_workers.integrations.forge.rest import Transport
from beads_workers.integrations.forge.source import ForgeSource
from beads_workers.integrations.forge.web import HttpAnswer
from tests.contracts.pull_sources import US
from tests.integrations.forge.tracker import LOGIN, server
from tests.support.gitea import TEAM
from tests.support.github import NAME, OWNER, GitHubServer

RECORDED = Path(__file__).parent / "recorded"
ABOUT = {
    "gitea": "Recorded from a real Gitea, of the version that the first answer names.",
    "github": "Recorded from our own server in tests/support/github.py, not from GitHub itself.",
}
URLS = {"gitea": "http://127.0.0.1:3000", "github": "https://localhost:8443"}
HEADERS = ("link",)
"""Of answers, those that an adapter reads."""
LEFT_OUT = re.compile(
    r"(?!repository_url)\w+_url|(\w+_)?(email|node_id|milestone|project_id|ref|count|time|assignee)|"
    r"(allow|default|external|has|original|ref)_\w+|assets|assignee_team|color|dependent_issue|"
    r"description|due_date|exclusive|internal_tracker|is_archived|pin_order|resolve_doer|"
    r"review_id|time_estimate"
)
"""Names of fields that are left out of answers, as is a ``url`` that leads to no comment."""
PERSON = ("id", "login", "type", "is_bot", "__typename")
"""Names of the fields that are kept of people."""
QUERY = "the query above"
AGAIN = "if that is meant, record it again: python -m tests.integrations.forge.recording --write"
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
"""Of the times in a recording; each is ten seconds after the one before."""
_TIME = re.compile(r"(?!0001)\d{4}-\d\d-\d\dT\d\d(:|%3A)\d\d(?:\1)\d\dZ")

Json = dict[str, Any]


# --- what happens --------------------------------------------------------------------------------


class People(Protocol):
    """What people do on a forge meanwhile."""

    def issue(self, title: str, body: str = "", *labels: str, by: str = "root") -> int: ...

    def comment(self, number: int, text: str, by: str = "root") -> int: ...

    def depend(self, number: int, *needed: int) -> None: ...


class Fleet:
    """A fleet's source on a forge. Each call begins after a ``tick``, and its answer is what came
    of it, without times and ids."""

    def __init__(self, forge: Forge, tick: Callable[[], None]) -> None:
        self.source = ForgeSource(
            forge,
            texts_from="writers",
            actor=US,
            filters=Filters(),
            listed_max=20,
            look_seconds=0.0,
            sleep=lambda seconds: tick(),
        )
        # In a recording, times are nothing but an order.
        forge.lag_seconds = 0.0
        self._tick = tick

    def take(self, limit: int) -> tuple[str, Any]:
        self._tick()
        found = self.source.take(limit, ())
        jobs, listed = [*map(_told, found.jobs)], [each.issue_id for each in found.listed]
        return "take", {"jobs": jobs, "listed": listed, "blocked": found.blocked}

    def look(self, issue_id: IssueId) -> tuple[str, Any]:
        self._tick()
        found = self.source.look([issue_id])[issue_id]
        return "look", [found.status, found.assignee]

    def settle(self, action: Action, issue_id: IssueId, note: str = "") -> tuple[str, Any]:
        return self.write(Settlement(action, issue_id, note, by_agent=True))

    def write(self, settlement: Settlement) -> tuple[str, Any]:
        self._tick()
        answers = self.source.settle([settlement])
        return settlement.action.name.lower(), [each.result.name for each in answers]

    def answers(self, issue_id: IssueId) -> tuple[str, Any]:
        self._tick()
        (said,) = self.source.conversations([issue_id])
        return "answers", [said.status, [[each.author, each.text] for each in said.comments]]

    def edit(self, issue_id: IssueId, change: IssueEdit) -> tuple[str, Any]:
        self._tick()
        self.source.edit(issue_id, change, LOGIN)
        return self.look(issue_id)


def life(forge: Forge, people: People, tick: Callable[[], None]) -> Iterator[tuple[str, Any]]:
    """Let a fleet and people work on a few issues; yield what the fleet finds. ``tick``: waits
    until the forge's clock has gone on."""
    text = "Add `total(a, b)`."
    one, two = (IssueId(str(people.issue(title, text, "ready"))) for title in ("total", "show it"))
    people.depend(int(two), int(one))
    people.comment(int(one), "In `total.py`, please.", by="alice")
    ours = Fleet(forge, tick)
    tick()
    yield "describe", forge.describe()
    yield ours.take(0)
    yield ours.take(1)
    yield ours.settle(Action.CONFIRM, one)
    yield ours.look(one)
    yield ours.settle(Action.CLOSE, one, "done, by claude")
    yield ours.look(one)
    yield ours.take(1)
    yield ours.settle(Action.ASK, two, "On paper or on the screen?")
    people.comment(int(two), "On the screen.", by="alice")
    yield ours.answers(two)
    yield ours.write(reopening(two, True))
    yield ours.take(1)
    yield ours.settle(Action.QUARANTINE, two, "there is no screen")
    tick()
    waits = ((one, "blocks"),)
    wanted = IssueEdit("print it", "On paper.", priority=1, depends_on=waits)
    three = ours.source.add(wanted, LOGIN)
    yield "add", three
    yield ours.edit(three, IssueEdit(priority=3, depends_no_more_on=(one,)))
    yield ours.edit(three, IssueEdit(status="closed", reason="there is no paper"))


def _told(job: Job) -> Json:
    remarks = json.loads(json.dumps(job.original)).get("comments", [])
    said = [[each["author"], each["text"]] for each in remarks]
    return {"id": job.issue_id, "title": job.title, "text": job.description, "comments": said}


# --- transports ----------------------------------------------------------------------------------


class Read(dict[str, Any]):
    """A part of an answer that notes in ``seen`` which fields are read, and of which kind."""

    def __init__(self, fields: Json, place: str, seen: set[str]) -> None:
        super().__init__({name: _read(fields[name], f"{place}.{name}", seen) for name in fields})
        self._place, self._seen = place, seen

    def _note(self, name: object) -> None:
        kind = type(super().__getitem__(str(name))) if super().__contains__(name) else None
        shown = "absent" if kind is None else {Read: "dict"}.get(kind, kind.__name__)
        self._seen.add(f"{self._place}.{name}: {shown}")

    def __getitem__(self, name: str) -> Any:
        self._note(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._note(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self._note(name)
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        """Makes ``dict`` ask for each field, so that all of a copy count as read."""
        return super().__iter__()


def _read(data: Any, place: str, seen: set[str]) -> Any:
    if isinstance(data, list):
        return [_read(each, f"{place}[]", seen) for each in data]
    return Read(data, place, seen) if isinstance(data, dict) else data


class Recorder:
    """``Transport`` that keeps what it is asked and what is answered."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.calls, self.said_at = inner.calls, ""
        self.exchanges: list[Json] = []
        self.seen: set[str] = set()
        """Fields that were read."""

    def ask(self, method: str, path: str, body: Any = None) -> HttpAnswer:
        """See ``Transport``."""
        answer = self._inner.ask(method, path, body)
        self.said_at = self._inner.said_at
        made = {
            "method": method,
            "path": path,
            "body": body,
            "status": answer.status,
            "headers": {name: answer.headers[name] for name in HEADERS if name in answer.headers},
            "said_at": self.said_at,
            "data": _kept(answer.data),
        }
        self.exchanges.append(json.loads(json.dumps(made)))
        data = _read(made["data"], place_of(made), self.seen)
        return HttpAnswer(answer.status, answer.headers, data)


def _kept(data: Any) -> Any:
    """Return an answer without what nobody reads and what differs each time."""
    if isinstance(data, list):
        return [*map(_kept, data)]
    if not isinstance(data, dict):
        return data
    if "login" in data:
        return {name: data[name] for name in PERSON if name in data}
    return {
        name: _kept(each)
        for name, each in data.items()
        if not (LEFT_OUT.fullmatch(name) or (name == "url" and "#issuecomment-" not in each))
    }


class Replay:
    """``Transport`` that answers as recorded, and refuses what was not asked then."""

    def __init__(self, inner: Transport, exchanges: list[Json]) -> None:
        self.calls, self.said_at = inner.calls, ""
        self.left = [*exchanges]
        self.seen: set[str] = set()
        """Fields that were read."""

    def ask(self, method: str, path: str, body: Any = None) -> HttpAnswer:
        """See ``Transport``."""
        assert self.left, f"{method} {path}: nothing more was asked when it was recorded; {AGAIN}"
        then = self.left.pop(0)
        was = (then["method"], then["path"], then["body"])
        assert (method, path, body) == was, f"something else was asked; {AGAIN}"
        self.said_at = then["said_at"]
        data = _read(then["data"], place_of(then), self.seen)
        return HttpAnswer(then["status"], then["headers"], data)


def place_of(exchange: Json) -> str:
    """What was asked, without times and ids; the same each time that it is recorded."""
    path = re.sub(r"/(comments|labels|blocked_by)/\d+", r"/\1/N", exchange["path"])
    return f"{exchange['method']} {_TIME.sub('TIME', path)}"


def shape(exchange: Json) -> Json:
    """A request without times and ids."""
    body = exchange["body"]
    if isinstance(body, dict) and "query" not in body:
        ids = ("labels", "issue_id")
        body = {n: re.sub(r"\b\d+\b", "N", str(v)) if n in ids else v for n, v in body.items()}
    return {"asked": place_of(exchange), "body": body, "status": exchange["status"]}


# --- recordings ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recording:
    """``told``: what ``life`` has yielded. ``seen``: the fields that were read."""

    exchanges: list[Json]
    told: list[Any]
    seen: set[str]


class Nobody:
    """``People`` of a recording, in which all that they did is known."""

    def __init__(self) -> None:
        self._number = 0

    def issue(self, title: str, body: str = "", *labels: str, by: str = "root") -> int:
        self._number += 1
        return self._number

    def comment(self, number: int, text: str, by: str = "root") -> int:
        return 0

    def depend(self, number: int, *needed: int) -> None:
        pass


def _lived(forge: Forge, people: People, tick: Callable[[], None]) -> list[Any]:
    """Return all that ``life`` yields, as it is in a file."""
    found: list[Any] = json.loads(json.dumps([*life(forge, people, tick)]))
    return found


def _recorded(forge: Gitea | GitHub, people: People, tick: Callable[[], None]) -> Recording:
    recorder = Recorder(forge._transport)
    forge._transport = recorder
    told = _lived(forge, people, tick)
    return Recording(recorder.exchanges, told, recorder.seen)


def record_gitea() -> Recording:
    """Record from the real Gitea of this process, in a repository of its own; call it once."""

    def tick() -> None:
        """Wait for the next second: what happens between two ticks has one time."""
        time.sleep(1.02 - time.time() % 1.0)

    forge = server()
    token = forge.user(LOGIN).token
    tick()
    at = forge.repository("recorded", LOGIN, "alice")
    ours = Gitea(ForgeRepository("gitea", forge.url, at.owner, at.name), {"GITEA_TOKEN": token})
    tick()
    return normal(_recorded(ours, at, tick), forge.url, "gitea")


def record_github() -> Recording:
    """Record from our own GitHub."""
    clock = [FIRST.timestamp()]

    def tick() -> None:
        clock[0] += 1.0

    with GitHubServer(clock=lambda: clock[0]) as at:
        at.rights |= {LOGIN: "write", "alice": "write"}
        environ = {"PATH": os.environ["PATH"], **at.environment(LOGIN)}
        url = f"https://{at.host}"
        ours = GitHub(ForgeRepository("github", url, OWNER, NAME), environ)
        return normal(_recorded(ours, at, tick), url, "github")


RECORD = {"gitea": record_gitea, "github": record_github}


def normal(made: Recording, url: str, kind: str) -> Recording:
    """Return a recording that is the same wherever and whenever it is made."""
    text = json.dumps(made.exchanges).replace(url, URLS[kind])
    times = sorted({each[0].replace("%3A", ":") for each in _TIME.finditer(text)})
    stand_in = {
        each: f"{FIRST + timedelta(seconds=10 * at):%Y-%m-%dT%H:%M:%SZ}"
        for at, each in enumerate(times)
    }

    def replaced(match: re.Match[str]) -> str:
        return stand_in[match[0].replace("%3A", ":")].replace(":", match[1])

    return Recording(json.loads(_TIME.sub(replaced, text)), made.told, made.seen)


def text_of(made: Recording, kind: str) -> str:
    """A recording as its file has it: each exchange in a line, and each thing that was told. The
    query, which is always the same, is written once."""
    exchanges = []
    for each in made.exchanges:
        body = each["body"]
        is_query = isinstance(body, dict) and body.get("query") == THREAD
        exchanges.append(each | ({"body": body | {"query": QUERY}} if is_query else {}))
    parts: Json = {"about": ABOUT[kind], "query": THREAD if kind == "github" else ""}
    head = "".join(f'"{name}": {json.dumps(text)},\n' for name, text in parts.items())
    lists = (
        f'"{n}": [\n{_lines(e)}\n]' for n, e in (("exchanges", exchanges), ("told", made.told))
    )
    return "{" + head + ",\n".join(lists) + "}\n"


def _lines(entries: list[Any]) -> str:
    return ",\n".join(json.dumps(each, ensure_ascii=False) for each in entries)


def kept(kind: str) -> Recording:
    """Return the recording that is kept."""
    found = json.loads((RECORDED / f"{kind}.json").read_text())
    for each in found["exchanges"]:
        if isinstance(each["body"], dict) and each["body"].get("query") == QUERY:
            each["body"]["query"] = found["query"]
    return Recording(found["exchanges"], found["told"], set())


def replayed(kind: str, then: Recording, folder: Path) -> Recording:
    """Let an adapter ask again what was recorded; return what comes of it, and what was asked.
    Raises ``AssertionError`` if it asks something else. ``folder``: an empty one."""
    forge: Gitea | GitHub
    if kind == "gitea":
        forge = Gitea(ForgeRepository(kind, URLS[kind], TEAM, "recorded"), {"GITEA_TOKEN": "x"})
    else:
        program = folder / "gh"  # It is looked for, and is not run.
        program.touch(0o755)
        forge = GitHub(ForgeRepository(kind, URLS[kind], OWNER, NAME), {"PATH": str(folder)})
    forge._transport = transport = Replay(forge._transport, then.exchanges)
    told = _lived(forge, Nobody(), lambda: None)
    asked = then.exchanges[: len(then.exchanges) - len(transport.left)]
    return Recording(asked, told, transport.seen)


def main(words: list[str]) -> int:
    """Record anew; return 1 if that differs from what is kept, and is not written."""
    differs = False
    for kind, record in RECORD.items():
        file, new = RECORDED / f"{kind}.json", record()
        old, text = file.read_text() if file.exists() else "", text_of(new, kind)
        if "--write" in words:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        with tempfile.TemporaryDirectory() as folder:
            assert replayed(kind, new, Path(folder)) == new, "it cannot be replayed"
        pair = (old.splitlines(), text.splitlines())
        for line in difflib.unified_diff(*pair, f"{kind}.json", "now", n=0, lineterm=""):
            print(line[:160])
        differs |= old != text
    return int(differs and "--write" not in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
