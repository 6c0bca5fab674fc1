"""The agents of a fleet, by name: from adapters and ``[agents.NAME]``.

A name is that of an adapter (``claude``), or of a table in ``beads-workers.toml``. A table with an
adapter's name changes how that adapter's agent is called.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from beads_workers.agents.adapter import Adapter, AgentRequest, load
from beads_workers.agents.presets import PLAIN_PROMPT, PLAIN_PROMPT_IN_WORKTREE, find_agents
from beads_workers.agents.prompt import check_template
from beads_workers.checks.rules import Check, misused
from beads_workers.core.base.settings import Agent, StrongerTry
from beads_workers.core.schedule.agent_work import AGENT_LABEL, MODEL_LABEL
from beads_workers.options import AgentTable, Resolved, as_toml

PLAIN = "plain"


def find_fleet_agents(resolved: Resolved) -> tuple[Agent, ...] | Check:
    """Return the agents of ``--agent``, the first one preferred, or why one is unknown.
    Agents that only make last attempts come behind them."""
    named = [name.strip() for name in (resolved.options.agent or "").split(",")]
    found: list[Agent] = []
    for name in (name for name in dict.fromkeys(named) if name):
        agent = find_agent(resolved, name)
        if isinstance(agent, Check):
            return agent
        found.append(agent)
    for name in dict.fromkeys(each.escalate.agent for each in found if each.escalate):
        if name in (each.name for each in found):
            continue
        reserve = find_agent(resolved, name)
        if isinstance(reserve, Check):
            return reserve
        found.append(replace(reserve, escalate=None, reserve=True))
    return tuple(found)


def find_agent(resolved: Resolved, name: str) -> Agent | Check:
    """Return the agent of this name, or why there is none."""
    table = resolved.agents.get(name)
    adapter = load(table.adapter or name if table else name)
    if table is None and (adapter is None or not adapter.command):
        return _unknown(name, resolved)
    if table is not None and table.adapter and adapter is None:
        text = f"[agents.{name}] names an adapter that is not there: {table.adapter}"
        return misused("settings", text, "leave it out, or see 'beads-workers start --help'")
    prompt = _prompt(resolved, table)
    if isinstance(prompt, Check):
        return prompt
    # A table with a whole command uses an adapter only if it names one.
    if table is not None and table.argv and not table.adapter:
        if table.escalate:
            text = f"[agents.{name}] escalate: the fleet chooses among agents with an adapter only"
            return misused("settings", text, f"leave it out, or give {name} an adapter")
        return Agent(name, table.argv, prompt or PLAIN_PROMPT)
    assert adapter is not None, "a table without a command has been refused"
    if prompt and (why := check_template(prompt)) is not None:
        return misused("settings", f"the prompt of {name}: {why}")
    own = (adapter.command,) if adapter.command else adapter.arguments(AgentRequest("")).argv
    if not (own or (table and table.argv)):
        text, hint = f"[agents.{name}] has no argv", 'write argv = ["program", "argument"]'
        return misused("settings", text, hint)
    made = Agent(
        name,
        own[:1],
        prompt,
        adapter=adapter.name,
        account=account_of(adapter, os.environ),
        login=adapter.program.login if adapter.program is not None else "",
    )
    if table is None:
        return made
    to = stronger_try(resolved, name, table.escalate) if table.escalate else None
    return to if isinstance(to, Check) else replace(_as_the_table_says(made, table), escalate=to)


def stronger_try(resolved: Resolved, name: str, text: str) -> StrongerTry | Check:
    """Return who makes the last attempt of an agent, or why that agent is unknown.

    ``text``: the name of an agent, or a model of the agent ``name``; prefixes say which it is.
    """
    if text.startswith(MODEL_LABEL):
        return StrongerTry(name, text.removeprefix(MODEL_LABEL))
    other = text.removeprefix(AGENT_LABEL)
    known = {*presets(), *resolved.agents}
    if other == text and other not in known:
        near = get_close_matches(other, known, n=1, cutoff=0.75)
        # "gemini-3" is a model, "codx" is no name of one.
        if not near or other.startswith(near[0]):
            return StrongerTry(name, other)
        wrong = f"[agents.{name}] escalate = {as_toml(text)}: no such agent"
        hint = f"did you mean {near[0]}? A model of this name is {as_toml(MODEL_LABEL + other)}"
        return misused("settings", wrong, hint)
    if other not in known:
        return _unknown(other, resolved)
    if other == name:
        wrong = f"[agents.{name}] escalate names the agent itself"
        return misused("settings", wrong, 'name a model of it: escalate = "opus"')
    table = resolved.agents.get(other)
    if table is not None and table.argv and not table.adapter:
        wrong = f"[agents.{name}] escalate = {as_toml(text)}: {other} has no adapter"
        return misused("settings", wrong, f"give [agents.{other}] an adapter")
    return StrongerTry(other)


def account_of(adapter: Adapter, environment: Mapping[str, str]) -> str:
    """Return the account of an agent: a hash of everything that decides which login it uses.

    No credential can be read from the hash, and none is kept. If a login is in a file, the file's
    path counts: its content changes whenever a token is renewed.
    """
    program = adapter.program
    names = program.variables if program is not None else ()
    home = environment.get("HOME", "")
    parts = [adapter.name, *(f"{home}/{file}" for file in program.login_files)] if program else []
    decides = [
        name
        for name in sorted(environment)
        if name in names or name.startswith(adapter.account_variables)
    ]
    parts += [f"{name}={environment[name]}" for name in decides]
    digest = hashlib.sha256("\0".join([adapter.name, *parts]).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]


def in_worktree(agent: Agent) -> Agent:
    """Return the agent with the prompt for worktrees, unless the user gave a prompt."""
    if agent.prompt != PLAIN_PROMPT:
        return agent
    return replace(agent, prompt=PLAIN_PROMPT_IN_WORKTREE)


def _as_the_table_says(agent: Agent, table: AgentTable) -> Agent:
    argv, arguments = table.argv or agent.argv, table.arguments or ()
    return replace(
        agent,
        argv=argv,
        model=table.model or "",
        # Without an adapter, the command is exactly what the user wrote.
        arguments=(*argv, *arguments) if agent.adapter == PLAIN else arguments,
        prices=table.prices or {},
        at_once=table.at_once,
    )


def _prompt(resolved: Resolved, table: AgentTable | None) -> str | Check:
    if resolved.options.prompt:
        try:
            return Path(resolved.options.prompt).read_text()
        except (OSError, UnicodeDecodeError) as error:
            return misused("settings", f"the prompt cannot be read: {error}")
    return (table.prompt or "") if table is not None else ""


def _unknown(name: str, resolved: Resolved) -> Check:
    table = f"[agents.{as_toml(name) if not name.replace('-', '_').isidentifier() else name}]"
    if (adapter := load(name)) is not None and adapter.untried:
        text = f"{name} was never tried here, so it is not taken by its name alone"
        return misused("settings", text, f"an empty {table} in beads-workers.toml is enough")
    known = [*presets(), *resolved.agents]
    near = get_close_matches(name, known, n=1, cutoff=0.75)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    hint += f"; beads-workers.toml can describe another: {table}, below it argv = [...]"
    return misused("settings", f"no such agent: {name}", hint)


def presets() -> list[str]:
    """Return the names of all agents that have an adapter of their own."""
    from beads_workers.agents.presets import PRESETS

    return list(PRESETS)


def found_here() -> str:
    """Return a hint that names the agents on ``PATH``."""
    return f"agents found here: {', '.join(find_agents(os.environ.get('PATH', ''))) or 'none'}"
