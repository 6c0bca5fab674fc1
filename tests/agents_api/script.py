"""What a prompt tells the stub to do: ``[[stub: write shop/cart.py "text"; commit]]``.

A prompt may hold several scripts; those without a condition run one after the other. One with a
condition runs *instead*, when the newest prompt of the conversation contains its text::

    [[stub: write shop/cart.py "total = 1"; commit]]
    [[stub when "AssertionError": write shop/cart.py "total = 2"; commit "mend the total"]]

So a prompt that shows the output of a failed ``verify`` makes the second one run. A script goes on
where it was when a session is resumed with a prompt that has none. ``\\n`` in a text is a new line.

Each of these is a turn, an answer of the model with a tool call:

- ``write PATH TEXT`` · ``edit PATH OLD NEW`` (whole lines) · ``read PATH``
- ``run COMMAND`` · ``background COMMAND`` · ``commit [MESSAGE]``
- ``question TEXT CHOICE CHOICE``, asked by the agent's own tool: ``+`` before the next question of
  the same call, ``++`` before that of another call in the same message. The answer is a prompt.

The last turn has no call. By itself it says "Done."; otherwise one of these ends the script:

- ``say TEXT`` · ``ask TEXT``: these words
- ``refuse``: stop reason ``refusal`` · ``cutoff``: the model's limit of tokens
- ``empty``: no words at all · ``midtask``: stop reason ``tool_use`` without a tool

These come before the turn that follows them, once, or N times with ``xN`` at the end, or ``always``
(counted by the text of the script and its place in it, in all sessions together):

- ``limit [WINDOW] [TIME | unknown] [PLAN]``: closes the account; ``limit seven_day 3d team``
- ``login [TIME]`` · ``credit``: closes it until somebody mends it, or for that time
- ``overload`` (529) · ``error [STATUS]`` (500) · ``busy`` (429 of a minute)
- ``drop``: no answer, the connection ends · ``cut``: it ends in the middle of the answer
- ``wait TIME``: before the first byte · ``stall TIME``: after it · ``silence``: for ever
- ``warn SHARE``: from now on the account says that 0.92 of its window is used

``tokens INPUT OUTPUT [CACHE_READ [CACHE_WRITE]]`` is what each answer from there on costs. A TIME
is ``20s``, ``15m``, ``2h``, ``3d``; the server may scale it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

ACTIONS = {"write": 2, "edit": 3, "read": 1, "run": 1, "background": 1, "commit": 0, "question": 1}
"""Verbs that are tool calls, with how many words they need."""

ENDS = {"say": "end_turn", "ask": "end_turn", "empty": "end_turn"} | {
    "refuse": "refusal",
    "cutoff": "max_tokens",
    "midtask": "tool_use",
}
"""Verbs that end a script, with the stop reason as Anthropic's API calls it."""

# fmt: off
FAULTS = frozenset({
    "limit", "login", "credit", "overload", "error", "busy", "drop", "cut", "wait", "stall",
    "silence", "warn",
})
# fmt: on

ALWAYS = 1_000_000
DONE = "Done."
_BLOCK = re.compile(r'\[\[stub(?:\s+when\s+"(?P<when>[^"]*)")?\s*:(?P<steps>.*?)\]\]', re.DOTALL)
_STEPS = re.compile(r""";(?=(?:[^"]*"[^"]*")*[^"]*$)""")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class ScriptError(ValueError):
    """A script that cannot be understood: the message says which step."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What an answer costs. ``input`` is without what the cache had (``cache_read``) or took."""

    input: int = 1000
    output: int = 20
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong ``times`` times before the turn comes."""

    verb: str
    words: tuple[str, ...] = ()
    times: int = 1


@dataclass(frozen=True, slots=True)
class Action:
    """One tool call: ``write`` with a path and a text, ``run`` with a command, ..."""

    verb: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer: ``faults`` first, then ``action``, or, where that is ``None``, the last text."""

    faults: tuple[Fault, ...] = ()
    action: Action | None = None
    text: str = DONE
    stop: str = "end_turn"
    tokens: Tokens = Tokens()


