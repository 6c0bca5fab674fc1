"""The ``hero`` commands on a real Redis; whoever serves the queues is played by its commands."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from beads_workers.cli.application import build
from beads_workers.errors import CommandError
from beads_workers.integrations.hero.view import job_of, read_line
from tests.support.fleet import until
from tests.support.peers import Redis


class Shell:
    """Calls the commands in a folder of their own, on this Redis."""

    def __init__(self, redis: Redis, folder: Path) -> None:
        self.redis = redis
        self.folder = folder
        self.stderr = ""

    def __call__(self, *words: str, stdin: str = "") -> str:
        """What it prints; raises ``CommandError`` where it fails with one."""
        done = CliRunner().invoke(build(["hero"]), ["hero", *words], input=stdin)
        self.stderr = done.stderr
        if isinstance(done.exception, CommandError):
            raise done.exception
        assert done.exit_code == 0, (done.output, done.stderr)
        return done.stdout

    def refused(self, *words: str, stdin: str = "") -> CommandError:
        """How it fails."""
        with pytest.raises(CommandError) as caught:
            self(*words, stdin=stdin)
        return caught.value

    def queue(self) -> list[str]:
        """The ids in the queue of w1, the newest first."""
        return self.redis.command("lrange", "hero:work_queue:w1", "0", "-1").split()

    def serve(self, status: str, **fields: str) -> threading.Thread:
        """Take one job in the background and end it like this."""

        def take() -> None:
            job_id = self.redis.command("blpop", "hero:work_queue:w1", "60").split()[1]
            flat = [word for pair in fields.items() for word in pair]
            self.redis.command("hset", f"hero:job:{job_id}", "status", status, *flat)
            self.redis.command("lpush", f"hero:reply:{job_id}", "x")

        worker = threading.Thread(target=take)
        worker.start()
        return worker


@pytest.fixture
def shell(redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BEADS_WORKERS_REDIS_URL", raising=False)
    url, root = f"redis://127.0.0.1:{redis.port}/0", tmp_path / "logs"
    root.mkdir()
    table = f'[hero]\nurl = "{url}"\nworker = "w1"\nlog_root = "{root}"\n'
    (tmp_path / "beads-workers.toml").write_text(table)
    return Shell(redis, tmp_path)


def test_a_script_is_handed_in_from_a_file_an_option_or_stdin(shell: Shell) -> None:
    (shell.folder / "job.sh").write_text("echo file\n")
    ids = [
        shell("submit", "job.sh").strip(),
        shell("submit", "-e", "echo option").strip(),
        shell("submit", stdin="echo stdin").strip(),
    ]
    assert shell.queue() == ids[::-1]
    scripts = [json.loads(shell("status", i, "--json"))["jobs"][0]["script"] for i in ids]
    assert scripts == ["echo file\n", "echo option", "echo stdin"]


def test_every_option_of_a_job_is_a_field_of_its_hash(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_HERE", "it")
    options = "--context sh --caller ann --timeout 2.5 --retries 3 --concurrent --log-path a/b.log"
    shell("submit", "-e", "x", "--id", "j1", *options.split(), "--env", "A=b=c", "--env",
          "FROM_HERE", "--after", "x", "--after", "y")  # fmt: skip
    words = shell.redis.command("hgetall", "hero:job:j1").splitlines()
    fields = dict(zip(words[::2], words[1::2], strict=True))
    assert fields.pop("created_at") == fields.pop("updated_at")
    assert fields == {
        "id": "j1", "caller_id": "ann", "worker_id": "w1", "context_id": "sh", "script": "x",
        "timeout": "2.5", "retries": "3", "concurrent": "true", "log_path": "a/b.log",
        "status": "dispatched", "env_vars": '{"A":"b=c","FROM_HERE":"it"}',
        "prerequisites": '["x","y"]',
    }  # fmt: skip


def test_run_prints_the_output_and_ends_as_the_job_did(shell: Shell) -> None:
    worker = shell.serve("finished", output="42")
    assert shell("run", "-e", "echo 42") == "42\n"
    worker.join()
    worker = shell.serve("finished", output="42")
    assert json.loads(shell("run", "-e", "echo 42", "--json"))["output"] == "42"
    worker.join()
    worker = shell.serve("error", error="timeout")
    failed = shell.refused("run", "-e", "echo 42")
    worker.join()
    assert (failed.message, failed.exit_code) == ("the job failed: timeout", 1)
    late = shell.refused("run", "-e", "echo 42", "--wait", "0.1")
    assert (late.exit_code, late.hint.split()[0]) == (124, "it")


def test_a_batch_is_handed_in_as_a_whole_or_not_at_all(shell: Shell) -> None:
    lines = [
        json.dumps({"script": f"echo {n}", "timeout": n, "env_vars": {"A": "b"}}) for n in (1, 2)
    ]
    good, bad = "\n".join(lines), "\n".join([lines[0], '{"scrip": "x"}', "[]", '{"script": 7}'])
    failed = shell.refused("submit", "--batch", "-", stdin=bad)
    assert "3 lines are wrong" in failed.message
    assert shell.queue() == []
    found = json.loads(shell("submit", "--batch", "-", "--json", stdin=good))
    assert found["submitted"] == 2
    assert shell.queue() == found["job_ids"][::-1]


def test_list_counts_by_state_and_shows_the_newest(shell: Shell) -> None:
    ids = [shell("submit", "-e", "x", "--id", f"j{n}").strip() for n in range(4)]
    shell.redis.command("hset", "hero:job:j2", "status", "error", "error", "bad\x1b[31m")
    lines = shell("list", "-n", "2").splitlines()
    assert [line.split()[0] for line in lines] == ["j3", "j2"]
    assert "\x1b" not in "".join(lines)
    assert shell.stderr.startswith("4 jobs: 3 dispatched, 1 error; the newest 2 are shown")
    found = json.loads(shell("list", "--json", "--status", "error"))
    assert [job["id"] for job in found["jobs"]] == ["j2"]
    assert json.loads(shell("list", "--json", "-n", "0"))["total"] == len(ids)
    assert shell.refused("list", "--status", "dreaming").exit_code == 2


def test_status_shows_no_value_of_a_variable(shell: Shell) -> None:
    shell("submit", "-e", "a\nb", "--id", "j1", "--env", "API_TOKEN=hunter2")
    for words in (("status", "j1"), ("status", "j1", "--json"), ("list", "--json")):
        assert "hunter2" not in shell(*words)
    shown = shell("status", "j1")
    assert "env_vars: API_TOKEN" in shown
    assert "script:\n  a\n  b\n" in shown
    assert shell.refused("status", "j1", "nope").exit_code == 4
    assert shell("status") == "w1: 1 job queued, 0 stop requests\n"
    assert json.loads(shell("status", "--json"))["queued"] == 1


def test_stop_asks_and_can_wait_for_the_end(shell: Shell) -> None:
    shell("submit", "-e", "x", "--id", "j1")
    shell("submit", "-e", "x", "--id", "j2")
    assert "its end was asked for" in shell("stop", "j1")
    assert shell.refused("stop", "j2", "nope").exit_code == 4
    assert shell.redis.command("lrange", "hero:stop_queue:w1", "0", "-1").split() == ["j1"]

    def obey() -> None:
        until(lambda: "j2" in shell.redis.command("lrange", "hero:stop_queue:w1", "0", "-1"))
        ended = ("status", "error", "error", "stopped_by_request")
        shell.redis.command("hset", "hero:job:j2", *ended)
        shell.redis.command("lpush", "hero:reply:j2", "stopped_by_request")

    worker = threading.Thread(target=obey)
    worker.start()
    assert shell("stop", "j2", "--wait", "60") == "j2 ended: error stopped_by_request\n"
    worker.join()
    assert shell("stop", "j2") == "j2 had ended: error\n"


def test_retry_queues_again_what_has_ended(shell: Shell) -> None:
    shell("submit", "-e", "x", "--id", "j1")
    assert shell("retry", "j1") == "j1 has not ended: dispatched\n"
    shell.redis.command("hset", "hero:job:j1", "status", "error", "error", "lost")
    assert shell("retry", "j1") == "j1 queued again\n"
    assert shell.queue() == ["j1", "j1"]
    assert shell.refused("retry", "nope").exit_code == 4
    shell.redis.command("hset", "hero:job:j1", "status", "finished")
    assert json.loads(shell("retry", "j1", "--json")) == {"queued": ["j1"]}


def test_logs_reads_below_the_root_only(shell: Shell) -> None:
    (shell.folder / "logs/job.log").write_text("one\ntwo\nthree\n")
    (shell.folder / "secret").write_text("hunter2\n")
    shell("submit", "-e", "x", "--id", "j1", "--log-path", "job.log")
    assert shell("logs", "j1") == "one\ntwo\nthree\n"
    assert shell("logs", "j1", "-n", "2") == "two\nthree\n"
    assert json.loads(shell("logs", "j1", "-n", "1", "--json")) == {"line": "three"}
    shell("submit", "-e", "x", "--id", "j2", "--log-path", "../secret")
    assert "is not read" in shell.refused("logs", "j2").message
    shell("submit", "-e", "x", "--id", "j3", "--log-path", "missing")
    assert shell.refused("logs", "j3").exit_code == 4
    shell("submit", "-e", "x", "--id", "j4")
    assert "no log_path" in shell.refused("logs", "j4").message


def test_logs_follows_until_the_job_ends(shell: Shell) -> None:
    log = shell.folder / "logs/job.log"
    log.write_text("one\n")
    shell("submit", "-e", "x", "--id", "j1", "--log-path", "job.log")

    def grow() -> None:
        # The job is looked at once, then before each reading: the first one is over.
        until(lambda: looks(shell.redis) >= 3)
        log.rename(log.with_name("job.log.1"))
        log.write_text("two\nthree")
        shell.redis.command("hset", "hero:job:j1", "status", "finished")

    worker = threading.Thread(target=grow)
    worker.start()
    assert shell("logs", "j1", "-f") == "one\ntwo\nthree\n"
    worker.join()


def looks(redis: Redis) -> int:
    """How often a whole job was read."""
    found = re.search(r"cmdstat_hgetall:calls=(\d+)", redis.command("info", "commandstats"))
    return int(found[1]) if found else 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("submit", "-e", "x", "--url", "redis://:hunter2@h"), "password_file"),
        (("submit", "-e", "x", "--naming", "x"), "no such naming"),
        (("submit", "-e", "x", "file"), "a script and a file"),
        (("submit", "missing"), "No such file"),
        (("submit", "-e", "x", "--env", "NOT_SET_HERE"), "is not set here"),
        (("submit", "-e", "x", "--env", "=x"), "env_vars"),
        (("submit", "-e", "x", "--id", "a\nb"), "id:"),
        (("submit", "--batch", "-"), "no job"),
    ],
)
def test_what_was_typed_wrongly_is_told_in_one_line(
    shell: Shell, words: tuple[str, ...], told: str
) -> None:
    error = shell.refused(*words)
    assert told in error.message and "\n" not in error.message
    assert "hunter2" not in error.message
    assert shell.queue() == []


def test_a_redis_that_is_away_is_told_after_the_patience(shell: Shell) -> None:
    shell.redis.close()
    error = shell.refused("list", "--patience", "0.1")
    assert (error.exit_code, error.hint) == (6, "is the Redis running?")


@pytest.mark.parametrize(
    "line",
    ["", "7", "[]", "{", '{"script": 1}', "{}", '{"script": "x", "retries": -1}',
     '{"script": "x", "env_vars": ["a"]}', '{"script": "x", "id": 7}', '{"script": "x", "x": 1}',
     '{"script": "x", "concurrent": "perhaps"}', '{"script": "x", "status": "finished"}'],
)  # fmt: skip
def test_a_line_that_is_no_job_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        read_line(line)


def test_a_job_without_an_id_has_none_until_it_is_handed_in() -> None:
    assert job_of({"script": "x"}).id == ""
    assert job_of({"script": "x", "id": "new"}).id == "new"
