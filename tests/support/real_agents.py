"""The real command lines of agents, each with a home of its own, against the stub of their APIs.

``scripts/setup-agents`` installs them; without them tests fail rather than skip. Nothing of the
caller's environment reaches them but ``PATH``: no login, no proxy, no settings. Their base URLs are
on loopback, their keys are invented, and they are told not to update themselves or to report.

``CODEX_HOME`` must not be below ``TMPDIR``: codex refuses to put its helpers there. So homes are
made in the cache.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agents_api import ModelApi

CLAUDE, CODEX = "2.1.328", "0.169.0"
"""The versions that ``scripts/setup-agents`` installs by itself."""
SECONDS_MAX = 60.0

CODEX_SETTINGS = """\
model_provider = "stub"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
plugins = false
[model_providers.stub]
name = "stub"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "STUB_KEY"
request_max_retries = {retries}
stream_max_retries = {retries}
"""

GEMINI_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
}

QWEN_SETTINGS = {
    "security": {"auth": {"selectedType": "anthropic"}},
    "model": {"name": "claude-sonnet-4-5"},
    "general": {"disableAutoUpdate": True},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
}

PI_SETTINGS = {
    "defaultProvider": "anthropic",
    "defaultModel": "claude-sonnet-4-5",
    "retry": {"maxRetries": 0},
}

KIMI_SETTINGS = """\
default_model = "stub"
telemetry = false
[providers.stub]
type = "anthropic"
base_url = "{url}"
api_key = "{key}"
[models.stub]
provider = "stub"
model = "claude-sonnet-4-5"
max_context_size = 200000
"""


def cache() -> Path:
    """``~/.cache/beads-workers``, or what ``BW_CACHE`` says."""
    return Path(os.environ.get("BW_CACHE") or Path.home() / ".cache" / "beads-workers")


def program(agent: str, version: str) -> Path:
    """The installed command line; raises ``RuntimeError`` when it is missing."""
    folder = cache() / "agents" / f"{agent}-{version}"
    if not (folder / "complete").is_file():
        raise RuntimeError(f"{folder} is missing: run scripts/setup-agents")
    return folder / "bin" / agent


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of an agent. ``returncode`` is negative for a signal, as in ``subprocess``."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of a stream in JSON."""
        return [json.loads(line) for line in self.stdout.splitlines() if line.startswith("{")]

    @property
    def result(self) -> dict[str, Any]:
        """The last event."""
        return self.events[-1]