@dataclass(frozen=True, slots=True)
class Script:
    """``turns``, of which the last one is repeated when more are asked for.

    ``text`` names it: faults of scripts with the same text are counted together."""

    text: str
    turns: tuple[Turn, ...]

    def turn(self, number: int) -> Turn:
        """The turn that follows ``number`` tool calls."""
        return self.turns[min(number, len(self.turns) - 1)]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Something that a user said, and how many turns with tool calls came after it."""

    text: str
    turns: int = 0


@dataclass(slots=True)
class _Building:
    faults: list[Fault] = field(default_factory=list)
    tokens: Tokens = field(default_factory=Tokens)
    turns: list[Turn] = field(default_factory=list)

    def add(self, action: Action | None, text: str = DONE, stop: str = "end_turn") -> None:
        self.turns.append(Turn(tuple(self.faults), action, text, stop, self.tokens))
        self.faults = []


def choose(prompts: Sequence[Prompt], default: str = "") -> tuple[Script, Turn]:
    """The script of a conversation and its next turn; ``default`` is for one without a script.

    Raises ``ScriptError``."""
    newest = _BLOCK.sub("", prompts[-1].text) if prompts else ""
    for prompt in prompts:
        for block in _BLOCK.finditer(prompt.text):
            if block["when"] is not None and block["when"] in newest:
                script = parse(block["steps"])
                return script, script.turn(prompts[-1].turns)
    turns = 0
    for prompt in reversed(prompts):
        turns += prompt.turns
        plain = [b["steps"].strip() for b in _BLOCK.finditer(prompt.text) if b["when"] is None]
        if plain:
            script = parse("; ".join(plain))
            return script, script.turn(turns)
    script = parse(default)
    return script, script.turn(prompts[-1].turns if prompts else 0)


def parse(text: str) -> Script:
    """A script from the words between the brackets. Raises ``ScriptError``."""
    building = _Building()
    for step in _STEPS.split(text.strip()):
        try:
            words = [word.replace("\\n", "\n") for word in shlex.split(step)]
        except ValueError as error:
            raise ScriptError(f"{step!r}: {error}") from error
        if words and _step(building, words[0], words[1:], step):
            return Script(text, tuple(building.turns))
    building.add(None)
    return Script(text, tuple(building.turns))


def _step(building: _Building, verb: str, words: list[str], step: str) -> bool:
    """Whether the script ends with it."""
    if verb in ACTIONS:
        if len(words) < ACTIONS[verb]:
            raise ScriptError(f"{step.strip()!r}: {verb} needs {ACTIONS[verb]} words")
        if verb == "edit":  # An agent reads a file before it changes it.
            building.add(Action("read", (words[0],)))
        building.add(Action(verb, tuple(words)))
    elif verb in FAULTS:
        fault = Fault(verb, *_times(words))
        if verb in ("wait", "stall", "warn") and len(fault.words) != 1:
            raise ScriptError(f"{step.strip()!r}: {verb} needs one word")
        building.faults.append(fault)
    elif verb == "tokens":
        building.tokens = Tokens(*map(int, words))
    elif verb in ENDS:
        building.add(None, " ".join(words), ENDS[verb])
        return True
    else:
        raise ScriptError(f"{step.strip()!r}: unknown verb")
    return False


def _times(words: list[str]) -> tuple[tuple[str, ...], int]:
    last = words[-1] if words else ""
    if last == "always":
        return tuple(words[:-1]), ALWAYS
    if re.fullmatch(r"x\d+", last):
        return tuple(words[:-1]), int(last[1:])
    return tuple(words), 1


def seconds(text: str) -> float:
    """``15m`` in seconds. Raises ``ScriptError``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if match is None:
        raise ScriptError(f"{text!r} is no time: 20s, 15m, 2h, 3d")
    return float(match[1]) * _UNITS[match[2]]


SHELL: dict[str, Callable[[Sequence[str]], str]] = {
    "run": lambda words: words[0],
    "background": lambda words: f"({words[0]}) >/dev/null 2>&1 &",
    "read": lambda words: f"cat {shlex.quote(words[0])}",
    "commit": lambda words: _commit(words[0] if words else "Do the work"),
    "question": lambda words: f"echo {shlex.quote(words[0])}",
    "write": lambda words: (
        f"mkdir -p $(dirname {shlex.quote(words[0])}) && "
        f"printf '%s\\n' {shlex.quote(words[1])} >{shlex.quote(words[0])}"
    ),
    "edit": lambda words: (
        "python3 -c 'import sys; p, a, b = sys.argv[1:]; t = open(p).read(); "
        'assert a in t, "not found"; open(p, "w").write(t.replace(a, b, 1))\' '
        + shlex.join(words[:3])
    ),
}
"""Each action as one command of a shell, for agents that have nothing better."""


def _commit(message: str) -> str:
    return f"git add -A && git commit -q -m {shlex.quote(message)} && git log -1 --oneline"


def questions(words: Sequence[str]) -> list[list[tuple[str, list[str]]]]:
    """The calls of a ``question``, each with its questions and their choices."""
    calls: list[list[tuple[str, list[str]]]] = []
    begins = "++"
    for word in words:
        if word in ("+", "++"):
            begins = word
        elif begins:
            if begins == "++":
                calls.append([])
            calls[-1].append((word, []))
            begins = ""
        else:
            calls[-1][-1][1].append(word)
    return calls
