"""When a settings file is asked about, what is kept of the answer, and which files others obey."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from beads_workers.agents.planted import PLANTED, risky_part
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.planted import planted
from beads_workers.checks.trust import store_of, trust
from beads_workers.checks.untrusted_lines import everything, record, untrusted
from beads_workers.cli import proposals
from beads_workers.cli.config import resolve
from beads_workers.options import TRUST_NO_AGENT, Resolved, value_of
from beads_workers.runtime.trust_store import TrustStore
from tests.support.repository import commit, git, make_repository
from tests.support.trust import VARIABLE

FILE = "beads-workers.toml"
HOOK = {"SessionStart": [{"matcher": "", "hooks": [{"type": "command", "command": "touch ran"}]}]}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a user who trusts nothing yet."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.delenv(VARIABLE)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = make_repository(tmp_path / "top")
    monkeypatch.chdir(folder)
    return folder


def look(folder: Path, **options: str) -> Resolved:
    return resolve(options, folder, {})


def asked(folder: Path) -> list[str]:
    """What would be asked about, as it stands in the file."""
    return [line.text for line in look(folder).untrusted]


def believe(folder: Path) -> None:
    trust(everything(FleetPlan(look(folder))), folder)


# --- settings files ------------------------------------------------------------------------------


def test_a_tracked_file_must_be_trusted_line_by_line(top: Path) -> None:
    commit(top, FILE, 'verify = "a"\nnotify = "b"\nworkers = 3\n')
    found = look(top)
    assert [line.text for line in found.untrusted] == ['verify = "a"', 'notify = "b"']
    assert value_of(found.options, "verify") is value_of(found.options, "notify") is None
    assert found.options.workers == 3
    believe(top)
    assert asked(top) == [] and look(top).options.work.verify == "a"
    (top / FILE).write_text('verify = "c"\nnotify = "b"\n')
    assert asked(top) == ['verify = "c"'], "the user's own edits of it, too"
    (top / FILE).write_text('notify = "b"\nverify = "a"\n')
    assert asked(top) == []


def test_a_file_in_no_repository_must_be_trusted(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('verify = "a"\n')
    trust([], tmp_path)
    assert asked(tmp_path) == ['verify = "a"']
    believe(tmp_path)
    assert asked(tmp_path) == []


def test_an_untracked_file_is_the_users_own_in_a_folder_that_is_known(top: Path) -> None:
    (top / FILE).write_text('verify = "a"\n')
    assert asked(top) == ['verify = "a"'], "the folder may be out of an archive"
    trust([], top)
    assert asked(top) == []
    (top / FILE).write_text('verify = "b"\n')
    assert asked(top) == []
    record(FleetPlan(look(top)))
    commit(top, FILE, 'verify = "b"\n')
    assert asked(top) == [], "what a start has run stays trusted"
    commit(top, FILE, 'verify = "c"\n')
    assert asked(top) == ['verify = "c"']


def test_what_we_write_makes_nothing_else_the_users_own(top: Path) -> None:
    (top / FILE).write_text('notify = "a"\n')
    (top / "Makefile").write_text("test:\n\ttrue\n")
    assert proposals.current_setting(write=True).written
    assert asked(top) == ['notify = "a"']
    believe(top)
    (top / FILE).write_text('notify = "b"\n')
    assert asked(top) == []


def test_a_file_that_git_cannot_speak_of_counts_as_tracked(top: Path) -> None:
    commit(top, FILE, 'verify = "a"\n')
    trust([], top)
    (top / ".git/HEAD").unlink()
    assert asked(top) == ['verify = "a"']


def test_a_tracked_link_is_tracked(top: Path, tmp_path: Path) -> None:
    trust([], top)
    (tmp_path / "elsewhere").write_text('verify = "a"\n')
    (top / FILE).symlink_to("../elsewhere")
    git(top, "add", FILE)
    assert asked(top) == ['verify = "a"']


def test_what_is_typed_or_in_a_variable_is_never_asked_about(top: Path) -> None:
    commit(top, FILE, 'verify = "a"\n')
    assert look(top, verify="mine").options.work.verify == "mine"
    for environ in ({VARIABLE: "1"}, {VARIABLE: "yes"}):
        found = resolve({}, top, environ)
        assert (found.options.work.verify, found.untrusted) == ("a", ())
    record(FleetPlan(found))
    assert asked(top) == ['verify = "a"'], "what was let through is not remembered"


def test_a_worktree_of_ours_shares_what_is_trusted(top: Path, tmp_path: Path) -> None:
    commit(top, FILE, 'verify = "a"\n')
    believe(top)
    copy = tmp_path / "copy"
    git(top, "worktree", "add", "-q", str(copy))
    assert asked(copy) == ['verify = "a"'], "one of somebody's own"
    mark = {"project": str(top), "state": str(top / ".beads-workers"), "prefix": ""}
    (top / ".git/worktrees/copy/beads-workers.json").write_text(json.dumps(mark))
    assert asked(copy) == []
    (copy / FILE).write_text('verify = "b"\n')
    assert asked(copy) == ['verify = "b"'], "an agent has written it"


# --- what is kept --------------------------------------------------------------------------------


def test_the_store_is_for_its_owner_alone_whatever_the_umask(home: Path, top: Path) -> None:
    before = os.umask(0)
    try:
        trust([], top)
    finally:
        os.umask(before)
    kept = [home / ".local", *(home / ".local").rglob("*")]
    assert len(kept) == 5
    for path in kept:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b'{"lines": 1}',
        b"[" * 100_000,
        b'{"folder": "/other", "lines": {"d": ""}}',
    ],
    ids=lambda damage: damage[:20].decode(),
)
def test_a_damaged_store_trusts_nothing_and_is_written_anew(
    home: Path, top: Path, damage: bytes
) -> None:
    TrustStore(top).add([("d", "text")], known=True)
    (file,) = (home / ".local/state/beads-workers/trust").iterdir()
    assert TrustStore(top).trusts("d")
    file.write_bytes(damage)
    assert not TrustStore(top).trusts("d") and not TrustStore(top).is_known
    TrustStore(top).add([("e", "text")])
    assert TrustStore(top).trusts("e") and not TrustStore(top).trusts("d")
    assert [*file.parent.iterdir()] == [file]


def test_a_store_that_is_a_link_trusts_nothing(home: Path, top: Path) -> None:
    TrustStore(top).add([("d", "text")], known=True)
    (file,) = (home / ".local/state/beads-workers/trust").iterdir()
    shutil.move(file, home / "moved")
    file.symlink_to(home / "moved")
    assert not TrustStore(top).is_known


def test_without_a_home_nothing_is_trusted(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(top, FILE, 'verify = "a"\n')
    believe(top)
    monkeypatch.setenv("HOME", "/dev/null")
    assert asked(top) == ['verify = "a"']
    with pytest.raises(OSError):
        believe(top)
    record(FleetPlan(look(top)))


def test_what_is_forgotten_is_asked_about_again(top: Path) -> None:
    TrustStore(top).add([("d", "text")])
    store_of(top).forget()
    assert not TrustStore(top).is_known
    store_of(top).forget()


# --- what others obey ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "said", "keys"),
    [
        (".claude/settings.json", {"model": "m", "permissions": {"deny": ["Bash"]}}, []),
        (".claude/settings.json", {"hooks": {}}, []),
        (".claude/settings.json", {"permissions": {"allow": ["Bash"]}}, ["permissions"]),
        (".claude/settings.json", {"permissions": {"defaultMode": "x"}}, ["permissions"]),
        (".claude/settings.json", {"env": {"A": "b"}}, ["env"]),
        (".claude/settings.json", {"apiKeyHelper": "x", "x": 1}, ["apiKeyHelper", "x"]),
        (".claude/settings.json", {"hooks": HOOK}, ["hooks"]),
        (".claude/settings.json", {"hooks": {"X": [{"hooks": [{"type": "http"}]}]}}, ["hooks"]),
        (".claude/settings.json", {"hooks": 1}, ["hooks"]),
        (".mcp.json", {"mcpServers": {}}, []),
        (".mcp.json", {"mcpServers": {"a": {}}}, ["mcpServers"]),
        (".gemini/settings.json", {"ui": 1, "tools": {"discoveryCommand": "x"}}, ["tools"]),
        ("opencode.json", {"model": "m", "mcp": {"x": {}}, "plugin": ["x"]}, ["mcp", "plugin"]),
        (".opencode/package.json", {"dependencies": {"x": "1"}}, ["dependencies"]),
        (".github/hooks", {}, ["all that is in it"]),
    ],
)  # fmt: skip
def test_what_runs_something_in_a_file_of_an_agent(
    file: str, said: object, keys: list[str]
) -> None:
    assert sorted(risky_part(file, json.dumps(said).encode())) == keys


def test_hooks_that_bd_writes_are_known(top: Path) -> None:
    call = {"type": "command", "command": "bd prime --hook-json"}
    hooks = {"SessionStart": [{"matcher": "", "hooks": [call]}]}
    text = json.dumps({"hooks": hooks}).encode()
    assert risky_part(".claude/settings.json", text) == {}
    call["command"] += "; touch ran"
    assert risky_part(".claude/settings.json", json.dumps({"hooks": hooks}).encode())


def plan_of(folder: Path, **options: str) -> FleetPlan:
    (folder / ".beads").mkdir(exist_ok=True)
    return FleetPlan(look(folder, agent="claude", **options))


def test_what_the_commit_has_counts_in_worktrees(top: Path) -> None:
    commit(top, ".claude/settings.json", json.dumps({"hooks": HOOK}))
    (top / ".claude/settings.json").unlink()
    plan = plan_of(top)
    (line,) = untrusted(plan)
    assert line.text == ".claude/settings.json: hooks, obeyed by claude"
    believe(top)
    assert untrusted(plan_of(top)) == []
    (top / ".claude/settings.json").write_text(json.dumps({"hooks": HOOK, "model": "other"}))
    assert untrusted(plan_of(top)) == [], "what is harmless may change"
    commit(top, ".claude/settings.json", json.dumps({"hooks": HOOK, "apiKeyHelper": "x"}))
    assert len(untrusted(plan_of(top))) == 1


def test_a_folder_of_an_agent_counts_whole_and_once(top: Path) -> None:
    commit(top, ".opencode/plugin/a.js", "a")
    commit(top, ".opencode/plugin/deeper/b.js", "b")
    commit(top, ".codex/config.toml", 'model = "m"\n[mcp_servers.x]\ncommand = "x"\n')
    commit(top, FILE, "[agents.opencode]\n")
    (top / ".beads").mkdir()

    def asked(agent: str, **options: str) -> list[str]:
        return [line.text for line in untrusted(FleetPlan(look(top, agent=agent, **options)))]

    plugin = ".opencode/plugin: all that is in it, obeyed by opencode"
    assert asked("opencode") == [plugin]
    assert asked("opencode", trust=TRUST_NO_AGENT) == [plugin], "nothing makes it leave that out"
    assert asked("codex") == [".codex/config.toml: mcp_servers, obeyed by codex"]
    believe(top)
    assert asked("opencode") == asked("codex") == []
    commit(top, ".opencode/plugin/deeper/b.js", "other")
    assert asked("opencode") == [plugin]


def test_what_no_argument_leaves_out_is_asked_about_in_any_case(top: Path) -> None:
    (top / ".pi").mkdir()
    (top / ".pi/settings.json").write_text(json.dumps({"shellCommandPrefix": "touch ran"}))
    (top / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "x"}}}))
    (top / ".env").write_text("AIDER_LOAD=commands\n")
    (top / ".aider.model.settings.yml").write_text("- name: m\n")
    git(top, "add", "--force", ".")
    (top / ".beads").mkdir()

    def asked(agent: str) -> list[str]:
        plan = FleetPlan(look(top, agent=agent, trust=TRUST_NO_AGENT))
        return [line.text for line in untrusted(plan)]

    assert asked("pi") == [".pi/settings.json: shellCommandPrefix, obeyed by pi"]
    assert asked("qwen") == [".mcp.json: mcpServers, obeyed by qwen"]
    assert asked("aider") == [
        ".aider.model.settings.yml: all that is in it, obeyed by aider",
        ".env: all that is in it, obeyed by aider",
    ]


@pytest.mark.parametrize("agent", ["codex", "claude"])
def test_a_file_of_the_commit_that_git_cannot_read_is_asked_about(
    top: Path, agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\ncase " $* " in *" cat-file "*) exit 128;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    program.chmod(0o755)
    commit(top, "a", "b")
    (top / ".beads").mkdir()
    assert asked_of(top, agent) == []
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    files = PLANTED[agent].files
    assert asked_of(top, agent) == [f"{file}: {_why(file)}, obeyed by {agent}" for file in files]


def asked_of(folder: Path, agent: str) -> list[str]:
    """What would be asked about before a fleet of this agent."""
    return [line.text for line in untrusted(FleetPlan(look(folder, agent=agent)))]


def _why(file: str) -> str:
    is_parsed = file.endswith((".json", ".jsonc", ".toml"))
    return "what cannot be read" if is_parsed else "all that is in it"


def test_what_lies_above_a_project_in_a_part_of_a_repository_counts(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(top, ".mcp.json", json.dumps({"mcpServers": {"a": {"command": "x"}}}))
    part = top / "part/of"
    part.mkdir(parents=True)
    monkeypatch.chdir(part)
    lines = [line.text for line in planted(plan_of(part))]
    assert lines == [f"{top}/.mcp.json: mcpServers, obeyed by claude"] * 2, "checkout and commit"
    assert len(untrusted(plan_of(part))) == 1


def test_what_git_does_not_track_of_an_agent_is_the_users_own(top: Path) -> None:
    (top / ".claude").mkdir()
    (top / ".claude/settings.local.json").write_text(json.dumps({"hooks": HOOK}))
    assert untrusted(plan_of(top)) == []
    git(top, "add", "--force", ".")
    assert len(untrusted(plan_of(top))) == 1
    record(plan_of(top))
    assert untrusted(plan_of(top)) == []


def test_an_agent_may_leave_them_out_instead(top: Path) -> None:
    commit(top, FILE, 'verify = "a"\n')
    commit(top, ".claude/settings.json", json.dumps({"hooks": HOOK}))
    plan = plan_of(top, trust=TRUST_NO_AGENT)
    assert [line.text for line in untrusted(plan)] == ['verify = "a"'], "all else is asked about"
    work = plan.work
    assert work is not None and not hasattr(work, "remedy")
    assert work.agents[0].arguments == ("--setting-sources", "user")  # type: ignore[union-attr]
