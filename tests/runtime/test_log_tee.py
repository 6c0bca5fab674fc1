"""What scripts print, without their secrets, and where their senders want to find it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.limits import OUTPUT_BYTES_MAX
from beads_workers.core.base.model import Script
from beads_workers.core.base.plans import Plan
from beads_workers.core.base.redaction import masked
from beads_workers.core.base.scripts import (
    ANY_CONTEXT,
    Context,
    LogRoot,
    ResourceLimits,
    to_payload,
)
from beads_workers.runtime.output import LogTee
from tests.runtime import test_worker
from tests.runtime.test_worker import Bench
from tests.support.peer import wait_for

bench = test_worker.bench
SECRET = {"API_TOKEN": "hunter2-and-more", "GREETING": "hello there"}


def context(*validator: str, **more: Any) -> tuple[Context, ...]:
    return (Context(ANY_CONTEXT, ("sh",), validator=validator, **more),)


def payload(text: str, log_path: str = "", **environment: str) -> dict[str, Any]:
    return {"script": to_payload(Script(text, "sh", "ann", environment, log_path))}


def started(bench: Bench, *validator: str, **more: Any) -> Path:
    """A worker with a root for logs; where that is."""
    root = bench.folder / "root"
    root.mkdir()
    found = LogRoot(str(root), bytes_max=1000, keep=2)
    bench.start(contexts=context(*validator, **more), log_root=found)
    return root


def test_a_secret_is_masked_in_the_result_and_in_every_log(bench: Bench) -> None:
    root = started(bench)
    script = "echo say $API_TOKEN; echo $GREETING; echo $API_TOKEN >&2"
    done = bench.result("DONE", payload=payload(script, "a/job.log", **SECRET))
    stars = "*" * len(SECRET["API_TOKEN"])
    assert done["result"] == f"say {stars}\nhello there"
    expected = sorted([f"say {stars}", "hello there", stars])
    assert sorted(bench.log().splitlines()) == expected
    assert sorted((root / "a/job.log").read_text().splitlines()) == expected


def test_a_secret_in_the_last_line_is_no_error_text(bench: Bench) -> None:
    started(bench)
    failed = bench.result("FAILED", payload=payload("echo $API_TOKEN >&2; exit 1", **SECRET))
    assert failed["error"] == "*" * len(SECRET["API_TOKEN"])


def test_the_copy_grows_while_the_script_runs(bench: Bench) -> None:
    root = started(bench)
    script = "echo early; while [ ! -e go ]; do sleep 0.2; done; echo late"
    bench.peer.task(payload=payload(script, "job.log"))
    assert wait_for(root / "job.log") == "early\n"
    bench.file("go").touch()
    assert bench.peer.expect("DONE")["result"] == "early\nlate"
    assert (root / "job.log").read_text() == "early\nlate\n"


def test_the_copy_is_rotated(bench: Bench) -> None:
    root = started(bench)
    for letter in "abc":
        script = f"head -c 700 /dev/zero | tr '\\0' {letter}"
        bench.result("DONE", payload=payload(script, "job.log"))
    found = {path.name: path.read_text()[:1] for path in root.iterdir()}
    assert found == {"job.log": "c", "job.log.1": "b", "job.log.2": "a"}


@pytest.mark.parametrize("path", ["../job.log", "/etc/job.log", "a/../../job.log"])
def test_a_path_out_of_the_root_is_refused_before_anything_runs(bench: Bench, path: str) -> None:
    started(bench)
    failed = bench.result("FAILED", payload=payload("touch ran", path))
    assert failed["error"].startswith("log_path: ")
    assert failed["outcome"] == "not_found"
    assert not bench.file("ran").exists()


def test_a_link_below_the_root_is_refused_before_anything_runs(bench: Bench) -> None:
    root = started(bench)
    bench.file("outside").write_text("mine")
    (root / "job.log").symlink_to(bench.file("outside"))
    failed = bench.result("FAILED", payload=payload("touch ran", "job.log"))
    assert "log_path: job.log is a link" in failed["error"]
    assert bench.file("outside").read_text() == "mine"
    assert not bench.file("ran").exists()


def test_a_fleet_without_a_root_writes_no_log_of_a_job(bench: Bench) -> None:
    bench.start(contexts=context())
    failed = bench.result("FAILED", payload=payload("touch ran", "job.log"))
    assert failed["error"] == "log_path: this fleet has no folder for the logs of jobs"


def test_a_link_that_appears_later_gets_nothing(bench: Bench) -> None:
    root = started(bench)
    bench.file("outside").write_text("mine")
    script = f"rm {root}/job.log; ln -s {bench.folder}/outside {root}/job.log; echo words"
    assert bench.result("DONE", payload=payload(script, "job.log"))["result"] == "words"
    assert bench.file("outside").read_text() == "mine"


def test_a_validator_refuses_before_anything_runs(bench: Bench) -> None:
    bench.stub("check", "#!/bin/sh\ngrep -q touch && { echo no touching; exit 1; }; exit 0\n")
    started(bench, str(bench.folder / "stubs/check"))
    failed = bench.result("FAILED", payload=payload("touch ran"))
    assert (failed["error"], failed["outcome"]) == ("refused: no touching", "not_found")
    assert not bench.file("ran").exists()
    assert bench.result("DONE", payload=payload("echo fine"))["result"] == "fine"


def test_a_sandbox_runs_the_command_within_its_limits(bench: Bench) -> None:
    confine = ("setpriv", "--no-new-privs", "--", "env", "INSIDE=yes")
    started(bench, sandbox=confine, limits=ResourceLimits(cpu_seconds=7))
    script = "echo $INSIDE; grep NoNewPrivs /proc/self/status; ulimit -t; ulimit -c"
    words = bench.result("DONE", payload=payload(script))["result"].split()
    assert words == ["yes", "NoNewPrivs:", "1", "7", "0"]


def test_a_sandbox_that_cannot_be_set_up_runs_nothing(bench: Bench) -> None:
    started(bench, sandbox=("no-such-sandbox", "--"))
    failed = bench.result("FAILED", payload=payload("touch ran"))
    assert "no-such-sandbox" in failed["error"]
    assert not bench.file("ran").exists()


def test_a_script_that_spins_is_ended_by_its_limit(bench: Bench) -> None:
    started(bench, limits=ResourceLimits(cpu_seconds=1))
    failed = bench.result("FAILED", payload=payload("exec python3 -c 'while True: pass'"))
    assert failed["error"] == "used up its CPU time"


def test_a_secret_is_masked_before_a_flood_and_after_it(bench: Bench) -> None:
    bench.start(contexts=context(), log_bytes_max=256 << 10)
    flood = "head -c 9000000 /dev/zero | tr '\\0' x >&2"
    script = f"echo $API_TOKEN >&2; {flood}; echo $API_TOKEN >&2; head -c 2000000 /dev/zero"
    bench.result("DONE", payload=payload(f"{script} | tr '\\0' y", **SECRET))
    log = bench.log()
    assert SECRET["API_TOKEN"] not in log
    assert "bytes are left out here" in log
    assert log.startswith("*" * len(SECRET["API_TOKEN"]))


def test_a_secret_that_was_cut_through_is_left_out(bench: Bench) -> None:
    bench.start(contexts=context())
    room = OUTPUT_BYTES_MAX - 3
    script = f"head -c {room} /dev/zero | tr '\\0' x; echo $API_TOKEN"
    done = bench.result("DONE", payload=payload(script, **SECRET))
    result = json.loads(Path(done["result_file"]).read_text())
    assert SECRET["API_TOKEN"][:3] not in result
    left_out = len(SECRET["API_TOKEN"]) - 1 + len(SECRET["API_TOKEN"]) + 1 - 3
    assert result.endswith(f"x\n[{left_out} bytes more]")


def test_what_is_secret_of_the_fleet_itself_is_not_inherited(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETS_OWN", "hunter2")
    monkeypatch.setenv("FOR_ALL", "hello")
    bench.start(contexts=context(), hidden_variables=("FLEETS_OWN", "NOT_THERE"))
    script = 'echo "[$FLEETS_OWN] [$FOR_ALL]"'
    assert bench.result("DONE", payload=payload(script))["result"] == "[] [hello]"


@given(st.data())
def test_no_secret_is_passed_on_however_its_bytes_arrive(data: st.DataObject) -> None:
    secrets = ("swordfish", "sword-of-gold")
    words = st.lists(st.sampled_from(["swordfish", "sword-of-gold", "sword", "s", "\n"]))
    text = "".join(data.draw(words)).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    file = os.memfd_create("log")
    try:
        tee = LogTee(Plan((), "", "", "", "", secrets=secrets), 0)
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            os.write(file, text[start:end])
            tee.look(file, 1 << 20)
        tee.look(file, 1 << 20, last=True)
        left = os.pread(file, 1 << 20, 0)
    finally:
        os.close(file)
    assert left == masked(text, [secret.encode() for secret in secrets])
