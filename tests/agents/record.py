"""Records how the real command lines of agents end, for the tests of verdicts.

``python -m tests.agents.record`` runs every scenario with every installed program
(``scripts/setup-agents``) against the stub of the model APIs, and writes the corpus anew::

    python -m tests.agents.record                      everything that is installed
    python -m tests.agents.record claude-2.1.328       one program and version
    python -m tests.agents.record --only limit         scenarios with this in their name

A new version of a program is one recording: set its variable for ``scripts/setup-agents``, run
this, and look at the difference.

**The format.** An ending is two files, ``corpus/AGENT-VERSION/NAME.json`` and ``NAME.out``:

- ``NAME.out`` is stdout, byte for byte as the program wrote it, but for this: folders are
  ``/corpus/work`` (the repository) and ``/corpus/home``, and the long lists of the first line
  (tools, commands, skills) have at most three entries. Identifiers of sessions are as they were.
- ``NAME.json`` has the rest, as ``tests.agents.endings.Ending`` describes: ``agent``, ``version``,
  ``form`` (``stream-json`` or ``text``), ``arguments``, ``status`` or ``signal``, ``sent``,
  ``git`` {``commits``, ``changed``}, ``began``, ``seconds``, ``zone``, ``stderr`` and the
  ``label``: {``verdict``, ``until``, ``window``}.

**The labels** are what is true, which is not always what the program says:

- ``limited``: a usage limit of the account. ``until`` is the epoch that the server named, which is
  a whole minute, so that an adapter that has only the text (codex) can come to the same; ``null``
  where no reset was named.
- ``needs_person``: login, billing, account. Nothing mends it but a person.
- ``transient``: overload, errors of the server, a 429 of a minute, a stream that was cut.
- ``capped``: it was stopped by our own limit of turns or money.
- ``unfinished``: it was ended by a signal, or in the middle of its task: no result, refused its
  tools and changed nothing, no turn at all.
- ``no_change``: it ended well and changed nothing, whatever it says (also a question, a refusal).
- ``done``: it ended well, and there is a commit or a change.

``git`` is part of the verdict: the same stdout is ``done`` with a change and ``no_change`` without.
"""

from __future__ import annotations
