"""Which Redis the ``hero`` commands speak to, and how its troubles are told."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.cli.errors import EXIT_TRACKER, EXIT_UNKNOWN, EXIT_USAGE, CommandError
from beads_workers.core.text import printable

if TYPE_CHECKING:
    from beads_workers.cli.option_hero import HeroTable
    from beads_workers.edge.hero.client import Client

URL_VARIABLE = "BEADS_WORKERS_REDIS_URL"
URL_DEFAULT = "redis://127.0.0.1/0"


def seconds(text: str | float) -> float:
    """Reads a duration that was typed: 90, 90s, 5m."""
    from beads_workers.cli.options import parse_duration

    try:
        return text if isinstance(text, float) else parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help=f"redis://HOST/DB; else ${URL_VARIABLE}, or [hero] url."
    ),
]
Naming = Annotated[
    str | None, typer.Option("--naming", metavar="NAME", help="text, later, or cluster.")
]
WorkerId = Annotated[
    str | None, typer.Option("--worker", metavar="ID", help="Whose queue; else [hero] worker.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Patience = Annotated[
    float,
    typer.Option(
        "--patience", parser=seconds, metavar="DURATION", help="For a Redis that is away."
    ),
]
PATIENCE_DEFAULT = 10.0


@dataclass(frozen=True, slots=True)
class Here:
    """What holds for one command. ``worker``: "" where nobody named one."""

    client: Client
    worker: str
    table: HeroTable

    def named_worker(self) -> str:
        """The worker; raises ``CommandError`` where there is none."""
        if not self.worker:
            hint = '--worker ID, or worker = "ID" in [hero] of beads-workers.toml'
            raise CommandError("whose queue? no worker was named", hint, EXIT_USAGE)
        return self.worker


@contextlib.contextmanager
def opened(
    url: str | None, naming: str | None, worker: str | None, patience: float
) -> Iterator[Here]:
    """A client for what was typed, or else for what the environment and the settings file say.

    Whatever the Redis or a job is wrong with becomes a ``CommandError``.
    """
    from beads_workers.cli.config import resolve
    from beads_workers.cli.option_hero import HeroTable
    from beads_workers.cli.options import Options
    from beads_workers.edge.hero.client import Client
    from beads_workers.protocols.hero.keys import keys_of
    from beads_workers.sources.hero.addresses import read_url

    table = resolve(Options(), Path.cwd(), {}).options.tables.get("hero") or HeroTable()
    try:
        place = read_url(url or os.environ.get(URL_VARIABLE) or table.url or URL_DEFAULT)
        naming = naming or place.options.get("naming") or table.naming
        keys = keys_of(naming, table.keys)
    except ValueError as error:
        raise CommandError(str(error), exit_code=EXIT_USAGE) from None
    whose = worker or place.options.get("worker") or table.worker
    with Client(place.address, keys, patience) as client, told():
        yield Here(client, whose, table)


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Errors of the client as those of a command."""
    from beads_workers.edge.hero.answers import JobExists, NoSuchJob
    from beads_workers.protocols.hero import WrongField
    from beads_workers.sources.hero.connecting import CannotReach, RedisMissing

    try:
        yield
    except (CannotReach, RedisMissing) as error:
        raise CommandError(printable(str(error)), error.hint, EXIT_TRACKER) from None
    except NoSuchJob as error:
        hint = "'beads-workers hero list' shows what is there"
        raise CommandError(printable(str(error), 600), hint, EXIT_UNKNOWN) from None
    except JobExists as error:
        hint = "leave --id out, and it gets one of its own"
        raise CommandError(f"nothing was handed in: {printable(str(error), 600)}", hint) from None
    except WrongField as error:
        message = f"the job cannot be read: {printable(str(error), 600)}"
        raise CommandError(message) from None
