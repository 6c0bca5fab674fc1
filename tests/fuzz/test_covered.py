"""No module reads what others wrote without being fuzzed, or a reason why it need not be."""

from __future__ import annotations

import ast

from tests.fuzz.table import PARSERS
from tests.test_tidy import MODULES, PACKAGE, dotted, tree

READS = frozenset(
    {
        "json.loads", "json.load", "json.JSONDecoder", "struct.unpack", "tomllib.load",
        "tomllib.loads", "datetime.fromisoformat", "parse_object", "strict_loads",
        "LineReader",
    }
)  # fmt: skip
"""Calls that turn bytes or text of somebody else into values. Regular expressions and ``split`` are
not among them: most have nothing to do with outside input, so what they read is found by people."""

EXEMPT = {
    "checks/agents.py": "a login that is shown as text; anything else than an object says nothing",
    "checks/verify.py": "files of the user's project; what cannot be read proposes nothing",
    "core/records/assignment.py": "what our own worker hands to our own program",
    "attempts/hook.py": "the call of a tool as claude tells it; what it is not, is let pass",
    "attempts/ask_hook.py": "the same of a question; what it is not, is not decided",
    "ui/agents.py": "one time of ours in a snapshot; anything else is shown as it is",
    "runtime/attempt_channel.py": "what our own program answers; its receipt is 'receipts', fuzzed",
    "chaos/landed.py": "what its own gates have written",
    "chaos/account.py": "what its own tasks and runs have written, which it is there to judge",
    "chaos/workspace.py": "a throw-away tracker that it has made itself, judged in a test run",
    "integrations/dispatcherd/fleet_settings.py": "a user's file; 'from_config', fuzzed, judges it",
    "runtime/live_page.py": "the file of our own server, which nobody else can write",
    "cli/web.py": "its own file, which nobody else can read, and the first line of its own child",
    "cli/review.py": "its own file: which commits were shown; what it is not, was not shown",
    "core/base/source.py": "times of comments; one that is no time is left out, which is a test",
    "runtime/within_attempt.py": "run.json of a run whose lock it has looked at",
    "runtime/endings.py": "ended.json, which is written in one step; only 'object' is asked",
    "cli/fleet.py": "run.json, for the pid of a run that is known to live",
    "cli/restart.py": "run.json of a fleet that has just been talked to",
    "ui/reasons.py": "one time of a tracker; anything else than a time is shown as it is",
    "integrations/dispatcherd/brokers.py": "lines by the fuzzed 'LineReader'",
    "landing/sees/leads.py": "a file of the user's environment; what it is not, leads nowhere",
    "landing/set_up.py": "what it has written itself; anything else is no set-up that is kept",
    "worktrees/reuse.py": "what it has written itself; a digest in the records says that it has",
    "worktrees/relocation.py": "the mark in a git directory, which it has written itself",
    "landing/gate.py": "verdicts and answers that it has written itself",
    "runtime/lander.py": "lines by the fuzzed 'LineReader', each read by 'landing', fuzzed",
    "runtime/function_host.py": "the worker at the other end of that socket pair",
    "runtime/concurrent_host.py": "the worker at the other end of that socket pair",
    "runtime/concurrent_functions.py": "lines by the fuzzed 'LineReader', each read by 'functions'",
    "runtime/slots.py": "the JSON that 'model.kept' has just written",
    "runtime/handshake.py": "our own client at the other end of a socket pair",
    "runtime/trust_store.py": "its own file, of this user alone; damaged ones are a test",
    "runtime/project.py": "the mark in a git directory: three paths",
    "runtime/output.py": "the JSON that it has written itself",
    "integrations/rrq/driver.py": "the JSON that 'executors.rrq.translating' has just written",
    "runtime/steps.py": "the place file that this worker's own preparation has written",
    "runtime/sockets.py": "three integers from the kernel; lines by the fuzzed 'LineReader'",
    "integrations/tracing/tracer.py": "the same, by 'parse_object' and 'LineReader', both fuzzed",
    "runtime/worker.py": "what the orchestrator says: 'messages.parse', fuzzed",
    "executors/functions.py": "the JSON that it has written in the line before",
    "worktrees/pool.py": "what this program hands itself",
    "worktrees/orders.py": "what this program hands itself as an argument",
    "runtime/zygote.py": "our own fork at the other end of a socket pair that no task inherits",
    "runtime/zygote_loop.py": "the orchestrator at the other end of that socket pair",
    "integrations/hero/source.py": "a result whose JSON a worker's message, or a journal, has held",
    "executors/files.py": "whether a file is JSON; whatever it holds goes to the peer",
    "places/line.py": "a host's lines; hostile ones are tests: tests/places/test_hostile.py",
    "places/away.py": "the process of its place, and answers by the fuzzed 'parse'; the same tests",
    "places/guard.py": "home's words and its own files; hostile ones are tests: test_guard.py",
    "places/host.py": "what home has sent to this attempt, and a worker of ours here",
    "places/parcel.py": "its own file, of this user alone; another one begins the chain anew",
    "places/ray.py": "the helper that it has started itself",
    "places/ray_helper.py": "who has started it",
    "runtime/places.py": "the process that it has started itself; an answer is our own program's",
    "runtime/side_programs.py": "lines by the fuzzed 'LineReader'",
    "trackers/sqlite/store.py": "columns that 'issue.from_object' has checked before they went in",
}
"""What reads, and is not fuzzed: the reason. Nothing else is excepted."""


def reading(module: ast.AST) -> set[str]:
    """Which of the reading calls a module makes, by the last one or two parts of their names."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            found |= {name, ".".join(name.split(".")[-2:]), name.rpartition(".")[2]} & READS
    return found


COVERED = {file for parser in PARSERS.values() for file in parser.reads}


def test_what_reads_is_fuzzed_or_says_why_not() -> None:
    files = {str(path.relative_to(PACKAGE)): path for path in MODULES}
    reads = {
        file: reading(tree(path))
        for file, path in files.items()
        if file not in COVERED and not EXEMPT.get(file)
    }
    unknown = {file: found for file, found in reads.items() if found}
    assert unknown == {}, "give each an entry in tests/fuzz"


def test_nothing_is_excepted_that_is_fuzzed_or_is_not_there() -> None:
    files = {str(path.relative_to(PACKAGE)): path for path in MODULES}
    assert files.keys() >= COVERED, "an entry for a module that is not there"
    for file in EXEMPT:
        assert file in files and file not in COVERED, file


def test_a_planted_reader_is_found() -> None:
    assert reading(ast.parse("import json\nvalue = json.loads(text)")) == {"json.loads"}
    assert reading(ast.parse("x = datetime.fromisoformat(y)\nz = messages.parse_object(y)"))
