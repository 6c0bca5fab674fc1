"""A stub of the model APIs, for real command lines of agents without a network or money.

``ModelApi`` (``server``) listens on loopback and speaks what ``claude`` (Anthropic Messages),
``codex`` (OpenAI Responses) and ``gemini`` ask. What the model "thinks" stands in the prompt, as a
script in brackets (``script``), so a whole backlog is described by its issues. Accounts
(``accounts``) have limits, logins and a meter.

The words: a *script* is a list of *turns*; a turn is one answer of the model: *faults* first, then
calls of tools or the last text. An *account* is a credential. A *charge* is what one answer cost.
"""

from tests.agents_api.accounts import Account, Charge
from tests.agents_api.script import Tokens
from tests.agents_api.server import ModelApi

__all__ = ["Account", "Charge", "ModelApi", "Tokens"]