class AgentHome:
    """A home for agents, and the environment in which they ask ``api`` and nobody else.

    ``key``: the credential, which names the account at the stub. One that contains ``oat`` is the
    login of a subscription to claude, any other an API key. ``retries``: how often a program
    repeats a request by itself. Remove it with ``close``.
    """

    def __init__(self, api: ModelApi, key: str = "sk-ant-oat01-test", *, retries: int = 0) -> None:
        (cache() / "homes").mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="home-", dir=cache() / "homes"))
        self.key = key
        self._api = api
        self._retries = retries
        codex = self.folder / ".codex"
        codex.mkdir()
        settings = CODEX_SETTINGS.format(url=api.url, retries=retries)
        (codex / "config.toml").write_text(settings, encoding="utf-8")
        models = {"providers": {"anthropic": {"baseUrl": api.url}}}
        files = {
            ".gemini/settings.json": json.dumps(GEMINI_SETTINGS),
            ".qwen/settings.json": json.dumps(QWEN_SETTINGS),
            ".pi/agent/settings.json": json.dumps(PI_SETTINGS),
            ".pi/agent/models.json": json.dumps(models),
            ".kimi-code/config.toml": KIMI_SETTINGS.format(url=api.url, key=key),
        }
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text, encoding="utf-8")
        (self.folder / ".claude").mkdir()
        (self.folder / "tmp").mkdir()

    @property
    def environment(self) -> dict[str, str]:
        """All that an agent gets; as root too. A fleet that is started in it finds them by name."""
        login = "CLAUDE_CODE_OAUTH_TOKEN" if "oat" in self.key else "ANTHROPIC_API_KEY"
        url = self._api.url
        return {
            "PATH": os.pathsep.join([*_folders(), os.environ["PATH"]]),
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "TZ": "UTC",
            "LANG": "C.UTF-8",
            # Whoever asks another server asks the stub instead, which refuses and writes it down.
            "HTTP_PROXY": url,
            "HTTPS_PROXY": url,
            "NO_PROXY": "127.0.0.1,localhost",
            "GIT_CONFIG_NOSYSTEM": "1",
            login: self.key,
            "ANTHROPIC_BASE_URL": url,
            "CLAUDE_CONFIG_DIR": str(self.folder / ".claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": str(self._retries),
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "IS_SANDBOX": "1",
            "CODEX_HOME": str(self.folder / ".codex"),
            "STUB_KEY": self.key,
            "GEMINI_API_KEY": self.key,
            "GOOGLE_GEMINI_BASE_URL": url,
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": url,
            "COPILOT_PROVIDER_TYPE": "anthropic",
            "COPILOT_PROVIDER_API_KEY": self.key,
            "COPILOT_MODEL": "claude-sonnet-5-5",
            "OPENCODE_CONFIG_CONTENT": json.dumps(_opencode(url, self.key)),
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "AIDER_MODEL": "anthropic/claude-sonnet-4-5",
            "ANTHROPIC_API_BASE": url,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }

    def run(self, argv: Sequence[str], prompt: str, work: Path) -> Ran:
        """Run it to its end in that folder, with the prompt on stdin."""
        ran = subprocess.run(
            list(argv),
            input=prompt,
            cwd=work,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def claude(self, prompt: str, work: Path, *options: str, version: str = CLAUDE) -> Ran:
        """Run claude with its stream of events, and without questions."""
        return self.run([*claude(version), *options], prompt, work)

    def codex(self, prompt: str, work: Path, *resume: str, version: str = CODEX) -> Ran:
        """Run codex with its stream of events, without sandbox; ``resume``: that and a thread."""
        return self.run(codex(version, *resume), prompt, work)

    def close(self) -> None:
        """Remove the home."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _folders() -> list[str]:
    """Where the programs of the usual versions are."""
    return [str(program("claude", CLAUDE).parent), str(program("codex", CODEX).parent)]


def _opencode(url: str, key: str) -> dict[str, Any]:
    """Its settings: a provider ``stub`` with one model."""
    prices = {"input": 2, "output": 10, "cache_read": 0.1, "cache_write": 2.5}
    limit = {"context": 200_000, "output": 32_000}
    stub = {
        "npm": "@ai-sdk/anthropic",
        "name": "stub",
        "options": {"baseURL": f"{url}/v1", "apiKey": key},
        "models": {"claude-sonnet-5-5": {"name": "stub", "limit": limit, "cost": prices}},
    }
    settings = {"provider": {"stub": stub}, "share": "disabled", "autoupdate": False}
    return settings | {"enabled_providers": ["stub"], "permission": "allow"}


def claude(version: str = CLAUDE) -> list[str]:
    """How claude is called."""
    argv = [str(program("claude", version)), "-p", "--output-format", "stream-json", "--verbose"]
    return [*argv, "--dangerously-skip-permissions"]


def codex(version: str = CODEX, *resume: str) -> list[str]:
    """How codex is called."""
    argv = [str(program("codex", version)), "exec", "--sandbox", "danger-full-access"]
    return [*argv, "-c", 'approval_policy="never"', *resume, "--json", "-"]


def new_session() -> str:
    """An identifier for ``--session-id``."""
    return str(uuid.uuid4())


def repository(folder: Path) -> Path:
    """A new git repository with one commit."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "README").write_text("a shop\n", encoding="utf-8")
    # Of its own: gemini hides the one of its home from git.
    git(folder, "config", "user.name", "agent")
    git(folder, "config", "user.email", "agent@example.invalid")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "begin")
    return folder


def git(folder: Path, *words: str) -> str:
    """What git says."""
    argv = ["git", "-C", str(folder), *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
