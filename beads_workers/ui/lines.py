"""Plain text: one line per event, and ``status`` for people. Pure."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from beads_workers.core.base.causes import ROW, cause_of, folded, is_of
from beads_workers.core.base.text import asked_in_one_line, counted, printable, some
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry, Resumed
from beads_workers.core.records.landing import REVIEW, pull_text, refusal_text
from beads_workers.core.records.receipts import INDEPENDENT
from beads_workers.core.views.status import END_REASONS
from beads_workers.ui import landing
from beads_workers.ui.agents import account, closed_account, hours, spent, used
from beads_workers.ui.time_text import clock, done_about, duration, moment
from beads_workers.ui.words import DID_NOT_LAND, NO_ERROR, OUTCOME_WORDS, QUEUE_WORDS

# --- start again ---------------------------------------------------------------------------------


def start_again(argv: Sequence[str], *issue_ids: str) -> str:
    """Return the shell line that starts the same fleet again, also for these issues.

    ``argv``: the words that were typed after the program's name. Options of a run are in no file,
    so a bare ``start`` would not do. Three dots stand for words that are unknown or cannot be
    shown. It goes on with the night: ``--new-night`` is for one start.
    """
    typed = argv[1:] if argv and argv[0] == "start" else ["..."]
    words = [word for word in typed if word != "--new-night"]
    if not "".join(words).isprintable():
        words = ["..."]
    return printable(shlex.join(["beads-workers", "start", *issue_ids, *words]))


def with_budget(argv: Sequence[str], budget: str) -> str:
    """Return the line that starts the same fleet with another budget."""
    words = iter(argv)
    kept = [
        word
        for word in words
        if not (word.startswith("--budget=") or (word == "--budget" and next(words, "")))
    ]
    return start_again(kept, "--budget", budget)


def another_night(argv: Sequence[str]) -> str:
    """Return the line that starts the same fleet in a night of its own."""
    return start_again(argv, "--new-night")


# --- lines ---------------------------------------------------------------------------------------
# Plain lines: one per event, for pipes and logs. Pure: a journal entry in, a line or None out.


TITLE_WIDTH = 60
ERROR_WIDTH = 200
FLAGS_WIDTH = 400
"""Width of flags: they include commands, which people need in full to type them."""


NOTHING_MORE = "nothing more is begun"
"""Reason for a fleet that ends by itself: the backlog is empty, or a limit is reached."""

SILENT = frozenset({"claimed", "round_trip_began", "spent", "listed"})
"""Frequent kinds of entries for which ``line`` returns None."""


def line(entry: Entry) -> str | None:
    """Return an event in one line; None for an event that only programs need."""
    text = _text(entry.record)
    if text is None:
        return None
    return f"{clock(entry.at)} {text}"


def _text(record: rec.Record) -> str | None:
    match record:
        case rec.Started(issue_id, worker_id, attempt, _, title, priority) as started:
            again = f" (attempt {attempt})" if attempt > 1 else ""
            by = f" by {printable(started.agent, 40)}" if started.agent else ""
            if started.instead_of:
                model = f" {printable(started.model, 40)}" if started.model else ""
                by += f"{model} instead of {printable(started.instead_of, 80)}"
            return (
                f"{worker_id:>4} started  {_id(issue_id)} P{priority}{again}{by}"
                f" {printable(title, TITLE_WIDTH)}"
            )
        case rec.Finished() as finished:
            return _finished(finished)
        case rec.SettledRecord(issue_id, action, result, error):
            return _settled(issue_id, action, result, error)
        case rec.Leased(issue_id, _, _, place, host):
            where = host if host == place else f"{host} ({place})"
            return f"     on {printable(where, 80)}: {_id(issue_id)}"
        case rec.OwnerLost(issue_id, worker_id, lease_until=until) if until:
            return f"{worker_id:>4} lost     {_id(issue_id)}: its host goes on until {clock(until)}"
        case rec.Inherited(issue_id, _, worker_id, lease=rec.Leased(host=host)):
            where = printable(host, 80)
            return f"{worker_id:>4} keeps    {_id(issue_id)}: on {where}, of an earlier run"
        case rec.OwnerLost(issue_id, worker_id, pid):
            return f"{worker_id:>4} lost     {_id(issue_id)}: pid {pid} left its connection"
        case rec.Inherited(issue_id, _, worker_id, pid):
            return f"{worker_id:>4} keeps    {_id(issue_id)}: pid {pid} of an earlier run lives on"
        case rec.Noted(level, text):
            return f"     {level}: {printable(text)}"
        case rec.SourceTrouble(error, seconds, hint, failures):
            hint = f" ({hint})" if hint and failures == 1 else ""
            return (
                f"     tracker: {printable(error, ERROR_WIDTH)}{printable(hint)};"
                f" trying again in {seconds:.0f} s"
            )
        case _:
            return _about_run(record)


def _about_run(record: rec.Record) -> str | None:
    match record:
        case Resumed():
            return f"     {record.text}"
        case rec.SourceRecovered():
            return "     tracker: answers again"
        case rec.DegradedBegan(_, text, todo):
            todo = f" (try: {printable(todo)})" if todo else ""
            return f"     {printable(text, ERROR_WIDTH)}{todo}"
        case rec.AccountClosed() as closed:
            return f"     {closed_account(closed)}"
        case rec.AccountOpened(_, agent, model):
            only = f" ({printable(model, 40)} only)" if model else ""
            return f"     {printable(agent, 40)}{only}: takes work again"
        case rec.DegradedEnded(what):
            return f"     {printable(what)}: all is well again"
        case rec.RunChanged("waiting", _, until):
            now = "'beads-workers resume' begins now"
            return f"     fleet is waiting until {moment(until, seconds=False)} ({now})"
        case rec.RunChanged(state, reason) if state != "ended":
            why = NOTHING_MORE if reason == "idle_timeout" else END_REASONS.get(reason, reason)
            return f"     fleet is {state}" + (f" ({why})" if reason else "")
        case rec.WorkerJoined(worker_id, pid, called, False, version):
            name = f" ({printable(called, 40)})" if called != worker_id else ""
            return f"{worker_id:>4} joined   pid {pid}{name}, protocol {version}"
        case rec.WorkerExited(worker_id, _, status) if status != 0:
            return f"{worker_id:>4} exited   with status {status}"
        case rec.BranchLanded() | rec.LandingEnded() | rec.GateRan() | rec.LandingTip():
            return _landing(record)
        case rec.PullSeen(issue_id, pull):
            return f"     review   {_id(issue_id)}: {printable(pull_text(pull), ERROR_WIDTH)}"
        case rec.PutOnHold(issue_id):
            return f"     on hold {_id(issue_id)}"
        case rec.Checkpointed(issue_id, _, charged) if charged:
            return f"     remembered {_id(issue_id)}: {counted(charged, 'attempt')} so far"
        case _:
            return None


def _landing(record: rec.Record) -> str | None:
    match record:
        case rec.BranchLanded(issue_id, _, commit, branch) as landed:
            where = f"{commit[:12]} on {printable(branch, 60)}" if branch else commit[:12]
            if landed.contained:
                return f"     landed   {_id(issue_id)}: nothing new, it is in {where}"
            gate = "" if landed.verified or landed.pull else ", without a gate"
            gate = f", by pull request {landed.pull}" if landed.pull else gate
            gate = f", verified {INDEPENDENT}" if INDEPENDENT in landed.verified else gate
            return f"     landed   {_id(issue_id)} as {where}{gate}"
        case rec.LandingEnded(issue_id, verdict, why, detail, files, _, against) if why:
            text = printable(refusal_text(why, files, against, detail), ERROR_WIDTH)
            then = {"mend": "its agent mends it", "quarantined": "quarantined with its branch"}
            return f"     {DID_NOT_LAND} {_id(issue_id)}: {text} ({then.get(verdict, 'requeued')})"
        case rec.LandingEnded(text=text) if text == REVIEW:
            return None
        case rec.LandingEnded(issue_id, "shelve", text=awaits):
            lander = "'approve'" if awaits else "'land' or the next start"
            return f"     {awaits or 'unlanded'} {_id(issue_id)}: {lander} lands it"
        case rec.GateRan(_, "red" | "none" as state, _, issues, seconds, why, kept=kept):
            took = "known already" if kept else f"after {seconds:.1f} s"
            result = "red" if state == "red" else "without a verdict"
            because = f": {printable(why, ERROR_WIDTH)}" if why else ""
            return f"     gate     {result}, {took}, with {landing.train_text(issues)}{because}"
        case rec.GateRan(_, "green", _, issues, seconds, flaky=True):
            took = f"after {seconds:.1f} s, and was red before"
            return f"     gate     flaky: green {took}, with {landing.train_text(issues)}"
        case rec.LandingTip(into=into, why=why, url=url) if url:
            return f"     review   all for {printable(into, 60)}: {printable(why, ERROR_WIDTH)}"
        case rec.LandingTip(commit, _, into, "") if into:
            return f"     landed   {printable(into, 60)} is at {commit[:12]} as well"
        case _:
            return None


def _finished(finished: rec.Finished) -> str:
    head = f"{finished.worker_id:>4}"
    took = f"{finished.duration_ms / 1000:.1f} s{_used(finished)}"
    issue = _id(finished.issue_id)
    error = printable(finished.error, ERROR_WIDTH)
    if finished.verdict in ("finish", "land"):
        note = f": {printable(finished.note, ERROR_WIDTH)}" if finished.note else ""
        return f"{head} done     {issue} in {took}{note}"
    if finished.verdict == "asked":
        return f"{head} asks     {issue}: {error}; 'answer {issue}' answers"
    if finished.verdict == "quarantined":
        return f"{head} quarantined {issue} after {counted(finished.charged, 'attempt')}: {error}"
    if finished.occupied:
        return f"{head} waits    {issue}: {error}; leave that folder, and it goes on"
    if finished.outcome == "cancelled":
        return f"{head} returned {issue}: {error or 'cancelled'}"
    if finished.verdict == "hand_back":
        return f"{head} failed   {issue} in {took}: {error} (handed back)"
    wait = f"{finished.delay_seconds:.0f} s" if finished.delay_seconds else ""
    then = next_try(wait, charged=finished.charged >= finished.attempt)
    # A refusal of the agent's account is no failure.
    is_back = finished.outcome == "retry" and then == NOT_CHARGED
    return f"{head} {'returned' if is_back else 'failed  '} {issue} in {took}: {error} ({then})"


def _used(finished: rec.Finished) -> str:
    receipt = finished.receipt
    text = used(receipt.tokens.total, receipt.money) if receipt is not None else ""
    return f" ({text})" if text else ""


def next_try(wait: str, *, charged: bool) -> str:
    """Return what follows a failure; ``wait``: time until the next try, empty for none."""
    if wait:
        return f"again in {wait}"
    # An uncharged failure was not the issue's fault (a spawn storm): the fleet holds it back.
    return "again at once" if charged else NOT_CHARGED


NOT_CHARGED = "requeued, not charged"


def ended_text(outcome: Mapping[str, Any], *, short: bool = False) -> str:
    """Return what became of an ended attempt, and why; "" if its work is done.

    ``outcome``: of ``outcomes`` in ``status --json``. ``short``: leave room for the reason.
    """
    if outcome["decision"] in ("finish", "land"):
        return ""
    fate = "quarantined" if short and outcome["decision"] == "quarantined" else became(outcome)
    return f"{fate}: {outcome['error']}" if outcome["error"] else fate


def became(outcome: Mapping[str, Any]) -> str:
    """Return what became of an ended attempt whose work is not done, in a few words."""
    if outcome["outcome"] == "cancelled":
        return "requeued"
    match outcome["decision"]:
        case "quarantined":
            return f"quarantined after {counted(outcome['attempt'], 'attempt')}"
        case "asked":
            return "asks"
        case "cut_off":
            return OUTCOME_WORDS["cut_off"]
        case "hand_back":
            return f"{_outcome_word(outcome)}, handed back"
    wait = outcome["retry_in_seconds"]
    then = next_try(duration(wait) if wait else "", charged=outcome["charged"])
    return then if then == NOT_CHARGED else f"{_outcome_word(outcome)}, {then}"


def _outcome_word(outcome: Mapping[str, Any]) -> str:
    return OUTCOME_WORDS.get(outcome["outcome"], str(outcome["outcome"]))


def _settled(issue_id: str, action: str, result: str, error: str) -> str | None:
    if result == "found_closed" and action == "close":
        return f"     closed   {_id(issue_id)} (by its worker)"
    if result == "found_closed":
        return f"     {_id(issue_id)} was closed already; counted as done"
    if result == "not_ours":
        return f"     {_id(issue_id)} left alone: {printable(error or 'not ours', ERROR_WIDTH)}"
    return {
        "close": f"     closed   {_id(issue_id)}",
        "release": f"     requeued {_id(issue_id)}",
        "ask": f"     waits for an answer: {_id(issue_id)}",
        "reopen": f"     reopened {_id(issue_id)}",
    }.get(action)


def _id(issue_id: str) -> str:
    return printable(issue_id, 80)


# --- text ----------------------------------------------------------------------------------------
# ``status`` for people: a few plain lines. Pure: the JSON of ``status`` in, lines out.


STATUS_TITLE_WIDTH = 50
FOLDED_MIN = 10
"""Number of idle workers in one state from which they share one line."""


def status_lines(shown: dict[str, Any]) -> Iterator[str]:
    """Yield the fleet, its queue, its problems, and each worker."""
    queue, totals = shown["queue"], shown["totals"]
    yield (
        f"fleet {shown['state']}{hours(shown)}, pid {shown['pid']},"
        f" {shown['source']} in {shown['project']}, up {duration(round(shown['uptime_seconds']))}"
    )
    more, estimate = "+" if queue["ready_more"] else "", done_about(shown)
    counts = (f"{queue[key]} {words}" for key, words in QUEUE_WORDS.items() if queue[key])
    yield (
        f"issues: {queue['closed']}/{queue['total']}{more} closed"
        + "".join(f", {each}" for each in counts)
        + (f"; {estimate}" if estimate else "")
    )
    yield (
        f"totals: {totals['done']} done, {counted(totals['failed'], 'failed attempt')},"
        f" {totals['retried']} retried, {totals['lost']} lost, {totals['quarantined']} quarantined;"
        f" {shown['rate_per_minute']:.0f} a minute"
    )
    if shown["landing"]:
        yield from landing.now(shown["landing"])
    for row in shown["accounts"]:
        yield f"agent {account(row)}"
    for row in shown.get("places", ()):
        yield place(row, shown["workers"])
    if shown["money"]:
        yield f"spent: {spent(shown['money'])}"
    for row in shown["to_review"]:
        flags = printable(", ".join(row["flags"]), FLAGS_WIDTH)
        yield f"to review: {printable(row['issue_id'])}: {flags}"
    for row in shown["degraded"]:
        todo = f" (try: {printable(row['remedy'])})" if row["remedy"] else ""
        yield f"in the way: {printable(row['text'], 200)}{todo}"
    source = shown["source_state"]
    if source["state"] != "ok":
        yield (
            f"tracker {source['state'].replace('_', ' ')}: {printable(source['error'], 200)}"
            f" (since {duration(round(source['since_seconds']))},"
            f" again in {duration(round(source['retry_in_seconds']))})"
        )
        if source.get("remedy"):
            yield f"  hint: {printable(source['remedy'])}"
    refused = shown["landing"]["refused"] if shown["landing"] else []
    refused_ids = {row["issue_id"] for row in refused}
    yield from to_decide(shown)
    for row in shown.get("occupied", ()):
        yield f"{printable(row['issue_id'])} waits: {printable(row['who'], 120)}; leave that folder"
    others = [row for row in shown["quarantined"] if row["issue_id"] not in refused_ids]
    for text in by_cause(others):
        yield f"quarantined {text}"
    if (more := queue["quarantined"] - len(shown["quarantined"])) > 0:
        yield f"quarantined: {more} more"
    places, now = shown.get("places", ()), time.time()
    there = {each["worker_id"]: where(each, places, now) for each in shown["workers"]}
    yield from _workers(shown["workers"], there)


def place(row: Mapping[str, Any], workers: Iterable[Mapping[str, Any]]) -> str:
    """Return the line of other machines: what they have, and whether they answer."""
    there = [each for each in workers if each["place"] == row["name"] and each["issue_id"]]
    busy = sum(each["host"] is not None for each in there)
    text = f"place {printable(row['name'])}  {row['engine']}  {row['slots']} slots"
    text += f", {busy} busy" if busy else ""
    text += f", {len(there) - busy} waiting for a host" if busy < len(there) else ""
    whys = dict.fromkeys(row.get("waiting", {}).values())
    text += f" ({printable(', '.join(whys), 120)})" if whys else ""
    text += f", {counted(len(row['hosts']), 'host')}"
    if row["why"]:
        return f"{text}; not reached: {printable(row['why'], 120)}"
    return f"{text}, {max((each['ms'] for each in row['hosts']), default=0)} ms"


def where(worker: Mapping[str, Any], places: Iterable[Mapping[str, Any]], now: float) -> str:
    """Return on which host a worker's attempt is, and whether that is cut off; "" for here.
    ``now``: epoch seconds."""
    host = worker.get("host")
    for row in places if host else ():
        for each in row["hosts"]:
            if (row["name"], each["name"]) == (worker["place"], host) and each["why"]:
                until = clock(each["since"] + row["lease_seconds"], now)
                cut = duration(round(max(0.0, now - each["since"])))
                return f"on {host} (cut off for {cut}, works on until {until})"
    return f"on {host}" if host else ""


def who_stays(each: Mapping[str, Any]) -> str:
    """Return who keeps an issue beyond the end of its fleet, as ``stayed`` says it."""
    if each.get("host"):
        return f"it is at work on {each['host']} until {clock(each['until'])} at the latest"
    return f"{each['worker_id']} (pid {each['pid']}) has not left, and keeps it"


def once_gone(stayed: Iterable[Mapping[str, Any]]) -> str:
    """Return what to do about them."""
    pids = dict.fromkeys(str(each["pid"]) for each in stayed if each["pid"])
    if pids:
        return f"nobody gets what these have before they are gone: kill {' '.join(pids)}"
    return "start again: it finds on their hosts what is still at work there"


def _workers(workers: Sequence[dict[str, Any]], there: Mapping[str, str]) -> Iterator[str]:
    idle: dict[str, list[dict[str, Any]]] = {}
    for worker in workers:
        if worker["issue_id"] is None:
            idle.setdefault(_state(worker), []).append(worker)
    busy = [worker for worker in workers if worker["issue_id"] is not None]
    id_width = max((len(printable(each["issue_id"])) for each in busy), default=0)
    took_width = max((len(_took(each)) for each in busy), default=0)
    for worker in workers:
        if worker["issue_id"] is not None or len(idle[_state(worker)]) < FOLDED_MIN:
            yield _worker(worker, there[worker["worker_id"]], id_width, took_width)
    for state, alike in idle.items():
        if len(alike) >= FOLDED_MIN:
            done, failed = (sum(each[name] for each in alike) for name in ("done", "failed"))
            yield f"{len(alike)} workers {state}: done {done}, failed {failed}"


def _state(worker: dict[str, Any]) -> str:
    return "paused" if worker.get("paused") is not None else str(worker["state"])


def _took(worker: dict[str, Any]) -> str:
    return duration(round(worker["elapsed_seconds"]))


def _worker(worker: dict[str, Any], there: str, id_width: int, took_width: int) -> str:
    head = f"{worker['worker_id']:>5} {_state(worker):<8}"
    counts = f"done {worker['done']}, failed {worker['failed']}"
    if worker["issue_id"] is None:
        return f"{head} {counts}"
    title = printable(worker["title"] or "", STATUS_TITLE_WIDTH)
    attempt = f", attempt {worker['attempt']}" if worker["attempt"] > 1 else ""
    parts = [worker["agent"], worker["activity"], used(worker["tokens"], worker["money_usd"])]
    parts = [there, *(parts if worker["agent"] else ())]
    doing = ", ".join(printable(each, 80) for each in parts if each)
    issue = f"{printable(worker['issue_id']):<{id_width}} {_took(worker):>{took_width}}"
    return f"{head} {issue}  {title}{attempt}{f' [{doing}]' if doing else ''} ({counts})"


CAUSE_CHARS_TYPED = 60
"""Characters of a cause that a person is to type: a part of it is enough."""


def by_cause(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each cause of quarantined issues, with the command that retries all of it;
    an issue that is alone with its cause has its title.

    ``rows``: as in ``quarantined`` of ``status --json``.
    """
    groups = folded(rows, ROW)
    causes = [cause for cause, _ in groups]
    for cause, alike in groups:
        first, count = alike[0], len(alike)
        if count == 1:
            title = printable(first.get("title", ""), STATUS_TITLE_WIDTH)
            tries = counted(first["attempts"], "attempt")
            named = f" ({title})" if title else ""
            yield f"{_id(first['issue_id'])}{named} after {tries}: {printable(cause, 120)}"
            continue
        ids = printable(some([row["issue_id"] for row in alike]))
        text = f"{count} x {printable(cause or NO_ERROR, 120)}: {ids}"
        typed = _typed(cause, causes)
        yield f"{text}; beads-workers retry --cause {shlex.quote(typed)}" if typed else text


