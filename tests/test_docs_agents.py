"""The tables of docs/AGENTS.md against the code that they tell of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from beads_workers.agents.adapter import load, names
from beads_workers.agents.events import Kind
from beads_workers.agents.prompt import PLACEHOLDERS
from beads_workers.attempts.hook import NEVER, REFUSED
from beads_workers.attempts.process import AFTER_RESULT_SECONDS
from beads_workers.cli.config import read_text
from beads_workers.core.base import limits
from beads_workers.core.records.receipts import AccountTrouble
from beads_workers.core.schedule.agent_work import AGENT_LABEL, MODEL_LABEL
from beads_workers.executors.command import NO_CHANGE_LABEL, PATHS_LABEL
from beads_workers.options import KEYS, AgentTable
from beads_workers.trackers.issue import TIMEOUT_LABEL
from tests.test_docs import ROOT, fences

AGENTS = ROOT / "docs" / "AGENTS.md"
CLI = ROOT / "docs" / "CLI.md"


def section(heading: str) -> str:
    """The text below a heading, up to the next one."""
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", AGENTS.read_text(), re.M | re.S
    )
    assert found, f"no heading {heading!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of a table, without its head."""
    lines = [line.strip()[1:-1].split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[2:]]


def yes(flag: bool) -> str:
    return "yes" if flag else "no"


def test_every_command_line_stands_in_its_table_with_what_it_can() -> None:
    table = {row[0].strip("`"): row[1:] for row in rows(section("The command lines"))}
    assert table.keys() == set(names())
    for name, (measured, session, prompt, _, money) in table.items():
        adapter = load(name)
        assert adapter is not None
        known = ", ".join(adapter.measured) or ("untried" if adapter.untried else "-")
        assert (measured, session) == (known, yes(adapter.own_session)), name
        assert money == yes(adapter.tells_money), name
        assert prompt == ("argument" if adapter.prompt_bytes_max else "stdin"), name


def test_verdicts_stand_in_their_order_with_what_is_charged() -> None:
    table = rows(section("Verdicts"))
    assert [row[0].strip("`") for row in table] == [kind.value for kind in Kind]
    free = {row[0].strip("`") for row in table if row[2] == "no"}
    assert free == {trouble.value for trouble in AccountTrouble}


def test_labels_guards_placeholders_and_keys_are_all_there() -> None:
    labels = [row[0].strip("`").partition(":") for row in rows(section("Labels of an issue"))]
    said = {name + colon for name, colon, _ in labels}
    assert said == {AGENT_LABEL, MODEL_LABEL, TIMEOUT_LABEL, NO_CHANGE_LABEL, PATHS_LABEL}
    guard = next(row for row in rows(section("Guards")) if "`bd`" in row[0])
    assert re.findall(r"`([a-z]+)`", guard[1]) == [*REFUSED, *NEVER]
    prompt = section("The prompt")
    assert {name for name in PLACEHOLDERS if f"`{{{name}}}`" in prompt} == set(PLACEHOLDERS)
    keys = {row[0].strip("`") for row in rows(section("Settings"))}
    assert keys == set(AgentTable.__slots__)


def option_table() -> dict[str, tuple[str, str]]:
    """The options for agents of docs/CLI.md: name to what is typed, and the default as it says."""
    text = CLI.read_text()
    table = text[text.index("Options for agents") :].split("\n\n")[1]
    found = {}
    for typed, default, _ in rows(table.replace("\\|", "/")):
        for flag in re.findall(r"--([a-z-]+)", typed):
            found[flag.replace("-", "_")] = (f"--{flag}", default.strip("`"))
    return found


@pytest.mark.parametrize("name", sorted(option_table()))
def test_an_option_for_agents_is_told_of_with_its_default(name: str) -> None:
    flag, said = option_table()[name]
    assert flag in AGENTS.read_text()
    option = KEYS[name]
    default = option.default or None
    assert default == (option.read(option.kind.parse(said)) if said and option.kind.parse
                       else option.read(option.kind.from_text(said)) if said else None)  # fmt: skip


def test_clocks_and_spans_are_those_of_the_limits() -> None:
    clocks = {row[0]: row[1] for row in rows(section("Clocks"))}
    assert clocks["after its result"] == f"{AFTER_RESULT_SECONDS:g} s"
    assert clocks["`--stall`"] == f"{limits.STALL_SECONDS / 60:g}m"
    assert clocks["`--term-grace`"] == f"{limits.TERM_GRACE_SECONDS:g}s"
    accounts = section("Limits, logins, overload")
    for said in (
        f"`--reset-grace` ({limits.RESET_GRACE_SECONDS:g} s)",
        f"`--probe` ({limits.PROBE_SECONDS / 60:g} min)",
        f"closed for {limits.TRANSIENT_DELAY_SECONDS:g} s",
        f"after {limits.TRANSIENT_SECONDS_MAX / 3600:g} h attempts are charged",
        f"From {limits.UTILIZATION_HIGH:.0%}".replace("%", " %"),
        f"({limits.PERSON_WAIT_SECONDS / 3600:g} h) with exit 7",
    ):
        assert said in " ".join(accounts.split()), said
    assert f"keeps {limits.LOG_BYTES_MAX >> 20} MiB" in section("Logs")
    assert f"{limits.CLOSE_REASON_CHARS_MAX:,} characters" in section("What an attempt is")


def test_the_settings_that_are_shown_are_settings() -> None:
    for text in fences(AGENTS, "toml"):
        _, agents = read_text(Path("shown.toml"), text.encode())
        assert agents
