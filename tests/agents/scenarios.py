"""Which endings are recorded: for each a script of the stub, how it is run, and the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.agents.endings import Verdict

SUBSCRIPTION, API_KEY = "sk-ant-oat01-corpus", "sk-ant-api03-corpus"
LONG = "run \"touch .git/begun; python3 -c 'import time; time.sleep(20)'\""
"""A tool call in whose middle a signal comes."""
LATE = "sleep 4; touch .git/begun; sleep 20"


@dataclass(frozen=True, slots=True)
class Scenario:
    """``script``: for the stub. ``prompt``: around it; where it is ``quiet`` the program gets the
    prompt alone, and the script is the server's own. ``send``: a signal, when ``.git/begun`` is
    there or the stub keeps silent, or after so many requests (``tried``). ``mode`` names the
    arguments of the program (``tests.agents.record``). ``extra``: more arguments.
    ``environment``: changes; an empty text removes a variable. ``git``: whether the folder is a
    repository.
    """

    name: str
    script: str
    verdict: Verdict
    window: str = ""
    form: str = "stream-json"
    prompt: str = "Do the issue of this script."
    send: str = ""
    tried: int = 0
    mode: str = "free"
    extra: tuple[str, ...] = ()
    key: str = SUBSCRIPTION
    retries: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    git: bool = True
    quiet: bool = False


WORK = 'write shop/cart.py "total = 1"'

COMMON = (
    Scenario("done-commit", f'{WORK}; commit "Add the cart"; say "The cart is there."', "done"),
    Scenario("done-uncommitted", f'{WORK}; say "The cart is there."', "done"),
    Scenario("done-empty-words", f"{WORK}; commit; empty", "done"),
    Scenario("done-after-failed-command", f'run "false"; {WORK}; commit', "done"),
    Scenario("done-asks", f'{WORK}; ask "Should I commit this?"', "done"),
    Scenario("liar", 'say "I have written shop/cart.py and all tests pass."', "no_change"),
    Scenario("liar-after-look", 'run "ls"; say "Everything was done already."', "no_change"),
    Scenario("question", 'ask "Which currency should the cart use?"', "question"),
    Scenario("refuses-in-words", 'say "I cannot help with this."', "no_change"),
    Scenario("failed-commands", 'run "exit 3"; run "exit 4"; say "It does not work."', "no_change"),
    Scenario("empty", "empty", "no_change"),
    Scenario("refusal", "refuse", "unfinished"),
    Scenario("cutoff-after-change", f"{WORK}; cutoff", "unfinished"),
    Scenario("cutoff", "cutoff", "unfinished"),
    Scenario("midtask", "midtask", "unfinished"),
    Scenario("limit-five-hour", "limit five_hour 2h", "limited", "five_hour"),
    Scenario("limit-weekly", "limit seven_day 3d", "limited", "seven_day"),
    Scenario("limit-unknown", "limit five_hour unknown", "limited", "five_hour"),
    Scenario("limit-after-change", f"{WORK}; limit five_hour 4h", "limited", "five_hour"),
    Scenario("limit-after-commit", f"{WORK}; commit; limit five_hour 4h", "limited", "five_hour"),
    Scenario("login-lost", "login", "needs_person"),
    Scenario("login-lost-midway", f"{WORK}; login", "needs_person"),
    Scenario("credit-low", "credit", "needs_person"),
    Scenario("overload", "overload always", "transient"),
    Scenario("overload-after-change", f"{WORK}; overload always", "transient"),
    Scenario("overload-then-done", f"overload x1; {WORK}; commit", "done", retries=2),
    Scenario("server-error", "error always", "transient"),
    Scenario("bad-gateway", "error 502 always", "transient"),
    Scenario("busy", "busy always", "transient"),
    Scenario("busy-retried", "busy always", "transient", retries=1),
    Scenario("cut", "cut always", "transient"),
    Scenario("cut-after-commit", f"{WORK}; commit; cut always", "transient"),
    Scenario("cut-then-done", f"cut x1; {WORK}; commit", "done", retries=2),
    Scenario("dropped", "drop always", "transient"),
    *(
        Scenario(f"signal-{name.lower()}", f"{WORK}; {LONG}; commit", "unfinished", send=name)
        for name in ("TERM", "INT", "KILL", "HUP")
    ),
    Scenario("silence-term", "silence", "unfinished", send="TERM"),
    Scenario("silence-kill", "silence", "unfinished", send="KILL"),
    Scenario("background", f'background "sleep 2"; {WORK}; commit', "done"),
)

TEXTS = tuple(
    replace(scenario, name=f"text-{scenario.name}", form="text")
    for scenario in COMMON
    if scenario.name
    in {
        *("done-commit", "liar", "question", "limit-five-hour", "limit-weekly", "limit-unknown"),
        *("login-lost", "credit-low", "overload", "server-error", "busy", "cut", "signal-term"),
        *("signal-int", "empty"),
    }
)

_CLAUDE = (
    Scenario("warning-then-done", f"warn 0.92; {WORK}; commit", "done"),
    Scenario(
        *("limit-opus", "limit seven_day_opus 3d", "limited", "seven_day_opus"),
        extra=("--model", "opus"),
    ),
    Scenario("api-key-busy", "busy always", "transient", key=API_KEY),
    Scenario("api-key-lost", "login", "needs_person", key=API_KEY),
    Scenario("api-key-credit", "credit", "needs_person", key=API_KEY),
    Scenario(
        *("no-credentials", WORK, "needs_person"), environment={"CLAUDE_CODE_OAUTH_TOKEN": ""}
    ),
    Scenario(
        *("text-no-credentials", WORK, "needs_person"),
        form="text",
        environment={"CLAUDE_CODE_OAUTH_TOKEN": ""},
    ),
    Scenario("max-turns", f"{WORK}; commit; run ls; run pwd", "capped", extra=("--max-turns", "2")),
    Scenario(
        *("max-turns-no-change", "run ls; run pwd; run ls", "capped"), extra=("--max-turns", "2")
    ),
    Scenario(
        *("max-budget", f"tokens 1000 100000; {WORK}; commit; run ls", "capped"),
        extra=("--max-budget-usd", "0.5"),
    ),
    Scenario("denied", f"{WORK}; commit; say Done.", "unfinished", mode="asking"),
    Scenario("denied-in-part", f"{WORK}; commit; say Done.", "done", mode="edits"),
    Scenario("denied-rule", "run ls; say Done.", "unfinished", mode="no-bash"),
    Scenario("denied-dont-ask", f"{WORK}; commit; say Done.", "unfinished", mode="dont-ask"),
    Scenario(
        *("bad-resume", WORK, "unfinished"),
        extra=("--resume", "00000000-0000-4000-8000-000000000000"),
    ),
    Scenario("bad-option", WORK, "unfinished", extra=("--no-such-option",)),
    Scenario("bad-model", "error 404 always", "needs_person", extra=("--model", "no-such-model")),
    Scenario("as-root", WORK, "unfinished", environment={"IS_SANDBOX": ""}),
    Scenario(
        # It waits for its background work after its result, and is ended there.
        *("result-then-term", f'background "{LATE}"; {WORK}; commit', "done"),
        send="TERM",
    ),
    Scenario("slash-command", WORK, "unfinished", prompt="/cost", quiet=True),
    Scenario("empty-prompt", WORK, "unfinished", prompt="", quiet=True),
)

_CODEX = (
    *(
        Scenario(f"limit-{plan}", f"limit five_hour 2h {plan}", "limited", "five_hour")
        for plan in ("pro", "team", "business", "enterprise", "free")
    ),
    Scenario("sandbox-no-commit", f'{WORK}; commit; say "Done."', "done", mode="workspace"),
    Scenario("read-only", f'{WORK}; commit; say "Done."', "no_change", mode="read-only"),
    Scenario(
        *("bad-resume", WORK, "unfinished"),
        extra=("resume", "00000000-0000-4000-8000-000000000000"),
    ),
    Scenario("bad-option", WORK, "unfinished", extra=("--no-such-option",)),
    Scenario("outside-git", WORK, "unfinished", git=False),
    Scenario("no-key", WORK, "needs_person", environment={"STUB_KEY": ""}),
    Scenario("empty-prompt", WORK, "unfinished", prompt="", quiet=True),
)


FEW = ("aider", "kimi", "pi", "qwen")
"""Recorded with fewer endings, as their adapters call them. They have an API key: what closes an
account is a 429 to them like any other."""

_NO_TOOLS = ("aider",)

_OF_FEW = (
    Scenario("done-uncommitted", f'{WORK}; say "The cart is there."', "done"),
    Scenario("question", 'ask "Which currency should the cart use?"', "question"),
    Scenario("liar", 'say "I have written shop/cart.py and all tests pass."', "no_change"),
    Scenario("limit", "limit five_hour 2h", "transient", send="TERM", tried=3),
    Scenario("login-lost", "login", "needs_person"),
    Scenario("credit-low", "credit", "needs_person"),
    Scenario("overload", "overload always", "transient", send="TERM", tried=3),
    Scenario("server-error", "error always", "transient", send="TERM", tried=3),
    Scenario("bad-model", "error 404 always", "needs_person"),
    Scenario("silence-term", "silence", "unfinished", send="TERM"),
    Scenario("silence-kill", "silence", "unfinished", send="KILL"),
)
_OF_FEW_WITH_TOOLS = (
    Scenario("done-commit", f'{WORK}; commit "Add the cart"; say "The cart is there."', "done"),
    Scenario("done-asks", f'{WORK}; ask "Should I commit this?"', "done"),
    Scenario("login-lost-midway", f"{WORK}; login", "needs_person"),
    Scenario("signal-kill", f"{WORK}; {LONG}; commit", "unfinished", send="KILL"),
    Scenario("signal-term", f"{WORK}; {LONG}; commit", "unfinished", send="TERM"),
)
_BAD_RESUMES = {
    "kimi": ("-S", "session_00000000-0000-4000-8000-000000000000"),
    "pi": ("--session", "00000000-0000-4000-8000-000000000000"),
    "qwen": ("--resume", "00000000-0000-4000-8000-000000000000"),
}


def _few(agent: str) -> tuple[Scenario, ...]:
    found = [*_OF_FEW, *(() if agent in _NO_TOOLS else _OF_FEW_WITH_TOOLS)]
    if agent in _BAD_RESUMES:
        found.append(Scenario("bad-resume", WORK, "unfinished", extra=_BAD_RESUMES[agent]))
    if agent in ("aider", "pi"):
        found.append(
            Scenario("no-key", WORK, "needs_person", environment={"ANTHROPIC_API_KEY": ""})
        )
    return tuple(replace(scenario, key=API_KEY) for scenario in found)


_OTHERWISE: dict[tuple[str, str], Verdict] = {
    # It says that the turn is complete, and nothing else.
    ("codex", "refusal"): "no_change",
    # Its text has no question: only how many tokens it took.
    ("codex", "text-question"): "no_change",
    ("codex", "midtask"): "no_change",
    ("copilot", "refusal"): "no_change",
    ("copilot", "cutoff-after-change"): "done",
    # An answer without words is an error to them.
    ("copilot", "empty"): "unfinished",
    ("gemini", "empty"): "unfinished",
    # It tries again without a word: what it says is no more than that it was ended.
    **{("qwen", name): "unfinished" for name in ("limit", "overload", "server-error")},
    # It does not try again.
    ("gemini", "cut-then-done"): "transient",
}
"""Where the same script has another truth, because programs make different things of it."""


def scenarios(agent: str) -> tuple[Scenario, ...]:
    """All that are recorded with that program."""
    own = {"claude": (*TEXTS, *_CLAUDE), "codex": (*TEXTS, *_CODEX)}.get(agent, ())
    return tuple(
        replace(scenario, verdict=_OTHERWISE.get((agent, scenario.name), scenario.verdict))
        for scenario in (_few(agent) if agent in FEW else (*COMMON, *own))
    )
