"""A hook of claude's: ends a run at a question to a person, and answers it when the run goes on.

``python ask_hook.py FILE`` reads a call of ``AskUserQuestion`` from stdin. If FILE has the answers
to this call, the call is answered, else deferred: claude ends there, and its session waits. Run as
a file, so it imports nothing of ours.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def decision(call: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hook's answer. ``known``: the id of an answered ``call``, and its ``answers``:
    texts of people, each for all questions of the call. Raises ``KeyError`` and ``TypeError``."""
    said: dict[str, Any] = {"hookEventName": "PreToolUse", "permissionDecision": "defer"}
    if call["tool_use_id"] == known.get("call"):
        asked = call["tool_input"]["questions"]
        given = {"questions": asked, "answers": answered(asked, known["answers"])}
        said |= {"permissionDecision": "allow", "updatedInput": given}
    return {"hookSpecificOutput": said}


def answered(asked: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> dict[str, str]:
    """Return the answer to each question, by its text; several texts answer it together."""
    parts = [split(text, len(asked)) for text in texts]
    return {
        each["question"]: "\n".join(dict.fromkeys(chosen(each, part[at]) for part in parts))
        for at, each in enumerate(asked)
    }


def split(text: str, count: int) -> list[str]:
    """Return what a text says to each of several questions: lines, parts between ``;``, or choices
    by number (``2 1``), in their order. Any other text is the answer to each of them."""
    text = text.strip()
    by_number = text.replace(",", " ").split()
    for parts in (text.split("\n"), text.split(";"), by_number if _NUMBERS.fullmatch(text) else []):
        told = [part.strip() for part in parts if part.strip()]
        if len(told) == count > 1:
            return [_own(each, number) for number, each in enumerate(told, 1)]
    return [text] * count


def chosen(question: Mapping[str, Any], text: str) -> str:
    """Return the choices that a text names by label or number, as claude expects it; the text as it
    is if it names none."""
    labels = [str(option["label"]) for option in question.get("options", ())]
    known = {str(number): label for number, label in enumerate(labels, 1)}
    known |= {label.casefold(): label for label in labels}
    words = text.split(",") if question.get("multiSelect") else [text]
    named = [known.get(word.strip(" .)").casefold()) for word in words]
    return ", ".join(label for label in named if label) if all(named) else text


_NUMBERS = re.compile(r"[\d\s,]+")


def _own(text: str, number: int) -> str:
    """Leave out the question's own number before its answer: ``2: blue``, ``2) blue``."""
    return re.sub(rf"^{number}\s*[:)]\s*|^{number}/\d+:?\s*", "", text) or text


def main() -> int:
    """Run the hook, and return 0. If nothing can be read it decides nothing: claude then refuses
    the call, and goes on."""
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            known = json.load(file)
    except (OSError, ValueError, IndexError):
        known = {}
    try:
        sys.stdout.write(json.dumps(decision(json.load(sys.stdin), known)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