def _typed(cause: str, causes: list[str]) -> str:
    """Return what names a cause to 'retry --cause': up to a quote, which a shell would need
    escaped, if that names no other one."""
    typed = printable(cause_of(cause)[:CAUSE_CHARS_TYPED].strip())
    plain = typed.partition("'")[0].strip()
    return plain if [each for each in causes if is_of(plain, each)] == [cause] else typed


def to_decide(shown: Mapping[str, Any]) -> Iterator[str]:
    """Yield open questions and branches that await approval, each with its command."""
    for row in shown.get("questions", ()):
        asked = asked_in_one_line(row["question"], 400)
        yield f"{printable(row['issue_id'])} asks: {asked}; beads-workers answer {row['issue_id']}"
    for row in shown.get("approvals", ()):
        gate = row["gate"]["text"] if row["gate"] else ""
        said = "; ".join(printable(each, 60) for each in (row["diffstat"], gate) if each)
        stat = f" ({said})" if said else ""
        yield (
            f"{printable(row['issue_id'])} awaits approval{stat}: beads-workers diff"
            f" {row['issue_id']}"
        )


def held_elsewhere(ended: Mapping[str, Any]) -> Iterator[str]:
    """Yield the issues that were in progress elsewhere at a run's end, and who holds them."""
    by_actor: dict[str, list[str]] = {}
    for row in ended.get("held_elsewhere", ()):
        by_actor.setdefault(row["actor"], []).append(row["issue_id"])
    for actor, held in by_actor.items():
        are = "is" if len(held) == 1 else "are"
        who = f"held by {printable(actor)}" if actor else "in progress, in nobody's name"
        yield f"{printable(some(held))} {are} {who}, and not done"
