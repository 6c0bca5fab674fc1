"""``list`` and ``show`` in a project of bd: what bd says of its issues."""

from __future__ import annotations

import json
import sys

import pytest

from beads_workers.cli.app import main
from tests.support.bd import BdProject


def test_issues_of_bd_are_listed_and_shown_as_bd_has_them(
    project: BdProject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def typed(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["beads-workers", *words])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        assert not end.value.code, said.err
        return said.out

    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project.folder)
    made = project.bd("create", "one thing", "-d", "long text", "-p", "1", "--json")
    issue = json.loads(made)["id"]
    assert typed("list").split() == [issue, "P1", "open", "one", "thing"]
    shown = json.loads(typed("show", issue, "--json"))
    assert (shown["id"], shown["description"], shown["priority"]) == (issue, "long text", 1)
