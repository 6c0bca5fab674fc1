"""What a script says on its stdout is the result of its task, and stands in its log as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import Script
from beads_workers.core.base.scripts import ANY_CONTEXT, Context, to_payload
from tests.runtime import test_worker
from tests.runtime.test_worker import Bench
from tests.support.peer import wait_for

bench = test_worker.bench
SHELL = (Context(ANY_CONTEXT, ("sh",)),)


def done(bench: Bench, script: str) -> dict[str, Any]:
    bench.start(contexts=SHELL)
    return bench.result("DONE", payload={"script": to_payload(Script(script))})


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 42", "42"),
        ("true", ""),
        ("printf 'a\\n\\nb\\n\\n'", "a\n\nb\n"),
        ("printf 'x\\377y'", "x\ufffdy"),
        ("echo noise >&2; echo words", "words"),
    ],
)
def test_its_words_are_the_result(bench: Bench, script: str, said: str) -> None:
    assert done(bench, script)["result"] == said


def test_the_log_has_both_what_it_said_and_what_it_complained_about(bench: Bench) -> None:
    done(bench, "echo words; echo noise >&2")
    assert sorted(bench.log().split()) == ["noise", "words"]


def test_what_it_says_is_in_the_log_while_it_runs(bench: Bench) -> None:
    bench.start(contexts=SHELL)
    script = "echo early; while [ ! -e go ]; do sleep 0.2; done; echo late"
    bench.peer.task(payload={"script": to_payload(Script(script))})
    assert wait_for(bench.run / "logs" / ".W1.out") == "early\n"
    bench.file("go").touch()
    assert bench.peer.expect("DONE")["result"] == "early\nlate"


def test_a_long_result_lies_in_a_file(bench: Bench) -> None:
    message = done(bench, f"head -c {limits.RESULT_CHARS_MAX} /dev/zero | tr '\\0' x")
    result = json.loads(Path(message["result_file"]).read_text())
    assert result == "x" * limits.RESULT_CHARS_MAX


def test_what_has_no_end_is_cut_and_says_so(bench: Bench) -> None:
    size = limits.OUTPUT_BYTES_MAX + 1000
    message = done(bench, f"head -c {size} /dev/zero | tr '\\0' x")
    result = json.loads(Path(message["result_file"]).read_text())
    assert result == "x" * limits.OUTPUT_BYTES_MAX + "\n[1000 bytes more]"


def test_one_that_talks_without_end_is_still_ended_in_time(bench: Bench) -> None:
    bench.start(contexts=SHELL, timeout_seconds=0.3)
    failed = bench.result("FAILED", payload={"script": to_payload(Script("exec yes"))})
    assert failed["outcome"] == "timeout"


def test_a_script_that_fails_has_no_result_and_its_last_line_is_the_error(bench: Bench) -> None:
    bench.start(contexts=SHELL)
    script = Script("echo 42; echo no such shop >&2; exit 3")
    failed = bench.result("FAILED", payload={"script": to_payload(script)})
    assert "result" not in failed
    assert failed["error"] in ("no such shop", "42")


def test_somebody_who_stays_behind_keeps_no_worker_waiting(bench: Bench) -> None:
    message = done(bench, "setsid sleep 60 & echo gone")
    assert message["result"] == "gone"
