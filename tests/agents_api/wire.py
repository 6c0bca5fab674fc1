"""What the wires of all model APIs have in common: a question, an answer, a failure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from tests.agents_api.accounts import Account, Refusal
from tests.agents_api.script import Fault, Prompt, Turn

# What a program adds to a conversation by itself, which nobody has said.
MACHINE = (
    *("<system-reminder", "<task-notification", "<environment_context", "<local-command"),
    "Continue from where you left off.",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. ``side``: it has no tools, a program asks it for itself (a title, a summary).

    ``plain``: nor does it want any, its answers are texts with blocks (aider).
    """

    session: str
    model: str
    prompts: tuple[Prompt, ...]
    tools: frozenset[str]
    stream: bool
    plain: bool = False

    @property
    def side(self) -> bool:
        return not (self.tools or self.plain)


@dataclass(frozen=True, slots=True)
class Failure:
    """A response that is no answer."""

    status: int
    headers: dict[str, str]
    body: bytes


class Wire(Protocol):
    """One API. Pure: bytes and facts in, bytes out."""

    def credential(self, headers: dict[str, str]) -> str:
        """Of a request, whose header names are in lower case."""

    def asked(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Asked:
        """What a request says."""

    def answer(self, asked: Asked, turn: Turn) -> list[bytes]:
        """The pieces of a stream; one piece where none was asked for."""

    def headers(self, account: Account) -> dict[str, str]:
        """What an answer says about the account."""

    def refusal(self, account: Account, refusal: Refusal) -> Failure:
        """The account may not ask now."""

    def failure(self, fault: Fault) -> Failure:
        """``overload``, ``error`` or ``busy``."""


def conversation(said: list[tuple[str, str]]) -> tuple[Prompt, ...]:
    """Prompts from ``("user", text)`` and ``("call", "")`` in their order."""
    prompts: list[Prompt] = []
    for kind, text in said:
        if kind == "user" and text.strip() and not text.lstrip().startswith(MACHINE):
            prompts.append(Prompt(text))
        elif kind == "call" and prompts:
            prompts[-1] = Prompt(prompts[-1].text, prompts[-1].turns + 1)
    return tuple(prompts)


def event(name: str, data: dict[str, Any]) -> bytes:
    """One server-sent event; ``name`` is also its type."""
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def failed(status: int, body: dict[str, Any], **headers: str) -> Failure:
    """A failure with a JSON body; ``_`` in the names of headers stands for ``-``."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Failure(status, named, json.dumps(body).encode())
