"""The command that checks the work of this project, and what its worktrees need: what is set, or a
proposal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from beads_workers.checks.needs import Needs, find_needs
from beads_workers.checks.verify import VerifyProposal, propose
from beads_workers.cli.client import project_here
from beads_workers.cli.config import find_file, read_file, set_key
from beads_workers.core.base.text import printable
from beads_workers.errors import CommandError
from beads_workers.options import FILE_NAME
from beads_workers.worktrees.git import GitError

NONE_HINT = (
    "say it yourself, in beads-workers.toml (verify = \"./check.sh\") or with 'start --verify CMD'"
)


@dataclass(frozen=True, slots=True)
class VerifySetting:
    """The setting ``verify`` and a proposal for it."""

    proposal: VerifyProposal | None
    # The value in the settings file; None if it is not set there.
    already: str | None
    # The settings file, or the one to be made.
    file: Path
    # The proposal was written to the file, and what a new worktree needs.
    written: bool = False
    setup_written: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return one object with these field names."""
        proposal = None
        if self.proposal is not None:
            proposal = {**asdict(self.proposal), "left_out": list(self.proposal.left_out)}
        return {
            "verify": self.proposal.line if self.proposal and self.written else self.already,
            "proposal": proposal,
            "file": str(self.file),
            "written": self.written,
            "setup_written": self.setup_written,
        }

    def lines(self) -> list[str]:
        """Return the lines for a person; empty if nothing is known."""
        file, found = printable(str(self.file)), self.proposal
        if self.already is not None:
            lines = [f"verify is set already, and stays: {printable(self.already)} ({file})"]
            if self.setup_written and found is not None:
                lines.append(f"  set: [worktree] setup = {json.dumps(found.setup)}")
            return lines
        if found is None:
            return []
        head = "verify set" if self.written else "verify proposed"
        about = f"{printable(found.line)} ({printable(found.why)})" if found.line else "nothing"
        lines = [f"{head}: {about}"]
        lines += [f"  not in it: {printable(each)}" for each in found.left_out]
        if found.setup:
            head = "set" if self.setup_written else "a new worktree needs first"
            lines.append(f"  {head}: [worktree] setup = {json.dumps(found.setup)}")
        if found.line and not self.written:
            lines.append("  'beads-workers config verify --write' puts it into the settings")
        return lines


def current_setting(*, write: bool) -> VerifySetting:
    """Return the setting of the current project; ``write``: write a proposal unless one is set.

    Raise ``CommandError``.
    """
    folder, place, said = _here()
    found = propose(folder)
    already = said.get("verify")
    wanted = (
        {
            key: text
            for key, text in (("verify", found.line), ("worktree_setup", found.setup))
            if text and said.get(key) is None
        }
        if write and found is not None
        else {}
    )
    _write(folder, place, wanted)
    return VerifySetting(found, already, place, "verify" in wanted, "worktree_setup" in wanted)


def worktree_needs() -> tuple[Needs, dict[str, Any]]:
    """Return what worktrees of the current project need, and what is set of it already, by the same
    keys; raise ``CommandError``."""
    folder, _, said = _here()
    try:
        found = find_needs(folder)
    except GitError as error:
        raise CommandError(f"worktrees need a git repository: {error}", "git init") from None
    return found, {key: said[n] for key in found.all() if (n := f"worktree_{key}") in said}


def write_needs(wanted: Mapping[str, Any]) -> None:
    """Write these settings of ``[worktree]``; raise ``CommandError``."""
    folder, place, _ = _here()
    _write(folder, place, {f"worktree_{key}": text for key, text in wanted.items()})


def _here() -> tuple[Path, Path, Mapping[str, Any]]:
    """Return the project's folder, its settings file or the one to be made, and what that says."""
    project = project_here()
    file = find_file(Path.cwd())
    folder = project.folder if project else file.parent if file else Path.cwd()
    return folder, file or folder / FILE_NAME, read_file(file)[0] if file else {}


def _write(folder: Path, place: Path, wanted: Mapping[str, Any]) -> None:
    """Add these settings to the file, and trust them."""
    if wanted and place.parent.resolve() != folder.resolve():
        raise CommandError(
            f"{printable(str(place))} is not of this project alone, so nothing is added to it",
            f"write it there yourself, or make a {FILE_NAME} in {folder}",
        )
    for key, text in reversed(list(wanted.items())):  # The last one that is added comes first.
        set_key(place, key, text)
    if wanted:
        trust_settings(*wanted)


def trust_settings(*keys: str) -> None:
    """Trust these settings, which this process has written; none: only register the folder."""
    from beads_workers.cli.trust import trust_here

    trust_here(lambda line: any(line.text.startswith(f"{each} = ") for each in keys))
