"""One agent of an attempt: run, its output read, judged, and run again in the same session."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from beads_workers.agents.adapter import Adapter, AgentRequest, Permission, load
from beads_workers.agents.adapters.plain import PlainParser
from beads_workers.agents.events import Event, FinalResult, Kind, Limit, Session, Tally, Usage
from beads_workers.agents.totals import Totals, from_object
from beads_workers.agents.verdict import RunEnding, Verdict
from beads_workers.attempts.log import MaskedLog
from beads_workers.attempts.process import Clocks, EndedBy, Hearing, ProcessEnd, run_agent
from beads_workers.core.records.assignment import AgentSpec
from beads_workers.core.records.receipts import Receipt
from beads_workers.runtime.usage_file import SessionFile, UsageFile, prices_of

PROGRESS_SECONDS = 1.0


@dataclass(slots=True)
class AttemptContext:
    """State shared by all agents of an attempt."""

    environment: Mapping[str, str]
    log: MaskedLog
    usage: UsageFile
    clocks: Clocks
    must_end: Callable[[], bool]
    # Beyond its limit the account may go on at a price.
    pays_overage: bool
    # Returns whether there is work by now; None: nobody can tell.
    changed: Callable[[], bool | None]
    # Reports progress.
    tell: Callable[[str], None]
    # A file for agent CLIs that read one for a run.
    settings: str = ""
    # The hook in ``settings`` for questions to a person can run, and somebody answers.
    asks: bool = False


class WorkingAgent:
    """An agent that works. ``tally``: events of its last run. ``session``: id by which its session
    is resumed."""

    def __init__(
        self,
        spec: AgentSpec,
        around: AttemptContext,
        permission: Permission = Permission.EDIT,
        earlier: Receipt | None = None,
    ) -> None:
        """``earlier``: receipt of the attempt whose session the agent resumes."""
        adapter = load(spec.adapter)
        assert adapter is not None, f"settings name an adapter that is not there: {spec.adapter}"
        self.spec = spec
        self.adapter = adapter
        self.tally = Tally()
        self.session = earlier.session if earlier else ""
        self._last = from_object(dict(earlier.totals)) if earlier else Totals()
        self._permission = permission
        self._around = around

    @property
    def can_go_on(self) -> bool:
        """Whether the agent's session can be resumed."""
        return self.adapter.resumes and bool(self.session)

    def totals(self) -> dict[str, Any]:
        """Return what the session had used by now, for the next process of the session."""
        return self._last.to_object()

    def work(self, prompt: str, *, resume: bool, money: float | None) -> Verdict:
        """Run the agent once; ``money``: dollars at which it has to stop, if it can. An empty
        prompt resumes a session at the call that ``write_answers`` answers.

        Raises ``AgentNotStarted``.
        """
        request = AgentRequest(
            prompt,
            session=self.session if resume else self._new_session(),
            resume=resume,
            model=self.spec.model,
            permission=self._permission,
            money=money,
            arguments=self.spec.arguments,
            settings=self._around.settings,
            usage_file=f"{self._around.usage.path}.told",
            asks=self._around.asks and self._permission is Permission.EDIT,
        )
        called = self.adapter.arguments(request)
        argv = (self.spec.program or called.argv[0], *called.argv[1:])
        environment = {**self._around.environment, **called.environment}
        run = _Run(self.spec, self.adapter, self._around, request, environment)
        run.begin(self._last if resume else None)
        ended = run_agent(
            argv,
            called.stdin,
            environment,
            Hearing(run.read_output, run.read_errors, run.tick),
            self._around.clocks,
            lambda: self._around.must_end() or run.overage is not None,
        )
        self._last = run.end()
        if run.tally.result is None and (ended.status < 0 or ended.ended_by is not EndedBy.NOBODY):
            self._around.usage.was_cut = True
        self.tally, self.session = run.tally, run.tally.session
        if (limit := run.overage) is not None:
            why = "its limit is used up, and what is beyond it is paid for"
            return Verdict(
                Kind.LIMITED, why, limit.until, self.tally.text, False, limit.window, limit.model
            )
        return self._verdict(ended, resumed=resume)

    # --- inside -----------------------------------------------------------------------------------

    def _new_session(self) -> str:
        if not self.adapter.own_session:
            return ""
        import uuid  # Imported here: it loads modules that examine the machine.

        return str(uuid.uuid4())

    def _verdict(self, ended: ProcessEnd, *, resumed: bool) -> Verdict:
        verdict = self.adapter.verdict(self.tally, self._ending(ended))
        gave_up = verdict.kind is Kind.UNFINISHED and ended.status > 0
        if resumed and gave_up and ended.ended_by is EndedBy.NOBODY and not self.tally.began:
            # A kill may leave a session that can no longer be read.
            return replace(verdict, session_lost=True)
        return verdict

    def _ending(self, ended: ProcessEnd) -> RunEnding:
        ended_by = ended.ended_by
        if ended_by is EndedBy.STALL and self.tally.result is not None:
            # Its work was done; only a task in the background (a server) was not.
            ended_by = EndedBy.IDLE_AFTER_RESULT
        return RunEnding(
            status=ended.status if ended.status >= 0 else None,
            signal=-ended.status if ended.status < 0 else None,
            clock=ended_by.value,
            changed=self._around.changed(),
            at=time.time(),
            zone=None,  # By its rules: the clocks may change before the reset.
        )


