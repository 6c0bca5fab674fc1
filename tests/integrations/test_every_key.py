"""A settings file with every key, those that integrations read by themselves among them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from beads_workers.cli.config import resolve, typed_options
from beads_workers.integrations.hero.options import HeroTable
from beads_workers.options import KEYS, AgentTable, given, value_of
from tests.cli.test_config import write
from tests.support.trust import TRUSTED

EVERY_KEY = """
workers = 8
source = "sqlite"
label = ["a", "b"]
label_any = "c"
on = ["local:2", "big:4"]
exclude_label = ["d"]
type = "bug"
priority = [0, 1]
parent = "bw-1"
timeout = "5m"
max_attempts = 5
questions = 2
retry_delay = 2.5
verify = "make test"
bd_calls = "worker"
bd_timeout = "90s"
agent = "mine"
prompt = "prompts/p.txt"
review = "other"
fix_rounds = 3
retry = "fresh"
skip_base_check = true
skip_check = ["clock"]
comments = "owner"
stall = "20m"
budget = 20
issue_budget = "5Mtok"
reset_grace = "1m"
probe = "30m"
overage = true
discovered = "take"
orphan_grace = "never"
person_wait = "1d"
limit = 10
max_runtime = "2h"
until = 07:00:00
start_at = "23:00"
idle_timeout = 90
poll = "500ms"
state_dir = "/var/state"
log_dir = "logs"
until_empty = true
command = ["echo", "{id}"]
term_grace = "2s"
stop_timeout = 20
suspend = true
issue_commands = true
notify = "desktop"
keep_runs = 3
log_max = "1MiB"
journal_max = "2MiB"
shared = true
shared_checkout = true
allow_module = ["shop.tasks"]
in_flight = 5
function = "py#f"
metrics = "127.0.0.1:9464"
trace = true
web_control = true
executor = ["rrq:serve it"]
hero = { worker = "w1" }
[worktree]
enabled = true
base = "main"
setup = "make deps"
copy = [".env", "config/*.local"]
folder = "../trees"
disk_floor = "2.5GB"
pool = 3
sparse = false
world = "createdb app_$BW_SLOT"
teardown = "dropdb app_$BW_SLOT"
slots = "20-39"
ports = 5
port_base = 30000
env = { PORT = "{port}" }
setup_reads = ["schema/*.sql"]
reuse = false
[landing]
enabled = true
on = "main"
into = "release"
approve = true
jobs = 3
style = "merge"
after = "git push"
tools = ["node --version"]
remote = "origin"
via = "pr"
repairs = 1
gate_timeout = "10m"
gate_retry = "5m"
subject = "{type}: {title:lower}"
subject_max = 80
types = { task = "build" }
signoff = true
trailers = "none"
submodules = "push"
co_author = "none"
[night]
gap = "6h"
[web]
port = 8421
hosts = ["box.tail-net.ts.net"]
[agents.mine]
argv = ["mine", "-p"]
prompt = "Do {id}"
[agents.other]
argv = ["other"]

[forge]
merge = "checks"
checks = "none"
checks_wait = "10m"
look = "5s"
rounds = 2
open_max = 3
draft = true
guarded = ["ci/*"]
per = "run"
labels = ["agents"]
reviewers = ["ann", "team/web"]
pr_cost = true
flaky = ["e2e*"]
from = "labelled"
trusted = ["renovate"]
pass = ["GH_TOKEN"]

