"""Commands in this process, through an application of their own: quick, and without a terminal."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import typer
from typer.testing import CliRunner, Result


class Commands:
    """Those that these modules of ``cli`` register."""

    def __init__(self, *modules: ModuleType) -> None:
        self._app = typer.Typer()
        for module in modules:
            found: Any = module
            found.register(self._app)

    def asked(self, *arguments: str, given: str | bytes = "") -> Result:
        """What comes of it; ``given``: its stdin."""
        return CliRunner().invoke(self._app, list(arguments), input=given)

    def told(self, *arguments: str, given: str | bytes = "") -> str:
        """What a successful command prints on stdout."""
        result = self.asked(*arguments, given=given)
        assert result.exit_code == 0, (result.exception, result.stderr)
        return result.stdout
