"""``start --source dispatcherd:CONFIG`` and its short URLs: which brokers, and what serves them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beads_workers.checks.combinations import meaningless, of_trackers
from beads_workers.cli.refusals import refuse
from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.text import printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE
from beads_workers.integrations.dispatcherd import CONFIG
from beads_workers.options import POLL_PUSH_SECONDS

if TYPE_CHECKING:
    from beads_workers.core.base.settings import FleetSettings
    from beads_workers.integrations.dispatcherd.configuration import Brokers
    from beads_workers.options import Resolved


VARIABLE = "DISPATCHERD_CONFIG_FILE"
"""Environment variable: path of dispatcherd's own settings."""
IGNORED = "no setting of dispatcherd, or of something that a fleet does in its own way"
EXTRA = "pip install 'beads-workers[dispatcherd]'"


def prepare_dispatcherd(
    resolved: Resolved, issues: tuple[str, ...], *, owned: bool
) -> FleetSettings:
    """Return the settings of a run that serves publishers; raise ``CommandError``."""
    from beads_workers.checks.project import TrackerChoice
    from beads_workers.cli.preparation import find_work, settings_of
    from beads_workers.core.base.policy import Policy
    from beads_workers.core.base.settings import Ahead
    from beads_workers.runtime.project import STATE_FOLDER

    options = resolved.options
    not_ours = {**of_trackers(options, issues), "--shared": options.tracking.shared}
    refuse(meaningless(not_ours, "{} does not go with tasks of dispatcherd"))
    brokers, workers, unused = find_brokers(str(options.source))
    for each in unused:
        print(f"warn {'config':<8} {printable(each)} is ignored: {IGNORED}", file=sys.stderr)
    if resolved.origin["workers"] == "default" and workers is not None:
        resolved = replace(resolved, options=replace(options, workers=workers))
    folder = Path.cwd()
    state = Path(options.state_dir) if options.state_dir else folder / STATE_FOLDER
    tracker = TrackerChoice("dispatcherd", state.absolute(), folder)
    work = find_work(resolved)
    if work.allow_modules:
        work = replace(work, functions_ahead=Ahead.MESSAGES)
    if (source := str(options.source)).startswith(CONFIG):
        work = replace(work, function_variables={VARIABLE: str(_path(source).absolute())})
    settings = settings_of(resolved, tracker, work, (), owned=owned)
    tries = settings.policy.attempts_max if resolved.origin["max_attempts"] != "default" else 1
    return replace(
        settings,
        policy=Policy(
            attempts_max=tries,
            retry_delay_seconds=settings.policy.retry_delay_seconds,
            hand_back=True,
            hand_back_after=tries,
        ),
        tracking=replace(settings.tracking, poll_seconds=POLL_PUSH_SECONDS),
        source_private=to_plain(brokers),
        awaited=False,
    )


def find_brokers(source: str) -> tuple[Brokers, int | None, list[str]]:
    """Return the brokers of a source, its number of workers or None, and its unused settings."""
    from beads_workers.integrations.dispatcherd import configuration

    try:
        if source.startswith(CONFIG):
            config = _read(_path(source))
            brokers = configuration.from_config(config)
            workers, unused = configuration.workers_of(config), configuration.ignored(config)
        else:
            brokers, workers, unused = configuration.from_url(source), None, []
    except ValueError as error:
        raise CommandError(f"--source: {error}", "see docs/DISPATCHERD.md", EXIT_USAGE) from None
    if brokers.postgres:
        _need("psycopg")
    return brokers, workers, unused


def _path(source: str) -> Path:
    return Path(source.removeprefix(CONFIG)).expanduser()


def _read(path: Path) -> Any:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--source: {path} cannot be read: {error}", "", EXIT_USAGE) from None
    try:
        # A JSON file needs no further package.
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    _need("yaml")
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())[:200]}") from None


def _need(module: str) -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        name = {"yaml": "PyYAML", "psycopg": "psycopg"}[module]
        raise CommandError(f"{name} is not installed here", EXTRA, EXIT_USAGE)