class _Run:
    """Output of one process of an agent. ``overage``: the limit beyond which it would cost
    money."""

    def __init__(
        self,
        spec: AgentSpec,
        adapter: Adapter,
        around: AttemptContext,
        request: AgentRequest,
        environment: Mapping[str, str],
    ) -> None:
        self.tally = Tally(session=request.session)
        self.overage: Limit | None = None
        self._spec, self._adapter, self._around, self._request = spec, adapter, around, request
        self._errors = PlainParser()
        self._session_file = SessionFile(adapter, environment)
        self._told_at = 0.0

    def begin(self, last: Totals | None) -> None:
        """Prepare for the start; ``last``: totals of the session that the process resumes."""
        spec, request, usage = self._spec, self._request, self._around.usage
        self._parser = self._adapter.parser(spec.model, last)
        Path(request.usage_file).unlink(missing_ok=True)
        works = request.permission is Permission.EDIT
        usage.begin(spec.name, spec.model, spec.prices, works=works, adapter=spec.adapter)
        if request.session:
            usage.session(request.session, last or Totals())
            self._find_session_file(request.session, at=None if request.resume else 0)
        by = f", session {request.session}" if request.session else ""
        # ``views.logs`` reads this line: from here on the lines are that adapter's.
        self._around.log.say(f"agent {spec.name}, adapter {spec.adapter}{by}")

    def read_output(self, data: bytes) -> bool:
        """Handle data of stdout; return whether the agent has reported its end."""
        self._around.log.write(data)
        self._read_session_file()  # First: known answers explain the total that has them.
        self._add_events(self._parser.feed(data))
        return self.tally.is_over

    def read_errors(self, data: bytes) -> None:
        """Handle data of stderr."""
        self._around.log.write(data)
        self._add_events(self._errors.feed(data))

    def tick(self) -> None:
        """Read the usage that the agent CLI has written, and report progress; called now and then,
        with or without output."""
        self._find_session_file(self.tally.session)
        self._read_session_file()
        if (now := time.monotonic()) - self._told_at >= PROGRESS_SECONDS:
            self._told_at = now
            self._around.tell(self.tally.activity)

    def end(self) -> Totals:
        """Read the rest after the process has ended; return what its session had used by then."""
        self._read_session_file()
        self._add_events([*self._parser.end(), *self._errors.end()])
        if self._adapter.usage_kept and not self._parser.usage.has_total:
            self._read_usage_beside()
        with suppress(OSError):  # Most agents write none.
            usage_text = Path(self._request.usage_file).read_text("utf-8", "replace")
            self._add_events(self._parser.usage_told(usage_text))
        self._around.log.flush()
        return self._totals()

    def _totals(self) -> Totals:
        return self._parser.totals(prices_of(self._spec.prices))

    def _find_session_file(self, session: str, at: int | None = 0) -> None:
        if self._session_file.begin(session, at):
            self._around.usage.session_file(self._session_file.path, self._session_file.at)

    def _read_session_file(self) -> None:
        if not self._adapter.usage_kept:
            self._read_usage_beside()

    def _read_usage_beside(self) -> None:
        for line, at in self._session_file.read():
            self._add_events(self._parser.usage_told(line), at)

    def _add_events(self, events: list[Event], at: int | None = None) -> None:
        for event in events:
            if isinstance(event, Session):
                self._around.usage.session(event.id, self._totals())
                self._find_session_file(event.id)
            elif isinstance(event, Limit) and event.overage and not self._around.pays_overage:
                self.overage = event
        if used := [event for event in events if isinstance(event, Usage)]:
            self._around.usage.add(used, self._totals(), at)
        self.tally.apply(events)
        if any(isinstance(event, FinalResult) for event in events):
            self._told_at = 0.0
