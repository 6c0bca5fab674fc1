"""One agent of an attempt: asked, heard, judged; asked again in the same session."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from beads_workers.agents.adapter import AgentRequest, Permission, load
from beads_workers.agents.adapters.plain import PlainParser
from beads_workers.agents.events import Event, FinalResult, Kind, Limit, Session, Tally, Usage
from beads_workers.agents.totals import Totals, from_object
from beads_workers.agents.verdict import RunEnding, Verdict
from beads_workers.attempts.log import MaskedLog
from beads_workers.attempts.process import Clocks, EndedBy, Hearing, ProcessEnd, run_agent
from beads_workers.core.assignment import AgentSpec
from beads_workers.core.receipts import Receipt
from beads_workers.runtime.usage_file import UsageFile, prices_of

PROGRESS_SECONDS = 1.0


@dataclass(slots=True)
class AttemptContext:
    """What all agents of an attempt share. ``changed``: whether there is work by now, None where
    nobody can tell. ``tell``: progress for whoever watches. ``pays_overage``: beyond its limit the
    account may go on at a price. ``settings``: a file for command lines that read one for a run."""

    environment: Mapping[str, str]
    log: MaskedLog
    usage: UsageFile
    clocks: Clocks
    told: Callable[[], bool]
    pays_overage: bool
    changed: Callable[[], bool | None]
    tell: Callable[[str], None]
    settings: str = ""


class WorkingAgent:
    """``tally``: of its last run. ``session``: by which it goes on."""

    def __init__(
        self,
        spec: AgentSpec,
        around: AttemptContext,
        permission: Permission = Permission.EDIT,
        earlier: Receipt | None = None,
    ) -> None:
        """``earlier``: of the attempt whose session it goes on with."""
        adapter = load(spec.adapter)
        assert adapter is not None, f"settings name an adapter that is not there: {spec.adapter}"
        self.spec = spec
        self.adapter = adapter
        self.tally = Tally()
        self.session = earlier.session if earlier else ""
        self._last = from_object(dict(earlier.totals)) if earlier else Totals()
        self._permission = permission
        self._around = around
        self._told_at = 0.0
        self._overage: Limit | None = None

    @property
    def can_go_on(self) -> bool:
        """Whether its session can be resumed."""
        return self.adapter.resumes and bool(self.session)

    def totals(self) -> dict[str, Any]:
        """What its session had used by now, for the next process of it."""
        return self._last.to_object()

    def work(self, prompt: str, *, resume: bool, money: float | None) -> Verdict:
        """Run it once; ``money``: dollars at which it is to stop, where it can.

        Raises ``OSError`` where it cannot be started.
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
        )
        called = self.adapter.arguments(request)
        argv = (self.spec.program or called.argv[0], *called.argv[1:])
        around, self.tally = self._around, Tally(session=request.session)
        parser = self.adapter.parser(self.spec.model, self._last if resume else None)
        works = self._permission is Permission.EDIT
        around.usage.begin(self.spec.name, self.spec.model, self.spec.prices, works=works)
        if request.session:
            around.usage.session(request.session, self._last if resume else Totals())
        by = f", session {request.session}" if request.session else ""
        # ``cli.agent_logs`` reads it: from here on the lines are that adapter's.
        around.log.say(f"agent {self.spec.name}, adapter {self.spec.adapter}{by}")

        def totals() -> Totals:
            return parser.totals(prices_of(self.spec.prices))

        def heard(data: bytes) -> bool:
            around.log.write(data)
            self._hear(parser.feed(data), totals)
            return self.tally.is_over

        def complained(data: bytes) -> None:
            around.log.write(data)
            self._hear(errors.feed(data), totals)

        errors = PlainParser()
        environment = {**around.environment, **called.environment}
        ended = run_agent(
            argv,
            called.stdin,
            environment,
            Hearing(heard, complained, self._tick),
            around.clocks,
            lambda: around.told() or self._overage is not None,
        )
        self._hear([*parser.end(), *errors.end()], totals)
        around.log.flush()
        self._last = totals()
        self.session = self.tally.session
        if (limit := self._overage) is not None:
            why = "its limit is used up, and what is beyond it is paid for"
            return Verdict(
                Kind.LIMITED, why, limit.until, self.tally.text, False, limit.window, limit.model
            )
        return self._verdict(ended, resumed=resume)

    # --- inside -----------------------------------------------------------------------------------

    def _new_session(self) -> str:
        return str(uuid.uuid4()) if self.adapter.own_session else ""

    def _hear(self, events: list[Event], totals: Callable[[], Totals]) -> None:
        for event in events:
            if isinstance(event, Session):
                self._around.usage.session(event.id, totals())
            elif isinstance(event, Limit) and event.overage and not self._around.pays_overage:
                self._overage = event
        if used := [event for event in events if isinstance(event, Usage)]:
            self._around.usage.add(used, totals())
        self.tally.hear(events)
        if any(isinstance(event, FinalResult) for event in events):
            self._told_at = 0.0

    def _tick(self) -> None:
        if (now := time.monotonic()) - self._told_at >= PROGRESS_SECONDS:
            self._told_at = now
            self._around.tell(self.tally.activity)

    def _verdict(self, ended: ProcessEnd, *, resumed: bool) -> Verdict:
        verdict = self.adapter.verdict(self.tally, self._ending(ended))
        gave_up = verdict.kind is Kind.UNFINISHED and ended.status > 0
        if resumed and gave_up and ended.ended_by is EndedBy.NOBODY and not self.tally.began:
            # A kill may leave a session that cannot be read any more.
            return replace(verdict, session_lost=True)
        return verdict

    def _ending(self, ended: ProcessEnd) -> RunEnding:
        ended_by = ended.ended_by
        if ended_by is EndedBy.STALL and self.tally.result is not None:
            # Its work was done; a task in the background (a server) was not.
            ended_by = EndedBy.IDLE_AFTER_RESULT
        return RunEnding(
            status=ended.status if ended.status >= 0 else None,
            signal=-ended.status if ended.status < 0 else None,
            clock=ended_by.value,
            changed=self._around.changed(),
            at=time.time(),
            zone=datetime.now().astimezone().tzinfo or RunEnding.zone,
        )