[tracker]
before = "bd sync"
after = "bd push"
every = "5m"
[places.big]
engine = "slurm"
address = "batch"
lease = "1m"
resources = {cpus-per-task = 2}
"""


BIG = {"engine": "slurm", "resources": {"cpus-per-task": 2}, "address": "batch", "python": ""}
BIG |= {"lease_seconds": 60.0, "insecure": False}

VALUES = {
    "workers": 8,
    "source": "sqlite",
    "issues_from": "labelled",
    "trusted": ("renovate",),
    "label": ("a", "b"),
    "label_any": ("c",),
    "on": ("local:2", "big:4"),
    "places": {"big": BIG},
    "exclude_label": ("d",),
    "type": ("bug",),
    "priority": (0, 1),
    "parent": "bw-1",
    "timeout": 300.0,
    "max_attempts": 5,
    "questions": 2,
    "retry_delay": 2.5,
    "verify": "make test",
    "bd_calls": "worker",
    "bd_timeout": 90.0,
    "agent": "mine",
    "prompt": "{folder}/prompts/p.txt",
    "review": "other",
    "fix_rounds": 3,
    "retry": "fresh",
    "skip_base_check": True,
    "skip_check": ("clock",),
    "comments": "owner",
    "stall": 1200.0,
    "budget": "$20",
    "issue_budget": "5Mtok",
    "reset_grace": 60.0,
    "probe": 1800.0,
    "overage": True,
    "discovered": "take",
    "orphan_grace": "never",
    "person_wait": 86_400.0,
    "limit": 10,
    "max_runtime": 7200.0,
    "until": "07:00:00",
    "start_at": "23:00",
    "idle_timeout": 90.0,
    "poll": 0.5,
    "state_dir": "/var/state",
    "log_dir": "{folder}/logs",
    "until_empty": True,
    "command": ("echo", "{id}"),
    "term_grace": 2.0,
    "stop_timeout": 20.0,
    "suspend": True,
    "issue_commands": True,
    "notify": "desktop",
    "keep_runs": 3,
    "log_max": 1 << 20,
    "journal_max": 2 << 20,
    "shared": True,
    "shared_checkout": True,
    "in_flight": 5,
    "allow_module": ("shop.tasks",),
    "function": "py#f",
    "metrics": 9464,
    "trace": True,
    "web": 8421,
    "web_hosts": ("box.tail-net.ts.net",),
    "web_control": True,
    "executor": ("rrq:serve it",),
    "trust": "yes",
    "hero": HeroTable(worker="w1"),
    "worktree": True,
    "worktree_base": "main",
    "worktree_setup": "make deps",
    "worktree_copy": (".env", "config/*.local"),
    "worktree_folder": "{folder}/../trees",
    "worktree_disk_floor": 2_500_000_000,
    "worktree_pool": 3,
    "worktree_sparse": False,
    "worktree_world": "createdb app_$BW_SLOT",
    "worktree_teardown": "dropdb app_$BW_SLOT",
    "worktree_slots": (20, 39),
    "worktree_ports": 5,
    "worktree_port_base": 30000,
    "worktree_env": (("PORT", "{port}"),),
    "worktree_setup_reads": ("schema/*.sql",),
    "worktree_reuse": False,
    "land": True,
    "land_on": "main",
    "land_into": "release",
    "approve": True,
    "land_jobs": 3,
    "landing_style": "merge",
    "landing_after": "git push",
    "passed": ("GH_TOKEN",),
    "tracker_before": "bd sync",
    "tracker_after": "bd push",
    "tracker_every": 300.0,
    "landing_tools": ("node --version",),
    "landing_remote": "origin",
    "land_via": "pr",
    "pr_per": "run",
    "forge_merge": "checks",
    "forge_checks": "none",
    "forge_checks_wait": 600.0,
    "forge_look": 5.0,
    "forge_rounds": 2,
    "forge_open_max": 3,
    "forge_draft": True,
    "forge_guarded": ("ci/*",),
    "forge_labels": ("agents",),
    "forge_reviewers": ("ann", "team/web"),
    "forge_pr_cost": True,
    "forge_flaky": ("e2e*",),
    "repairs": 1,
    "gate_timeout": 600.0,
    "gate_retry": 300.0,
    "landing_subject_max": 80,
    "landing_subject": "{type}: {title:lower}",
    "landing_types": (("bug", "fix"), ("feature", "feat"), ("task", "build")),
    "landing_signoff": True,
    "landing_trailers": "none",
    "landing_submodules": "push",
    "landing_co_author": "none",
    "night_gap": 21_600.0,
    "new_night": None,
}
"""What the file says; ``{folder}`` stands for its folder."""


def test_every_key_is_read_and_its_origin_kept(tmp_path: Path) -> None:
    path = write(tmp_path, EVERY_KEY)
    resolved = resolve({}, tmp_path, TRUSTED)
    found = {key: value_of(resolved.options, key) for key in KEYS}
    texts = {key: value for key, value in VALUES.items() if isinstance(value, str)}
    assert found == VALUES | {k: v.replace("{folder}", str(tmp_path)) for k, v in texts.items()}
    origin = dict(resolved.origin)
    assert origin.pop("new_night") == "default", "it stands in no file"
    assert set(origin.values()) == {str(path), *TRUSTED}
    mine, other = AgentTable(("mine", "-p"), "Do {id}"), AgentTable(("other",))
    assert resolved.agents == {"mine": mine, "other": other}


def test_what_was_typed_can_be_typed_again(tmp_path: Path) -> None:
    """``restart`` does that with the file of a run, which is JSON."""
    resolved = resolve({}, write(tmp_path, EVERY_KEY).parent, TRUSTED)
    typed = replace(resolved, origin=dict.fromkeys(resolved.origin, "command line"))
    again = given(json.loads(json.dumps(typed_options(typed))))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert replace(resolve(again, empty, TRUSTED).options, tables=resolved.options.tables) == (
        resolved.options
    )
