"""Options and arguments that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

StateDir = Annotated[str | None, typer.Option("--state-dir", metavar="DIR", help="Run directory.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Trust = Annotated[bool, typer.Option("--trust", help="Run what the repository brings, unasked.")]
IssueCommand = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND ARG...]",
        help="The command that a worker runs for the issue.",
        show_default=False,
    ),
]
